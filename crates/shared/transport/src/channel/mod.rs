//! What carries a connection's bytes between two processes: a socket, one with TLS over it, or a
//! queue pair of RDMA beside one of the two.

pub(crate) mod rdma;
pub(crate) mod secret;
pub(crate) mod socket;
pub(crate) mod stream;

use crate::Awaited;
use rustix::fd::BorrowedFd;
use siftfs_codec::frame::Took;
use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

/// Bytes in both directions, in order. No call but the two that wait blocks.
pub(crate) trait Channel: Send + Sync + 'static {
    /// Reads what is there now.
    fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<Took>;

    /// Takes what fits now, front to back; 0 if nothing does. What it took may lie on this side
    /// until [`Channel::flush`] has sent it.
    fn write(&self, from: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Sends of what was taken as much as fits now, and says whether that was all.
    fn flush(&self) -> io::Result<bool>;

    /// Can be read, or written, when the two calls that wait would return.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// What one waits for who sleeps with others.
    fn awaited(&self) -> io::Result<Awaited> {
        Ok(Awaited { descriptors: vec![self.descriptor().try_clone_to_owned()?], tells_room: true })
    }

    /// Gets ready for such a sleep: true if nothing is there.
    fn arm(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Something of what was waited for is there.
    fn woken(&self) -> io::Result<()> {
        Ok(())
    }

    /// Sleeps until there is something to read, or may be.
    fn wait_readable(&self, timeout: Duration) -> io::Result<()>;

    /// Sleeps until something can be written.
    fn wait_writable(&self, timeout: Duration) -> io::Result<()>;

    /// Whether a small write would succeed, and leave, at once.
    fn has_room(&self) -> bool;

    /// Ends the connection in both directions; wakes the threads that wait on it, here and there.
    fn cut(&self);

    /// Says that nothing more will be sent; what was sent before arrives. Waits for the peer to end
    /// at most `patience`.
    fn end(&self, patience: Duration);
}
