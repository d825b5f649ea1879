use super::*;
use crate::samples::requests;
use siftfs_proto::{Handle, Level, Rights, WriteData};

fn errno_of(req: &Request) -> Option<i32> {
    check(req).err().map(|error| error.errno())
}

#[test]
fn what_a_kernel_passes_on_is_let_through() {
    for request in requests() {
        assert_eq!(errno_of(&request), None, "{request:?}");
    }
}

#[test]
fn names_that_no_kernel_passes_on_are_refused() {
    let long = vec![b'x'; 256];
    for (name, errno) in [
        (&b""[..], libc::EINVAL),
        (b".", libc::EINVAL),
        (b"..", libc::EINVAL),
        (b"a/b", libc::EINVAL),
        (b"a\0", libc::EINVAL),
        (&long, libc::ENAMETOOLONG),
    ] {
        let name = name.to_vec();
        let right = b"right".to_vec();
        let mode = siftfs_proto::RenameMode::Replace;
        for request in [
            Request::Lookup { parent: 2, name: name.clone() },
            Request::Create { parent: 2, name: name.clone(), perm: 0 },
            Request::Link { ino: 12, parent: 2, name: name.clone() },
            Request::Rename {
                parent: 2,
                name: right.clone(),
                new_parent: 2,
                new_name: name.clone(),
                mode,
            },
            Request::Rename { parent: 2, name, new_parent: 2, new_name: right, mode },
        ] {
            assert_eq!(errno_of(&request), Some(errno), "{request:?}");
        }
    }
}

/// A kernel looks for a directory by itself, and for the one above. Nobody gives such names.
#[test]
fn a_kernel_looks_up_what_others_may_not() {
    for name in [&b"."[..], b".."] {
        let name = name.to_vec();
        let look_up = Request::Lookup { parent: 2, name: name.clone() };
        assert!(check_kernels(&look_up).is_ok() && check(&look_up).is_err());
        let make = Request::MakeDir { parent: 2, name, perm: 0 };
        assert!(check_kernels(&make).is_err());
    }
    let name = b"a/b".to_vec();
    assert!(check_kernels(&Request::Lookup { parent: 2, name }).is_err());
}

#[test]
fn numbers_and_lists_beyond_a_calls_are_refused() {
    let (file, data) = (Handle(1).into(), || WriteData::Bytes(vec![0; 2]));
    let steps = vec![Step::Unlink { path: vec![b'x'; 4096] }];
    let (base, level, rights) = (2, Level::Visible, Rights::default());
    let wanted = siftfs_proto::compound::Wanted::All;
    let compound = Compound { base, steps, level, rights, wanted };
    let mode = siftfs_proto::Allocate::Grow;
    let held = |count| siftfs_proto::Held { ino: 12, generation: 1, count };
    let most = siftfs_proto::HOLD_MOST;
    assert!(check(&Request::HoldMany { inodes: vec![held(1); most] }).is_ok());
    for (request, errno) in [
        (Request::write(Handle(1), i64::MAX as u64, data()), libc::EINVAL),
        (Request::write(Handle(1), u64::MAX, data()), libc::EINVAL),
        (Request::Read { file, offset: 0, len: u32::MAX }, libc::EINVAL),
        (Request::Allocate { file, mode, offset: 0, len: 0, times: true }, libc::EINVAL),
        (Request::Allocate { file, mode, offset: 5, len: u64::MAX, times: true }, libc::EINVAL),
        (Request::Compound(Box::new(compound)), libc::ENAMETOOLONG),
        (Request::Symlink { parent: 2, name: vec![b'x'], target: vec![] }, libc::ENOENT),
        (Request::GetXattr { file, name: vec![] }, libc::ERANGE),
        (Request::HoldMany { inodes: vec![held(1); most + 1] }, libc::E2BIG),
        (Request::HoldMany { inodes: vec![held(1), held(0)] }, libc::EINVAL),
    ] {
        assert_eq!(errno_of(&request), Some(errno), "{request:?}");
    }
}
