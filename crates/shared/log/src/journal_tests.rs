use super::*;
use crate::DecodeError;
use crate::journal_codec::*;
use crate::spec::{check, check_list, fields, says};
use crate::{CopyTag, Digest, StagedRef, ZeroTag};
use proptest::prelude::*;
use siftfs_base::{BlockRun, Epoch, LaneId, Lsn};

const KEY: LogKey = LogKey { epoch: Epoch(9), nonce: 42 };
const P: JournalParams = JournalParams { pos: 1 << 20, prev_end: 1 << 20, prev_crc: 5 };
const MAX: u64 = MAX_JOURNAL_RECORD;

fn runs() -> impl Strategy<Value = Vec<BlockRun>> {
    prop::collection::vec((0u64..1 << 40, 1u64..1000), 0..5)
        .prop_map(|v| v.into_iter().map(|(start, len)| BlockRun { start, len }).collect())
}

fn transaction() -> impl Strategy<Value = Transaction> {
    let staged = prop::collection::vec((0u64..1000, 1u32..5, 1u64.., any::<u32>()), 1..5);
    let zeros = prop::collection::vec((0u64..1 << 40, 1u32..), 0..5);
    let copies = prop::collection::vec((any::<u32>(), 0u32..2048, 0u64..1 << 40, 1u32..2048), 0..9);
    let images = prop::collection::btree_map(0u64..1 << 40, any::<u8>(), 0..4);
    (staged, zeros, copies, images, runs(), runs(), [any::<u64>(), any::<u64>()]).prop_map(
        |(staged, zeros, copies, images, drops, direct, cuts)| {
            let n = staged.len() as u32;
            let entry = |(pos, len, lsn, crc): (u64, u32, u64, u32)| StagedRef {
                lane: LaneId(1),
                pos: pos * BLOCK_BYTES,
                len: len * BLOCK_SIZE as u32,
                lsn: Lsn(lsn),
                crc,
            };
            let copy = |(source, data_offset, dst, len): (u32, u32, u64, u32)| CopyTag {
                source: source % n,
                data_offset,
                dst,
                len,
            };
            let digest = n.is_multiple_of(2).then(|| Digest {
                lane: LaneId(1),
                from: 64 * u64::from(n),
                prev_crc: 3,
                crc: n,
                ranges: n,
            });
            Transaction {
                seq: TxnSeq(3),
                ops_cut: Lsn(cuts[0]),
                staged_cut: Lsn(cuts[1]),
                lane_upto: vec![0, 1 << 30],
                digest,
                staged: staged.into_iter().map(entry).collect(),
                zeros: zeros.into_iter().map(|(dst, len)| ZeroTag { dst, len }).collect(),
                copies: copies.into_iter().map(copy).collect(),
                images: images.keys().copied().collect(),
                image_data: images.values().map(|b| [*b; BLOCK_SIZE].into()).collect(),
                direct,
                drops,
            }
        },
    )
}

fn encode(txn: &Transaction) -> Vec<u8> {
    encode_as(txn, JournalData::Ref)
}

/// The bytes of the copy tags, if there are any, are all 0xee.
fn encode_as(txn: &Transaction, form: JournalData) -> Vec<u8> {
    let layout = JournalLayout::new(txn, form).unwrap();
    assert_eq!(encoded_len(txn, form), Some(layout.len));
    let mut buf = vec![0xee; layout.len as usize];
    encode_transaction(&KEY, &P, &layout, txn, &mut buf);
    buf
}

fn form() -> impl Strategy<Value = JournalData> {
    prop_oneof![Just(JournalData::Ref), Just(JournalData::Copy)]
}

