//! Frames: what a stream of bytes consists of once both sides have agreed to talk.
//!
//! A frame is a header of [`HEADER_LEN`] bytes, a *section* and blocks. The section is the head of
//! a message, zeros up to a multiple of 8, and one little-endian 64-bit number for each *lent*
//! block: its slot in memory that both sides share. The other blocks follow the section, *inline*.
//!
//! Each direction counts its frames. A frame that was lost, repeated, reordered or sent back to
//! where it came from does not have the number or the magic that is expected, and breaks the
//! connection, as does anything else that is not as it should be.

use crate::Party;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, Result, SharedBlock, corrupt};
use std::io::IoSliceMut;
use std::sync::Arc;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a frame's header in bytes.
pub const HEADER_LEN: usize = size_of::<RawHeader>();
/// Blocks that are read in one go at most, and so allocated ahead of their bytes.
const AHEAD_BLOCKS: usize = 64;
/// Bytes of a section that are allocated ahead of their bytes.
const AHEAD_BYTES: usize = 64 << 10;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    kind: U16,
    sequence: U64,
    head_len: U32,
    blocks: U32,
    lent: U32,
    section_crc: U32,
    inline_crc: U32,
    crc: U32,
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The frame carries a message.
    Message = 1,
    /// The sender is alive and has nothing to say.
    Heartbeat = 2,
    /// The sender will send nothing more.
    End = 3,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Version of the message set.
    pub version: u32,
    /// Bytes of section and blocks that one frame has at most.
    pub max_message: u64,
    /// Slots of the shared memory; 0 where there is none.
    pub slots: u32,
}

/// One frame, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is for.
    pub kind: Kind,
    /// The head of the message.
    pub head: Vec<u8>,
    /// Slots of the first blocks, each below [`Limits::slots`].
    pub lent: Vec<u32>,
    /// The blocks after those.
    pub inline: Vec<SharedBlock>,
}

/// Bytes that `head` and `lent` slots take in a section.
fn section_len(head: usize, lent: usize) -> usize {
    head.next_multiple_of(8) + lent * 8
}

/// Bytes of a frame as it travels: of a message with a head of `head` bytes, `lent` blocks that
/// are lent and `inline` ones.
pub fn len(head: usize, lent: usize, inline: usize) -> u64 {
    (HEADER_LEN + section_len(head, lent)) as u64 + inline as u64 * BLOCK_BYTES
}

/// Bytes that a message counts against [`Limits::max_message`], however it travels.
pub fn weight(head: usize, blocks: usize) -> u64 {
    head as u64 + blocks as u64 * (BLOCK_BYTES + 8) + 8
}

impl Limits {
    /// What a frame's numbers must be, whether the frame is about to be sent or has arrived; else
    /// what is wrong with it.
    fn check(&self, kind: Kind, head: usize, blocks: usize, lent: usize) -> Checked {
        let (len, limit) = (weight(head, blocks), self.max_message);
        if len > limit {
            return Err(format!("it has {len} bytes, more than the {limit} agreed on"));
        }
        if lent > blocks || lent > self.slots as usize {
            return Err(format!("it lends {lent} of {blocks} blocks"));
        }
        if kind != Kind::Message && (head > 0 || blocks > 0) {
            return Err("it carries something where nothing belongs".into());
        }
        Ok(())
    }

    /// The same of one slot.
    fn check_slot(&self, slot: u64) -> Checked {
        if slot >= u64::from(self.slots) {
            return Err(format!("it lends slot {slot}, which does not exist"));
        }
        Ok(())
    }
}

/// Nothing, or what is wrong with a frame.
type Checked = std::result::Result<(), String>;

/// Makes frames of one direction, with the right numbers.
#[derive(Debug)]
pub struct Sealer {
    magic: u32,
    limits: Limits,
    sequence: u64,
}

impl Sealer {
    /// Starts a direction: `from` sends the frames.
    pub fn new(from: Party, limits: &Limits) -> Self {
        Self { magic: u32::from_le_bytes(from.magic), limits: *limits, sequence: 0 }
    }

