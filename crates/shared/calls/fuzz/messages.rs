//! What holds of any bytes that a client or a server of the file protocol may send, for fuzzing
//! and for the test of every day (`tests/corpus.rs`).

#[path = "../../codec/fuzz/any.rs"]
pub mod any;

use any::{Seen, Way};
use siftfs_calls::FileProtocol;

/// Kinds of messages from a server that are answers, and the reply with the status document.
const ANSWER: u8 = 3;
const OWING: u8 = 7;
const STATUS: u8 = 25;

/// Any bytes are messages of either side.
pub fn any_messages(bytes: &[u8]) -> Seen {
    any::any_message::<FileProtocol>(bytes, has_forms)
}

/// The status is a document, of which other bytes may say the same.
pub fn has_forms(way: Way, head: &[u8]) -> bool {
    let answers = matches!(head.first(), Some(&(ANSWER | OWING)));
    way == Way::FromServer && answers && head.get(14) == Some(&STATUS)
}
