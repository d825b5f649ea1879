use super::*;
use crate::Encoded;
use proptest::prelude::*;

const CALLER: Party = Party { number: 1, name: "caller", magic: *b"->->" };
const SERVER: Party = Party { number: 2, name: "server", magic: *b"<-<-" };
const LIMITS: Limits = Limits { version: 1, max_message: 1 << 20, slots: 8 };

/// Bytes that arrive in pieces of at most `piece`, with a pause after each.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
    pause: bool,
    /// Largest space that was offered at once: what the reader had allocated ahead.
    offered: usize,
}

impl Source for Pieces<'_> {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Took> {
        self.offered = self.offered.max(into.iter().map(|s| s.len()).sum());
        if std::mem::replace(&mut self.pause, true) {
            self.pause = false;
            return Ok(Took::Nothing);
        }
        let mut taken = 0;
        for slice in into {
            let n = slice.len().min(self.bytes.len()).min(self.piece - taken);
            slice[..n].copy_from_slice(&self.bytes[..n]);
            self.bytes = &self.bytes[n..];
            taken += n;
        }
        Ok(if taken == 0 { Took::End } else { Took::Bytes(taken) })
    }
}

fn reader() -> FrameReader {
    FrameReader::new(CALLER, LIMITS, "a test")
}

/// All frames in `bytes` and what ended them.
fn read_all(bytes: &[u8], piece: usize) -> (Vec<Frame>, Result<bool>) {
    let mut source = Pieces { bytes, piece, pause: false, offered: 0 };
    let (mut reader, mut frames) = (reader(), Vec::new());
    let end = loop {
        match reader.advance(&mut source) {
            Ok(Step::Frame(frame)) => frames.push(frame),
            Ok(Step::Nothing { .. }) => {}
            Ok(Step::End { within }) => break Ok(within),
            Err(e) => break Err(e),
        }
    };
    let ahead = AHEAD_BLOCKS * BLOCK_SIZE;
    assert!(source.offered <= ahead.max(bytes.len()), "{} bytes ahead", source.offered);
    (frames, end)
}

fn append(sealer: &mut Sealer, kind: Kind, encoded: Encoded, lent: &[u32], out: &mut Vec<u8>) {
    let Encoded { mut head, blocks } = encoded;
    out.extend(sealer.seal(kind, &mut head, lent, &blocks));
    out.extend(head);
    blocks.iter().for_each(|b| out.extend(&b[..]));
}

/// A block of which no two differ in only a few bytes.
fn block(seed: u8) -> SharedBlock {
    let mut bytes = [0; BLOCK_SIZE];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = (i as u8).wrapping_mul(31) ^ seed.wrapping_add((i >> 8) as u8);
    }
    SharedBlock::from(bytes)
}

/// Messages as a frame sees them: heads of every length up to two words, and blocks.
fn messages() -> Vec<Encoded> {
    let head = |len: u8| (0..len).map(|i| i ^ 0x5a).collect::<Vec<u8>>();
    let mut all: Vec<_> = (1..=17).map(|len| Encoded { head: head(len), blocks: vec![] }).collect();
    for (len, blocks) in [(1, 1), (8, 2), (13, 3), (200, 0)] {
        let blocks = (0..blocks).map(|i| block(i + len)).collect();
        all.push(Encoded { head: head(len), blocks });
    }
    all
}

/// A conversation with every kind of frame, and where each begins.
fn conversation() -> (Vec<u8>, Vec<usize>) {
    let (mut sealer, mut bytes) = (Sealer::new(CALLER, &LIMITS), Vec::new());
    let mut starts = vec![];
    for message in messages() {
        starts.push(bytes.len());
        append(&mut sealer, Kind::Message, message, &[], &mut bytes);
    }
    let lent = Encoded { head: vec![1, 2, 3], blocks: vec![block(4)] };
    for (kind, encoded, lent) in [
        (Kind::Heartbeat, Encoded::default(), &[][..]),
        (Kind::Message, lent, &[7, 0]),
        (Kind::End, Encoded::default(), &[]),
    ] {
        starts.push(bytes.len());
        append(&mut sealer, kind, encoded, lent, &mut bytes);
    }
    starts.push(bytes.len());
    (bytes, starts)
}

