//! Sessions: what each may name, ask for and have, and that all of it ends with the session.

use siftfs_base::Error;
use siftfs_placement::LocalVolume;
use siftfs_proto::compound::{Access, Compound, Step, Wanted};
use siftfs_proto::*;
use std::sync::Arc;

mod support;
use support::World;

const ROOT: u32 = ROOT_INO;

type Session = Arc<dyn FileService>;

fn ask(session: &Session, req: Request) -> Result<Reply, i32> {
    session.call(&Credentials::default(), req).map_err(|e: Error| e.errno())
}

fn begin(v: &LocalVolume, opening: Opening) -> Session {
    v.session(opening).expect("a session")
}

/// A session that may do everything to files, and nothing else.
fn user(v: &LocalVolume, limits: Limits) -> Session {
    begin(v, Opening { limits, ..Opening::user(0, 0, Rights::all()) })
}

fn create(session: &Session, name: &str) -> (u32, Handle) {
    match ask(session, Request::Create { parent: ROOT, name: name.into(), perm: 0o644 }) {
        Ok(Reply::Created { attr, handle }) => (attr.ino, handle),
        other => panic!("{other:?}"),
    }
}

fn hold(session: &Session, ino: u32) -> Result<Handle, i32> {
    ask(session, Request::Hold { ino }).map(|reply| match reply {
        Reply::Opened { handle } => handle,
        other => panic!("{other:?}"),
    })
}

/// Every request that names inodes `ino` and `dir` by number.
fn by_number(ino: u32, dir: u32) -> Vec<Request> {
    use Request as R;
    let (file, name) = (Target::Inode(ino), b"n".to_vec());
    let (set, times) = (SetAttr { perm: Some(0o777), ..SetAttr::default() }, true);
    let compound = Compound { base: dir, ..one_step() };
    vec![
        R::Lookup { parent: dir, name: name.clone() },
        R::GetAttr { file },
        R::SetAttr { file, set, times },
        R::ReadLink { ino },
        R::MakeNode { parent: dir, name: name.clone(), kind: FileKind::Fifo, perm: 0, rdev: 0 },
        R::MakeDir { parent: dir, name: name.clone(), perm: 0o755 },
        R::Symlink { parent: dir, name: name.clone(), target: name.clone() },
        R::Link { ino, parent: ROOT, name: name.clone() },
        R::Unlink { parent: dir, name: name.clone() },
        R::RemoveDir { parent: dir, name: name.clone() },
        R::Rename {
            parent: ROOT,
            name: name.clone(),
            new_parent: dir,
            new_name: name.clone(),
            mode: RenameMode::Replace,
        },
        R::Create { parent: dir, name: name.clone(), perm: 0o644 },
        R::TmpFile { parent: dir, perm: 0o644, exclusive: false },
        R::open(ino, Access::Both),
        R::Hold { ino },
        R::OpenDir { ino: dir },
        R::Read { file, offset: 0, len: 10 },
        R::write(ino, 0, vec![1]),
        R::WriteBack { file, offset: 0, data: vec![1].into(), times },
        R::Fsync { file, datasync: false },
        R::Stage { file, datasync: false },
        R::Allocate { file, mode: Allocate::Grow, offset: 0, len: 1, times },
        R::Seek { file, offset: 0, whence: Seek::Data },
        R::GetXattr { file, name: b"user.x".to_vec() },
        R::ListXattr { file },
        R::SetXattr {
            file,
            name: b"user.x".to_vec(),
            value: name.clone(),
            mode: XattrMode::Set,
            kill_setgid: false,
        },
        R::RemoveXattr { file, name: b"user.x".to_vec(), times },
        R::GetFlags { file },
        R::SetFlags { file, flags: 0 },
        R::SectionStart { file },
        R::GetLock { file, owner: 1, range: LockRange::ALL, kind: LockKind::Read },
        R::SetLock { file, ask: unlock() },
        R::CloseLocks { ino, handle: Handle(1), owner: 1 },
        R::Publish { base: dir, entries: Vec::new(), level: Level::Visible, rights: Rights::all() },
        R::Compound(Box::new(compound)),
    ]
}

/// Gives up what nobody has.
fn unlock() -> LockAsk {
    LockAsk { owner: 1, pid: 1, place: LockPlace::Whole, kind: None, wait: None }
}

/// A compound that makes the file `n` in the root.
fn one_step() -> Compound {
    let step = Step::Create { path: b"n".to_vec(), perm: 0o644 };
    let (level, rights) = (Level::Visible, Rights::all());
    Compound { base: ROOT, steps: vec![step], level, rights, wanted: Wanted::All }
}

