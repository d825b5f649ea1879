//! Golden images: the format as it was shipped, in `golden/`, one hex dump per structure.
//!
//! A dump has one line per 32 bytes that are not all zero: offset, then the bytes. A test that
//! fails here means that volumes written before cannot be read any more, or differently. If that
//! is meant, raise the structure's version: its files have the version in their names, and
//! `SIFTFS_BLESS=1 cargo test` writes those that are missing. It never replaces one.

use crate::header::tests::{
    copy_header, external_header, host_record, redo_header, service_record, static_header,
};
use crate::record::tests::KEY;
use crate::*;
use crate::{CopyTag, StagedRef, Transaction, ZeroTag};
use siftfs_base::{BlockRun, Epoch, LaneId, Lsn, Timestamp, TxnSeq};
use std::fmt::Write as _;
use std::path::Path;

fn dump(bytes: &[u8]) -> String {
    let mut out = format!("length {:#x}\n", bytes.len());
    for (i, line) in bytes.chunks(32).enumerate().filter(|(_, l)| l.iter().any(|b| *b != 0)) {
        write!(out, "{:06x} ", i * 32).unwrap();
        line.iter().for_each(|b| write!(out, "{b:02x}").unwrap());
        out.push('\n');
    }
    out
}

/// Compares with the golden image `name` of a structure's `version`.
fn check(name: &str, version: u32, bytes: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let path = folder.join(format!("{name}.v{version}.hex"));
    if std::env::var_os("SIFTFS_BLESS").is_some() && !path.exists() {
        std::fs::write(&path, dump(bytes)).unwrap();
    }
    let golden = std::fs::read_to_string(&path).expect("golden file");
    let what_to_do = "the bytes on storage changed: raise the version, or restore them";
    assert_eq!(dump(bytes), golden, "{name}, version {version}: {what_to_do}");
}

fn check_header(name: &str, bytes: &[u8]) {
    check(name, FORMAT_VERSION, bytes);
}

fn check_record(name: &str, bytes: &[u8]) {
    check(name, crate::record::VERSION.into(), bytes);
}

fn check_journal(name: &str, bytes: &[u8]) {
    check(name, crate::journal::VERSION, bytes);
}

#[test]
fn header_blocks() {
    check_header("static", &static_header().encode()[..]);
    check_header("static-external", &external_header().encode()[..]);
    check_header("static-copy", &copy_header().encode()[..]);
    check_header("static-redo", &redo_header().encode()[..]);
    let link = AreaLink { volume: *b"volume-uuid-0001", epoch: Epoch(4) };
    check_header("link", &link.encode());
    check_header("host", &host_record().encode()[..]);
    let naming = crate::registry::tests::naming();
    check("host-registry", REGISTRY_VERSION, &naming.encode()[..]);
    check_header("service", &service_record().encode()[..]);
}

#[test]
fn spare_log() {
    let (header, batch) = (crate::spare::tests::spare_header(), crate::spare::tests::spare_batch());
    check_header("spare-slot", &header.encode()[..]);
    check_header("spare-batch", &batch.encode(&header.key())[..]);
}

#[test]
fn redo_lane() {
    let version = u32::from(crate::redo::VERSION);
    check("redo-slot", version, &crate::redo::tests::SLOT.encode());
    let writes: [(u64, &[u8]); 2] = [(4096, &[7; 5000]), (77, b"abc")];
    let record = crate::redo::tests::encoded(&crate::redo::tests::PLACE, &writes);
    check("redo-record", version, &record);
}

fn name_ops() -> Vec<Item> {
    let kinds = [
        NameOpKind::Create {
            dir: 2,
            name: b"link".to_vec(),
            ino: 13,
            generation: 5,
            mode: 0o120777,
            uid: 1000,
            gid: 100,
            rdev: 0,
            target: b"../target".to_vec(),
        },
        NameOpKind::Link { dir: 2, name: b"second".to_vec(), ino: 13 },
        NameOpKind::Unlink { dir: 2, name: b"gone".to_vec(), ino: 14 },
        NameOpKind::RemoveDir { dir: 2, name: b"dir".to_vec(), ino: 15 },
        NameOpKind::Rename {
            dir: 2,
            name: b"a".to_vec(),
            new_dir: 16,
            new_name: b"b".to_vec(),
            ino: 17,
            displaced: 18,
        },
        NameOpKind::Exchange {
            dir: 2,
            name: b"left".to_vec(),
            ino: 19,
            other_dir: 16,
            other_name: b"right".to_vec(),
            other_ino: 20,
        },
    ];
    let time = Timestamp { sec: -1, nsec: 999_999_999 };
    let op = |(i, kind)| Item::NameOp(NameOp { lsn: Lsn(10 + i as u64), time, kind });
    kinds.into_iter().enumerate().map(op).collect()
}

fn items() -> Vec<Item> {
    let t = |sec| Timestamp { sec, nsec: 7 };
    let mut items = name_ops();
    items.push(Item::Inode(InodeItem {
        ino: 12,
        generation: 3,
        mode: 0o100644,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size: Some(5000),
        flags: 0x80000,
        atime: t(1),
        mtime: t(2),
        ctime: t(3),
        crtime: t(4),
    }));
    items.push(Item::Truncate { ino: 12, generation: 3, size: 100 });
    items.push(Item::Zero { ino: 12, generation: 3, offset: 4096, len: 8192 });
    items.push(Item::Allocate { ino: 12, generation: 3, offset: 0, len: 65536, keep_size: true });
    let list = vec![(b"user.x".to_vec(), b"value".to_vec()), (b"user.y".to_vec(), vec![])];
    items.push(Item::Xattrs { ino: 12, generation: 3, list });
    items.push(Item::Data {
        ino: 12,
        generation: 3,
        offset: 10,
        len: 5,
        data_offset: 0,
        home: None,
    });
    items
}

