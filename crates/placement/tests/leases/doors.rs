//! Every door recalls: each kind of request of another session that touches a leased file has the
//! holder give it back first, and what touches nothing goes on (rule R48).

use crate::holders::*;
use crate::support::World;
use siftfs_proto::compound::{
    Access, BytesArg, Compound, FileArg, NewAttributes, NumberArg, Step, StepNr, Wanted,
};
use siftfs_proto::*;

/// The file of a request.
pub struct Asked {
    pub ino: u32,
    pub handle: Handle,
    pub name: String,
    /// The name of another file, and one that nothing has.
    pub beside: String,
    pub free: String,
}

pub type Build = fn(&Asked) -> Request;

fn compound(steps: Vec<Step>) -> Request {
    let (level, rights, wanted) = (Level::Visible, Rights::all(), Wanted::All);
    Request::Compound(Box::new(Compound { base: ROOT, steps, level, rights, wanted }))
}

fn publish(from: &str, to: &str) -> Request {
    let source = PublishSource::Path(from.into());
    let entries = vec![PublishEntry { source, to: to.into(), replace: true }];
    Request::Publish { base: ROOT, entries, level: Level::Visible, rights: Rights::all() }
}

fn set_attr(asked: &Asked, set: SetAttr) -> Request {
    Request::SetAttr { file: asked.handle.into(), set, times: true }
}

/// Requests about the file by its handle or its number.
pub const BY_FILE: &[(&str, Build, Option<i32>)] = &[
    ("getattr", |a| Request::GetAttr { file: a.ino.into() }, None),
    ("fstat", |a| Request::GetAttr { file: a.handle.into() }, None),
    ("chmod", |a| set_attr(a, SetAttr { perm: Some(0o600), ..SetAttr::default() }), None),
    ("chown", |a| set_attr(a, SetAttr { uid: Some(7), ..SetAttr::default() }), None),
    ("times", |a| set_attr(a, SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() }), None),
    ("truncate", |a| set_attr(a, SetAttr { size: Some(3), ..SetAttr::default() }), None),
    ("open", |a| opening(a.ino), None),
    (
        "open emptied",
        |a| {
            let (ino, access) = (a.ino, Access::Both);
            Request::Open {
                ino,
                access,
                truncate: true,
                kill_priv: false,
                times: true,
                beside_lease: false,
            }
        },
        None,
    ),
    ("read", |a| Request::Read { file: a.handle.into(), offset: 0, len: 10 }, None),
    ("pages", |a| Request::Read { file: a.ino.into(), offset: 0, len: 10 }, None),
    ("write", |a| Request::write(a.handle, 1, vec![1]), None),
    (
        "append",
        |a| {
            let (file, data) = (a.handle.into(), vec![1].into());
            Request::Write { file, offset: 0, data, append: true, kill_priv: false, times: true }
        },
        None,
    ),
    (
        "append at an end",
        |a| {
            let (file, data) = (a.handle.into(), vec![1].into());
            Request::Append { file, end: 9, data, kill_priv: false, times: true }
        },
        None,
    ),
    (
        "write back",
        |a| {
            let (file, data) = (a.ino.into(), vec![1].into());
            Request::WriteBack { file, offset: 0, data, times: true }
        },
        None,
    ),
    ("fsync", |a| Request::Fsync { file: a.ino.into(), datasync: false }, None),
    ("fdatasync", |a| Request::Fsync { file: a.handle.into(), datasync: true }, None),
    ("stage", |a| Request::Stage { file: a.ino.into(), datasync: false }, None),
    (
        "allocate",
        |a| {
            let (file, mode) = (a.handle.into(), Allocate::Grow);
            Request::Allocate { file, mode, offset: 0, len: 5000, times: true }
        },
        None,
    ),
    ("seek", |a| Request::Seek { file: a.handle.into(), offset: 0, whence: Seek::Data }, None),
    (
        "getxattr",
        |a| Request::GetXattr { file: a.ino.into(), name: b"user.x".to_vec() },
        Some(libc::ENODATA),
    ),
    ("listxattr", |a| Request::ListXattr { file: a.handle.into() }, None),
    (
        "setxattr",
        |a| {
            let (file, mode) = (a.ino.into(), XattrMode::Set);
            let (name, value) = (b"user.x".to_vec(), vec![1]);
            Request::SetXattr { file, name, value, mode, kill_setgid: false }
        },
        None,
    ),
    ("access list", |a| attribute(a.ino, b"system.posix_acl_access", list()), None),
    ("security", |a| attribute(a.ino, b"security.selinux", b"label".to_vec()), None),
    (
        "removexattr",
        |a| Request::RemoveXattr { file: a.ino.into(), name: b"user.x".to_vec(), times: true },
        Some(libc::ENODATA),
    ),
    ("lsattr", |a| Request::GetFlags { file: a.ino.into() }, None),
    ("chattr", |a| Request::SetFlags { file: a.handle.into(), flags: flags::NOATIME }, None),
    ("section", |a| Request::SectionStart { file: a.handle.into() }, None),
];