#[test]
fn frames_come_back_in_whatever_pieces_they_arrive() {
    let (bytes, starts) = conversation();
    for piece in [1, 7, 40, 4096, usize::MAX / 2] {
        let (frames, end) = read_all(&bytes, piece);
        assert_eq!((frames.len() + 1, end), (starts.len(), Ok(false)), "pieces of {piece}");
        for (frame, message) in frames.iter().zip(messages()) {
            let Encoded { head, blocks } = message;
            assert_eq!((frame.kind, &frame.head, &frame.inline), (Kind::Message, &head, &blocks));
        }
        let [.., beat, lent, end] = &frames[..] else { panic!("too few frames") };
        assert_eq!((beat.kind, end.kind), (Kind::Heartbeat, Kind::End));
        assert_eq!((&lent.lent, &lent.inline), (&vec![7, 0], &vec![block(4)]));
        assert_eq!(lent.head, [1, 2, 3]);
    }
}

/// What arrives before the damage is right, and the damage is an error.
fn refused(bytes: &[u8], whole: usize, what: &str) {
    let (frames, end) = read_all(bytes, usize::MAX / 2);
    assert!(frames.len() <= whole, "{what}: {} frames, {whole} were whole", frames.len());
    assert!(matches!(end, Err(Error::Corrupt { .. }) | Ok(true)), "{what}: {end:?}");
}

#[test]
fn a_conversation_flipped_at_any_byte_breaks_there() {
    let (mut bytes, starts) = conversation();
    for at in 0..bytes.len() {
        // Every byte of heads and headers, and some of the blocks.
        let before = starts.iter().filter(|s| **s <= at).count() - 1;
        if at - starts[before] > 400 && at % 97 != 0 {
            continue;
        }
        for flip in [1, 0x80, 0xff] {
            bytes[at] ^= flip;
            refused(&bytes, before, &format!("byte {at} flipped by {flip}"));
            bytes[at] ^= flip;
        }
    }
}

#[test]
fn a_conversation_cut_at_any_byte_ends_there() {
    let (bytes, starts) = conversation();
    for len in (0..bytes.len()).filter(|len| len % 61 == 0 || starts.contains(len)) {
        let (frames, end) = read_all(&bytes[..len], usize::MAX / 2);
        let whole = starts.iter().filter(|s| **s <= len).count() - 1;
        assert_eq!((frames.len(), end), (whole, Ok(!starts.contains(&len))), "cut at {len}");
    }
}

#[test]
fn a_frame_lost_repeated_or_out_of_order_breaks_the_conversation() {
    let (bytes, starts) = conversation();
    let frame = |i: usize| &bytes[starts[i]..starts[i + 1]];
    let frames = starts.len() - 1;
    for i in 0..frames {
        let after = &bytes[starts[i + 1]..];
        let until = &bytes[..starts[i + 1]];
        let before = &bytes[..starts[i]];
        if i + 1 < frames {
            refused(&[before, after].concat(), i, &format!("frame {i} lost"));
            let rest = &bytes[starts[i + 2]..];
            let swapped = [before, frame(i + 1), frame(i), rest].concat();
            refused(&swapped, i, &format!("frame {i} after the next"));
        }
        refused(&[until, frame(i), after].concat(), i + 1, &format!("frame {i} repeated"));
    }
}

#[test]
fn a_frame_sent_back_is_none() {
    let mut sealer = Sealer::new(SERVER, &LIMITS);
    let mut bytes = Vec::new();
    append(&mut sealer, Kind::Heartbeat, Encoded::default(), &[], &mut bytes);
    refused(&bytes, 0, "a frame in the other direction");
}

/// A frame that is valid but for what `change` does to its header.
fn forged(change: impl Fn(&mut RawHeader)) -> Vec<u8> {
    let mut sealer = Sealer::new(CALLER, &LIMITS);
    let mut head = vec![5];
    let bytes = sealer.seal(Kind::Message, &mut head, &[], &[]);
    let mut raw = RawHeader::read_from_bytes(&bytes).unwrap();
    change(&mut raw);
    raw.crc = raw.computed_crc().into();
    [raw.as_bytes(), &head].concat()
}