/// Rule R31: the number of an inode is stale in a session that has not looked it up, even if
/// another session has.
///
/// Seen to fail when lookups are counted for all sessions together.
#[test]
fn r31_numbers_that_were_not_looked_up_are_stale() {
    let world = World::new(1);
    let v = world.open();
    let kernel = begin(&v, Opening::kernel());
    let (ino, _) = create(&kernel, "f");
    let made = ask(&kernel, Request::MakeDir { parent: ROOT, name: b"d".to_vec(), perm: 0o755 });
    let Ok(Reply::Entry(Attr { ino: dir, .. })) = made else { panic!("{made:?}") };
    let stranger = user(&v, Limits::NONE);
    for req in by_number(ino, dir) {
        let said = format!("{req:?}");
        assert_eq!(ask(&stranger, req), Err(libc::ESTALE), "{said}");
    }
    // Looked up, it may be named, and opened; but data is for open files.
    let lookup = |name: &str| Request::Lookup { parent: ROOT, name: name.into() };
    assert!(ask(&stranger, lookup("f")).is_ok() && ask(&stranger, lookup("d")).is_ok());
    let handle = hold(&stranger, ino).expect("it was looked up");
    assert!(ask(&stranger, Request::GetAttr { file: ino.into() }).is_ok());
    assert_eq!(ask(&stranger, Request::ListXattr { file: ino.into() }), Err(libc::ESTALE));
    assert!(ask(&stranger, Request::ListXattr { file: handle.into() }).is_ok());
    assert_eq!(
        ask(&stranger, Request::Read { file: handle.into(), offset: 0, len: 1 }),
        Err(libc::EBADF),
        "a handle that only names the file"
    );
    // The session that forgets knows it no more, whatever others know.
    assert!(ask(&stranger, Request::Forget { ino, count: 1 }).is_ok());
    assert_eq!(hold(&stranger, ino), Err(libc::ESTALE));
    assert!(ask(&stranger, Request::ListXattr { file: handle.into() }).is_ok());
    drop((stranger, kernel));
    v.close().expect("close");
    world.e2fsck();
}

/// A machine's kernel names by number what it has looked up, and reads and writes so what one of
/// its users has had open for that (rules R31, R52). Its callers are checked one by one.
///
/// Seen to fail when what was looked up may be read, when what was opened to be read may be
/// written, and when a call without rights has root's.
#[test]
fn r52_a_machine_uses_what_its_users_were_given() {
    let world = World::new(1);
    let v = world.open();
    let kernel = begin(&v, Opening::kernel());
    let (ino, _) = create(&kernel, "f");
    let made = ask(&kernel, Request::MakeDir { parent: ROOT, name: b"d".to_vec(), perm: 0o755 });
    let Ok(Reply::Entry(Attr { ino: dir, .. })) = made else { panic!("{made:?}") };
    let machine = begin(&v, Opening::machine());
    for req in by_number(ino, dir) {
        let said = format!("{req:?}");
        assert_eq!(ask(&machine, req), Err(libc::ESTALE), "{said}");
    }
    for req in [Request::Status, Request::Checkpoint, Request::SyncAll] {
        assert_eq!(ask(&machine, req), Err(libc::EPERM));
    }
    let other = user(&v, Limits::NONE);
    let lookup = || Request::Lookup { parent: ROOT, name: b"f".to_vec() };
    assert!(ask(&other, lookup()).is_ok() && ask(&machine, lookup()).is_ok());
    assert!(ask(&other, Request::open(ino, Access::Both)).is_ok());
    let file = Target::Inode(ino);
    let read = || Request::Read { file, offset: 0, len: 10 };
    let writes = || {
        let (offset, data, times) = (0, WriteData::from(vec![1]), true);
        let back = Request::WriteBack { file, offset, data: data.clone(), times };
        let append = Request::Append { file, end: 0, data, kill_priv: false, times };
        let mode = Allocate::Grow;
        let allocate = Request::Allocate { file, mode, offset, len: 1, times };
        [Request::write(ino, 0, vec![1]), back, append, allocate]
    };
    let refused = |session: &Session, requests: &[Request]| {
        for req in requests {
            assert_eq!(ask(session, req.clone()), Err(libc::EBADF), "{req:?}");
        }
    };
    refused(&machine, &[read(), Request::Seek { file, offset: 0, whence: Seek::Data }]);
    refused(&machine, &writes());
    refused(&machine, &[Request::SectionStart { file }]);
    // It belongs to root, as which the calls come without rights: by its mode, then.
    let opened = |access| match ask(&machine, Request::open(ino, access)) {
        Ok(Reply::Opened { handle }) => handle,
        other => panic!("{other:?}"),
    };
    let handle = opened(Access::Read);
    assert!(ask(&machine, read()).is_ok());
    refused(&machine, &writes());
    assert!(ask(&machine, Request::Release { handle }).is_ok());
    assert!(ask(&machine, read()).is_ok(), "pages outlive the descriptor");
    let handle = opened(Access::Write);
    assert!(ask(&machine, Request::Release { handle }).is_ok());
    for req in writes() {
        assert!(ask(&machine, req.clone()).is_ok(), "{req:?}");
    }
    callers_are_checked(&machine, ino);
    // Forgotten, all of that is over.
    assert!(ask(&machine, Request::Forget { ino, count: 1 }).is_ok());
    assert_eq!(ask(&machine, read()), Err(libc::ESTALE));
    assert!(ask(&machine, lookup()).is_ok());
    refused(&machine, &[read()]);
    drop((machine, other, kernel));
    v.close().expect("close");
    world.e2fsck();
}

