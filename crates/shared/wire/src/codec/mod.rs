//! Bytes of the block protocol, for transports that leave the process.
//!
//! A message is a *head*, its fields in order, little-endian and without gaps, and its *blocks*,
//! which the codec passes on by reference: neither encoding nor decoding copies them. A [`frame`]
//! carries one message with checksums and a sequence number.
//!
//! Whatever is decoded is hostile: every count is checked against what is there before anything
//! is allocated for it, every tag and flag has to be a known one, and no run or tag reaches past
//! the end of 64 bits. What a message means is for its receiver to check.
//!
//! The lists of fields in [`messages`](self) are the format. A field is added there, at the end of
//! its list, and in the type; the compiler finds a list that misses one.

mod error;
mod field;
pub mod frame;
mod messages;

use field::{Field, Reader, Writer};
use siftfs_base::{Result, SharedBlock};

/// A message as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The fields.
    pub head: Vec<u8>,
    /// The blocks that the fields speak of, in order.
    pub blocks: Vec<SharedBlock>,
}

/// What can be encoded and decoded: [`crate::ToService`] and [`crate::FromService`].
pub trait Message: Sized + Send + 'static {
    /// The message as bytes; takes references to its blocks.
    fn encode(&self) -> Encoded;

    /// The message that `head` and `blocks` are.
    ///
    /// # Errors
    /// [`siftfs_base::Error::Corrupt`] if they are not exactly one message.
    fn decode(head: &[u8], blocks: Vec<SharedBlock>) -> Result<Self>;
}

/// How many bytes of `text` are whole characters and at most `most`.
pub fn cut_at(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn encode<T: Field>(message: &T) -> Encoded {
    let mut out = Writer::default();
    message.put(&mut out);
    Encoded { head: out.head, blocks: out.blocks }
}

fn decode<T: Field>(head: &[u8], blocks: Vec<SharedBlock>) -> Result<T> {
    let mut from = Reader { head, blocks: blocks.into_iter() };
    let message = T::get(&mut from)?;
    from.finish()?;
    Ok(message)
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;

#[cfg(test)]
mod samples;
