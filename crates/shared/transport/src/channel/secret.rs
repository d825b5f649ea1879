//! TLS over a socket. Both directions share the state of TLS, so that a thread that sends and one
//! that receives take turns in it, and none of them waits for the peer there.

use crate::channel::Channel;
use crate::channel::socket::Socket;
use rustix::fd::{AsFd, BorrowedFd};
use rustls::Connection;
use siftfs_codec::frame::Took;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Bytes that are encrypted and have not left, at most.
const UNSENT: usize = 256 << 10;

pub(crate) struct Secret {
    socket: Socket,
    tls: Mutex<Connection>,
}

impl Secret {
    /// A connection whose handshake is over.
    pub fn new(socket: Socket, mut tls: Connection) -> Self {
        assert!(!tls.is_handshaking(), "whose it is is known");
        tls.set_buffer_limit(Some(UNSENT));
        Self { socket, tls: Mutex::new(tls) }
    }

    fn tls(&self) -> MutexGuard<'_, Connection> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what is encrypted, as far as it fits now; whether that was all.
    fn push(&self, tls: &mut Connection) -> io::Result<bool> {
        while tls.wants_write() {
            match tls.write_tls(&mut &self.socket) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Decrypts what the socket has now.
    fn pull(&self, tls: &mut Connection) -> io::Result<Took> {
        match tls.read_tls(&mut &self.socket) {
            Ok(0) => return Ok(Took::End),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Took::Nothing),
            Err(e) => return Err(e),
        }
        let processed = tls.process_new_packets();
        // What TLS has to say for itself; what does not fit leaves with the next message.
        let sent = self.push(tls);
        processed.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        sent.map(|_| Took::Bytes(0))
    }
}

/// Takes decrypted bytes that are there already.
fn take(tls: &mut Connection, into: &mut [IoSliceMut<'_>]) -> io::Result<Took> {
    let mut taken = 0;
    for slice in into.iter_mut().filter(|slice| !slice.is_empty()) {
        match tls.reader().read(slice) {
            Ok(0) => return Ok(if taken > 0 { Took::Bytes(taken) } else { Took::End }),
            Ok(n) if n < slice.len() => return Ok(Took::Bytes(taken + n)),
            Ok(n) => taken += n,
            Err(e) if taken > 0 || e.kind() == ErrorKind::WouldBlock => break,
            // It ended without saying so in TLS; the protocol above judges that.
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(Took::End),
            Err(e) => return Err(e),
        }
    }
    Ok(if taken > 0 { Took::Bytes(taken) } else { Took::Nothing })
}

impl Channel for Secret {
    fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<Took> {
        let mut tls = self.tls();
        // A part of a record gives no bytes while the rest of it may be there already, and a
        // sleeper that is woken by new events alone would never read that rest. TLS bounds how
        // many records without bytes follow each other.
        loop {
            match take(&mut tls, into)? {
                Took::Nothing => {}
                found => return Ok(found),
            }
            match self.pull(&mut tls)? {
                Took::Bytes(_) => {}
                other => return Ok(other),
            }
        }
    }

    fn write(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut tls = self.tls();
        self.push(&mut tls)?;
        let taken = tls.writer().write_vectored(from)?;
        self.push(&mut tls)?;
        Ok(taken)
    }

    fn flush(&self) -> io::Result<bool> {
        self.push(&mut self.tls())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.descriptor()
    }

    /// False while bytes are there that are decrypted already: no event tells of them.
    fn arm(&self) -> io::Result<bool> {
        let state = self.tls().process_new_packets();
        let state = state.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        Ok(state.plaintext_bytes_to_read() == 0)
    }

    fn wait_readable(&self, timeout: Duration) -> io::Result<()> {
        self.socket.wait_readable(timeout)
    }

    fn wait_writable(&self, timeout: Duration) -> io::Result<()> {
        self.socket.wait_writable(timeout)
    }

    fn has_room(&self) -> bool {
        let free = match self.tls.try_lock() {
            Ok(tls) => !tls.wants_write(),
            Err(TryLockError::Poisoned(e)) => !e.into_inner().wants_write(),
            Err(TryLockError::WouldBlock) => false,
        };
        free && self.socket.has_room()
    }

    fn cut(&self) {
        self.socket.cut();
    }

    fn end(&self, patience: Duration) {
        let mut tls = self.tls();
        tls.send_close_notify();
        // A peer that is gone, or takes nothing, does not learn of it.
        let _ = self.push(&mut tls);
        drop(tls);
        self.socket.end(patience);
    }
}

impl AsFd for Secret {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket as TLS wants it.
impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match Channel::read(*self, &mut [IoSliceMut::new(into)])? {
            Took::Bytes(n) => Ok(n),
            Took::Nothing => Err(ErrorKind::WouldBlock.into()),
            Took::End => Ok(0),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(from)])
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match Channel::write(*self, from)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            n => Ok(n),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
