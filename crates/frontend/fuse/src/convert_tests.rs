use super::*;

#[test]
fn the_root_takes_the_number_of_the_bad_block_inode() {
    assert_eq!(node(ROOT_INO), 1);
    assert_eq!(inode(1), Ok(ROOT_INO));
    assert_eq!(node(11), 11);
    assert_eq!(inode(11), Ok(11));
    for bad in [0, 2, 1 << 32, u64::MAX] {
        assert_eq!(inode(bad), Err(errno(libc::ESTALE)), "{bad}");
    }
}

#[test]
fn times_before_1970_survive() {
    for (sec, nsec) in [(0, 0), (0, 5), (1 << 33, 999_999_999), (-1, 0), (-2, 800_000_000)] {
        let t = Timestamp { sec, nsec };
        let shown = system_time(t);
        let floor = match shown.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(d) => d.as_nanos() as i128,
            Err(e) => -(e.duration().as_nanos() as i128),
        };
        assert_eq!(floor, i128::from(sec) * 1_000_000_000 + i128::from(nsec));
        // As fuser hands over what the kernel sent:
        let given = if sec >= 0 {
            SystemTime::UNIX_EPOCH + Duration::new(sec as u64, nsec)
        } else {
            SystemTime::UNIX_EPOCH - Duration::new((-sec) as u64, nsec)
        };
        assert_eq!(request_time(given), t);
    }
    system_time(Timestamp { sec: i64::MIN, nsec: 0 });
    system_time(Timestamp { sec: i64::MAX, nsec: 999_999_999 });
}

#[test]
fn unknown_modes_are_refused() {
    assert_eq!(allocate_mode(libc::FALLOC_FL_COLLAPSE_RANGE), Err(errno(libc::EOPNOTSUPP)));
    assert_eq!(allocate_mode(libc::FALLOC_FL_PUNCH_HOLE), Err(errno(libc::EOPNOTSUPP)));
    assert_eq!(rename_mode(libc::RENAME_WHITEOUT), Err(errno(libc::EINVAL)));
    assert_eq!(rename_mode(3), Err(errno(libc::EINVAL)));
    assert_eq!(kind_of_mode(libc::S_IFDIR), Err(errno(libc::EINVAL)));
    assert_eq!(seek(libc::SEEK_SET), Err(errno(libc::EINVAL)));
    assert_eq!(xattr_mode(3), Err(errno(libc::EINVAL)));
}
