//! Sessions that change nothing but what is leased to them, and programs that have a file open
//! elsewhere which they lease.

use crate::doors::{BY_FILE, BY_NAME};
use crate::holders::*;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// Requests beside those of the doors' lists.
fn elsewhere(ino: u32, handle: Handle) -> Vec<Request> {
    let lock = LockAsk {
        owner: 1,
        pid: 1,
        place: LockPlace::Whole,
        kind: Some(LockKind::Write),
        wait: None,
    };
    let none = SectionId(1);
    let (level, rights) = (Level::Visible, Rights::all());
    let name = || b"new".to_vec();
    vec![
        Request::MakeDir { parent: ROOT, name: name(), perm: 0o700 },
        Request::MakeNode { parent: ROOT, name: name(), kind: FileKind::Fifo, perm: 0, rdev: 0 },
        Request::Symlink { parent: ROOT, name: name(), target: name() },
        Request::Create { parent: ROOT, name: name(), perm: 0o600 },
        Request::TmpFile { parent: ROOT, perm: 0o600, exclusive: false },
        Request::RemoveDir { parent: ROOT, name: b"lost+found".to_vec() },
        Request::ReadLink { ino },
        Request::OpenDir { ino: ROOT },
        Request::Append {
            file: handle.into(),
            end: 9,
            data: vec![1].into(),
            kill_priv: false,
            times: true,
        },
        Request::SectionWrite { section: none, offset: 0, data: vec![1].into() },
        Request::SectionCommit { sections: vec![none], durable: false, times: true },
        Request::SectionAbort { section: none },
        Request::Publish { base: ROOT, entries: Vec::new(), level, rights },
        Request::SetLock { file: handle.into(), ask: lock },
        Request::CancelLock { number: 1 },
        Request::CloseLocks { ino, handle, owner: 1 },
        Request::Barrier,
        Request::Poll { ticket: Ticket(1) },
        Request::Wait { ticket: Ticket(1), timeout: None },
        Request::StatFs,
        Request::SyncAll,
        Request::Checkpoint,
        Request::Trim { start: 0, len: u64::MAX, least: 0 },
        Request::Status,
    ]
}

/// All that may be asked for, but for what `EPERM` is not the answer to.
#[test]
fn r31_a_lender_changes_nothing_else() {
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    make(&kernel, "f");
    make(&kernel, "beside");
    let ino = look_up(&kernel, "f").ino;
    let (session, ..) = lender(&v);
    let handle = ask(&session, opening(ino)).expect("open").opened().unwrap();
    let may =
        ["getattr", "fstat", "open", "read", "pages", "fsync", "fdatasync", "compound by handle"];
    let asked = crate::doors::Asked {
        ino,
        handle,
        name: "f".into(),
        beside: "beside".into(),
        free: "free".into(),
    };
    let before = look_up(&kernel, "f");
    for (kind, build, _) in BY_FILE.iter().chain(BY_NAME) {
        let answer = ask(&session, build(&asked)).map(drop);
        match may.contains(kind) && *kind != "compound by handle" {
            true => assert_eq!(answer, Ok(()), "{kind}"),
            false => assert_eq!(answer, Err(libc::EPERM), "{kind}"),
        }
    }
    for request in elsewhere(ino, handle) {
        let kind = format!("{request:?}");
        assert_eq!(ask(&session, request.clone()).map(drop), Err(libc::EPERM), "{kind}");
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        let done = Box::new(move |result| *told.lock().unwrap() = Some(result));
        session.submit(&Credentials::default(), request, done);
        let answer = answer.lock().unwrap().take().expect("answered at once");
        assert_eq!(answer.map_err(|e| e.errno()), Err(libc::EPERM), "{kind}");
    }
    assert_eq!(look_up(&kernel, "f"), Attr { atime: look_up(&kernel, "f").atime, ..before });
    // What it may.
    let held = lease(&session, handle).expect("a lease");
    assert_eq!(put(&session, held, 0, b"NEW"), Ok(3));
    assert_eq!((keep(&session, held), give_back(&session, held)), (Ok(()), Ok(())));
    let hold = ask(&session, Request::Hold { ino }).expect("hold").opened().unwrap();
    for handle in [hold, handle] {
        ask(&session, Request::Release { handle }).expect("close");
    }
    ask(&session, Request::Forget { ino, count: 1 }).expect("forget");
    end(&session);
    assert_eq!(read(&kernel, open(&kernel, "f")), b"NEW bytes");
    drop((session, kernel));
    v.close().expect("close");
    world.e2fsck();
}

/// A cache that counts what it is told.
#[derive(Default)]
struct Counted {
    shares: AtomicU32,
    forgets: AtomicU32,
    notices: Mutex<Vec<(Vec<u32>, usize)>>,
}

