use super::*;
use crate::kernel::testing::{message, n32, n64};
use proptest::prelude::*;

fn parsed(opcode: u32, body: &[u8], check: impl FnOnce(Operation<'_>)) {
    for setxattr_ext in [false, true] {
        let bytes = message(opcode, 7, body);
        if opcode == abi::SETXATTR && setxattr_ext {
            continue;
        }
        if let Ok(m) = parse(&bytes, Dialect { setxattr_ext }) {
            assert_eq!((m.unique, m.node), (42, 7));
            assert_eq!(
                m.cred,
                Credentials { uid: 1000, gid: 100, pid: 77, ..Credentials::default() }
            );
            if setxattr_ext {
                return check(m.op);
            }
        } else {
            panic!("opcode {opcode} was not understood");
        }
        if opcode == abi::SETXATTR {
            return check(parse(&bytes, Dialect::default()).unwrap().op);
        }
    }
}

/// The operation that a body of these parts means.
fn is(opcode: u32, parts: &[&[u8]], want: Operation<'_>) {
    let body = parts.concat();
    parsed(opcode, &body, |op| assert_eq!(op, want));
    // Cut anywhere, it is refused or (where only padding is missing) means the same; never a panic.
    for len in 0..body.len() {
        let bytes = message(opcode, 7, body.get(..len).unwrap());
        if let Ok(m) = parse(&bytes, Dialect::default()) {
            assert_eq!(m.unique, 42, "opcode {opcode} cut to {len} bytes");
        }
    }
}

#[test]
fn names_are_read() {
    use Operation as O;
    is(abi::LOOKUP, &[b"a\0"], O::Lookup { name: b"a" });
    is(abi::SYMLINK, &[b"a\0", b"to\0"], O::Symlink { name: b"a", target: b"to" });
    let make = O::MakeNode { name: b"n", mode: 0o10644, umask: 0o22, rdev: 9 };
    is(abi::MKNOD, &[&n32(&[0o10644, 9, 0o22, 0]), b"n\0"], make);
    let make = O::MakeDir { name: b"d", mode: 0o755, umask: 0o77 };
    is(abi::MKDIR, &[&n32(&[0o755, 0o77]), b"d\0"], make);
    is(abi::UNLINK, &[b"a\0"], O::Unlink { name: b"a" });
    is(abi::RMDIR, &[b"a\0"], O::RemoveDir { name: b"a" });
    let rename = O::Rename { name: b"a", new_dir: 5, new_name: b"b", flags: 0 };
    is(abi::RENAME, &[&n64(&[5]), b"a\0b\0"], rename);
    let rename = O::Rename { name: b"a", new_dir: 5, new_name: b"b", flags: 2 };
    is(abi::RENAME2, &[&n64(&[5]), &n32(&[2, 0]), b"a\0b\0"], rename);
    is(abi::LINK, &[&n64(&[5]), b"b\0"], O::Link { node: 5, name: b"b" });
    let create = O::Create { name: b"f", mode: 0o100_644, umask: 0o22, flags: 0o102 };
    is(abi::CREATE, &[&n32(&[0o102, 0o100_644, 0o22, 0]), b"f\0"], create);
    let tmp = O::TmpFile { mode: 0o100_600, umask: 0o22, flags: 2 };
    is(abi::TMPFILE, &[&n32(&[2, 0o100_600, 0o22, 0]), b"/\0"], tmp);
    is(abi::GETXATTR, &[&n32(&[64, 0]), b"user.a\0"], O::GetXattr { name: b"user.a", size: 64 });
    is(abi::REMOVEXATTR, &[b"user.a\0"], O::RemoveXattr { name: b"user.a" });
    is(abi::LISTXATTR, &[&n32(&[64, 0])], O::ListXattr { size: 64 });
}

#[test]
fn files_are_read() {
    use Operation as O;
    is(
        abi::READ,
        &[&n64(&[3, 4096]), &n32(&[512, 0, 0, 0, 0, 0])],
        O::Read { handle: 3, offset: 4096, size: 512, direct: false },
    );
    let (kill, owner) = (abi::FUSE_WRITE_KILL_SUIDGID, abi::FUSE_WRITE_LOCKOWNER);
    let cache = abi::FUSE_WRITE_CACHE;
    for how in [0, kill, owner, kill | owner, cache] {
        let (kill_priv, direct) = (how & kill != 0, how & owner != 0);
        let cached = how & cache != 0;
        let (handle, offset, flags) = (3, 9, 0x4000);
        let write = O::Write { handle, offset, data: b"data", kill_priv, flags, direct, cached };
        is(abi::WRITE, &[&n64(&[3, 9]), &n32(&[4, how, 0, 0, flags, 0]), b"data"], write);
    }
    is(abi::OPEN, &[&n32(&[2, 1])], O::Open { flags: 2, kill_priv: true });
    is(abi::OPEN, &[&n32(&[2, 0])], O::Open { flags: 2, kill_priv: false });
    is(abi::OPENDIR, &[&n32(&[0, 0])], O::OpenDir);
    is(abi::FLUSH, &[&n64(&[3, 0, 7])], O::Flush { handle: 3, owner: 7 });
    is(abi::RELEASE, &[&n64(&[3, 0, 0])], O::Release { handle: 3 });
    is(abi::RELEASEDIR, &[&n64(&[3, 0, 0])], O::ReleaseDir { handle: 3 });
    is(abi::FSYNC, &[&n64(&[3]), &n32(&[1, 0])], O::Fsync { datasync: true });
    is(abi::FSYNCDIR, &[&n64(&[3]), &n32(&[0, 0])], O::Fsync { datasync: false });
    for (opcode, plus) in [(abi::READDIR, false), (abi::READDIRPLUS, true)] {
        let read = O::ReadDir { handle: 3, cookie: 8, size: 4096, plus };
        is(opcode, &[&n64(&[3, 8]), &n32(&[4096, 0, 0, 0, 0, 0])], read);
    }
    let allocate = O::Allocate { handle: 9, offset: 1, len: 2, mode: 3 };
    is(abi::FALLOCATE, &[&n64(&[9, 1, 2]), &n32(&[3, 0])], allocate);
    is(abi::LSEEK, &[&n64(&[9, 1]), &n32(&[3, 0])], O::Seek { offset: 1, whence: 3 });
    let (to_node, to_handle, to_offset) = (3, 4, 5);
    let copy = O::Copy { offset: 2, to_node, to_handle, to_offset, len: 6, flags: 7 };
    is(abi::COPY_FILE_RANGE, &[&n64(&[1, 2, 3, 4, 5, 6, 7])], copy);
}

#[test]
fn locks_are_read() {
    use Operation as O;
    let (handle, owner) = (3, 1 << 60);
    let lock = FileLock { first: 5, last: 9, kind: 1, pid: 77 };
    for flags in [0, abi::FUSE_LK_FLOCK] {
        let body = [n64(&[handle, owner, 5, 9]), n32(&[1, 77, flags, 0])].concat();
        let whole = flags != 0;
        is(abi::GETLK, &[&body], O::GetLock { handle, owner, lock });
        is(abi::SETLK, &[&body], O::SetLock { handle, owner, lock, whole, wait: false });
        is(abi::SETLKW, &[&body], O::SetLock { handle, owner, lock, whole, wait: true });
    }
    is(abi::INTERRUPT, &[&n64(&[44])], O::Interrupt { unique: 44 });
}

#[test]
fn the_rest_is_read() {
    use Operation as O;
    is(abi::GETATTR, &[&n64(&[0, 0])], O::GetAttr { by_handle: false });
    is(abi::STATX, &[&n64(&[0, 0, 0])], O::Statx);
    is(abi::READLINK, &[], O::ReadLink);
    is(abi::STATFS, &[], O::StatFs);
    is(abi::DESTROY, &[], O::Destroy);
    let ioctl = O::Ioctl { handle: 1, command: 7, input: b"four" };
    is(abi::IOCTL, &[&n64(&[1]), &n32(&[0, 7]), &n64(&[3]), &n32(&[4, 0]), b"four"], ioctl);
    is(abi::FORGET, &[&n64(&[6])], O::Forget { count: 6 });
    is(99, &[b"whatever"], O::Unknown { opcode: 99 });
    let init = O::Init { major: 7, minor: 38, max_readahead: 1, flags: 2, flags2: 0 };
    is(abi::INIT, &[&n32(&[7, 38, 1, 2]), &[0; 48]], init);
    let set = |flags| O::SetXattr { name: b"user.a", value: b"v\0w", flags, kill_setgid: false };
    is(abi::SETXATTR, &[&n32(&[3, 2]), b"user.a\0v\0w"], set(2));
    let body = [&n32(&[3, 0, 1, 0])[..], b"system.b\0abc"].concat();
    let bytes = message(abi::SETXATTR, 7, &body);
    let want = O::SetXattr { name: b"system.b", value: b"abc", flags: 0, kill_setgid: true };
    assert_eq!(parse(&bytes, Dialect { setxattr_ext: true }).unwrap().op, want);
    let list = [&n32(&[2, 0])[..], &n64(&[11, 1, 12, 5])].concat();
    parsed(abi::BATCH_FORGET, &list, |op| match op {
        O::BatchForget(f) => assert_eq!(f.iter().collect::<Vec<_>>(), [(11, 1), (12, 5)]),
        other => panic!("{other:?}"),
    });
}

#[test]
fn set_attr_takes_every_field_and_every_time() {
    let body = |valid: u32, sec: i64, nsec: u32| {
        let sec = sec.cast_unsigned();
        let times = n64(&[3, 10, 0, sec, sec, sec]);
        let rest = n32(&[nsec, nsec, nsec, 0o100_4755, 0, 5, 6, 0]);
        [&n32(&[valid, 0])[..], &times, &rest].concat()
    };
    let set = |valid, sec, nsec| {
        let mut got = None;
        parsed(abi::SETATTR, &body(valid, sec, nsec), |op| match op {
            Operation::SetAttr { set } => got = Some(set),
            other => panic!("{other:?}"),
        });
        got.unwrap()
    };
    assert_eq!(set(0, 1, 1), SetAttr::default());
    assert_eq!(set(abi::FATTR_MODE, 0, 0).perm, Some(0o4755));
    assert_eq!(set(abi::FATTR_UID, 0, 0).uid, Some(5));
    assert_eq!(set(abi::FATTR_GID, 0, 0).gid, Some(6));
    assert_eq!(set(abi::FATTR_SIZE, 0, 0).size, Some(10));
    assert!(set(abi::FATTR_KILL_SUIDGID, 0, 0).kill_priv);
    let now = set(abi::FATTR_ATIME | abi::FATTR_ATIME_NOW, 5, 5);
    assert_eq!((now.atime, now.mtime), (Some(SetTime::Now), None));
    for sec in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
        let all = set(abi::FATTR_ATIME | abi::FATTR_MTIME | abi::FATTR_CTIME, sec, 999_999_999);
        let at = Timestamp { sec, nsec: 999_999_999 };
        assert_eq!((all.atime, all.mtime), (Some(SetTime::At(at)), Some(SetTime::At(at))));
        assert_eq!(all.ctime, Some(at));
    }
    let odd = set(abi::FATTR_CTIME, 0, u32::MAX);
    assert_eq!(odd.ctime, Some(Timestamp { sec: 0, nsec: 999_999_999 }));
}