fn valid(bytes: &[u8]) -> bool {
    decode_journal_record(bytes, &KEY, P.pos, MAX).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn transactions_come_back(txn in transaction(), form in form()) {
        let bytes = encode_as(&txn, form);
        let got = decode_journal_record(&bytes, &KEY, P.pos, MAX).unwrap();
        prop_assert_eq!(got.images, txn.image_data.iter().flat_map(|b| **b).collect::<Vec<u8>>());
        prop_assert_eq!(got.descriptor.header.params, P);
        prop_assert_eq!(got.descriptor.header.end(), P.pos + bytes.len() as u64);
        let layout = got.descriptor.header.layout;
        prop_assert_eq!(layout.form, form);
        let named: u32 = txn.copies.iter().map(|c| c.len).sum();
        prop_assert_eq!(layout.data_len, if form == JournalData::Copy { named } else { 0 });
        prop_assert!(bytes[layout.data()].iter().all(|b| *b == 0xee));
        // The decoder that does not read the data says the same.
        let (head, rest) = bytes.split_at(layout.data_offset as usize);
        let commit = &rest[rest.len() - BLOCK_SIZE..];
        let short = decode_journal_head(head, commit, &KEY, P.pos, MAX).unwrap();
        prop_assert_eq!(&short, &got);
        let mut back = got.descriptor.txn;
        back.image_data = txn.image_data.clone();
        prop_assert_eq!(back, txn);
    }

    #[test]
    fn a_changed_bit_is_never_accepted(
        txn in transaction(), form in form(), at in any::<prop::sample::Index>(), bit in 0u8..8
    ) {
        let mut bytes = encode_as(&txn, form);
        let layout = JournalLayout::new(&txn, form).unwrap();
        let i = at.index(bytes.len());
        // What fills the last block of data up means nothing.
        prop_assume!(i < layout.data().end || i >= bytes.len() - BLOCK_SIZE);
        bytes[i] ^= 1 << bit;
        prop_assert!(!valid(&bytes));
    }

    #[test]
    fn arbitrary_bytes_are_no_record(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(!valid(&bytes));
    }
}

#[test]
fn every_bit_of_a_small_record_counts() {
    let txn = Transaction {
        seq: TxnSeq(1),
        lane_upto: vec![0],
        images: vec![7],
        image_data: vec![[1; BLOCK_SIZE].into()],
        ..Default::default()
    };
    let good = encode(&txn);
    assert!(valid(&good));
    for i in 0..good.len() {
        let mut bad = good.clone();
        bad[i] ^= 0x10;
        assert!(!valid(&bad), "byte {i}");
    }
    assert!(!valid(&good[..good.len() - 1]));
    let key = LogKey { nonce: 43, ..KEY };
    assert!(decode_journal_record(&good, &key, P.pos, MAX).is_err());
    assert!(decode_journal_record(&good, &KEY, 0, MAX).is_err());
}

/// What a descriptor says of its data section must fit its copy tags, whatever wrote it under the
/// key.
#[test]
fn a_data_section_that_its_tags_do_not_make_is_refused() {
    let staged = StagedRef { lane: LaneId(0), pos: 0, len: 8192, lsn: Lsn(1), crc: 0 };
    let copy = CopyTag { source: 0, data_offset: 0, dst: 0, len: 5000 };
    let txn = Transaction {
        seq: TxnSeq(1),
        lane_upto: vec![8192],
        staged: vec![staged],
        copies: vec![copy],
        ..Default::default()
    };
    let good = encode_as(&txn, JournalData::Copy);
    assert!(valid(&good));
    // Flags at 12, bytes of data at 108; the descriptor is one block with its checksum at 124.
    let patched = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let (fixed, entries) = bytes[..BLOCK_SIZE].split_first_chunk().unwrap();
        let crc = head_crc(&KEY, fixed, entries);
        bytes[124..128].copy_from_slice(&crc.to_le_bytes());
        let record = decode_journal_record(&bytes, &KEY, P.pos, MAX);
        record.map(|r| r.descriptor.header.layout)
    };
    for (at, value) in [(108, 5001), (108, 4097), (12, 0)] {
        let got = patched(at, value);
        assert!(
            matches!(got, Err(DecodeError::Stop(Error::Corrupt { .. }))),
            "{at}: {value}: {got:?}"
        );
    }
    // What this build does not know may have other lengths.
    for (at, value) in [(12, 5), (12, 0x8000_0001), (8, 2)] {
        let got = patched(at, value);
        assert!(
            matches!(got, Err(DecodeError::Stop(Error::Incompatible(_)))),
            "{at}: {value}: {got:?}"
        );
    }
    let mut other = good.clone();
    let at = other.len() - BLOCK_SIZE;
    other[at + 8] = 2;
    let crc = KEY.crc(&other[at..at + BLOCK_SIZE - 4]);
    other[at + BLOCK_SIZE - 4..].copy_from_slice(&crc.to_le_bytes());
    let got = decode_journal_record(&other, &KEY, P.pos, MAX).map(|r| r.commit_crc);
    assert!(matches!(got, Err(DecodeError::Stop(Error::Incompatible(_)))), "commit block: {got:?}");
    for (at, value) in [(108, 0), (108, 8193), (108, u32::MAX), (112, 1), (112, u32::MAX)] {
        let got = patched(at, value);
        assert!(matches!(got, Err(DecodeError::Invalid(_))), "{at}: {value}: {got:?}");
    }
}