impl Cache for Counted {
    fn take_back(&self, notice: Notice) {
        self.notices.lock().unwrap().push((notice.attributes.clone(), notice.data.len()));
    }

    fn shares(&self, others: bool) {
        self.shares.fetch_add(u32::from(others), Ordering::SeqCst);
    }

    fn forget_all(&self, _notice: Notice) {
        self.forgets.fetch_add(1, Ordering::SeqCst);
    }
}

/// A kernel that is the only front end stays so beside sessions that lend, and is told what
/// concerns it: what it has of a file that is leased, and nothing else.
#[test]
fn a_kernel_stays_alone_beside_lenders() {
    let world = roomy(1);
    let v = world.open();
    let cache = Arc::new(Counted::default());
    let kernel = v.front(Opening::kernel(), cache.clone()).expect("a session");
    make(&kernel, "f");
    make(&kernel, "g");
    let (ino, _other) = (look_up(&kernel, "f").ino, look_up(&kernel, "g").ino);
    let counts = || (cache.shares.load(Ordering::SeqCst), cache.forgets.load(Ordering::SeqCst));
    let mut sessions: Vec<_> = (0..3).map(|_| lender(&v)).collect();
    let (session, ..) = sessions.pop().expect("three");
    let handle = ask(&session, opening(ino)).expect("open").opened().unwrap();
    let held = lease_beside(&session, handle, 1).expect("a lease");
    put(&session, held, 0, b"more than there was").expect("written");
    give_back(&session, held).expect("given back");
    let told = std::mem::take(&mut *cache.notices.lock().unwrap());
    assert_eq!(told, [(vec![ino], 1), (vec![ino], 0), (vec![], 0)]);
    drop((session, sessions));
    assert_eq!(counts(), (0, 0));
    let other = user(&v);
    assert_eq!(counts(), (1, 1), "another front end");
    drop(other);
}

/// A lender has no pages, and what a kernel does to a file beside it takes no privileges away that
/// the kernel did not ask for: there is no other front end.
#[test]
fn a_kernels_write_beside_lenders_is_its_own() {
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    let handle = make(&kernel, "f");
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let set = Request::SetXattr {
        file: handle.into(),
        name: b"security.capability".to_vec(),
        value: capability.to_vec(),
        mode: XattrMode::Set,
        kill_setgid: false,
    };
    ask(&kernel, set).expect("a capability");
    let has = || {
        let get = Request::GetXattr { file: handle.into(), name: b"security.capability".to_vec() };
        ask(&kernel, get).is_ok()
    };
    let lender = lender(&v);
    ask(&kernel, Request::write(handle, 0, vec![1])).expect("write");
    assert!(has());
    drop(lender);
}

/// The writers of a file that are not the asking program's own keep it from its lease, and so does
/// what a write would do beside writing.
#[test]
fn a_program_is_alone_or_gets_no_lease() {
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    let (session, ..) = lender(&v);
    let (second, ..) = lender(&v);
    let mut own = vec![make(&kernel, "f")];
    let ino = look_up(&kernel, "f").ino;
    let of = |session: &Session| ask(session, opening(ino)).expect("open").opened().unwrap();
    let (handle, _theirs) = (of(&session), of(&second));
    let reads = ask(&kernel, Request::open(ino, Access::Read)).expect("open").opened().unwrap();
    let granted = |writers: u64| {
        let leased = lease_beside(&session, handle, writers);
        leased.map(|held| give_back(&session, held).expect("given back"))
    };
    assert_eq!((granted(0), granted(1), granted(2)), (Err(11), Ok(()), Err(11)));
    own.push(of(&kernel));
    assert_eq!((granted(1), granted(2), granted(3)), (Err(11), Ok(()), Err(11)));
    // Another session that may write by itself; it ends.
    let other = user(&v);
    open(&other, "f");
    assert_eq!((granted(2), granted(3)), (Err(11), Ok(())));
    end(&other);
    assert_eq!((granted(3), granted(2)), (Err(11), Ok(())));
    for handle in own {
        ask(&kernel, Request::Release { handle }).expect("close");
    }
    ask(&kernel, Request::Release { handle: reads }).expect("close");
    assert_eq!((granted(1), granted(0)), (Err(11), Ok(())));
    // What a write would do.
    let set = |perm| {
        let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
        ask(&kernel, Request::SetAttr { file: ino.into(), set, times: true }).expect("chmod");
    };
    let flag = |flags| {
        ask(&kernel, Request::SetFlags { file: ino.into(), flags }).expect("chattr");
    };
    for perm in [0o4644, 0o2644, 0o2654] {
        set(perm);
        assert_eq!(granted(0), Err(libc::EOPNOTSUPP), "{perm:o}");
    }
    set(0o644);
    for one in [flags::IMMUTABLE, flags::APPEND] {
        flag(one);
        assert_eq!(granted(0), Err(libc::EOPNOTSUPP), "{one:x}");
        flag(0);
    }
    let name = b"security.capability".to_vec();
    let value = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    let (file, mode) = (ino.into(), XattrMode::Set);
    ask(&kernel, Request::SetXattr { file, name, value, mode, kill_setgid: false }).expect("set");
    assert_eq!(granted(0), Err(libc::EOPNOTSUPP), "a capability");
}

