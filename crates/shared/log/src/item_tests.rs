use super::*;
use proptest::prelude::*;

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0u32..1_000_000_000).prop_map(|(sec, nsec)| Timestamp { sec, nsec })
}

fn file_name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..=MAX_NAME).prop_map(|mut v| {
        v.iter_mut().filter(|c| **c == 0 || **c == b'/').for_each(|c| *c = b'_');
        if v == b"." || v == b".." { b"dots".to_vec() } else { v }
    })
}

fn ino() -> impl Strategy<Value = u32> {
    1u32..
}

fn inode_item() -> impl Strategy<Value = Item> {
    let size = prop::option::of(0u64..=i64::MAX as u64);
    let numbers = prop::array::uniform6(any::<u32>());
    (ino(), numbers, size, time(), time(), time(), time()).prop_map(
        |(ino, [generation, mode, uid, gid, rdev, flags], size, atime, mtime, ctime, crtime)| {
            Item::Inode(InodeItem {
                ino,
                generation,
                mode,
                uid,
                gid,
                rdev,
                size,
                flags,
                atime,
                mtime,
                ctime,
                crtime,
            })
        },
    )
}

fn range_item() -> impl Strategy<Value = Item> {
    let offset = 0u64..1 << 60;
    (ino(), any::<u32>(), offset, 1u64..1 << 60, 0..3u8, any::<bool>()).prop_map(
        |(ino, generation, offset, len, which, keep_size)| match which {
            0 => Item::Zero { ino, generation, offset, len },
            1 => Item::Truncate { ino, generation, size: offset },
            _ => Item::Allocate { ino, generation, offset, len, keep_size },
        },
    )
}

fn xattrs_item() -> impl Strategy<Value = Item> {
    let bytes = |max| prop::collection::vec(1u8.., 1..max);
    (ino(), any::<u32>(), prop::collection::vec((bytes(40usize), bytes(200usize)), 0..6))
        .prop_map(|(ino, generation, list)| Item::Xattrs { ino, generation, list })
}

fn op_kind() -> impl Strategy<Value = NameOpKind> {
    let names = (file_name(), file_name());
    let target = prop::collection::vec(1u8.., 0..100);
    (names, [ino(), ino(), ino(), ino()], prop::array::uniform5(any::<u32>()), target, 0..6u8)
        .prop_map(|((name, other), [dir, new_dir, ino, ino2], n, target, which)| match which {
            0 => NameOpKind::Create {
                dir,
                name,
                ino,
                generation: n[0],
                mode: n[1],
                uid: n[2],
                gid: n[3],
                rdev: n[4],
                target,
            },
            1 => NameOpKind::Link { dir, name, ino },
            2 => NameOpKind::Unlink { dir, name, ino },
            3 => NameOpKind::RemoveDir { dir, name, ino },
            4 => NameOpKind::Rename {
                dir,
                name,
                new_dir,
                new_name: other,
                ino,
                displaced: if n[0] % 2 == 0 { 0 } else { ino2 },
            },
            _ => NameOpKind::Exchange {
                dir,
                name,
                ino,
                other_dir: new_dir,
                other_name: other,
                other_ino: ino2,
            },
        })
}

/// Any item without data; name operations have LSNs from 1 to 1000.
pub(crate) fn any_item() -> impl Strategy<Value = Item> {
    let op = (1u64..=1000, time(), op_kind())
        .prop_map(|(lsn, time, kind)| Item::NameOp(NameOp { lsn: Lsn(lsn), time, kind }));
    prop_oneof![inode_item(), range_item(), xattrs_item(), op, reply_item()]
}

fn reply_item() -> impl Strategy<Value = Item> {
    (1u64.., any::<u32>(), any::<u64>(), 1u64..=1000, ino()).prop_map(
        |(client, slot, number, lsn, ino)| {
            Item::Reply(ReplyItem { client, slot, number, lsn: Lsn(lsn), ino })
        },
    )
}

/// Any item of data, physical ones among them.
fn data_item() -> impl Strategy<Value = Item> {
    let home = prop::option::of(0u64..1 << 40);
    (ino(), any::<u32>(), 0u64..1 << 60, 1u32..1 << 20, 0u32..1 << 20, home).prop_map(
        |(ino, generation, offset, len, data_offset, block)| {
            let home = block.map(|block| block * BLOCK_BYTES + offset % BLOCK_BYTES);
            Item::Data { ino, generation, offset, len, data_offset, home }
        },
    )
}