    /// The header of the next frame. `head` becomes its section: padding and the numbers of the
    /// `lent` slots are appended. The caller sends header, section and `inline` in this order.
    ///
    /// # Panics
    /// If a reader would refuse the frame: its message's [`weight`] is checked before.
    pub fn seal(
        &mut self,
        kind: Kind,
        head: &mut Vec<u8>,
        lent: &[u32],
        inline: &[SharedBlock],
    ) -> [u8; HEADER_LEN] {
        self.limits
            .check(kind, head.len(), lent.len() + inline.len(), lent.len())
            .and_then(|()| lent.iter().try_for_each(|slot| self.limits.check_slot((*slot).into())))
            .expect("a frame is what its reader demands");
        let head_len = u32::try_from(head.len()).expect("a head is shorter than 4 GiB");
        head.resize(head.len().next_multiple_of(8), 0);
        lent.iter().for_each(|slot| head.extend_from_slice(&u64::from(*slot).to_le_bytes()));
        let blocks = u32::try_from(lent.len() + inline.len()).expect("fewer than 2^32 blocks");
        let mut raw = RawHeader {
            magic: self.magic.into(),
            version: (self.limits.version as u16).into(),
            kind: (kind as u16).into(),
            sequence: self.sequence.into(),
            head_len: head_len.into(),
            blocks: blocks.into(),
            lent: (lent.len() as u32).into(),
            section_crc: siftfs_base::crc32c(head).into(),
            inline_crc: blocks_crc(inline.iter().map(|b| &b[..])).into(),
            crc: 0.into(),
        };
        raw.crc = raw.computed_crc().into();
        self.sequence += 1;
        let mut bytes = [0; HEADER_LEN];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

fn blocks_crc<'a>(blocks: impl Iterator<Item = &'a [u8]>) -> u32 {
    blocks.fold(0, siftfs_base::crc32c_append)
}

impl RawHeader {
    fn computed_crc(&self) -> u32 {
        let (fields, _) = self.as_bytes().split_at(HEADER_LEN - size_of::<U32>());
        siftfs_base::crc32c(fields)
    }
}

/// What a [`Source`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// This many bytes were read; at least one.
    Bytes(usize),
    /// Nothing is there now.
    Nothing,
    /// Nothing will ever come.
    End,
}

/// Where bytes come from.
pub trait Source {
    /// Reads into `into`, front to back, what is there now, without waiting.
    ///
    /// # Errors
    /// The connection is broken.
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Took>;
}

/// What [`FrameReader::advance`] came to.
#[derive(Debug)]
pub enum Step {
    /// A frame is complete.
    Frame(Frame),
    /// No frame is complete: it takes more bytes than are there now.
    Nothing {
        /// Bytes read by this call.
        read: usize,
    },
    /// The source ended, between frames or within one.
    End {
        /// Part of a frame had arrived.
        within: bool,
    },
}

/// Reads frames of one direction, in whatever pieces they arrive. Memory is allocated as bytes
/// come, not as a header promises.
pub struct FrameReader {
    peer: String,
    magic: u32,
    limits: Limits,
    sequence: u64,
    part: Part,
}

/// The part of a frame that is being read; each counts the bytes it has.
enum Part {
    Header { bytes: [u8; HEADER_LEN], have: usize },
    Section { header: Header, bytes: Vec<u8>, have: usize },
    Inline { header: Header, section: Vec<u8>, blocks: Vec<Arc<[u8; BLOCK_SIZE]>>, have: usize },
}

/// A header, checked.
#[derive(Clone, Copy)]
struct Header {
    kind: Kind,
    head: usize,
    lent: usize,
    inline: usize,
    section_crc: u32,
    inline_crc: u32,
}

const NEW: Part = Part::Header { bytes: [0; HEADER_LEN], have: 0 };

impl FrameReader {
    /// Reads frames that `from` sends; `peer` names their sender in errors.
    pub fn new(from: Party, limits: Limits, peer: &str) -> Self {
        let magic = u32::from_le_bytes(from.magic);
        Self { peer: peer.into(), magic, limits, sequence: 0, part: NEW }
    }

    /// Reads on until a frame is complete or nothing more is there.
    ///
    /// # Errors
    /// What arrived is not the next frame, or the source is broken. The reader cannot be used
    /// after that.
    pub fn advance(&mut self, source: &mut impl Source) -> Result<Step> {
        let mut read = 0;
        loop {
            if let Some(frame) = self.complete()? {
                return Ok(Step::Frame(frame));
            }
            match self.part.fill(source)? {
                Took::Bytes(n) => read += n,
                Took::Nothing => return Ok(Step::Nothing { read }),
                Took::End => {
                    let within = !matches!(self.part, Part::Header { have: 0, .. });
                    return Ok(Step::End { within });
                }
            }
        }
    }

    fn bad(&self, why: impl Into<String>) -> Error {
        corrupt(format!("message {} from {}", self.sequence, self.peer), why)
    }

    /// Goes on to the next part while the present one is complete; the frame after the last.
    fn complete(&mut self) -> Result<Option<Frame>> {
        loop {
            self.part = match std::mem::replace(&mut self.part, NEW) {
                Part::Header { bytes, have: HEADER_LEN } => {
                    let header = self.header(&bytes)?;
                    Part::Section { header, bytes: Vec::new(), have: 0 }
                }
                Part::Section { header, bytes, have } if have == header.section() => {
                    if siftfs_base::crc32c(&bytes) != header.section_crc {
                        return Err(self.bad("the checksum of its section does not hold"));
                    }
                    Part::Inline { header, section: bytes, blocks: Vec::new(), have: 0 }
                }
                Part::Inline { header, section, blocks, have }
                    if have == header.inline * BLOCK_SIZE =>
                {
                    return self.frame(header, section, blocks).map(Some);
                }
                unfinished => {
                    self.part = unfinished;
                    return Ok(None);
                }
            };
        }
    }

