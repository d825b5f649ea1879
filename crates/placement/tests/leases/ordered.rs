//! The order word: what a later fsync(2) must not overtake is counted before it is answered (rules
//! R38, R46 and R49).

use crate::holders::*;
use siftfs_proto::compound::{
    Access, BytesArg, Compound, FileArg, NumberArg, Step, StepNr, Wanted,
};
use siftfs_proto::*;
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// What the requests of one case are about: two durable files, an unnamed one, a directory and a
/// section of `f` with bytes in it.
struct Scene {
    session: Session,
    file: u32,
    handle: Handle,
    unnamed: (u32, Handle),
    dir: u32,
    section: SectionId,
}

type Build = fn(&Scene) -> Request;

fn scene(session: &Session, number: usize) -> Scene {
    let session = session.clone();
    let parent = Request::MakeDir { parent: ROOT, name: format!("s{number}").into(), perm: 0o755 };
    let dir = ask(&session, parent).expect("mkdir").attr().expect("an entry").ino;
    let create = |name: &str| {
        let create = Request::Create { parent: dir, name: name.into(), perm: 0o644 };
        let (attr, handle) = ask(&session, create).expect("create").created().expect("a file");
        ask(&session, Request::write(handle, 0, b"old bytes".to_vec())).expect("write");
        ask(&session, Request::Fsync { file: handle.into(), datasync: false }).expect("fsync");
        (attr.ino, handle)
    };
    let ((file, handle), (_, beside)) = (create("f"), create("g"));
    let below = Request::MakeDir { parent: dir, name: b"d".to_vec(), perm: 0o755 };
    ask(&session, below).expect("mkdir");
    let unnamed = Request::TmpFile { parent: dir, perm: 0o600, exclusive: false };
    let unnamed = ask(&session, unnamed).expect("a file").created().expect("a file");
    let section = ask(&session, Request::SectionStart { file: beside.into() });
    let section = section.expect("a section").section().expect("a section");
    let write = Request::SectionWrite { section, offset: 0, data: vec![1].into() };
    ask(&session, write).expect("written");
    Scene { session, file, handle, unnamed: (unnamed.0.ino, unnamed.1), dir, section }
}

fn move_to(s: &Scene, name: &str, new_name: &str, mode: RenameMode) -> Request {
    let (name, new_name) = (name.into(), new_name.into());
    Request::Rename { parent: s.dir, name, new_parent: s.dir, new_name, mode }
}

fn set(ino: u32, set: SetAttr) -> Request {
    Request::SetAttr { file: ino.into(), set, times: true }
}

fn publish(s: &Scene, source: PublishSource, level: Level) -> Request {
    let entries = vec![PublishEntry { source, to: b"new".to_vec(), replace: true }];
    Request::Publish { base: s.dir, entries, level, rights: Rights::all() }
}

fn compound(s: &Scene, steps: Vec<Step>) -> Request {
    let (level, rights, wanted) = (Level::Visible, Rights::all(), Wanted::All);
    Request::Compound(Box::new(Compound { base: s.dir, steps, level, rights, wanted }))
}

fn commit(s: &Scene, durable: bool) -> Request {
    Request::SectionCommit { sections: vec![s.section], durable, times: true }
}

fn owner(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { uid, gid, ..SetAttr::default() }
}

fn mode(perm: u16) -> SetAttr {
    SetAttr { perm: Some(perm), ..SetAttr::default() }
}