/// Each call of a machine has the rights that it brings.
fn callers_are_checked(machine: &Session, ino: u32) {
    let stranger = Credentials { uid: 7, gid: 7, ..Credentials::default() };
    let call = |req| machine.call(&stranger, req).map_err(|e: Error| e.errno());
    let set = SetAttr { perm: Some(0o777), ..SetAttr::default() };
    assert_eq!(call(Request::SetAttr { file: ino.into(), set, times: true }), Err(libc::EPERM));
    assert_eq!(call(Request::open(ino, Access::Write)), Err(libc::EACCES));
    let make = || Request::MakeDir { parent: ROOT, name: b"e".to_vec(), perm: 0o755 };
    assert_eq!(call(make()), Err(libc::EACCES));
    let rights = Rights { overrides_access: true, ..Rights::default() };
    let mighty = Credentials { rights: Some(Box::new(rights)), ..stranger };
    assert!(machine.call(&mighty, make()).is_ok());
}

/// Which changes of a machine take set-id bits away: by a caller without rights, and by pages that
/// can be of no mapping. A stranger's word takes nothing.
///
/// Seen to fail when pages that are written back keep the bits in any case, and when the kernel's
/// word is followed for a file that the session may not write.
#[test]
fn r52_set_id_bits_go_with_a_machines_writes() {
    let world = World::new(1);
    let v = world.open();
    let owner = begin(&v, Opening::owner());
    let perm = |perm: u16| SetAttr { perm: Some(perm), ..SetAttr::default() };
    let user = Credentials { uid: 7, gid: 7, ..Credentials::default() };
    for (access, asked, left) in [
        (None, "word", 0o4777),
        (Some(Access::Write), "word", 0o777),
        (Some(Access::Write), "pages", 0o777),
        (Some(Access::Both), "pages", 0o4777),
        (Some(Access::Write), "write", 0o777),
        (Some(Access::Write), "space", 0o777),
    ] {
        let (ino, handle) = create(&owner, "f");
        let set = |set| Request::SetAttr { file: handle.into(), set, times: true };
        ask(&owner, set(perm(0o4777))).expect("its mode");
        let machine = begin(&v, Opening::machine());
        let call = |req| machine.call(&user, req);
        call(Request::Lookup { parent: ROOT, name: b"f".to_vec() }).expect("found");
        if let Some(access) = access {
            call(Request::open(ino, access)).expect("opened");
        }
        let (file, offset, times) = (Target::Inode(ino), 0, true);
        let word = SetAttr { kill_priv: true, kill_setgid: true, ..SetAttr::default() };
        let change = match asked {
            "word" => Request::SetAttr { file, set: word, times },
            "pages" => Request::WriteBack { file, offset, data: vec![1].into(), times },
            "write" => Request::write(ino, 0, vec![1]),
            _ => Request::Allocate { file, mode: Allocate::Grow, offset, len: 1, times },
        };
        call(change).expect("carried out");
        let attr = call(Request::GetAttr { file }).and_then(Reply::attr).expect("attributes");
        assert_eq!(attr.perm, left, "{asked} by {access:?}");
        drop(machine);
        ask(&owner, Request::Unlink { parent: ROOT, name: b"f".to_vec() }).expect("gone");
    }
    drop(owner);
    v.close().expect("close");
    world.e2fsck();
}

