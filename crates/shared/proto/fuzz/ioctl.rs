//! What holds of every argument of an ioctl, for fuzzing and for the test of every day
//! (`tests/ioctl.rs`). A new decoder gets a line in [`any_argument`].

use siftfs_proto::commands::CommitAll;
use siftfs_proto::ioctl::Publish;
use siftfs_proto::ioctl::compound::{Answer, Compound};

/// Longest argument that the kernel hands over: an ioctl's size has 14 bits.
pub const LONGEST: usize = (1 << 14) - 1;

/// Every decoder reads these bytes or refuses them.
pub fn any_argument(bytes: &[u8]) {
    let encode = |publish: &Publish| publish.encode().ok();
    reads_or_refuses(bytes, |bytes| Publish::decode(bytes).ok(), encode);
    let encode = |all: &CommitAll| all.encode().ok();
    reads_or_refuses(bytes, |bytes| CommitAll::decode(bytes).ok(), encode);
    compound(bytes);
    let _ = Answer::decode(bytes, bytes.len());
}

/// Behind the steps there is room for the answer.
fn compound(bytes: &[u8]) {
    let Ok(read) = Compound::decode(bytes) else { return };
    let Ok((_, written)) = read.encode(0) else {
        assert!(bytes.len() > LONGEST, "what was read can be written");
        return;
    };
    let len = written.len().min(bytes.len());
    assert_eq!(written[..len], bytes[..len], "the same argument");
}

/// What is read was written by one argument alone, and the command says its length.
fn reads_or_refuses<T>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Option<(u32, Vec<u8>)>,
) {
    let Some(read) = decode(bytes) else { return };
    let Some((command, written)) = encode(&read) else {
        assert!(bytes.len() > LONGEST, "what was read can be written");
        return;
    };
    assert_eq!(written, bytes, "the same argument");
    assert_eq!((command >> 16 & 0x3FFF) as usize, bytes.len());
}
