//! What holds of any bytes that are taken for messages of a protocol, in both directions: for
//! fuzzing, and for the tests of every day of each protocol (`tests/corpus.rs` of `calls`, `wire`).
//!
//! An input's first byte says which direction, and whether a message follows or a stream of frames.
//! Its second one says how many blocks the message has, or how the stream arrives.

use siftfs_base::{BLOCK_SIZE, Result, SharedBlock, crc32c, crc32c_append};
use siftfs_codec::frame::{
    self, FrameReader, HEADER_LEN, Kind, Limits, Sealer, Source, Step, Took,
};
use siftfs_codec::{Encoded, Message, Party, Protocol};
use std::fmt::Debug;
use std::io::IoSliceMut;

/// Longest message that is read here.
const LONGEST: u64 = 1 << 20;
/// Slots of the shared memory that frames may lend.
const SLOTS: u32 = 4;

/// The direction of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What the caller sends.
    ToServer,
    /// What the server sends.
    FromServer,
}

/// How many messages an input was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Frames of streams.
    pub frames: usize,
    /// Messages that were read.
    pub messages: usize,
}

/// What a protocol's messages have to be for this.
pub trait Compared: Message + PartialEq + Debug {}
impl<M: Message + PartialEq + Debug> Compared for M {}

/// The input that is this message, if its blocks are those that [`any_message`] makes.
pub fn input(way: Way, message: &Encoded) -> Option<Vec<u8>> {
    let blocks = u8::try_from(message.blocks.len()).ok().filter(|count| *count < 8)?;
    let way = u8::from(way == Way::FromServer);
    Some([&[way, blocks][..], &message.head].concat())
}

/// The input that is a stream of these messages, with one that lends its first block and all other
/// kinds of frames behind them.
pub fn stream<P: Protocol>(way: Way, messages: &[Encoded]) -> Vec<u8> {
    let limits = limits::<P>();
    let from = if way == Way::ToServer { P::CALLER } else { P::SERVER };
    let mut sealer = Sealer::new(from, &limits);
    let mut bytes = vec![2 + u8::from(way == Way::FromServer), 1];
    let mut add = |kind, head: &[u8], lent: &[u32], blocks: &[SharedBlock]| {
        let mut section = head.to_vec();
        bytes.extend(sealer.seal(kind, &mut section, lent, blocks));
        bytes.extend(section);
        blocks.iter().for_each(|block| bytes.extend_from_slice(&block[..]));
    };
    for message in messages {
        add(Kind::Message, &message.head, &[], &message.blocks);
    }
    add(Kind::Heartbeat, &[], &[], &[]);
    add(Kind::Message, &[1, 2, 3], &[SLOTS - 1], &[]);
    add(Kind::End, &[], &[], &[]);
    bytes
}

fn limits<P: Protocol>() -> Limits {
    Limits { version: P::VERSION, max_message: LONGEST, slots: SLOTS }
}

/// Any bytes are a message, or a stream of frames. `forms` says of a message's head whether other
/// bytes may say the same, as those of a document may.
pub fn any_message<P>(bytes: &[u8], forms: fn(Way, &[u8]) -> bool) -> Seen
where
    P: Protocol<ToServer: Compared, FromServer: Compared>,
{
    let [first, second, rest @ ..] = bytes else { return Seen::default() };
    let way = if first % 2 == 0 { Way::ToServer } else { Way::FromServer };
    let limits = limits::<P>();
    let from = if way == Way::ToServer { P::CALLER } else { P::SERVER };
    let check = |head: &[u8], blocks: Vec<SharedBlock>| {
        let forms = forms(way, head);
        match way {
            Way::ToServer => message::<P::ToServer>(head, blocks, (from, &limits), forms),
            Way::FromServer => message::<P::FromServer>(head, blocks, (from, &limits), forms),
        }
    };
    if first / 2 % 2 == 0 {
        let blocks = (0..second % 8).map(block).collect();
        return Seen { frames: 0, messages: usize::from(check(rest, blocks)) };
    }
    let mut stream = rest.to_vec();
    if second % 2 == 0 {
        repair(&mut stream, from, &limits);
    }
    let frames = read(&stream, from, limits, usize::from(*second) + 1);
    assert!(frames == read(&stream, from, limits, usize::MAX), "in whatever pieces it arrives");
    let whole = frames.iter().filter(|frame| frame.kind == Kind::Message && frame.lent.is_empty());
    let messages = whole.filter(|frame| check(&frame.head, frame.inline.clone())).count();
    Seen { frames: frames.len(), messages }
}