#[test]
fn each_forged_header_is_refused_with_its_reason() {
    type Change = fn(&mut RawHeader);
    let cases: [(Change, &str); 10] = [
        (|h| h.version = 2.into(), "of version 2"),
        (|h| h.kind = 0.into(), "unknown kind 0"),
        (|h| h.kind = 4.into(), "unknown kind 4"),
        (|h| h.kind = 2.into(), "carries something"),
        (|h| h.sequence = 1.into(), "number 1: one was lost or repeated"),
        (|h| h.head_len = u32::MAX.into(), "more than the 1048576 agreed on"),
        (|h| h.blocks = u32::MAX.into(), "more than the 1048576 agreed on"),
        (|h| h.blocks = 256.into(), "more than the 1048576 agreed on"),
        (|h| h.lent = 1.into(), "lends 1 of 0 blocks"),
        (|h| (h.blocks, h.lent) = (9.into(), 9.into()), "lends 9 of 9 blocks"),
    ];
    for (change, why) in cases {
        let error = read_all(&forged(change), 4096).1.unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("from a test"), "{error}");
    }
    assert_eq!(read_all(&forged(|_| ()), 4096).1, Ok(false));
}

/// What a reader refuses is not sent either.
#[test]
fn a_refused_frame_is_not_sealed() {
    let sealed = |kind, head: usize, lent: &[u32]| {
        let mut sealer = Sealer::new(CALLER, &LIMITS);
        let seal = || sealer.seal(kind, &mut vec![0; head], lent, &[]);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(seal)).is_ok()
    };
    assert!(sealed(Kind::Message, 9, &[7, 0]) && sealed(Kind::End, 0, &[]));
    assert!(!sealed(Kind::Message, 1 << 20, &[]), "longer than agreed on");
    assert!(!sealed(Kind::Message, 9, &[8]), "a slot that does not exist");
    assert!(!sealed(Kind::Message, 9, &[0; 9]), "more slots than there are");
    assert!(!sealed(Kind::Heartbeat, 1, &[]), "nothing belongs there");
}

#[test]
fn padding_and_slots_are_checked() {
    // A sender that believes in more slots than were agreed on.
    let more = Limits { slots: 9, ..LIMITS };
    let mut sealer = Sealer::new(CALLER, &more);
    let mut bytes = Vec::new();
    append(&mut sealer, Kind::Message, Encoded::default(), &[8], &mut bytes);
    let error = read_all(&bytes, 4096).1.unwrap_err().to_string();
    assert!(error.contains("slot 8, which does not exist"), "{error}");

    let mut bytes =
        forged(|h| h.section_crc = siftfs_base::crc32c(&[5, 0, 0, 0, 0, 0, 0, 1]).into());
    *bytes.last_mut().unwrap() = 1;
    let error = read_all(&bytes, 4096).1.unwrap_err().to_string();
    assert!(error.contains("padding is not zero"), "{error}");
}

#[test]
fn a_promise_of_much_allocates_little() {
    let limits = Limits { max_message: u64::from(u32::MAX), ..LIMITS };
    type Change = fn(&mut RawHeader);
    let changes: [Change; 2] = [|h| h.head_len = (1 << 31).into(), |h| h.blocks = 500_000.into()];
    for change in changes {
        let bytes = [forged(change), vec![0; 4096]].concat();
        let mut source = Pieces { bytes: &bytes, piece: 4096, pause: false, offered: 0 };
        let mut reader = FrameReader::new(CALLER, limits, "a test");
        while matches!(reader.advance(&mut source), Ok(Step::Nothing { .. })) {}
        assert!(source.offered <= AHEAD_BLOCKS * BLOCK_SIZE, "{} bytes ahead", source.offered);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_bytes_after_a_frame_are_refused(
        garbage in proptest::collection::vec(any::<u8>(), 1..300), piece in 1usize..64,
    ) {
        let mut bytes = forged(|_| ());
        bytes.extend(garbage);
        let (frames, end) = read_all(&bytes, piece);
        prop_assert_eq!(frames.len(), 1);
        prop_assert!(matches!(end, Err(_) | Ok(true)));
    }
}