#[test]
fn nonsense_is_refused_before_it_is_written() {
    let good = Transaction { seq: TxnSeq(1), lane_upto: vec![4096], ..Default::default() };
    assert!(check_transaction(&good).is_ok());
    let staged = StagedRef { lane: LaneId(0), pos: 0, len: 4096, lsn: Lsn(1), crc: 0 };
    let copy = CopyTag { source: 0, data_offset: 0, dst: 0, len: 1 };
    let run = BlockRun { start: u64::MAX, len: 2 };
    let digest = Digest { lane: LaneId(0), from: 4032, prev_crc: 0, crc: 0, ranges: 1 };
    let digests = |digest| Transaction { digest: Some(digest), ..good.clone() };
    assert!(check_transaction(&digests(digest.clone())).is_ok());
    let bad = [
        digests(Digest { lane: LaneId(1), ..digest.clone() }),
        digests(Digest { from: 4096, ..digest.clone() }),
        digests(Digest { from: 4000, ..digest.clone() }),
        digests(Digest { ranges: 0, ..digest }),
        Transaction { seq: TxnSeq(0), ..good.clone() },
        Transaction { lane_upto: vec![], ..good.clone() },
        Transaction { lane_upto: vec![1], ..good.clone() },
        Transaction { staged: vec![StagedRef { pos: 4096, ..staged.clone() }], ..good.clone() },
        Transaction { staged: vec![StagedRef { len: 7, ..staged.clone() }], ..good.clone() },
        Transaction {
            staged: vec![StagedRef { lane: LaneId(1), ..staged.clone() }],
            ..good.clone()
        },
        Transaction { copies: vec![copy.clone()], ..good.clone() },
        Transaction {
            staged: vec![staged],
            copies: vec![CopyTag { data_offset: 4000, len: 97, ..copy }],
            ..good.clone()
        },
        Transaction { zeros: vec![ZeroTag { dst: u64::MAX, len: 1 }], ..good.clone() },
        Transaction { images: vec![2, 2], ..good.clone() },
        Transaction { drops: vec![run], ..good.clone() },
        Transaction { direct: vec![run], ..good.clone() },
    ];
    for txn in bad {
        assert!(check_transaction(&txn).is_err(), "{txn:?}");
    }
}

/// The descriptor is that of the specification, byte by byte ...
#[test]
fn the_descriptor_is_the_specifications() {
    let words = [
        ("pos", "position"),
        ("lane_count", "number of lanes"),
        ("total_len", "length of the record"),
        ("descriptor_len", "length of the descriptor"),
        ("staged_count", "number of staged references"),
        ("zero_count", "number of zero tags"),
        ("copy_count", "number of copy tags"),
        ("image_count", "number of images"),
        ("drop_count", "number of drops"),
        ("direct_count", "number of direct runs"),
        ("data_len", "length of the data"),
    ];
    let all = fields!(RawDescriptor {
        magic,
        version,
        flags,
        epoch,
        seq,
        pos,
        prev_end,
        prev_crc,
        lane_count,
        ops_cut,
        staged_cut,
        total_len,
        descriptor_len,
        staged_count,
        zero_count,
        copy_count,
        image_count,
        drop_count,
        direct_count,
        data_len,
        reserved,
        crc,
    });
    check("Descriptor:", 0, &all, &words);
    says("Descriptor:", 8, &format!("version, {VERSION}"));
}

/// ... so is the commit block ...
#[test]
fn the_commit_block_is_the_specifications() {
    let words = [
        ("descriptor_crc", "crc of the descriptor"),
        ("pos", "position"),
        ("total_len", "length of the record"),
    ];
    let all = fields!(RawCommit {
        magic,
        version,
        descriptor_crc,
        epoch,
        seq,
        pos,
        total_len,
        reserved,
        crc,
    });
    check("Commit block:", 0, &all, &words);
    says("Commit block:", 8, &format!("version, {VERSION}"));
}

/// ... and the lists.
#[test]
fn the_lists_are_the_specifications() {
    let check = |row, all: &[_]| check_list("| list | entry |", row, 0, all);
    let all = fields!(RawDigest { lane, reserved, ranges, from, prev_crc, crc, reserved2 });
    check("digest (32)", &all);
    let all = fields!(RawStaged { lane, reserved, len, pos, lsn, crc, reserved2 });
    check("staged references (32)", &all);
    check("zero tags (16)", &fields!(RawZeroTag { dst, len, reserved }));
    check("copy tags (24)", &fields!(RawCopyTag { dst, source, data_offset, len, reserved }));
    check("images (16)", &fields!(RawImage { block, crc, reserved }));
    check("drops (16)", &fields!(RawRun { start, len }));
}