/// A block of an input's message.
fn block(number: u8) -> SharedBlock {
    SharedBlock::from([number + 1; BLOCK_SIZE])
}

/// What is read can be written, and is the same when it is read again, also through a frame.
fn message<M: Compared>(
    head: &[u8],
    blocks: Vec<SharedBlock>,
    (from, limits): (Party, &Limits),
    forms: bool,
) -> bool {
    let Ok(read) = M::decode(head, blocks.clone()) else { return false };
    let written = read.encode().expect("what was read can be written");
    assert!(written.blocks == blocks, "all blocks are those that came");
    if !forms {
        assert!(written.head == head, "one message has one form: {read:?}");
    }
    let Encoded { head, blocks } = written;
    if frame::weight(head.len(), blocks.len()) > limits.max_message {
        return true;
    }
    let mut section = head.clone();
    let sealed = Sealer::new(from, limits).seal(Kind::Message, &mut section, &[], &blocks);
    let mut bytes = [&sealed[..], &section].concat();
    blocks.iter().for_each(|block| bytes.extend_from_slice(&block[..]));
    let frames = self::read(&bytes, from, *limits, 4000);
    let [frame] = &frames[..] else { panic!("one frame is one frame") };
    assert!(frame.head == head && frame.inline == blocks, "a frame carries what it was given");
    let again = M::decode(&frame.head, frame.inline.clone());
    let again = again.expect("what was written can be read");
    assert!(again == read, "the same message: {read:?} and {again:?}");
    let stays = again.encode().is_ok_and(|encoded| encoded.head == head);
    assert!(stays, "what was written stays so: {read:?}");
    true
}

/// Bytes that arrive in pieces.
struct Pieces<'a> {
    bytes: &'a [u8],
    most: usize,
}

impl Source for Pieces<'_> {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Took> {
        let mut took = 0;
        for into in into {
            let len = into.len().min(self.bytes.len()).min(self.most - took);
            let (piece, rest) = self.bytes.split_at(len);
            into[..len].copy_from_slice(piece);
            self.bytes = rest;
            took += len;
        }
        Ok(if took == 0 { Took::End } else { Took::Bytes(took) })
    }
}

/// The frames before the end of a stream, or what breaks it.
fn read(bytes: &[u8], from: Party, limits: Limits, most: usize) -> Vec<frame::Frame> {
    let mut reader = FrameReader::new(from, limits, "a peer");
    let (mut source, mut frames) = (Pieces { bytes, most }, Vec::new());
    while let Ok(Step::Frame(frame)) = reader.advance(&mut source) {
        frames.push(frame);
    }
    frames
}

/// Makes right what a program that speaks the protocol would have right: beginnings, versions,
/// numbers and checksums of frames. The rest is as it was.
fn repair(stream: &mut [u8], from: Party, limits: &Limits) {
    let mut rest = stream;
    for sequence in 0u64.. {
        let Some((header, body)) = rest.split_first_chunk_mut::<HEADER_LEN>() else { return };
        let number = |header: &[u8; HEADER_LEN], at: usize| {
            u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize
        };
        header[..4].copy_from_slice(&from.magic);
        header[4..6].copy_from_slice(&(limits.version as u16).to_le_bytes());
        header[8..16].copy_from_slice(&sequence.to_le_bytes());
        let (head, blocks, lent) = (number(header, 16), number(header, 20), number(header, 24));
        let section = head.next_multiple_of(8).saturating_add(lent.saturating_mul(8));
        let inline = blocks.saturating_sub(lent).saturating_mul(BLOCK_SIZE);
        let (section, body) = body.split_at_mut(section.min(body.len()));
        let (inline, body) = body.split_at_mut(inline.min(body.len()));
        header[28..32].copy_from_slice(&crc32c(section).to_le_bytes());
        header[32..36].copy_from_slice(&crc32c_append(0, inline).to_le_bytes());
        let sum = crc32c(&header[..HEADER_LEN - 4]);
        header[HEADER_LEN - 4..].copy_from_slice(&sum.to_le_bytes());
        rest = body;
    }
}
