//! Operations of a generated sequence.

use crate::model::Fresh;
use siftfs_base::InodeNr;
use siftfs_proto::compound::{Compound, Wanted};
use siftfs_proto::{Credentials, PublishSource, Request};
use std::fmt;

/// First inode number that a sequence's operations create in the model: the operation with
/// number `n` creates `FIRST_INO + n`. Below lie the root and what mkfs made.
pub const FIRST_INO: InodeNr = 1000;

/// One step. Inode numbers and handles in it are the model's.
#[derive(Clone)]
pub struct Op {
    /// Number in the sequence; it numbers what the operation creates, too.
    pub id: u32,
    /// What is done.
    pub action: Action,
}

/// What one step does.
#[derive(Clone, PartialEq, Eq)]
pub enum Action {
    /// A request of the file protocol.
    Call(Credentials, Request),
    /// A background journal transaction now; `push` takes all unsynced data along.
    Commit {
        /// Push everything.
        push: bool,
    },
    /// A checkpoint of everything journaled.
    Checkpoint,
    /// The clock moves on by this many nanoseconds.
    Advance(u64),
}

impl Op {
    /// Numbers of what this operation creates.
    pub fn fresh(&self) -> Fresh {
        Fresh { ino: FIRST_INO + self.id, handle: u64::from(self.id) + 1 }
    }

    /// The id of the user that asks; root's for actions that are no request.
    pub fn uid(&self) -> u32 {
        match &self.action {
            Action::Call(cred, _) => cred.uid,
            _ => 0,
        }
    }

    /// The request, if it is one.
    pub fn request(&self) -> Option<&Request> {
        match &self.action {
            Action::Call(_, req) => Some(req),
            _ => None,
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} ", self.id)?;
        match &self.action {
            Action::Commit { push } => write!(f, "commit push={push}"),
            Action::Checkpoint => write!(f, "checkpoint"),
            Action::Advance(ns) => write!(f, "advance {} ms", ns / 1_000_000),
            Action::Call(cred, req) => {
                if cred.uid != 0 {
                    write!(f, "(uid {}) ", cred.uid)?;
                }
                show_request(f, req)
            }
        }
    }
}

/// Names readable, data as its length.
fn show_request(f: &mut fmt::Formatter<'_>, req: &Request) -> fmt::Result {
    let text = |name: &[u8]| {
        let short = String::from_utf8_lossy(name.get(..24).unwrap_or(name)).into_owned();
        if name.len() > 24 { format!("{short}...({} bytes)", name.len()) } else { short }
    };
    match req {
        Request::Write { file, offset, data, append, kill_priv, .. } => {
            let (len, kill) = (data.len(), if *kill_priv { " kill_priv" } else { "" });
            if *append {
                write!(f, "append {file:?} {len} bytes{kill}")
            } else {
                write!(f, "write {file:?} [{offset}, {}){kill}", offset + len as u64)
            }
        }
        Request::WriteBack { file, offset, data, times } => {
            let (end, times) = (offset + data.len() as u64, if *times { " times" } else { "" });
            write!(f, "write pages {file:?} [{offset}, {end}){times}")
        }
        Request::Create { parent, name, perm } => {
            write!(f, "create {parent}/{} {perm:o}", text(name))
        }
        Request::MakeDir { parent, name, perm } => {
            write!(f, "mkdir {parent}/{} {perm:o}", text(name))
        }
        Request::MakeNode { parent, name, kind, perm, .. } => {
            write!(f, "mknod {parent}/{} {kind:?} {perm:o}", text(name))
        }
        Request::Symlink { parent, name, target } => {
            write!(f, "symlink {parent}/{} -> {} bytes", text(name), target.len())
        }
        Request::TmpFile { parent, perm, .. } => write!(f, "unnamed file in {parent} {perm:o}"),
        Request::Link { ino, parent, name } => write!(f, "link {ino} as {parent}/{}", text(name)),
        Request::Unlink { parent, name } => write!(f, "unlink {parent}/{}", text(name)),
        Request::RemoveDir { parent, name } => write!(f, "rmdir {parent}/{}", text(name)),
        Request::Rename { parent, name, new_parent, new_name, mode } => {
            write!(f, "rename {parent}/{} to {new_parent}/{}", text(name), text(new_name))?;
            write!(f, " {mode:?}")
        }
        Request::SetXattr { file, name, value, mode, .. } => {
            write!(f, "setxattr {file:?} {} {} bytes {mode:?}", text(name), value.len())
        }
        Request::RemoveXattr { file, name, .. } => write!(f, "rmxattr {file:?} {}", text(name)),
        Request::Publish { base, entries, level, .. } => {
            write!(f, "publish in {base} {level:?}")?;
            entries.iter().try_for_each(|entry| {
                match &entry.source {
                    PublishSource::Path(path) => write!(f, ", {}", text(path))?,
                    PublishSource::Open(handle) => write!(f, ", {handle:?}")?,
                }
                write!(f, " as {}{}", text(&entry.to), if entry.replace { "" } else { " (new)" })
            })
        }
        Request::Compound(compound) => {
            let Compound { base, steps, level, wanted, .. } = &**compound;
            write!(f, "compound in {base} {level:?}")?;
            if *wanted != Wanted::All {
                write!(f, " {wanted:?}")?;
            }
            (0..).zip(steps).try_for_each(|(nr, step): (usize, _)| {
                let long = format!("{step:?}");
                write!(f, "\n      {nr}: {}", long.get(..160).unwrap_or(&long))
            })
        }
        Request::SectionWrite { section, offset, data } => {
            write!(f, "write in section {} [{offset}, {})", section.0, offset + data.len() as u64)
        }
        Request::Lookup { parent, name } => write!(f, "lookup {parent}/{}", text(name)),
        other => write!(f, "{other:?}"),
    }
}
