//! Patterns of several operations that real programs make, as steps that name things by name.

use crate::model::Model;
use crate::rng::{Rng, pattern};
use siftfs_base::InodeNr;
use siftfs_proto::{Allocate, RenameMode, Request, SetAttr};

/// One step of a pattern; what a name leads to is looked up when its turn comes.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create(Vec<u8>),
    /// Bytes `[offset, offset + len)`.
    Write(Vec<u8>, u64, u64),
    Append(Vec<u8>, u64),
    Truncate(Vec<u8>, u64),
    Fsync(Vec<u8>, bool),
    Allocate(Vec<u8>, Allocate, u64, u64),
    Rename(Vec<u8>, Vec<u8>),
    Unlink(Vec<u8>),
    FsyncDir,
}

/// A pattern under way in one directory. What is open by handle keeps its inode by `held`.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    dir: InodeNr,
    steps: Vec<Step>,
}

impl Script {
    /// A pattern on names `a` and `b` of directory `dir`.
    pub(crate) fn choose(rng: &mut Rng, dir: InodeNr, a: &[u8], b: &[u8]) -> Self {
        let (a, b) = (a.to_vec(), b.to_vec());
        let len = rng.between(1, 9000);
        let data = rng.chance(50);
        let mut steps = match rng.below(7) {
            // A new version of a file, as editors and databases write it.
            0 => vec![
                Step::Create(a.clone()),
                Step::Write(a.clone(), 0, len),
                Step::Fsync(a.clone(), data),
                Step::Rename(a, b),
                Step::FsyncDir,
            ],
            // The same by a program that trusts rename to order the data.
            1 => vec![
                Step::Create(a.clone()),
                Step::Write(a.clone(), 0, len),
                Step::Rename(a, b.clone()),
                Step::Fsync(b, data),
            ],
            // A log: appends, each made durable.
            2 => vec![
                Step::Create(a.clone()),
                Step::Append(a.clone(), 512),
                Step::Fsync(a.clone(), true),
                Step::Append(a.clone(), len),
                Step::Fsync(a.clone(), true),
                Step::Append(a.clone(), 100),
                Step::Fsync(a, data),
            ],
            // A journal that is made, used, emptied and removed.
            3 => vec![
                Step::Create(a.clone()),
                Step::Write(a.clone(), 0, len),
                Step::Fsync(a.clone(), data),
                Step::Write(b.clone(), 4096, len),
                Step::Fsync(b, true),
                Step::Truncate(a.clone(), 0),
                Step::Fsync(a.clone(), data),
                Step::Unlink(a),
            ],
            // Shrinking and growing again must not bring old bytes back.
            4 => vec![
                Step::Write(a.clone(), 0, len),
                Step::Fsync(a.clone(), data),
                Step::Truncate(a.clone(), len / 3),
                Step::Truncate(a.clone(), len + 3000),
                Step::Write(a.clone(), len + 100, 50),
                Step::Fsync(a, data),
            ],
            // Preallocated space, written in part.
            5 => vec![
                Step::Create(a.clone()),
                Step::Allocate(a.clone(), Allocate::KeepSize, 0, 40_000),
                Step::Write(a.clone(), 5000, len),
                Step::Fsync(a.clone(), data),
                Step::Allocate(a.clone(), Allocate::PunchHole, 4096, 4096),
                Step::Fsync(a, data),
            ],
            // Two files trade places.
            _ => vec![
                Step::Create(a.clone()),
                Step::Write(a.clone(), 0, len),
                Step::Fsync(a.clone(), data),
                Step::Rename(b.clone(), a),
                Step::FsyncDir,
                Step::Append(b, 10),
            ],
        };
        steps.reverse();
        Self { dir, steps }
    }

    /// The next request; `None` when the pattern is done. Steps whose name is not there (any
    /// more) are left out.
    pub(crate) fn next(&mut self, model: &Model, id: u64) -> Option<Request> {
        while let Some(step) = self.steps.pop() {
            if let Some(req) = self.request(model, &step, id) {
                return Some(req);
            }
        }
        None
    }

    fn request(&self, model: &Model, step: &Step, id: u64) -> Option<Request> {
        let file = |name: &[u8]| -> Option<InodeNr> {
            let ino = model.child(self.dir, name)?;
            (model.node(ino)?.kind == siftfs_proto::FileKind::Regular).then_some(ino)
        };
        let parent = self.dir;
        model.node(parent).filter(|d| d.nlink > 0)?;
        Some(match step {
            Step::Create(name) => {
                if model.child(parent, name).is_some() {
                    return None;
                }
                Request::Create { parent, name: name.clone(), perm: 0o644 }
            }
            Step::Write(name, offset, len) => {
                let data = pattern(id, *offset, *len);
                let (ino, offset) = (file(name)?, *offset);
                Request::Write { ino, offset, data: data.into(), append: false, kill_priv: false }
            }
            Step::Append(name, len) => {
                let ino = file(name)?;
                let data = pattern(id, model.node(ino)?.content.size(), *len);
                Request::Write { ino, offset: 0, data: data.into(), append: true, kill_priv: false }
            }
            Step::Truncate(name, size) => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                Request::SetAttr { ino: file(name)?, set }
            }
            Step::Fsync(name, datasync) => Request::Fsync { ino: file(name)?, datasync: *datasync },
            Step::Allocate(name, mode, offset, len) => {
                Request::Allocate { ino: file(name)?, mode: *mode, offset: *offset, len: *len }
            }
            Step::Rename(name, new_name) => {
                file(name)?;
                if model.child(parent, new_name).is_some() {
                    file(new_name)?;
                }
                Request::Rename {
                    parent,
                    name: name.clone(),
                    new_parent: parent,
                    new_name: new_name.clone(),
                    mode: RenameMode::Replace,
                }
            }
            Step::Unlink(name) => {
                file(name)?;
                Request::Unlink { parent, name: name.clone() }
            }
            Step::FsyncDir => Request::Fsync { ino: parent, datasync: false },
        })
    }
}