    fn header(&self, bytes: &[u8; HEADER_LEN]) -> Result<Header> {
        let raw = RawHeader::read_from_bytes(bytes).map_err(|_| self.bad("it has no header"))?;
        if raw.magic.get() != self.magic {
            return Err(self.bad("it does not begin as a message in this direction does"));
        }
        if raw.crc.get() != raw.computed_crc() {
            return Err(self.bad("the checksum of its header does not hold"));
        }
        if u32::from(raw.version.get()) != self.limits.version {
            return Err(self.bad(format!("it is of version {}", raw.version)));
        }
        if raw.sequence.get() != self.sequence {
            return Err(
                self.bad(format!("it is number {}: one was lost or repeated", raw.sequence))
            );
        }
        let kind = match raw.kind.get() {
            1 => Kind::Message,
            2 => Kind::Heartbeat,
            3 => Kind::End,
            other => return Err(self.bad(format!("it is of unknown kind {other}"))),
        };
        let (head, blocks) = (raw.head_len.get() as usize, raw.blocks.get() as usize);
        let lent = raw.lent.get() as usize;
        self.limits.check(kind, head, blocks, lent).map_err(|why| self.bad(why))?;
        Ok(Header {
            kind,
            head,
            lent,
            inline: blocks - lent,
            section_crc: raw.section_crc.get(),
            inline_crc: raw.inline_crc.get(),
        })
    }

    fn frame(
        &mut self,
        header: Header,
        mut section: Vec<u8>,
        blocks: Vec<Arc<[u8; BLOCK_SIZE]>>,
    ) -> Result<Frame> {
        if blocks_crc(blocks.iter().map(|b| &b[..])) != header.inline_crc {
            return Err(self.bad("the checksum of its blocks does not hold"));
        }
        let padding = header.head.next_multiple_of(8) - header.head;
        let parts = section.split_at_checked(header.head);
        let Some((padding, slots)) = parts.and_then(|(_, rest)| rest.split_at_checked(padding))
        else {
            return Err(self.bad("its section is shorter than its head"));
        };
        if padding.iter().any(|b| *b != 0) {
            return Err(self.bad("its padding is not zero"));
        }
        let (slots, _) = slots.as_chunks::<8>();
        let mut lent = Vec::with_capacity(slots.len());
        for slot in slots {
            let slot = u64::from_le_bytes(*slot);
            self.limits.check_slot(slot).map_err(|why| self.bad(why))?;
            lent.push(slot as u32);
        }
        section.truncate(header.head);
        self.sequence += 1;
        let inline = blocks.into_iter().map(SharedBlock::from).collect();
        Ok(Frame { kind: header.kind, head: section, lent, inline })
    }
}

impl Header {
    fn section(&self) -> usize {
        section_len(self.head, self.lent)
    }
}

impl Part {
    /// Reads more of this part.
    fn fill(&mut self, source: &mut impl Source) -> Result<Took> {
        let (took, have) = match self {
            Part::Header { bytes, have } => (source.read(&mut [open_slice(bytes, *have)])?, have),
            Part::Section { header, bytes, have } => {
                if *have == bytes.len() {
                    let more = (*have * 2).max(AHEAD_BYTES).min(header.section());
                    bytes.resize(more, 0);
                }
                (source.read(&mut [open_slice(bytes, *have)])?, have)
            }
            Part::Inline { header, blocks, have, .. } => {
                if *have == blocks.len() * BLOCK_SIZE {
                    let more = (header.inline - blocks.len()).min(AHEAD_BLOCKS);
                    blocks.extend((0..more).map(|_| Arc::new([0; BLOCK_SIZE])));
                }
                (source.read(&mut open_slices(blocks, *have))?, have)
            }
        };
        if let Took::Bytes(n) = took {
            *have += n;
        }
        Ok(took)
    }
}

/// The space in `bytes` after the first `have`.
fn open_slice(bytes: &mut [u8], have: usize) -> IoSliceMut<'_> {
    IoSliceMut::new(bytes.get_mut(have..).expect("a source fills no more than it is given"))
}

/// The space in `blocks` after the first `have` bytes.
fn open_slices(blocks: &mut [Arc<[u8; BLOCK_SIZE]>], have: usize) -> Vec<IoSliceMut<'_>> {
    let (first, offset) = (have / BLOCK_SIZE, have % BLOCK_SIZE);
    let offsets = std::iter::once(offset).chain(std::iter::repeat(0));
    let open = blocks.iter_mut().skip(first).zip(offsets).map(|(block, offset)| {
        let block = Arc::get_mut(block).expect("nobody else has it yet");
        open_slice(&mut block[..], offset)
    });
    open.collect()
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
