//! What holds of any bytes that a host or a device of the block protocol may send, for fuzzing
//! and for the test of every day (`tests/corpus.rs`).

#[path = "../../codec/fuzz/any.rs"]
pub mod any;

use any::Seen;
use siftfs_wire::BlockProtocol;

/// Any bytes are messages of either side.
pub fn any_messages(bytes: &[u8]) -> Seen {
    any::any_message::<BlockProtocol>(bytes, |_, _| false)
}