fn any_or_data() -> impl Strategy<Value = Item> {
    prop_oneof![any_item(), data_item()]
}

fn encode_list(items: &[Item]) -> Vec<u8> {
    let mut buf = vec![0; items.iter().map(encoded_len).sum()];
    let mut room = &mut buf[..];
    for item in items {
        write(item, room.split_off_mut(..encoded_len(item)).unwrap());
    }
    assert!(room.is_empty());
    buf
}

proptest! {
    #[test]
    fn items_come_back(items in prop::collection::vec(any_or_data(), 0..8)) {
        prop_assert!(items.iter().all(|item| check(item).is_ok()));
        let bytes = encode_list(&items);
        prop_assert_eq!(decode_all(&bytes, items.len() as u32).unwrap(), items);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), n in 0u32..9) {
        let _ = decode_all(&bytes, n);
    }

    #[test]
    fn mutated_items_never_panic(
        items in prop::collection::vec(any_or_data(), 1..4), at in any::<prop::sample::Index>(), x in 1u8..
    ) {
        let mut bytes = encode_list(&items);
        let i = at.index(bytes.len());
        bytes[i] ^= x;
        let _ = decode_all(&bytes, items.len() as u32);
        let cut = at.index(bytes.len());
        prop_assert!(decode_all(&bytes[..cut], items.len() as u32).is_err());
    }
}

#[test]
fn unknown_kinds_are_incompatible_or_skipped() {
    let unknown = |kind: u16| {
        let mut bytes = vec![0u8; 16];
        bytes[..2].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&5u32.to_le_bytes());
        decode_all(&bytes, 1)
    };
    assert!(matches!(unknown(99), Err(Error::Incompatible(_))));
    assert!(matches!(unknown(0), Err(Error::Incompatible(_))));
    assert_eq!(unknown(0x8001).unwrap(), vec![]);
}

#[test]
fn bad_names_are_refused() {
    let names: [&[u8]; 6] = [b"", b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]];
    for bad in names {
        let kind = NameOpKind::Link { dir: 2, name: bad.to_vec(), ino: 12 };
        let op = NameOp { lsn: Lsn(1), time: Timestamp::default(), kind };
        let item = Item::NameOp(op);
        assert!(check(&item).is_err(), "{bad:?} is not written");
        let bytes = encode_list(&[item]);
        assert!(decode_all(&bytes, 1).is_err(), "{bad:?}");
    }
}

/// A home has its byte's place in the block, and ends within 64 bits.
#[test]
fn homes_that_cannot_be_are_refused() {
    let data = |home| Item::Data {
        ino: 12,
        generation: 0,
        offset: 4096 + 10,
        len: 20,
        data_offset: 0,
        home: Some(home),
    };
    assert!(check(&data(10)).is_ok());
    for home in [0, 11, 4096, u64::MAX - 5] {
        assert!(check(&data(home)).is_err(), "home {home} is not written");
        let bytes = encode_list(&[data(home)]);
        assert!(decode_all(&bytes, 1).is_err(), "home {home}");
    }
}

/// The items are those of the specification, byte by byte.
#[test]
fn places_are_those_of_the_specification() {
    use crate::spec::{check_list, fields};
    let check = |row, all: &[_]| check_list("### Items", row, 0, all);
    let all = fields!(RawInode {
        ino,
        generation,
        mode,
        uid,
        gid,
        rdev,
        flags,
        valid,
        size,
        atime,
        mtime,
        ctime,
        crtime,
    });
    check("1 inode (104)", &all);
    check("2 data (24)", &fields!(RawData { ino, generation, offset, len, data_offset }));
    check("3 zero (24)", &fields!(RawZero { ino, generation, offset, len }));
    check("4 truncate (16)", &fields!(RawTruncate { ino, generation, size }));
    let all = fields!(RawAllocate { ino, generation, offset, len, flags, reserved });
    check("5 allocate (32)", &all);
    check("6 xattrs (16 and entries)", &fields!(RawXattrs { ino, generation, count, reserved }));
    let check = |row, all: &[_]| check_list("### Items", row, size_of::<RawOp>(), all);
    let all =
        fields!(RawCreate { dir, ino, generation, mode, uid, gid, rdev, name_len, target_len });
    check("16 create", &all);
    let all =
        fields!(RawTwoNames { dir, new_dir, ino, other_ino, name_len, new_name_len, reserved });
    check("20 rename, 21 exchange", &all);
}