#[test]
fn lengths_that_lie_are_refused() {
    let mut bytes = message(abi::LOOKUP, 7, b"a\0");
    assert!(parse(&bytes, Dialect::default()).is_ok());
    bytes.push(0);
    assert_eq!(parse(&bytes, Dialect::default()).unwrap_err(), Malformed, "longer than it says");
    for (opcode, body) in [
        (abi::LOOKUP, b"no end".to_vec()),
        (abi::SYMLINK, b"one\0no end".to_vec()),
        (abi::WRITE, [&n64(&[3, 9])[..], &n32(&[5, 0, 0, 0, 0, 0]), b"four"].concat()),
        (abi::WRITE, [&n64(&[3, 9])[..], &n32(&[u32::MAX, 0, 0, 0, 0, 0])].concat()),
        (abi::SETXATTR, [&n32(&[9, 0])[..], b"user.a\0short"].concat()),
        (abi::BATCH_FORGET, [&n32(&[2, 0])[..], &n64(&[1, 1])].concat()),
        (abi::BATCH_FORGET, n32(&[u32::MAX, 0])),
    ] {
        let bytes = message(opcode, 7, &body);
        assert_eq!(parse(&bytes, Dialect::default()).unwrap_err(), Malformed, "opcode {opcode}");
    }
}

/// Looks at everything that a parsed message lends.
fn touch(bytes: &[u8], dialect: Dialect) {
    if let Ok(m) = parse(bytes, dialect) {
        if let Operation::BatchForget(f) = &m.op {
            assert!(f.iter().count() * 16 <= bytes.len());
        }
        assert!(format!("{m:?}").len() < 1 << 20);
    }
    let _ = header(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        setxattr_ext in any::<bool>(),
    ) {
        touch(&bytes, Dialect { setxattr_ext });
    }

    #[test]
    fn no_body_makes_it_panic(
        opcode in 0u32..60,
        body in proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..200),
        lie in prop_oneof![9 => Just(0i32), 1 => any::<i32>()],
        setxattr_ext in any::<bool>(),
    ) {
        let mut bytes = message(opcode, 7, &body);
        let len = u32::try_from(bytes.len()).unwrap().wrapping_add_signed(lie);
        bytes.splice(..4, n32(&[len]));
        touch(&bytes, Dialect { setxattr_ext });
    }
}
