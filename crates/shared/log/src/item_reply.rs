//! The item that says whose call a name operation was (rule R53), and its bytes.

use crate::{Item, take};
use siftfs_base::{InodeNr, Lsn, Result, corrupt};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const WHAT: &str = "staged reply";

/// A client's call was carried out: the reply lies with its effect. It is true if the name
/// operation `lsn` is: if a transaction contains that, or a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyItem {
    /// Number of the client, never 0.
    pub client: u64,
    /// The call's slot.
    pub slot: u32,
    /// Number of the call in its slot.
    pub number: u64,
    /// The newest name operation that the call made.
    pub lsn: Lsn,
    /// The inode that its first one was about.
    pub ino: InodeNr,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawReply {
    client: U64,
    number: U64,
    lsn: U64,
    slot: U32,
    ino: U32,
}

/// Length of the item's body in bytes.
pub(crate) const BODY: usize = size_of::<RawReply>();

/// Most replies that one record has: half of what its head may be.
pub const REPLIES_PER_RECORD: usize = 16_384;

/// Length of a record on block storage that says this many replies and nothing else, in bytes.
pub fn replies_len(replies: usize) -> u64 {
    crate::blocks_up((crate::RECORD_HEADER_LEN + replies * (8 + BODY)) as u64)
}

/// What such an item must be, whether it is about to be written or was read.
pub(crate) fn check(item: &ReplyItem) -> Result<()> {
    if item.client == 0 || item.lsn.0 == 0 || item.ino == 0 {
        return Err(corrupt(WHAT, "it is of no client, of no operation or about no inode"));
    }
    Ok(())
}

/// The item's body.
pub(crate) fn encode(item: &ReplyItem) -> [u8; BODY] {
    let &ReplyItem { client, slot, number, lsn, ino } = item;
    let raw = RawReply {
        client: client.into(),
        number: number.into(),
        lsn: lsn.0.into(),
        slot: slot.into(),
        ino: ino.into(),
    };
    let mut body = [0; BODY];
    body.copy_from_slice(raw.as_bytes());
    body
}

/// The item of a body, and what is behind it.
pub(crate) fn decode(body: &[u8]) -> Result<(Item, &[u8])> {
    let (raw, rest) = take::<RawReply>(body, WHAT)?;
    let item = ReplyItem {
        client: raw.client.get(),
        slot: raw.slot.get(),
        number: raw.number.get(),
        lsn: Lsn(raw.lsn.get()),
        ino: raw.ino.get(),
    };
    Ok((Item::Reply(item), rest))
}

#[cfg(test)]
#[path = "item_reply_tests.rs"]
mod tests;
