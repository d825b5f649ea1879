//! Patterns of several operations that real programs make, as steps that name things by name.

use crate::model::Model;
use crate::rng::{Rng, pattern};
use siftfs_base::InodeNr;
use siftfs_proto::{Allocate, RenameMode, Request, SetAttr};

/// One step of a pattern; a name is resolved when its turn comes.
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
    SyncAll,
    MakeDir(Vec<u8>),
    /// Of whatever kind it is.
    Move(Vec<u8>, Vec<u8>),
    Link(Vec<u8>, Vec<u8>),
    ChmodDir(u16),
    /// A file without a name, in this directory of the pattern's own.
    Unnamed(Vec<u8>),
    /// Of the file without a name that was made last.
    WriteUnnamed(u64, u64),
    FsyncUnnamed(bool),
    LinkUnnamed(Vec<u8>),
}

/// A pattern under way in one directory.
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
        if rng.chance(30) {
            return Self { dir, steps: full_commit(rng, a, b, data) };
        }
        let mut steps = usual(rng.below(7), len, a, b, data);
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

    /// The file without a name that was made last and has none yet.
    fn unnamed(&self, model: &Model) -> Option<InodeNr> {
        let nodes = model.nodes().filter(|(_, n)| n.linkable && n.nlink == 0 && n.opens > 0);
        nodes.map(|(ino, _)| ino).max()
    }

    fn request(&self, model: &Model, step: &Step, id: u64) -> Option<Request> {
        let file = |name: &[u8]| self.file(model, name);
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
                Request::write(ino, offset, data)
            }
            Step::Append(name, len) => {
                let ino = file(name)?;
                let data = pattern(id, model.node(ino)?.content.size(), *len);
                Request::Write {
                    file: ino.into(),
                    offset: 0,
                    data: data.into(),
                    append: true,
                    kill_priv: false,
                    times: true,
                }
            }
            Step::Truncate(name, size) => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                Request::SetAttr { file: (file(name)?).into(), set, times: true }
            }
            Step::Fsync(name, datasync) => {
                Request::Fsync { file: (file(name)?).into(), datasync: *datasync }
            }
            Step::Allocate(name, mode, offset, len) => Request::Allocate {
                file: (file(name)?).into(),
                mode: *mode,
                offset: *offset,
                len: *len,
                times: true,
            },
            other => self.request_for_names(model, other, id)?,
        })
    }

    /// A request of a step that is about names.
    fn request_for_names(&self, model: &Model, step: &Step, id: u64) -> Option<Request> {
        let parent = self.dir;
        Some(match step {
            Step::Rename(name, new_name) => {
                self.file(model, name)?;
                if model.child(parent, new_name).is_some() {
                    self.file(model, new_name)?;
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
                self.file(model, name)?;
                Request::Unlink { parent, name: name.clone() }
            }
            Step::FsyncDir => Request::Fsync { file: parent.into(), datasync: false },
            Step::SyncAll => Request::SyncAll,
            Step::MakeDir(name) => {
                if model.child(parent, name).is_some() {
                    return None;
                }
                Request::MakeDir { parent, name: name.clone(), perm: 0o755 }
            }
            Step::Move(name, new_name) => {
                model.child(parent, name)?;
                if model.child(parent, new_name).is_some() {
                    return None;
                }
                Request::Rename {
                    parent,
                    name: name.clone(),
                    new_parent: parent,
                    new_name: new_name.clone(),
                    mode: RenameMode::Replace,
                }
            }
            Step::Link(name, new_name) => {
                Request::Link { ino: self.file(model, name)?, parent, name: new_name.clone() }
            }
            Step::ChmodDir(perm) => {
                let set = SetAttr { perm: Some(*perm), ..SetAttr::default() };
                Request::SetAttr { file: parent.into(), set, times: true }
            }
            other => self.request_without_a_name(model, other, id)?,
        })
    }

    /// A request of a step that is about the file without a name.
    fn request_without_a_name(&self, model: &Model, step: &Step, id: u64) -> Option<Request> {
        let parent = self.dir;
        Some(match step {
            Step::Unnamed(name) => {
                let below = model.child(parent, name);
                let is_dir = |i: &InodeNr| model.node(*i).is_some_and(|n| n.is_dir());
                let parent = below.filter(is_dir).unwrap_or(parent);
                Request::TmpFile { parent, perm: 0o600, exclusive: false }
            }
            Step::WriteUnnamed(offset, len) => {
                let (ino, offset) = (self.unnamed(model)?, *offset);
                let data = pattern(id, offset, *len);
                Request::write(ino, offset, data)
            }
            Step::FsyncUnnamed(datasync) => {
                Request::Fsync { file: (self.unnamed(model)?).into(), datasync: *datasync }
            }
            Step::LinkUnnamed(name) => {
                if model.child(parent, name).is_some() {
                    return None;
                }
                Request::Link { ino: self.unnamed(model)?, parent, name: name.clone() }
            }
            other => unreachable!("a step about names or data: {other:?}"),
        })
    }

    /// The regular file of this name.
    fn file(&self, model: &Model, name: &[u8]) -> Option<InodeNr> {
        let ino = model.child(self.dir, name)?;
        (model.node(ino)?.kind == siftfs_proto::FileKind::Regular).then_some(ino)
    }
}