/// Only an administrator's session asks for what concerns everybody.
#[test]
fn r31_administration_is_for_administrators() {
    let world = World::new(1);
    let v = world.open();
    let requests = || {
        let trim = Request::Trim { start: 0, len: u64::MAX, least: 0 };
        [Request::Status, Request::Checkpoint, Request::SyncAll, trim]
    };
    let session = user(&v, Limits::default());
    for req in requests() {
        let said = format!("{req:?}");
        assert_eq!(ask(&session, req), Err(libc::EPERM), "{said}");
    }
    assert!(ask(&session, Request::StatFs).is_ok());
    let owner = begin(&v, Opening::owner());
    for req in requests() {
        let said = format!("{req:?}");
        assert_ne!(ask(&owner, req), Err(libc::EPERM), "{said}");
    }
    drop((session, owner));
    v.close().expect("close");
}

/// A session has as much as its limits say, and another one notices nothing of that.
#[test]
fn a_session_has_no_more_than_it_may() {
    let world = World::new(1);
    let v = world.open();
    let limits = Limits {
        handles: 3,
        inodes: 5,
        tickets: 2,
        sections: 1,
        leases: 1,
        locks: 2,
        bytes: 10_000,
    };
    let (poor, other) = (user(&v, limits), user(&v, limits));
    let [(a, first), (_, second), (_, third)] = ["a", "b", "c"].map(|name| create(&poor, name));
    assert_eq!(hold(&poor, a), Err(libc::ENFILE));
    let make = |name: &str| Request::MakeDir { parent: ROOT, name: name.into(), perm: 0o755 };
    assert!(ask(&poor, make("d")).is_ok() && ask(&poor, make("e")).is_ok());
    assert_eq!(ask(&poor, make("f")), Err(libc::ENFILE), "five were looked up");
    let write = |len: usize| Request::write(first, 0, vec![7; len]);
    assert!(ask(&poor, write(10_000)).is_ok());
    assert_eq!(ask(&poor, write(10_001)), Err(libc::EAGAIN));
    let start = |handle: Handle| Request::SectionStart { file: handle.into() };
    let started = ask(&poor, start(first));
    let Ok(Reply::Section(section)) = started else { panic!("{started:?}") };
    assert_eq!(ask(&poor, start(second)), Err(libc::EAGAIN));
    assert!(ask(&poor, Request::SectionAbort { section }).is_ok());
    assert!(ask(&poor, start(second)).is_ok());
    let stage = |handle: Handle| Request::Stage { file: handle.into(), datasync: false };
    for handle in [first, third] {
        assert!(ask(&poor, stage(handle)).is_ok());
    }
    assert!(ask(&poor, Request::write(third, 0, vec![1; 9])).is_ok());
    assert_eq!(ask(&poor, stage(third)), Err(libc::EAGAIN));
    let (_, handle) = create(&other, "g");
    assert!(ask(&other, stage(handle)).is_ok() && ask(&other, start(handle)).is_ok());
    // What is given back may be had again.
    assert!(ask(&poor, Request::Release { handle: third }).is_ok());
    assert!(ask(&poor, Request::Forget { ino: a, count: 1 }).is_ok());
    create(&poor, "h");
    drop((poor, other));
    v.close().expect("close");
    world.e2fsck();
}

