//! How messages become bytes, the same for every protocol between two processes.
//!
//! A message is a *head*, its fields in order, little-endian and without gaps, and its *blocks*,
//! which the codec passes on by reference: neither encoding nor decoding copies them. Bulk bytes in
//! a head are copied as one piece. A [`frame`] carries one message with checksums and a sequence
//! number.
//!
//! Whatever is decoded is hostile: every count is checked against what is there before anything
//! is allocated for it, and every tag and flag has to be a known one. What a message means is for
//! its receiver to check.
//!
//! A [`Protocol`] has its own lists of fields, which are its format, in the crate that defines it
//! ([`fields!`], [`variants!`]). A field is added at the end of its list, and in the type; the
//! compiler finds a list that misses one. A type of another crate has a form in bytes per protocol.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod error;
mod field;
pub mod frame;

pub use field::{Field, MAX_TEXT, Reader, Writer};

use siftfs_base::{Result, SharedBlock};

/// A message as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The fields.
    pub head: Vec<u8>,
    /// The blocks that the fields speak of, in order.
    pub blocks: Vec<SharedBlock>,
}

/// One of the two that speak a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// Its number in greetings. No two parties of all protocols have the same.
    pub number: u32,
    /// What it is called in messages for people.
    pub name: &'static str,
    /// How the frames begin that it sends. No two parties of all protocols have the same.
    pub magic: [u8; 4],
}

/// What two processes speak with each other.
pub trait Protocol: Sized + Send + Sync + std::fmt::Debug + 'static {
    /// What it is called in messages for people.
    const NAME: &'static str;
    /// Version of its messages. It goes up with every change of a message or of its bytes.
    const VERSION: u32;
    /// Oldest version that this build still speaks.
    const OLDEST: u32;
    /// Who connects.
    const CALLER: Party;
    /// Who listens.
    const SERVER: Party;
    /// Does the server lend blocks in shared memory, as the caller does?
    const SERVER_LENDS: bool;
    /// What the caller sends.
    type ToServer: Message;
    /// What the server sends.
    type FromServer: Message;
}

/// What can be encoded and decoded.
pub trait Message: Sized + Send + 'static {
    /// The message as bytes; takes references to its blocks.
    ///
    /// # Errors
    /// [`siftfs_base::Error::Refused`] if it has a text longer than [`MAX_TEXT`].
    fn encode(&self) -> Result<Encoded>;

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

/// The bytes of a message whose fields are its protocol's.
///
/// # Errors
/// As [`Message::encode`].
pub fn encode<P: Protocol, T: Field<P>>(message: &T) -> Result<Encoded> {
    let mut out = Writer::<P>::default();
    message.put(&mut out);
    out.finish()
}

/// The message that these bytes are.
///
/// # Errors
/// As [`Message::decode`].
pub fn decode<P: Protocol, T: Field<P>>(head: &[u8], blocks: Vec<SharedBlock>) -> Result<T> {
    let mut from = Reader::<P>::new(head, blocks);
    let message = T::get(&mut from)?;
    from.finish()?;
    Ok(message)
}

/// These types are messages of a protocol.
#[macro_export]
macro_rules! messages {
    ($protocol:ty: $($type:ty),+) => {$(
        impl $crate::Message for $type {
            fn encode(&self) -> siftfs_base::Result<$crate::Encoded> {
                $crate::encode::<$protocol, Self>(self)
            }
            fn decode(
                head: &[u8],
                blocks: Vec<siftfs_base::SharedBlock>,
            ) -> siftfs_base::Result<Self> {
                $crate::decode::<$protocol, Self>(head, blocks)
            }
        }
    )+};
}