/// What programs usually do with a file or two, in seven kinds.
fn usual(kind: u64, len: u64, a: Vec<u8>, b: Vec<u8>, data: bool) -> Vec<Step> {
    match kind {
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
    }
}

/// Patterns whose fsync no single record carries, each for another reason; half of them of a file
/// without a name, which gets one later. The last step first.
fn full_commit(rng: &mut Rng, a: Vec<u8>, b: Vec<u8>, data: bool) -> Vec<Step> {
    let (here, long) = (b"no such directory".to_vec(), rng.between(100_000, 250_000));
    let below = [b"m-", &a[..a.len().min(200)]].concat();
    let moved = [b"n-", &b[..b.len().min(200)]].concat();
    let mut steps = match rng.below(4) {
        // More data than a record carries.
        0 => vec![Step::Unnamed(here), Step::WriteUnnamed(0, long)],
        // Below a directory whose move is pending.
        1 => vec![
            Step::MakeDir(below.clone()),
            Step::SyncAll,
            Step::Move(below, moved.clone()),
            Step::Unnamed(moved),
            Step::WriteUnnamed(0, long / 100),
        ],
        // A directory with more new names than a record carries; and one of the files, unnamed.
        2 => {
            let name = |i: u64| [&a[..a.len().min(200)], format!("-{i}").as_bytes()].concat();
            let mut steps: Vec<Step> =
                (0..rng.between(10, 40)).map(|i| Step::Create(name(i))).collect();
            steps.extend([Step::FsyncDir, Step::Unnamed(here), Step::WriteUnnamed(0, long / 50)]);
            steps
        }
        // A file of two names, so that it is unknown what is above it, and a right that changed.
        _ => vec![
            Step::Create(a.clone()),
            Step::Link(a.clone(), b.clone()),
            Step::SyncAll,
            Step::ChmodDir(0o700),
            Step::Write(a.clone(), 0, long / 60),
            Step::Fsync(a.clone(), data),
            Step::ChmodDir(0o755),
            Step::Unnamed(here),
            Step::WriteUnnamed(4096, long / 60),
        ],
    };
    let before = if rng.chance(20) { Step::SyncAll } else { Step::FsyncUnnamed(data) };
    if rng.chance(80) {
        steps.push(before);
    }
    if rng.chance(30) {
        steps.extend([Step::WriteUnnamed(100, 3000), Step::FsyncUnnamed(data)]);
    }
    steps.push(Step::LinkUnnamed(b.clone()));
    if rng.chance(70) {
        steps.push(Step::FsyncDir);
    }
    if rng.chance(25) {
        steps.extend([Step::Unlink(b), Step::LinkUnnamed(a)]);
    }
    steps.reverse();
    steps
}