/// Rule R31: when a session ends, a removed file that only it had open or looked up is freed, its
/// sections let go of their files, and every later request of it is stale.
#[test]
fn r31_all_that_a_session_has_ends_with_it() {
    let world = World::new(1);
    let v = world.open();
    let kernel = begin(&v, Opening::kernel());
    let free = |session: &Session| match ask(session, Request::StatFs) {
        Ok(Reply::Statfs(stat)) => stat.files_free,
        other => panic!("{other:?}"),
    };
    let (kept, _) = create(&kernel, "kept");
    assert!(ask(&kernel, Request::Checkpoint).is_ok());
    let before = free(&kernel);
    for by_drop in [false, true] {
        let session = user(&v, Limits::NONE);
        let (_, handle) = create(&session, "gone");
        assert!(ask(&session, Request::write(handle, 0, vec![1; 100_000])).is_ok());
        assert!(ask(&session, Request::Unlink { parent: ROOT, name: b"gone".to_vec() }).is_ok());
        let found = ask(&session, Request::Lookup { parent: ROOT, name: b"kept".to_vec() });
        assert!(found.is_ok());
        let own = hold(&session, kept).expect("held");
        let opened = ask(&session, Request::open(kept, Access::Both));
        let Ok(Reply::Opened { handle }) = opened else { panic!("{opened:?}") };
        assert!(ask(&session, Request::SectionStart { file: handle.into() }).is_ok());
        assert_eq!(
            ask(&kernel, Request::SectionStart { file: kept.into() }),
            Err(libc::EBUSY),
            "the file has one"
        );
        if by_drop {
            drop(session);
        } else {
            assert_eq!(ask(&session, Request::EndSession), Ok(Reply::Done));
            for req in [Request::StatFs, Request::Release { handle: own }, Request::Barrier] {
                assert_eq!(ask(&session, req), Err(libc::ESTALE));
            }
        }
        let started = ask(&kernel, Request::SectionStart { file: kept.into() });
        let Ok(Reply::Section(section)) = started else { panic!("{started:?}") };
        assert!(ask(&kernel, Request::SectionAbort { section }).is_ok());
        create(&kernel, &format!("f{by_drop}"));
        assert!(ask(&kernel, Request::Checkpoint).is_ok());
        let name = format!("f{by_drop}").into_bytes();
        assert!(ask(&kernel, Request::Unlink { parent: ROOT, name }).is_ok());
    }
    drop(kernel);
    let again = begin(&v, Opening::kernel());
    assert!(ask(&again, Request::MakeDir { parent: ROOT, name: b"d".to_vec(), perm: 0 }).is_ok());
    assert!(ask(&again, Request::RemoveDir { parent: ROOT, name: b"d".to_vec() }).is_ok());
    drop(again);
    let last = begin(&v, Opening::kernel());
    assert!(ask(&last, Request::Checkpoint).is_ok());
    assert_eq!(free(&last), before, "a removed file was not freed");
    drop(last);
    v.close().expect("close");
    world.e2fsck();
}

/// What a user's session makes is the user's, whatever its requests claim.
#[test]
fn r31_requests_claim_nothing() {
    let world = World::new(1);
    let v = world.open();
    let rights = Rights { overrides_access: true, ..Rights::default() };
    let session = begin(&v, Opening::user(1000, 100, rights));
    let root = Credentials { pid: 1, umask: 0o022, ..Credentials::default() };
    let create = Request::Create { parent: ROOT, name: b"f".to_vec(), perm: 0o666 };
    let made = session.call(&root, create);
    let Ok(Reply::Created { attr, .. }) = made else { panic!("{made:?}") };
    assert_eq!((attr.uid, attr.gid, attr.perm), (1000, 100, 0o644));
    let compound = Request::Compound(Box::new(one_step()));
    let made = session.call(&root, compound);
    assert!(matches!(made, Ok(Reply::Compounded(_))), "{made:?}");
    let found = session.call(&root, Request::Lookup { parent: ROOT, name: b"n".to_vec() });
    let Ok(Reply::Entry(attr)) = found else { panic!("{found:?}") };
    assert_eq!((attr.uid, attr.gid), (1000, 100));
    drop(session);
    v.close().expect("close");
}

/// A section's bytes take set-id bits away as a write does.
#[test]
fn a_section_leaves_no_set_id_bits() {
    let world = World::new(1);
    let v = world.open();
    let kernel = begin(&v, Opening::kernel());
    let (ino, _) = create(&kernel, "f");
    let set = SetAttr { perm: Some(0o6777), ..SetAttr::default() };
    assert!(ask(&kernel, Request::SetAttr { file: ino.into(), set, times: true }).is_ok());
    let session = begin(&v, Opening::user(1000, 100, Rights::default()));
    assert!(ask(&session, Request::Lookup { parent: ROOT, name: b"f".to_vec() }).is_ok());
    let (access, truncate, kill_priv, times) = (Access::Both, false, false, true);
    let opened = ask(
        &session,
        Request::Open { ino, access, truncate, kill_priv, times, beside_lease: false },
    );
    let Ok(Reply::Opened { handle }) = opened else { panic!("{opened:?}") };
    let started = ask(&session, Request::SectionStart { file: handle.into() });
    let Ok(Reply::Section(section)) = started else { panic!("{started:?}") };
    let data = vec![7; 5000].into();
    assert!(ask(&session, Request::SectionWrite { section, offset: 0, data }).is_ok());
    let commit = Request::SectionCommit { sections: vec![section], durable: true, times };
    assert_eq!(ask(&session, commit), Ok(Reply::Done));
    let found = ask(&kernel, Request::GetAttr { file: ino.into() });
    let Ok(Reply::Attr(attr)) = found else { panic!("{found:?}") };
    assert_eq!((attr.perm, attr.size), (0o777, 5000));
    drop((session, kernel));
    v.close().expect("close");
    world.e2fsck();
}