/// L1, L3: what a lender has was answered to a program. So no clock ends its lease: not while the
/// machine sleeps, and not while the daemon takes in what others wait for.
#[test]
fn r36_what_is_lent_is_ended_by_its_daemon_alone() {
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    let theirs = make(&kernel, "f");
    let ino = look_up(&kernel, "f").ino;
    let (session, told, _) = lender(&v);
    let handle = ask(&session, opening(ino)).expect("open").opened().expect("a handle");
    let held = lease_beside(&session, handle, 1).expect("a lease");
    let sleeps = || {
        world.clock.advance(3_600_000_000_000);
        v.tick().expect("tick");
    };
    sleeps();
    assert_eq!(put(&session, held, 0, b"ONE"), Ok(3));
    sleeps();
    assert_eq!(keep(&session, held), Ok(()));
    sleeps();
    let reading = spawn(move || read(&kernel, theirs));
    assert_eq!(told.recv(), Ok(held), "it is recalled, and not taken for over");
    sleeps();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(!reading.is_finished(), "it waits for what is taken in");
    assert_eq!(put(&session, held, 3, b"TWO"), Ok(3));
    give_back(&session, held).expect("given back");
    assert_eq!(reading.join().expect("the read returns"), b"ONETWOtes");
}

/// A file that another program opens to write it, or that gets set-id bits, while it is drained.
#[test]
fn what_comes_while_a_file_drains_is_counted_at_the_grant() {
    let world = roomy(1);
    let v = world.open();
    let (kernel, told) = caching(&v);
    make(&kernel, "f");
    let ino = look_up(&kernel, "f").ino;
    for (turn, answer) in [(0, libc::EAGAIN), (1, libc::EOPNOTSUPP)] {
        let (session, ..) = lender(&v);
        let handle = ask(&session, opening(ino)).expect("open").opened().unwrap();
        let asking = session.clone();
        let leasing = spawn(move || lease_beside(&asking, handle, 1));
        let first = told.recv().expect("a notice");
        let opened = match turn {
            0 => {
                let open = Request::Open {
                    ino,
                    access: Access::Both,
                    truncate: false,
                    kill_priv: false,
                    times: true,
                    beside_lease: true,
                };
                Some(ask(&kernel, open).expect("open").opened().unwrap())
            }
            _ => {
                let set = SetAttr { perm: Some(0o4755), ..SetAttr::default() };
                let chmod = Request::SetAttr { file: ino.into(), set, times: true };
                ask(&kernel, chmod).expect("chmod");
                None
            }
        };
        drop(first);
        while !leasing.is_finished() {
            drop(told.recv_timeout(std::time::Duration::from_millis(5)));
        }
        assert_eq!(leasing.join().expect("it returns"), Err(answer));
        if let Some(handle) = opened {
            ask(&kernel, Request::Release { handle }).expect("close");
        }
    }
}

/// A program that opens a file beside its own lease does not end it; only a kernel knows that.
#[test]
fn a_holder_opens_its_file_once_more() {
    let world = roomy(1);
    let v = world.open();
    let (kernel, other) = (v.session(Opening::kernel()).expect("a session"), user(&v));
    make(&kernel, "f");
    let ino = look_up(&kernel, "f").ino;
    look_up(&other, "f");
    let open = |truncate| Request::Open {
        ino,
        access: Access::Both,
        truncate,
        kill_priv: false,
        times: true,
        beside_lease: true,
    };
    for (session, truncate, recalls) in
        [(&kernel, false, false), (&kernel, true, true), (&other, false, true)]
    {
        let (holder, told, _) = lender(&v);
        let handle = ask(&holder, opening(ino)).expect("open").opened().unwrap();
        let held = lease(&holder, handle).expect("a lease");
        let (asking, open) = (session.clone(), open(truncate));
        let opening = spawn(move || ask(&asking, open).map(drop));
        if recalls {
            assert_eq!(told.recv(), Ok(held));
            give_back(&holder, held).expect("given back");
        }
        assert_eq!(opening.join().expect("it returns"), Ok(()));
        assert_eq!((told.try_recv().is_ok(), keep(&holder, held).is_ok()), (false, !recalls));
        // Three recalls in a second are enough.
        world.clock.advance(2_000_000_000);
    }
}