/// What a later fsync must not overtake.
const ORDERED: &[(&str, Build)] = &[
    ("rename", |s| move_to(s, "f", "new", RenameMode::Replace)),
    ("rename over", |s| move_to(s, "f", "g", RenameMode::Replace)),
    ("rename of a directory", |s| move_to(s, "d", "new", RenameMode::NoReplace)),
    ("exchange", |s| move_to(s, "f", "g", RenameMode::Exchange)),
    ("whiteout", |s| move_to(s, "f", "new", RenameMode::Whiteout)),
    ("link", |s| Request::Link { ino: s.file, parent: s.dir, name: b"new".to_vec() }),
    ("linkat of an unnamed file", |s| Request::Link {
        ino: s.unnamed.0,
        parent: s.dir,
        name: b"new".to_vec(),
    }),
    ("chmod of a directory", |s| set(s.dir, mode(0o700))),
    ("chown of a directory", |s| set(s.dir, owner(Some(7), None))),
    ("chgrp of a directory", |s| set(s.dir, owner(None, Some(7)))),
    ("access list", |s| attribute(s.dir, b"system.posix_acl_access", list())),
    ("default list", |s| attribute(s.dir, b"system.posix_acl_default", list())),
    ("security", |s| attribute(s.dir, b"security.selinux", b"label".to_vec())),
    ("chattr of a directory", |s| Request::SetFlags { file: s.dir.into(), flags: flags::NOATIME }),
    ("ticket", |s| Request::Stage { file: s.handle.into(), datasync: false }),
    ("barrier", |_| Request::Barrier),
    ("publish", |s| publish(s, PublishSource::Path(b"f".to_vec()), Level::Visible)),
    ("ordered publish", |s| publish(s, PublishSource::Path(b"f".to_vec()), Level::Atomic)),
    ("durable publish", |s| publish(s, PublishSource::Path(b"f".to_vec()), Level::Durable)),
    ("publish of an unnamed file", |s| {
        publish(s, PublishSource::Open(s.unnamed.1), Level::Visible)
    }),
    ("section", |s| commit(s, false)),
    ("durable section", |s| commit(s, true)),
    ("compound of a write", |s| {
        let (file, offset) = (FileArg::Open(s.handle), NumberArg::Given(0));
        let data = BytesArg::Given(vec![1]);
        compound(s, vec![Step::Write { file, offset, data }])
    }),
    ("compound of a creation", |s| {
        compound(s, vec![Step::Create { path: b"new".to_vec(), perm: 0o600 }])
    }),
    ("compound of a removal", |s| compound(s, vec![Step::Unlink { path: b"f".to_vec() }])),
];

/// What it may overtake, as on the mount.
const OTHERS: &[(&str, Build)] = &[
    ("write", |s| Request::write(s.handle, 0, vec![1])),
    ("append", |s| Request::Append {
        file: s.handle.into(),
        end: 9,
        data: vec![1].into(),
        kill_priv: false,
        times: true,
    }),
    ("create", |s| Request::Create { parent: s.dir, name: b"new".to_vec(), perm: 0o600 }),
    ("unnamed file", |s| Request::TmpFile { parent: s.dir, perm: 0o600, exclusive: false }),
    ("mkdir", |s| Request::MakeDir { parent: s.dir, name: b"new".to_vec(), perm: 0o700 }),
    ("symlink", |s| Request::Symlink {
        parent: s.dir,
        name: b"new".to_vec(),
        target: b"f".to_vec(),
    }),
    ("unlink", |s| Request::Unlink { parent: s.dir, name: b"f".to_vec() }),
    ("rmdir", |s| Request::RemoveDir { parent: s.dir, name: b"d".to_vec() }),
    ("rename to the same file", |s| move_to(s, "f", "f", RenameMode::Replace)),
    ("getattr", |s| Request::GetAttr { file: s.dir.into() }),
    ("chmod", |s| set(s.file, mode(0o600))),
    ("chown", |s| set(s.file, owner(Some(7), Some(7)))),
    ("access list of a file", |s| attribute(s.file, b"system.posix_acl_access", list())),
    ("truncate", |s| set(s.file, SetAttr { size: Some(3), ..SetAttr::default() })),
    ("times of a directory", |s| {
        set(s.dir, SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() })
    }),
    ("attribute of a directory", |s| attribute(s.dir, b"user.x", vec![1])),
    ("chattr", |s| Request::SetFlags { file: s.handle.into(), flags: flags::NOATIME }),
    ("fsync", |s| Request::Fsync { file: s.handle.into(), datasync: false }),
    ("sync", |_| Request::SyncAll),
    ("section that ends", |s| Request::SectionAbort { section: s.section }),
    ("compound that reads", |s| {
        let (path, access) = (b"f".to_vec(), Access::Read);
        let (file, offset) = (FileArg::Step(StepNr(0)), NumberArg::Given(0));
        let open = Step::Open { path, access, truncate: false };
        compound(s, vec![open, Step::Read { file, offset, len: 3 }])
    }),
    ("compound that is refused", |s| {
        let twice = ["new", "new"].map(|path| Step::Create { path: path.into(), perm: 0o600 });
        compound(s, twice.to_vec())
    }),
];

