//! Which ends of a file a session's kernel may still believe in (rule R50).
//!
//! A kernel takes the offset of an O_APPEND write from the size that it knows, and only then sends
//! the write. If the file became longer or shorter by other hands before, the bytes belong at the
//! end all the same.

use crate::state::tree::references::SessionId;
use ahash::HashMap;
use siftfs_base::InodeNr;

/// The ends that differ from the file's own, of which the session's kernel may know one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Believed {
    /// The smallest and the largest one.
    ends: (u64, u64),
    /// Where the kernel's next write begins if it continues the last one that was moved: a large
    /// write comes in pieces.
    next: Option<u64>,
}

/// The files whose size changed without a session's kernel, until that kernel has appended at the
/// true end or the session forgets the file.
#[derive(Default)]
pub struct Ends(HashMap<(SessionId, InodeNr), Believed>);

impl Ends {
    /// The file's size was `before`, and the session's kernel has not made it another.
    pub fn changed(&mut self, session: SessionId, ino: InodeNr, before: u64) {
        let new = Believed { ends: (before, before), next: None };
        let believed = self.0.entry((session, ino)).or_insert(new);
        believed.ends = (believed.ends.0.min(before), believed.ends.1.max(before));
    }

    /// The session's kernel knew the file before the session was there, so it may believe in any
    /// end.
    pub fn unknown(&mut self, session: SessionId, ino: InodeNr) {
        self.0.insert((session, ino), Believed { ends: (0, u64::MAX), next: None });
    }

    /// Where an O_APPEND write of the session's kernel goes that comes with `offset`, in a file of
    /// `size` bytes.
    pub fn place(&mut self, session: SessionId, ino: InodeNr, offset: u64, size: u64) -> u64 {
        let key = (session, ino);
        if offset == size {
            // A write that took an older end has ended: the kernel appends one after the other.
            self.0.remove(&key);
            return offset;
        }
        match self.0.get(&key) {
            Some(believed) if believed.is_an_end(offset) => size,
            _ => offset,
        }
    }

    /// A write of the session's kernel with `offset` and `len` bytes was put at the end `at`. While
    /// it was on its way the kernel may have been told of that end, and believes in it still.
    pub fn moved(&mut self, session: SessionId, ino: InodeNr, (offset, len): (u64, u64), at: u64) {
        if let Some(believed) = self.0.get_mut(&(session, ino)) {
            believed.next = Some(offset.saturating_add(len));
            believed.ends = (believed.ends.0.min(at), believed.ends.1.max(at));
        }
    }

    /// The session has forgotten the inode.
    pub fn forget(&mut self, session: SessionId, ino: InodeNr) {
        if !self.0.is_empty() {
            self.0.remove(&(session, ino));
        }
    }

    /// The session has ended.
    pub fn end(&mut self, session: SessionId) {
        self.0.retain(|(own, _), _| *own != session);
    }
}

impl Believed {
    fn is_an_end(&self, offset: u64) -> bool {
        (self.ends.0..=self.ends.1).contains(&offset) || self.next == Some(offset)
    }
}

#[cfg(test)]
#[path = "ends_tests.rs"]
mod tests;