/// The number of an item's kind among those that records can have, and how many there are. A new
/// kind does not compile until it has a line here, and fails until a golden image has it.
fn number(item: &Item) -> usize {
    match item {
        Item::Inode(_) => 0,
        Item::Data { home: None, .. } => 1,
        Item::Data { home: Some(_), .. } => 2,
        Item::Zero { .. } => 3,
        Item::Truncate { .. } => 4,
        Item::Allocate { .. } => 5,
        Item::Xattrs { .. } => 6,
        Item::NameOp(op) => match op.kind {
            NameOpKind::Create { .. } => 7,
            NameOpKind::Link { .. } => 8,
            NameOpKind::Unlink { .. } => 9,
            NameOpKind::RemoveDir { .. } => 10,
            NameOpKind::Rename { .. } => 11,
            NameOpKind::Exchange { .. } => 12,
        },
        Item::Reply(_) => 13,
    }
}
const KINDS: usize = 14;

#[test]
fn golden_images_have_every_kind_of_item() {
    let mut numbers: Vec<usize> =
        items().iter().chain(&physical()).chain(&replies()).map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..KINDS).collect::<Vec<_>>());
}

fn physical() -> [Item; 1] {
    [Item::Data { ino: 12, generation: 3, offset: 10, len: 5, data_offset: 0, home: Some(409_610) }]
}

fn replies() -> [Item; 1] {
    [Item::Reply(ReplyItem {
        client: 0x0123_4567_89ab,
        slot: 63,
        number: 7,
        lsn: Lsn(15),
        ino: 13,
    })]
}

#[test]
fn lane_records() {
    let builder = RecordBuilder { key: KEY, lane: LaneId(1) };
    let p = RecordParams {
        lsn: Lsn(20),
        prev_lsn: Lsn(0),
        prev_compact: Lsn(0),
        durable_lsn: Lsn(9),
        durable_pos: 4096,
        pos: 65536,
        prev_end: 61440,
        prev_crc: 0xaabb_ccdd,
    };
    let encode = |items: &[Item], data: &[u8]| {
        let layout = RecordLayout::new(items, data.len() as u64).unwrap();
        let mut buf = vec![0; layout.len as usize];
        builder.encode(&p, &layout, items, &[data], &mut buf);
        buf
    };
    check_record("record-small", &encode(&items(), b"hello"));
    let large =
        Item::Data { ino: 12, generation: 3, offset: 0, len: 5000, data_offset: 0, home: None };
    check_record("record-large", &encode(&[large], &[0x5a; 5000]));
    check_record("record-replies", &encode(&replies(), b""));
    let p = RecordParams { pos: 65_600, prev_end: 65_600, ..p };
    let layout = RecordLayout::on(LaneMedium::Bytes, &items(), 5).unwrap();
    let mut buf = vec![0; layout.len as usize];
    builder.encode(&p, &layout, &items(), &[b"hello"], &mut buf);
    assert!(buf.len().is_multiple_of(64));
    check_record("record-compact", &buf);
    let physical = physical();
    let layout = RecordLayout::on(LaneMedium::Bytes, &physical, 5).unwrap();
    let mut buf = vec![0; layout.len as usize];
    builder.encode(&p, &layout, &physical, &[b"hello"], &mut buf);
    check_record("record-physical", &buf);
    let header = RecordAreaHeader { seq: 5, volume: [7; 16], epoch: Epoch(3), len: 1 << 26 };
    check_header("record-area", &header.encode());
}

#[test]
fn journal_records() {
    let txn = Transaction {
        seq: TxnSeq(3),
        ops_cut: Lsn(20),
        staged_cut: Lsn(20),
        lane_upto: vec![0, 73728],
        digest: None,
        staged: vec![StagedRef { lane: LaneId(1), pos: 65536, len: 8192, lsn: Lsn(20), crc: 99 }],
        zeros: vec![ZeroTag { dst: 409_605, len: 4091 }],
        copies: vec![CopyTag { source: 0, data_offset: 0, dst: 409_600, len: 5 }],
        images: vec![1, 40],
        image_data: vec![[1; 4096].into(), [2; 4096].into()],
        direct: vec![BlockRun { start: 200, len: 3 }],
        drops: vec![BlockRun { start: 300, len: 4 }],
    };
    let p = JournalParams { pos: 1 << 20, prev_end: (1 << 20) - 4096, prev_crc: 1 };
    let digest = Digest { lane: LaneId(1), from: 65536, prev_crc: 7, crc: 8, ranges: 9 };
    let digests = Transaction { digest: Some(digest), ..txn.clone() };
    let layout = JournalLayout::new(&digests, JournalData::Ref).unwrap();
    let mut buf = vec![0; layout.len as usize];
    encode_transaction(&KEY, &p, &layout, &digests, &mut buf);
    check_journal("journal-digest", &buf);
    for (name, form) in [("journal", JournalData::Ref), ("journal-copy", JournalData::Copy)] {
        let layout = JournalLayout::new(&txn, form).unwrap();
        let mut buf = vec![0; layout.len as usize];
        buf[layout.data()].copy_from_slice(&b"hello"[..layout.data_len as usize]);
        encode_transaction(&KEY, &p, &layout, &txn, &mut buf);
        check_journal(name, &buf);
    }
}
