use super::*;
use proptest::prelude::*;

fn header(len: u32, payload_len: u32) -> RingHeader {
    let mut header = RingHeader::new_zeroed();
    let mut head = InHeader::new_zeroed();
    head.len = len;
    head.write_to_prefix(&mut header.in_out).unwrap();
    header.entry.payload_len = payload_len;
    header
}

#[test]
fn lengths_are_believed_as_far_as_they_fit() {
    let good = [
        (40, 0, (0, 0)),
        (40 + 16, 16, (0, 16)),
        (40 + 128, 0, (128, 0)),
        (80 + MAX_IO, MAX_IO, (40, MAX_IO as usize)),
    ];
    for (len, payload, want) in good {
        assert_eq!(lengths(&header(len, payload)), Ok(want), "{len} {payload}");
    }
    let bad = [
        (0, 0),
        (39, 0),
        (40, 1),
        (u32::MAX, 0),
        (40 + 129, 0),
        (40, u32::MAX),
        (u32::MAX, u32::MAX),
        (41 + MAX_IO, MAX_IO + 1),
        (u32::MAX, MAX_IO),
    ];
    for (len, payload) in bad {
        assert_eq!(lengths(&header(len, payload)), Err(Malformed), "{len} {payload}");
    }
}

/// An entry whose memory holds a request that the kernel wrote.
fn entry(header: &RingHeader, payload: &[u8]) -> Entry {
    let null = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
    let mut entry = Entry::new(null, 0).unwrap();
    let memory = entry.ours();
    header.write_to_prefix(memory).unwrap();
    memory[PAYLOAD..][..payload.len()].copy_from_slice(payload);
    entry.arrived();
    entry
}

#[test]
fn a_request_is_put_into_one_piece() {
    let mut h = header(40 + 8 + 5, 5);
    h.fixed[..8].copy_from_slice(b"fixed 88");
    h.entry.commit_id = 77;
    let entry = entry(&h, b"name\0");
    assert_eq!(entry.message().len(), 53);
    assert_eq!(&entry.message()[40..], b"fixed 88name\0");
    assert_eq!(entry.message()[..4], 53u32.to_ne_bytes_of());
    assert!(matches!(entry.holder, Holder::Request { commit_id: 77, .. }));
}

/// A number's bytes as this machine has them.
trait Bytes {
    fn to_ne_bytes_of(self) -> [u8; 4];
}

impl Bytes for u32 {
    fn to_ne_bytes_of(self) -> [u8; 4] {
        self.as_bytes().try_into().unwrap()
    }
}

/// What makes no sense is the header alone, whose length then contradicts it: the parser refuses
/// it.
#[test]
fn nonsense_is_a_header_that_is_refused() {
    use crate::kernel::request::{Dialect, parse};
    for (len, payload) in [(40 + 200, 0), (u32::MAX, 4), (50, 11), (0, 0)] {
        let entry = entry(&header(len, payload), b"");
        assert_eq!(entry.message().len(), 40);
        assert!(parse(entry.message(), Dialect::default()).is_err(), "{len} {payload}");
    }
}

/// A file that knows no such commands refuses them, and the memory is ours again.
#[test]
fn a_file_that_is_not_the_kernels() {
    let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    let mut entry = Entry::new(file, 0).unwrap();
    entry.register().unwrap();
    let event = entry.wait(Some(Duration::from_secs(10))).unwrap();
    assert!(matches!(event, Event::Refused(_)), "{event:?}");
    assert_eq!(entry.holder, Holder::Nobody);
    entry.give_back();
    assert!(entry.ours().iter().skip(PAYLOAD).all(|b| *b == 0));
}

/// /dev/null takes every command and writes nothing: what comes back is the answer before, which is
/// no request.
#[test]
fn an_entry_goes_round() {
    let null = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
    let mut entry = Entry::new(null, 0).unwrap();
    entry.register().unwrap();
    for unique in 1..20 {
        assert_eq!(entry.wait(None).unwrap(), Event::Request);
        assert_eq!(entry.message().len(), 40);
        entry.answer(unique, 0, &[b"head", &[7; 100_000]]).unwrap();
    }
    assert_eq!(entry.touched(), 100_004);
    assert_eq!(entry.wait(Some(Duration::from_secs(10))).unwrap(), Event::Request);
    let (header, _) = RingHeader::read_from_prefix(entry.ours()).unwrap();
    assert_eq!(header.entry.payload_len, 100_004);
    let (out, _) = OutHeader::read_from_prefix(&header.in_out).unwrap();
    assert_eq!((out.unique, out.len, out.error), (19, 100_020, 0));
    assert_eq!(entry.ours()[PAYLOAD..][..5], *b"head\x07");
    // More than the kernel can have asked for is an error, and not written past the end.
    entry.answer(20, 0, &[&vec![1; PAYLOAD_LEN], b"x"]).unwrap();
    assert_eq!(entry.wait(None).unwrap(), Event::Request);
    let (header, _) = RingHeader::read_from_prefix(entry.ours()).unwrap();
    let (out, _) = OutHeader::read_from_prefix(&header.in_out).unwrap();
    assert_eq!((out.error, header.entry.payload_len), (-libc::EIO, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the kernel says, a message lies in the memory and has the length that it says, or
    /// is a header alone.
    #[test]
    fn any_header_gives_a_message_or_none(len: u32, small in 0u32..400, payload: u32, few in 0u32..300) {
        for (len, payload) in [(len, payload), (small, few), (small + 40, few), (len, few)] {
            let entry = entry(&header(len, payload), b"");
            let message = entry.message().len();
            prop_assert!(message == len as usize || message == 40);
        }
    }
}
