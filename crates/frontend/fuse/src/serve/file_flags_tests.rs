use super::*;

/// The kernel's numbers on a 64-bit machine.
#[test]
#[cfg(target_pointer_width = "64")]
fn numbers() {
    assert_eq!(FS_IOC_GETFLAGS, 0x8008_6601);
    assert_eq!(FS_IOC_SETFLAGS, 0x4008_6602);
    assert_eq!(FS_IOC_FSGETXATTR, 0x801C_581F);
    assert_eq!(FS_IOC_FSSETXATTR, 0x401C_5820);
}

#[test]
fn both_forms_say_the_same() {
    assert_eq!(to_xflags(0), 0);
    let all = flags::SETTABLE;
    assert_eq!(to_xflags(all), XFLAGS.iter().map(|(_, x)| x).sum::<u32>());
    assert_eq!(to_xflags(flags::NODUMP | 0x8_0000), 0x80, "extents have no other form");
}

#[test]
fn only_known_flags_are_set_by_the_other_form() {
    let given = |flags, project| FsXattr { flags, project, ..FsXattr::new_zeroed() };
    assert_eq!(from_xattr(&given(0x8, 0), 0x8_0000 | flags::NODUMP), Ok(0x8_0010));
    let refused = Err(errno(libc::EOPNOTSUPP));
    assert_eq!(from_xattr(&given(0x8, 1), 0), refused);
    assert_eq!(from_xattr(&given(0x200, 0), 0), refused);
    assert_eq!(from_xattr(&given(0x20, 0), 0x8), Ok(0x8), "what it has stays");
}
