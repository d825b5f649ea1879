//! Which open files a request is about, as far as the order within a session goes.

use siftfs_calls::data_of;
use siftfs_proto::compound::{FileArg, Step};
use siftfs_proto::{Request, Target};
use std::collections::BTreeSet;

/// Files that a command names one by one; one that names more is about all of them.
const MOST: usize = 8;

/// Bytes of data in a command that is sure to be brief.
const BRIEF: u64 = 64 << 10;

/// Is the request sure to take a processor for a moment only? It reads or writes little, or looks
/// at one file.
pub(super) fn is_brief(request: &Request) -> bool {
    let kind = matches!(
        request,
        Request::Read { .. }
            | Request::Write { .. }
            | Request::Append { .. }
            | Request::GetAttr { .. }
            | Request::Lookup { .. }
            | Request::Open { truncate: false, .. }
            | Request::Release { .. }
            | Request::Forget { .. }
    );
    kind && data_of(request) <= BRIEF
}

/// A file in a request, in a form that has an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum File {
    /// A handle's number.
    Open(u64),
    /// An inode's.
    Inode(u64),
}

impl From<&Target> for File {
    fn from(target: &Target) -> Self {
        match target {
            Target::Open(handle) => Self::Open(handle.0),
            Target::Inode(ino) => Self::Inode(u64::from(*ino)),
        }
    }
}

/// What a request is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Touches {
    /// Nothing that is ordered.
    #[default]
    Nothing,
    /// It reads this file, or makes it durable: together with others that do.
    Reads(File),
    /// It changes these, one at least.
    Changes(BTreeSet<File>),
    /// It may change any.
    All,
}

impl Touches {
    /// Of a request.
    pub fn of(request: &Request) -> Self {
        match request {
            Request::Read { file, .. } | Request::Fsync { file, .. } => Self::Reads(file.into()),
            Request::Write { file, .. }
            | Request::Append { file, .. }
            | Request::WriteBack { file, .. }
            | Request::SetAttr { file, .. }
            | Request::Allocate { file, .. }
            | Request::Stage { file, .. } => Self::Changes([file.into()].into()),
            Request::Compound(compound) => Self::of_steps(&compound.steps),
            _ => Self::Nothing,
        }
    }

    fn of_steps(steps: &[Step]) -> Self {
        let mut files = BTreeSet::new();
        for file in steps.iter().filter_map(open_file) {
            files.insert(file);
            if files.len() > MOST {
                return Self::All;
            }
        }
        if files.is_empty() { Self::Nothing } else { Self::Changes(files) }
    }

    /// Does it change a file?
    pub fn changes(&self) -> bool {
        matches!(self, Self::Changes(_) | Self::All)
    }

    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = File> + '_ {
        let (one, many) = match self {
            Self::Reads(file) => (Some(*file), None),
            Self::Changes(files) => (None, Some(files)),
            Self::Nothing | Self::All => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }
}

/// The file of a step, if the session had it open before.
fn open_file(step: &Step) -> Option<File> {
    let file = match step {
        Step::Read { file, .. }
        | Step::Write { file, .. }
        | Step::Append { file, .. }
        | Step::Patch { file, .. }
        | Step::Add { file, .. }
        | Step::CompareAndSet { file, .. }
        | Step::Link { file, .. }
        | Step::SetSize { file, .. }
        | Step::SetAttributes { file, .. }
        | Step::Close { file } => file,
        Step::Lookup { .. }
        | Step::Open { .. }
        | Step::Create { .. }
        | Step::Checksum { .. }
        | Step::Compress { .. }
        | Step::Decompress { .. }
        | Step::Join { .. }
        | Step::Rename { .. }
        | Step::Unlink { .. } => return None,
    };
    match file {
        FileArg::Open(handle) => Some(File::Open(handle.0)),
        FileArg::Step(_) => None,
    }
}

#[cfg(test)]
#[path = "touches_tests.rs"]
mod tests;
