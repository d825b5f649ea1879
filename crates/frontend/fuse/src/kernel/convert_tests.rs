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
fn unknown_modes_are_refused() {
    assert_eq!(allocate_mode(libc::FALLOC_FL_COLLAPSE_RANGE as u32), Err(errno(libc::EOPNOTSUPP)));
    assert_eq!(allocate_mode(libc::FALLOC_FL_PUNCH_HOLE as u32), Err(errno(libc::EOPNOTSUPP)));
    assert_eq!(rename_mode(libc::RENAME_WHITEOUT), Ok(RenameMode::Whiteout));
    let both = libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE;
    assert_eq!(rename_mode(both), Err(errno(libc::EINVAL)));
    assert_eq!(rename_mode(3), Err(errno(libc::EINVAL)));
    assert_eq!(kind_of_mode(libc::S_IFDIR), Err(errno(libc::EINVAL)));
    assert_eq!(seek(libc::SEEK_SET as u32), Err(errno(libc::EINVAL)));
    assert_eq!(xattr_mode(3), Err(errno(libc::EINVAL)));
}
