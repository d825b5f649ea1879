use super::*;

const NOW: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 123_456_789 };

fn round(inode: &Inode) -> Inode {
    Inode::parse(inode.ino, &inode.encode()).unwrap()
}

#[test]
fn every_field_survives() {
    let mut inode = Inode::fresh(12, S_IFREG | 0o6755, NOW, 256, 32);
    inode.generation = 0x1234_5678;
    (inode.uid, inode.gid) = (0x1_0002, 0x3_0004);
    (inode.size, inode.nlink, inode.blocks) = (0x12_3456_789A, 3, 0x1_2345_6789);
    (inode.version, inode.projid, inode.file_acl) = (0x9_8765_4321, 77, 0x1234_5678_9ABC);
    inode.atime = Timestamp { sec: -5, nsec: 1 };
    inode.mtime = Timestamp { sec: (3 << 32) + 1, nsec: 999_999_999 };
    inode.xattr_area_mut()[3] = 9;
    let mut again = round(&inode);
    assert_eq!(again.xattr_area().len(), 96);
    again.raw.clone_from(&inode.raw);
    assert_eq!(again, inode);
}

#[test]
fn times_cover_1901_to_2446_and_clamp_outside() {
    let (first, last) = (i64::from(i32::MIN), (3 << 32) + i64::from(i32::MAX));
    for sec in [first + 1, -1, 0, 1 << 31, (1 << 32) + 5, last - 1] {
        let (lo, extra) = encode_time(Timestamp { sec, nsec: 7 }, true);
        assert_eq!(decode_time(lo, extra), Timestamp { sec, nsec: 7 });
    }
    // At the ends of the range nanoseconds are dropped, as the kernel does.
    for sec in [first, last] {
        let (lo, extra) = encode_time(Timestamp { sec, nsec: 7 }, true);
        assert_eq!(decode_time(lo, extra), Timestamp { sec, nsec: 0 });
    }
    let late = encode_time(Timestamp { sec: i64::MAX, nsec: 0 }, true);
    assert_eq!(decode_time(late.0, late.1).sec, (3 << 32) + i64::from(i32::MAX));
    assert_eq!(encode_time(Timestamp { sec: 1 << 33, nsec: 0 }, false).0, 0x7FFF_FFFF);
}

#[test]
fn huge_files_count_in_blocks() {
    let mut inode = Inode::fresh(12, S_IFREG, NOW, 256, 32);
    inode.blocks = 1 << 50;
    let raw = inode.encode();
    let (r, _) = RawInode::ref_from_prefix(&raw).unwrap();
    assert_ne!(r.i_flags.get() & FL_HUGE_FILE, 0);
    assert_eq!(round(&inode).blocks, 1 << 50);
}

#[test]
fn directory_links_become_unknown_and_stay_so() {
    let mut dir = Inode::fresh(12, S_IFDIR | 0o755, NOW, 256, 32);
    dir.nlink = 2;
    for _ in 0..70_000 {
        dir.inc_nlink();
    }
    assert_eq!(dir.nlink, 1);
    dir.dec_nlink().unwrap();
    assert_eq!(dir.nlink, 1);
    let mut file = Inode::fresh(12, S_IFREG, NOW, 256, 32);
    assert!(file.dec_nlink().is_err());
    file.nlink = LINK_MAX;
    assert!(!file.can_link());
}

#[test]
fn device_numbers_in_both_forms() {
    let mut dev = Inode::fresh(12, S_IFCHR, NOW, 256, 32);
    // makedev(8, 1), makedev(259, 3), makedev(1, 300)
    for (packed, old) in [(0x0801, true), (0x1_0303, false), (0x0010_012C, false), (0, true)] {
        dev.set_rdev(packed);
        assert_eq!(dev.rdev(), packed);
        assert_eq!(dev.i_block[4..8] == [0; 4], old);
    }
}

#[test]
fn short_symlinks_lie_in_the_inode() {
    let mut link = Inode::fresh(12, S_IFLNK | 0o777, NOW, 256, 32);
    assert!(!link.set_fast_symlink(&[b'x'; 60]));
    assert!(link.set_fast_symlink(&[b'x'; 59]));
    assert_eq!(link.fast_symlink(), Some(&[b'x'; 59][..]));
    assert_eq!(round(&link).size, 59);
}

/// A record with short or no extra fields keeps what follows them untouched.
#[test]
fn short_records_keep_their_bytes() {
    for extra in [0u16, 4, 16, 28] {
        let mut inode = Inode::fresh(12, S_IFREG, NOW, 256, extra);
        inode.xattr_area_mut().fill(0xA5);
        let raw = inode.encode();
        assert!(raw[128 + usize::from(extra)..].iter().all(|b| *b == 0xA5), "extra {extra}");
    }
    let mut raw = vec![0; 256];
    raw[128] = 200;
    assert!(Inode::parse(12, &raw).is_err());
}