/// Requests that find the file by a name.
pub const BY_NAME: &[(&str, Build, Option<i32>)] = &[
    ("lookup", |a| Request::Lookup { parent: ROOT, name: a.name.clone().into() }, None),
    ("unlink", |a| Request::Unlink { parent: ROOT, name: a.name.clone().into() }, None),
    ("rename", |a| rename(&a.name, &a.free, RenameMode::Replace), None),
    ("rename over", |a| rename(&a.beside, &a.name, RenameMode::Replace), None),
    ("exchange", |a| rename(&a.beside, &a.name, RenameMode::Exchange), None),
    ("link", |a| Request::Link { ino: a.ino, parent: ROOT, name: a.free.clone().into() }, None),
    ("publish", |a| publish(&a.name, &a.free), None),
    ("publish over", |a| publish(&a.beside, &a.name), None),
    (
        "publish once more",
        |a| {
            let (source, to) = (PublishSource::Open(a.handle), a.free.clone().into());
            let entries = vec![PublishEntry { source, to, replace: false }];
            Request::Publish { base: ROOT, entries, level: Level::Atomic, rights: Rights::all() }
        },
        None,
    ),
    ("compound lookup", |a| compound(vec![Step::Lookup { path: a.name.clone().into() }]), None),
    (
        "compound read",
        |a| {
            let (path, access) = (a.name.clone().into(), Access::Read);
            let file = FileArg::Step(StepNr(0));
            compound(vec![
                Step::Open { path, access, truncate: false },
                Step::Read { file, offset: NumberArg::Given(0), len: 3 },
            ])
        },
        None,
    ),
    (
        "compound by handle",
        |a| {
            let (file, offset) = (FileArg::Open(a.handle), NumberArg::Given(0));
            compound(vec![Step::Read { file, offset, len: 3 }])
        },
        None,
    ),
    (
        "compound write",
        |a| {
            let (file, offset) = (FileArg::Open(a.handle), NumberArg::Given(0));
            compound(vec![Step::Write { file, offset, data: BytesArg::Given(vec![1]) }])
        },
        None,
    ),
    (
        "compound append",
        |a| {
            let file = FileArg::Open(a.handle);
            compound(vec![Step::Append { file, data: BytesArg::Given(vec![1]) }])
        },
        None,
    ),
    (
        "compound size",
        |a| {
            let (file, size) = (FileArg::Open(a.handle), NumberArg::Given(3));
            compound(vec![Step::SetSize { file, size }])
        },
        None,
    ),
    (
        "compound mode",
        |a| {
            let set = NewAttributes { perm: Some(0o600), ..NewAttributes::default() };
            compound(vec![Step::SetAttributes { file: FileArg::Open(a.handle), set }])
        },
        None,
    ),
    (
        "compound link",
        |a| compound(vec![Step::Link { file: FileArg::Open(a.handle), to: a.free.clone().into() }]),
        None,
    ),
    (
        "compound rename",
        |a| {
            let (from, to) = (a.name.clone().into(), a.free.clone().into());
            compound(vec![Step::Rename { from, to, replace: false }])
        },
        None,
    ),
    (
        "compound rename over",
        |a| {
            let (from, to) = (a.beside.clone().into(), a.name.clone().into());
            compound(vec![Step::Rename { from, to, replace: true }])
        },
        None,
    ),
    ("compound unlink", |a| compound(vec![Step::Unlink { path: a.name.clone().into() }]), None),
];

