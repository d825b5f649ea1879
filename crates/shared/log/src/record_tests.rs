use super::*;
use crate::DecodeError;
use crate::item_codec::tests::any_item;
use proptest::prelude::*;
use siftfs_base::Epoch;

pub(crate) const KEY: LogKey = LogKey { epoch: Epoch(7), nonce: 0x1234_5678_9abc_def0 };
const LANE: LaneId = LaneId(1);

fn builder() -> RecordBuilder {
    RecordBuilder { key: KEY, lane: LANE }
}

fn params() -> RecordParams {
    RecordParams {
        lsn: Lsn(1000),
        prev_lsn: Lsn(0),
        prev_compact: Lsn(0),
        durable_lsn: Lsn(990),
        durable_pos: 8192,
        pos: 16384,
        prev_end: 12288,
        prev_crc: 77,
    }
}

fn data_item(data_offset: u32, len: u32) -> Item {
    Item::Data { ino: 12, generation: 3, offset: 100, len, data_offset, home: None }
}

fn encode(items: &[Item], data: &[&[u8]]) -> Vec<u8> {
    let len = data.iter().map(|d| d.len() as u64).sum();
    let layout = RecordLayout::new(items, len).unwrap();
    let mut buf = vec![0xee; layout.len as usize];
    builder().encode(&params(), &layout, items, data, &mut buf);
    buf
}

fn decode(bytes: &[u8]) -> Checked<(RecordHead, &[u8])> {
    decode_record(bytes, &KEY, LANE, 16384, MAX_RECORD_LEN)
}

fn valid(bytes: &[u8]) -> bool {
    decode(bytes).is_ok()
}

proptest! {
    #[test]
    fn records_come_back(
        mut items in prop::collection::vec(any_item(), 0..6),
        data in prop::collection::vec(any::<u8>(), 0..9000),
        cut in any::<prop::sample::Index>(),
    ) {
        if !data.is_empty() {
            items.push(data_item(0, data.len() as u32));
        }
        let (a, b) = data.split_at(cut.index(data.len() + 1));
        let bytes = encode(&items, &[a, b]);
        let (head, got) = decode(&bytes).unwrap();
        prop_assert_eq!(&head.items, &items);
        prop_assert_eq!(got, &data[..]);
        prop_assert_eq!(head.header.params, params());
        prop_assert_eq!(head.header.end(), 16384 + bytes.len() as u64);
    }

    #[test]
    fn a_changed_bit_is_never_accepted(
        items in prop::collection::vec(any_item(), 1..4),
        data in prop::collection::vec(any::<u8>(), 1..6000),
        at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let mut bytes = encode(&items, &[&data]);
        let h = RecordHeader::peek(&bytes, &KEY, LANE, 16384, MAX_RECORD_LEN).unwrap();
        let i = at.index(h.head_len() + data.len());
        let i = if i < h.head_len() {
            i
        } else {
            h.layout.data_offset as usize + i - h.head_len()
        };
        bytes[i] ^= 1 << bit;
        prop_assert!(!valid(&bytes));
    }

    #[test]
    fn arbitrary_bytes_are_no_record(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(!valid(&bytes));
    }
}

#[test]
fn a_small_append_is_one_block() {
    let inode = Item::Inode(crate::InodeItem { ino: 12, ..Default::default() });
    let l = RecordLayout::new(&[inode.clone(), data_item(0, 512)], 512).unwrap();
    assert_eq!(l.len, 4096);
    let l = RecordLayout::new(&[inode, data_item(0, 4096)], 4096).unwrap();
    assert_eq!((l.len, l.data_offset), (8192, 4096));
}

#[test]
fn what_one_record_cannot_hold_is_refused() {
    assert!(RecordLayout::new(&[], MAX_RECORD_LEN).is_none());
    assert!(RecordLayout::new(&[], MAX_RECORD_LEN - 12288).is_some());
    let many = vec![data_item(0, 1); 40_000];
    assert!(RecordLayout::new(&many, 1).is_none());
}

/// R8: another epoch's nonce, epoch, position or lane, and the record is invalid.
#[test]
fn r08_a_record_of_another_key_or_place_is_none() {
    let bytes = encode(&[data_item(0, 3)], &[b"abc"]);
    assert!(valid(&bytes));
    let with =
        |key: LogKey, lane, pos| decode_record(&bytes, &key, lane, pos, MAX_RECORD_LEN).is_ok();
    assert!(!with(LogKey { nonce: 1, ..KEY }, LANE, 16384));
    assert!(!with(LogKey { epoch: Epoch(8), ..KEY }, LANE, 16384));
    assert!(!with(KEY, LaneId(0), 16384));
    assert!(!with(KEY, LANE, 16384 + 65536));
}

/// The record with other bytes at `at` and a right checksum.
fn resealed(mut bytes: Vec<u8>, at: usize, other: &[u8]) -> Vec<u8> {
    bytes[at..at + other.len()].copy_from_slice(other);
    let h = RecordHeader::peek(&bytes, &KEY, LANE, 16384, MAX_RECORD_LEN).unwrap();
    RecordHeader::reseal(&KEY, &mut bytes[..h.head_len()]);
    bytes
}

