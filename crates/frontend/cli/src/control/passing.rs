//! A descriptor on the way to another process: behind a message, with one byte of its own.

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The byte that it comes with.
const MARK: u8 = b'D';

/// Sends a descriptor.
///
/// # Errors
/// The other side has gone.
pub fn send(to: impl AsFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(to, &[IoSlice::new(&[MARK])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the descriptor that was sent.
///
/// # Errors
/// The other side has gone, or sent something else.
pub fn receive(from: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let got = loop {
        match recvmsg(
            &from,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let found = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    match found {
        Some(descriptor) if byte == [MARK] => Ok(descriptor),
        _ if got.bytes == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::other("no descriptor came")),
    }
}

#[cfg(test)]
#[path = "passing_tests.rs"]
mod tests;