#[test]
fn r48_every_door_recalls() {
    let world = World::new(2);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    for (number, (kind, build, refused)) in BY_FILE.iter().chain(BY_NAME).enumerate() {
        let answering = Answering::start(&v);
        let name = format!("f{number}");
        let handle = make(&answering.session, &name);
        let (beside, free) = (format!("b{number}"), format!("n{number}"));
        make(&answering.session, &beside);
        let (ino, theirs) = (look_up(&kernel, &name).ino, open(&kernel, &name));
        let asked = Asked { ino, handle: theirs, name, beside, free };
        let held = lease(&answering.session, handle).unwrap_or_else(|e| panic!("{kind}: {e}"));
        let answer = ask(&kernel, build(&asked)).map(drop);
        assert_eq!(answer, refused.map_or(Ok(()), Err), "{kind}");
        // Each comes after what the holder had: none of them shows or makes anything older.
        assert_eq!(answering.end(), [held], "{kind}");
    }
    drop(kernel);
    v.close().expect("close");
    world.e2fsck();
}

/// The other sessions' requests that touch no leased file go on, and so does the background.
#[test]
fn what_touches_nothing_recalls_nothing() {
    let world = World::new(1);
    let v = world.open();
    let (session, told) = holder(&v);
    let kernel = v.session(Opening::kernel()).expect("a session");
    let handle = make(&session, "f");
    make(&session, "other");
    let theirs = open(&kernel, "f");
    let ino = look_up(&kernel, "f").ino;
    let held = lease(&session, handle).expect("a lease");
    let range = LockRange::ALL;
    let dir = ask(&kernel, Request::OpenDir { ino: ROOT }).unwrap().opened().unwrap();
    let list = |plus| {
        let list = Request::ReadDir { handle: dir, cookie: 0, max_bytes: 1 << 16, plus };
        ask(&kernel, list).expect("a listing").entries().unwrap()
    };
    for request in [
        Request::Hold { ino },
        Request::Forget { ino, count: 1 },
        Request::GetLock { file: theirs.into(), owner: 1, range, kind: LockKind::Write },
        Request::Create { parent: ROOT, name: b"new".to_vec(), perm: 0o600 },
        Request::StatFs,
        Request::Barrier,
        Request::SyncAll,
        Request::Checkpoint,
        Request::Release { handle: theirs },
    ] {
        let kind = format!("{request:?}");
        ask(&kernel, request).unwrap_or_else(|e| panic!("{kind}: {e}"));
    }
    v.commit(true).expect("commit");
    v.tick().expect("tick");
    let told_of = |entries: Vec<DirEntry>| -> Vec<String> {
        let told = entries.into_iter().filter(|entry| entry.attr.is_some());
        let mut names: Vec<_> = told.map(|e| String::from_utf8(e.name).unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(list(false).len(), list(true).len(), "its name is listed");
    assert_eq!(told_of(list(true)), ["lost+found", "new", "other"], "its attributes are not");
    assert!(told.try_recv().is_err(), "nobody recalled");
    give_back(&session, held).expect("it has it still");
    assert_eq!(told_of(list(true)), ["f", "lost+found", "new", "other"]);
}

/// The lease goes from one holder to the next.
#[test]
fn another_holder_recalls() {
    let world = World::new(1);
    let v = world.open();
    let (one, (two, told)) = (Answering::start(&v), holder(&v));
    let handle = make(&one.session, "f");
    let theirs = open(&two, "f");
    let first = lease(&one.session, handle).expect("a lease");
    let second = lease(&two, theirs).expect("the lease, once it is given back");
    assert_eq!(put(&one.session, first, 0, b"LATE"), Err(libc::ESTALE));
    assert_eq!(put(&two, second, 3, b"!"), Ok(1));
    give_back(&two, second).expect("given back");
    assert_eq!(read(&one.session, handle), b"NEW!bytes");
    assert_eq!(one.end(), [first]);
    assert!(told.try_recv().is_err());
}
