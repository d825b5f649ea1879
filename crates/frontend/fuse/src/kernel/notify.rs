//! Messages to the kernel that answer no request.

use super::abi::{self, OutHeader};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The connection's writing end, for notifications.
#[derive(Clone)]
pub(crate) struct Notifier {
    device: Arc<OwnedFd>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<OwnedFd>) -> Self {
        Self { device }
    }

    /// The kernel drops its pages of `[offset, offset + len)`, or of everything from `offset` on if
    /// `len` is 0, and the attributes it knows. It waits for pages that are being read, and writes
    /// dirty ones first; for both, another thread has to answer requests. Returns when that is
    /// done. While it waits the connection cannot end with the process: `invalidator` has a better
    /// way.
    ///
    /// # Errors
    /// `ENOENT` if the kernel does not know the node.
    pub(crate) fn drop_pages(&self, node: u64, offset: u64, len: u64) -> io::Result<()> {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.invalidate(abi::InvalInodeOut { node, offset: signed(offset), len: signed(len) })
    }

    /// Has the kernel ask for an inode's attributes before it uses them again; its pages stay. The
    /// kernel does not wait for that, except for an inode that it is just freeing.
    ///
    /// # Errors
    /// `ENOENT` if the kernel does not know the node.
    pub(crate) fn forget_attributes(&self, node: u64) -> io::Result<()> {
        // Pages from a negative offset on: none.
        self.invalidate(abi::InvalInodeOut { node, offset: -1, len: 0 })
    }

    /// Has the kernel look a name up again before it uses it, and read the directory again. It
    /// waits until no other operation changes that directory; they need threads that answer them.
    ///
    /// # Errors
    /// `ENOENT` if the kernel does not know the directory or the name.
    pub(crate) fn forget_name(&self, dir: u64, name: &[u8]) -> io::Result<()> {
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        let body = abi::InvalEntryOut { parent: dir, length, flags: 0 };
        let len = size_of::<OutHeader>() + size_of::<abi::InvalEntryOut>() + name.len() + 1;
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let code = abi::FUSE_NOTIFY_INVAL_ENTRY.cast_signed();
        let header = OutHeader { len, error: code, unique: 0 };
        let parts = [header.as_bytes(), body.as_bytes(), name, &[0]].map(IoSlice::new);
        rustix::io::retry_on_intr(|| rustix::io::writev(&*self.device, &parts))?;
        Ok(())
    }

    fn invalidate(&self, body: abi::InvalInodeOut) -> io::Result<()> {
        let len = size_of::<OutHeader>() + size_of::<abi::InvalInodeOut>();
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let code = abi::FUSE_NOTIFY_INVAL_INODE.cast_signed();
        let header = OutHeader { len, error: code, unique: 0 };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())];
        rustix::io::retry_on_intr(|| rustix::io::writev(&*self.device, &parts))?;
        Ok(())
    }
}
