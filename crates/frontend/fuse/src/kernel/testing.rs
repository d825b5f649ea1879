//! Messages as the kernel sends them, and a connection to send them over, for tests.

use super::abi::InHeader;
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;

/// 32-bit numbers, one behind the other.
pub(crate) fn n32(numbers: &[u32]) -> Vec<u8> {
    numbers.as_bytes().to_vec()
}

/// 64-bit numbers, one behind the other.
pub(crate) fn n64(numbers: &[u64]) -> Vec<u8> {
    numbers.as_bytes().to_vec()
}

/// A message numbered 42 from user 1000.
pub(crate) fn message(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    message_from(1000, 42, opcode, node, body)
}

/// A message.
pub(crate) fn message_from(uid: u32, unique: u64, opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(size_of::<InHeader>() + body.len()).unwrap();
    let (gid, pid, extensions, padding) = (100, 77, 0, 0);
    let header = InHeader { len, opcode, unique, node, uid, gid, pid, extensions, padding };
    [header.as_bytes(), body].concat()
}

/// Two ends of a connection that keeps messages apart, as `/dev/fuse` does.
pub(crate) fn pair() -> (OwnedFd, OwnedFd) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}