/// Each lender has heard of each before it is answered, by both ways to ask.
#[test]
fn r46_what_no_fsync_overtakes_is_counted_before_its_answer() {
    let world = roomy(2);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    let (_lender, _, told) = lender(&v);
    let (_second, _, other) = lender(&v);
    let cases = ORDERED.iter().map(|case| (case, true));
    let cases = cases.chain(OTHERS.iter().map(|case| (case, false)));
    for (number, ((kind, build), counts)) in cases.enumerate() {
        let s = scene(&kernel, number);
        let before = told.order();
        assert_eq!(other.order(), before, "{kind}");
        // What the answer finds on its thread is what was heard before.
        let heard = Arc::new(Mutex::new(None));
        let (answer, at) = (heard.clone(), told.clone());
        let done: Completion = Box::new(move |result| {
            *answer.lock().unwrap() = Some((result.map(drop).map_err(|e| e.errno()), at.order()));
        });
        kernel.submit(&Credentials::default(), build(&s), done);
        let (answer, after) = heard.lock().unwrap().take().expect("answered on this thread");
        assert_eq!(answer, Ok(()), "{kind}");
        assert_eq!(after > before, counts, "{kind}: {before}, then {after}");
        assert_eq!(other.order(), after, "{kind}");
        ask(&s.session, Request::Release { handle: s.handle }).expect("close");
    }
    drop(kernel);
    v.close().expect("close");
    world.e2fsck();
}

/// A list that is taken away says less or more than the mode did.
#[test]
fn r38_a_list_that_goes_counts() {
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    let (_lender, _, told) = lender(&v);
    for name in [&b"system.posix_acl_access"[..], b"system.posix_acl_default"] {
        ask(&kernel, attribute(ROOT, name, list())).expect("a list");
        let before = told.order();
        let (file, name) = (ROOT.into(), name.to_vec());
        ask(&kernel, Request::RemoveXattr { file, name, times: true }).expect("removed");
        assert!(told.order() > before);
    }
}

/// A session that begins hears how far the count is, and one that ended hears nothing more.
#[test]
fn a_new_session_hears_the_present_count() {
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    let (_first, _, first) = lender(&v);
    assert_eq!(first.orders(), [1]);
    make(&kernel, "a");
    for (from, to) in [("a", "b"), ("b", "c")] {
        ask(&kernel, rename(from, to, RenameMode::Replace)).expect("rename");
    }
    assert_eq!(first.orders(), [1, 2, 3]);
    let (second, _, heard) = lender(&v);
    assert_eq!(heard.orders(), [3]);
    // A session that may hold leases, and does other things, too, is not told.
    let (_holder, _, holder) = shower(&v);
    end(&second);
    ask(&kernel, rename("c", "d", RenameMode::Replace)).expect("rename");
    assert_eq!((first.order(), heard.orders(), holder.orders()), (4, vec![3], vec![]));
}

/// Each number is heard once and in turn, whatever sessions begin and end meanwhile.
#[test]
fn the_count_never_goes_back() {
    const TURNS: u64 = 200;
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    let (_lender, _, told) = lender(&v);
    let renaming: Vec<_> = (0..2)
        .map(|thread| {
            let (session, told) = (kernel.clone(), told.clone());
            let names = [format!("a{thread}"), format!("b{thread}")];
            create(&session, &names[0]);
            spawn(move || {
                for turn in 0..TURNS {
                    let [from, to] = [0, 1].map(|end| &names[(turn as usize + end) % 2]);
                    let before = told.order();
                    ask(&session, rename(from, to, RenameMode::Replace)).expect("rename");
                    assert!(told.order() > before, "before the answer");
                }
            })
        })
        .collect();
    let mut heard = Vec::new();
    while renaming.iter().any(|thread| !thread.is_finished()) {
        let (session, _, meanwhile) = lender(&v);
        end(&session);
        heard.push(meanwhile.orders());
    }
    renaming.into_iter().for_each(|thread| thread.join().expect("it renames"));
    assert_eq!(told.orders(), (1..=2 * TURNS + 1).collect::<Vec<_>>());
    for orders in heard {
        let first = orders[0];
        assert_eq!(orders, (first..first + orders.len() as u64).collect::<Vec<_>>());
    }
}