#[test]
fn a_data_item_outside_the_data_is_an_error() {
    // The offset of its data is the last field of the only item.
    let bytes = encode(&[data_item(1, 2)], &[b"abc"]);
    assert!(valid(&bytes));
    assert!(decode(&resealed(bytes, 156, &[2])).is_err());
    let written = std::panic::catch_unwind(|| encode(&[data_item(2, 2)], &[b"abc"]));
    assert!(written.is_err(), "a record that no reader takes was written");
}

#[test]
fn a_name_operation_newer_than_its_record_is_an_error() {
    let unlink = |lsn| {
        let kind = crate::NameOpKind::Unlink { dir: 2, name: b"x".to_vec(), ino: 12 };
        Item::NameOp(crate::NameOp { lsn: Lsn(lsn), time: Default::default(), kind })
    };
    // Its LSN is the first field of the only item.
    let bytes = encode(&[unlink(1000)], &[]);
    assert!(valid(&bytes));
    assert!(decode(&resealed(bytes, 136, &1001u64.to_le_bytes())).is_err());
    let written = std::panic::catch_unwind(|| encode(&[unlink(1001)], &[]));
    assert!(written.is_err(), "a record that no reader takes was written");
}

/// An item that a reader would refuse is not staged at all.
#[test]
fn a_refused_item_has_no_layout() {
    let xattr = |name: &[u8]| Item::Xattrs {
        ino: 12,
        generation: 1,
        list: vec![(name.to_vec(), b"value".to_vec())],
    };
    assert!(RecordLayout::new(&[xattr(b"user.a")], 0).is_some());
    for name in [&b""[..], b"user.a\0b", &[b'x'; 257]] {
        assert!(RecordLayout::new(&[xattr(name)], 0).is_none(), "{name:?}");
    }
}

#[test]
fn parts_verify_alone() {
    let data: Vec<u8> = (0..10_000u32).map(|i| (i / 7) as u8).collect();
    let bytes = encode(&[data_item(0, 10_000)], &[&data]);
    let (head, _) = decode(&bytes).unwrap();
    assert!(head.verify_part(4096, &data[4096..8192]));
    assert!(head.verify_part(8192, &data[8192..]));
    assert!(!head.verify_part(0, &data[4096..8192]));
    assert!(!head.verify_part(4096, &data[4096..8000]));
    assert!(!head.verify_part(4096, &data[4096..9000]));
    assert!(!head.verify_part(12288, &data[..1]));
}

/// A record of another version, kind or with other flags, whatever its lengths mean: it has a valid
/// checksum, so it is not the lane's end.
#[test]
fn what_is_not_known_is_incompatible() {
    for (at, value) in [(8, 2), (10, 2), (10, 77), (11, 1), (14, 1), (56, 8), (40, 1)] {
        let mut bytes = encode(&[data_item(0, 3)], &[b"abc"]);
        bytes[at] = value;
        let known = matches!(at, 56 | 40);
        if !known {
            // Such a record's data may lie anywhere.
            bytes[56] ^= 0x40;
        }
        let header = RecordHeader::peek(&bytes, &KEY, LANE, 16384, MAX_RECORD_LEN);
        let Ok(h) = header else {
            assert!(at == 56, "{at}: a known record has its own lengths");
            continue;
        };
        assert!(
            known || matches!(decode(&bytes), Err(DecodeError::Invalid(_))),
            "{at}: not sealed"
        );
        RecordHeader::reseal(&KEY, &mut bytes[..h.head_len()]);
        let refused = matches!(decode(&bytes), Err(DecodeError::Stop(Error::Incompatible(_))));
        assert_eq!(refused, !known, "byte {at} is {value}");
    }
}

/// The header is that of the specification, byte by byte.
#[test]
fn places_are_those_of_the_specification() {
    use crate::spec::{check, fields};
    let words = [
        ("pos", "position"),
        ("len", "length of the record"),
        ("items_len", "length of all items"),
        ("items_count", "number of items"),
        ("data_len", "data length"),
        ("durable_pos", "durable position"),
        ("prev_lsn", "LSN of the record before it"),
        ("prev_compact", "newest record in the record area"),
    ];
    let all = fields!(RawRecord {
        magic,
        version,
        kind,
        lane,
        flags,
        epoch,
        pos,
        prev_end,
        prev_crc,
        len,
        items_len,
        items_count,
        data_offset,
        data_len,
        lsn,
        durable_lsn,
        durable_pos,
        owner,
        prev_lsn,
        prev_compact,
        reserved,
        crc,
    });
    check("## Staged transaction (lane record)", 0, &all, &words);
    let version = format!("version, {VERSION}");
    crate::spec::says("## Staged transaction (lane record)", 8, &version);
}

/// A record by an owner that this build does not know is not taken for the lane's end.
#[test]
fn a_record_of_another_owner_is_incompatible() {
    let bytes = resealed(encode(&[data_item(0, 3)], &[b"abc"]), 88, &7u64.to_le_bytes());
    let error = decode(&bytes).unwrap_err();
    assert!(
        matches!(&error, DecodeError::Stop(Error::Incompatible(text)) if text.contains("owner 7")),
        "{error:?}"
    );
}
