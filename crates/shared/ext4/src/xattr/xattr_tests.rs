use super::*;
use siftfs_base::{BLOCK_SIZE, Error, errno};

fn attr(index: u8, name: &str, value: &[u8]) -> Xattr {
    Xattr { index, name: name.as_bytes().to_vec(), value: value.to_vec() }
}

#[test]
fn names_go_both_ways() {
    for (full, index, rest) in [
        ("user.a", 1, "a"),
        ("trusted.overlay.opaque", 4, "overlay.opaque"),
        ("security.capability", 6, "capability"),
        ("system.posix_acl_access", 2, ""),
        ("system.posix_acl_default", 3, ""),
        ("system.data", 7, "data"),
    ] {
        assert_eq!(split_name(full.as_bytes()).unwrap(), (index, rest.as_bytes()));
        assert_eq!(full_name(index, rest.as_bytes()).unwrap(), full.as_bytes());
    }
    assert_eq!(split_name(b"user."), Err(errno(libc::EINVAL)));
    assert_eq!(split_name(b"other.x"), Err(errno(libc::EOPNOTSUPP)));
    assert_eq!(split_name(&[b'u'; 256]), Err(errno(libc::ERANGE)));
    assert_eq!(full_name(2, b"x"), None);
    assert_eq!(full_name(99, b"x"), None);
    // What other programs may have written, and no caller can ask for.
    assert_eq!(full_name(1, &[b'x'; 250]).map(|name| name.len()), Some(255));
    assert_eq!(full_name(1, &[b'x'; 251]), None);
    assert_eq!(full_name(1, b"a\0b"), None);
    assert_eq!(split_name(b"user.a\0b"), Err(errno(libc::EINVAL)));
}

#[test]
fn lists_survive_both_places() {
    let all = vec![
        attr(6, "capability", &[1; 20]),
        attr(1, "empty", b""),
        attr(1, "long", &[7; 301]),
        attr(1, "b", &[9; 3]),
        attr(4, "a", &[8; 50]),
    ];
    let layout = lay_out(&all, 96).unwrap();
    assert_eq!(layout.inode.len(), 96);
    let block = encode_block(&layout.block, 1234, Some(55));
    let mut back = parse_inode(&layout.inode).unwrap();
    assert!(back.len() >= 2, "the inode is used");
    back.extend(parse_block(&block, 1234, Some(55)).unwrap());
    assert_eq!(back.len(), all.len());
    assert!(all.iter().all(|x| back.contains(x)));
    for (nr, seed) in [(1235, 55), (1234, 56)] {
        assert!(matches!(parse_block(&block, nr, Some(seed)), Err(Error::Corrupt { .. })));
    }
    assert!(lay_out(&[], 96).unwrap().block.is_empty());
    assert!(lay_out(&all, 0).is_ok(), "small inodes have no room");
}

#[test]
fn what_does_not_fit_is_refused() {
    let one = vec![attr(1, "n", &vec![1; MAX_VALUE])];
    assert_eq!(lay_out(&one, 96).unwrap().block.len(), 1);
    let more = vec![attr(1, "n", &vec![1; MAX_VALUE + 1])];
    assert_eq!(lay_out(&more, 96), Err(errno(libc::ENOSPC)));
    // The small one came first, but only the other one fits beside the large one's block.
    let all = vec![
        attr(1, "s", &[1; 40]),
        attr(1, "m", &[2; 60]),
        attr(1, "l", &vec![3; MAX_VALUE - 80]),
    ];
    assert!(lay_out(&all, 96).is_ok());
}

#[test]
fn hostile_bytes_are_errors() {
    let all = vec![attr(1, "one", &[7; 60]), attr(1, "two", &[9; 30]), attr(6, "x", b"y")];
    let layout = lay_out(&all, 100).unwrap();
    let mut with_block = all.clone();
    with_block.sort_by_key(|x| (x.index, x.name.len(), x.name.clone()));
    let block = encode_block(&with_block, 9, None);
    let mut rng = siftfs_base::Rng::new(5);
    for _ in 0..20_000 {
        let (mut b, mut i) = (block, layout.inode.clone());
        for _ in 0..=rng.below(4) {
            let value = [0, 1, 4, 16, 0x7f, 0x80, 0xff][rng.below(7) as usize];
            b[rng.below(128) as usize] = value;
            b[rng.below(BLOCK_SIZE as u64) as usize] = value;
            i[rng.below(100) as usize] = value;
        }
        let _ = parse_block(&b, 9, None);
        let _ = parse_inode(&i);
    }
    let mut foreign = block;
    foreign[BLOCK_HEADER + 4] = 1;
    assert!(matches!(parse_block(&foreign, 9, None), Err(Error::Incompatible(_))));
    assert!(parse_inode(&[]).unwrap().is_empty());
    assert!(parse_inode(&[0, 0, 2, 0xea]).is_err());
}

#[test]
fn access_control_lists_go_both_ways() {
    let entry = |tag, perm, id| AclEntry { tag, perm, id };
    let acl = Acl::new(vec![
        entry(AclTag::UserObj, 7, ACL_ID_NONE),
        entry(AclTag::User, 6, 1000),
        entry(AclTag::User, 4, 1001),
        entry(AclTag::GroupObj, 5, ACL_ID_NONE),
        entry(AclTag::Mask, 6, ACL_ID_NONE),
        entry(AclTag::Other, 1, ACL_ID_NONE),
    ])
    .unwrap();
    assert_eq!(acl.to_xattr().len(), 4 + 6 * 8);
    assert_eq!(acl.to_disk().len(), 4 + 4 * 4 + 2 * 8);
    assert_eq!(Acl::from_xattr(&acl.to_xattr()).unwrap(), acl);
    assert_eq!(Acl::from_disk(&acl.to_disk()).unwrap(), acl);
    assert_eq!(acl.mode(), 0o761);
    let (inherited, mode) = acl.inherit(0o100_640);
    assert_eq!((inherited.mode(), mode), (0o640, 0o100_640));
    assert_eq!(inherited.entries()[3].perm, 5, "the mask limits, not the group's own entry");
    let mut changed = acl.clone();
    changed.set_mode(0o700);
    assert_eq!(changed.mode(), 0o700);
    for cut in 0..acl.to_disk().len() {
        assert!(Acl::from_disk(&acl.to_disk()[..cut]).is_err());
        assert!(Acl::from_xattr(&acl.to_xattr()[..cut]).is_err());
    }
    let without_mask = acl.entries().iter().filter(|e| e.tag != AclTag::Mask).copied().collect();
    assert_eq!(Acl::new(without_mask), Err(errno(libc::EINVAL)));
    let mut twice = acl.entries().to_vec();
    twice.insert(0, twice[0]);
    assert_eq!(Acl::new(twice), Err(errno(libc::EINVAL)));
    assert_eq!(Acl::from_xattr(&[1, 0, 0, 0]), Err(errno(libc::EOPNOTSUPP)));
}
