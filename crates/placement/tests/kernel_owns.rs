//! Changes by a kernel that keeps written pages back and owns the times of files.

use calls::{call, create};
use siftfs_base::{ManualClock, Timestamp, errno};
use siftfs_device::{Device, MemDevice};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::sync::Arc;

#[allow(dead_code)] // each test program uses a part of it
#[path = "support/calls.rs"]
mod calls;

fn volume() -> (LocalVolume, Arc<ManualClock>) {
    let dev: Arc<dyn Device> = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(dev.clone(), &MkfsOptions::default()).expect("mkfs");
    let clock = Arc::new(ManualClock::new(1_700_000_000));
    let opts = OpenOptions::default();
    let v = LocalVolume::open_on(dev, clock.clone(), &opts, Threads::None).expect("open");
    (v, clock)
}

fn try_call(v: &LocalVolume, req: Request) -> siftfs_base::Result<Reply> {
    v.endpoint().call(&Credentials::default(), req)
}

fn attr(v: &LocalVolume, ino: u32) -> Attr {
    match call(v, Request::GetAttr { file: ino.into() }) {
        Reply::Attr(attr) => attr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn untimed_changes_leave_the_times() {
    let (v, clock) = volume();
    let ino = create(&v, "f");
    let changes = |times| {
        let data = WriteData::copy_of(0, &[7; 5000]);
        let allocate =
            |mode, offset, len| Request::Allocate { file: ino.into(), mode, offset, len, times };
        let (file, access, kill_priv) = (ino.into(), Access::Both, false);
        let (truncate, beside_lease) = (true, false);
        let open = Request::Open { ino, access, truncate, kill_priv, times, beside_lease };
        [
            Request::Write { file, offset: 0, data, append: false, kill_priv, times },
            allocate(Allocate::Grow, 0, 20_000),
            allocate(Allocate::PunchHole, 0, 4096),
            allocate(Allocate::ZeroRange, 0, 30_000),
            Request::SetAttr {
                file: ino.into(),
                set: SetAttr { size: Some(50_000), ..SetAttr::default() },
                times,
            },
            Request::SetAttr {
                file: ino.into(),
                set: SetAttr { kill_priv: true, ..SetAttr::default() },
                times,
            },
            open,
        ]
    };
    let sizes = [5000, 20_000, 20_000, 30_000, 50_000, 50_000, 0];
    for (change, size) in changes(false).into_iter().zip(sizes) {
        clock.advance(1_000_000_000);
        let before = attr(&v, ino);
        call(&v, change.clone());
        let after = attr(&v, ino);
        assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime), "{change:?}");
        assert_eq!(after.size, size, "{change:?}");
    }
    for (change, size) in changes(true).into_iter().zip(sizes) {
        clock.advance(1_000_000_000);
        let before = attr(&v, ino);
        call(&v, change.clone());
        let after = attr(&v, ino);
        let data = !matches!(&change, Request::SetAttr { set, .. } if set.kill_priv);
        assert_eq!(after.mtime > before.mtime, data, "{change:?}");
        assert!(after.ctime > before.ctime, "{change:?}");
        assert_eq!(after.size, size, "{change:?}");
    }
    let name = b"user.a".to_vec();
    let (value, mode) = (b"1".to_vec(), XattrMode::Set);
    call(
        &v,
        Request::SetXattr { file: ino.into(), name: name.clone(), value, mode, kill_setgid: false },
    );
    clock.advance(1_000_000_000);
    let before = attr(&v, ino).ctime;
    call(&v, Request::RemoveXattr { file: ino.into(), name: name.clone(), times: false });
    assert_eq!(attr(&v, ino).ctime, before);
    assert_eq!(
        try_call(&v, Request::GetXattr { file: ino.into(), name }).err(),
        Some(errno(libc::ENODATA))
    );
    let acl = b"system.posix_acl_access".to_vec();
    let list = Request::RemoveXattr { file: ino.into(), name: acl, times: false };
    assert_eq!(try_call(&v, list).err(), Some(errno(libc::EINVAL)), "it changes the mode, too");
}

/// The kernel joins pages of several write(2) into one request.
#[test]
fn pages_before_the_largest_size_are_kept() {
    let (v, _) = volume();
    let ino = create(&v, "f");
    let pages = |offset, len| {
        let data = WriteData::copy_of(offset, &vec![7; len]);
        try_call(&v, Request::WriteBack { file: ino.into(), offset, data, times: false }).err()
    };
    let too_big = Some(errno(libc::EFBIG));
    assert_eq!(pages(MAX_FILE_SIZE, 1), too_big);
    assert_eq!(pages(MAX_FILE_SIZE + 4096, 4096), too_big);
    assert_eq!(attr(&v, ino).size, 0);
    assert_eq!(pages(MAX_FILE_SIZE - 8192, 3 * 4096), too_big);
    assert_eq!(attr(&v, ino).size, MAX_FILE_SIZE);
    let read =
        call(&v, Request::Read { file: ino.into(), offset: MAX_FILE_SIZE - 8192, len: 20_000 });
    assert_eq!(read.data(), Ok(vec![7; 8192]));
    assert_eq!(pages(MAX_FILE_SIZE - 4096, 4096), None);
}

/// utimes(2) to the present: the kernel says it itself, as mtime and as ctime.
#[test]
fn an_append_only_file_is_touched_and_not_dated() {
    let (v, _) = volume();
    let ino = create(&v, "f");
    call(&v, Request::SetFlags { file: ino.into(), flags: flags::APPEND });
    let now = Timestamp { sec: 1_700_000_005, nsec: 4 };
    let set = |atime, mtime, ctime| {
        let (atime, mtime) = (Some(atime), Some(SetTime::At(mtime)));
        let set = SetAttr { atime, mtime, ctime, ..SetAttr::default() };
        try_call(&v, Request::SetAttr { file: ino.into(), set, times: true }).err()
    };
    let past = Timestamp { sec: 5, nsec: 5 };
    let refused = Some(errno(libc::EPERM));
    assert_eq!(set(SetTime::Now, now, Some(now)), None);
    assert_eq!(attr(&v, ino).mtime, now);
    assert_eq!(set(SetTime::Now, past, Some(now)), refused);
    assert_eq!(set(SetTime::At(past), now, Some(now)), refused);
    assert_eq!(set(SetTime::Now, now, None), refused);
    call(&v, Request::SetFlags { file: ino.into(), flags: flags::IMMUTABLE });
    assert_eq!(set(SetTime::Now, now, Some(now)), refused);
}
