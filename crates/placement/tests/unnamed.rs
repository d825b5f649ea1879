//! Files made without a name (O_TMPFILE): what a crash leaves of them, before and after they got
//! a name.

use siftfs_base::Error;
use siftfs_placement::{LocalVolume, MkfsOptions};
use siftfs_proto::*;

mod support;
use support::World;

const ROOT: u32 = ROOT_INO;

impl World {
    /// Opened again after a crash and closed: what is there under each name, and e2fsck content.
    fn after_crash(&self, v: LocalVolume, names: &[&str]) -> Vec<Option<Vec<u8>>> {
        v.abandon();
        let v = self.open();
        let found = names.iter().map(|n| lookup(&v, n).map(|a| read(&v, a.ino))).collect();
        v.close().expect("close");
        self.e2fsck();
        found
    }
}

fn call(v: &LocalVolume, req: Request) -> Result<Reply, Error> {
    v.endpoint().call(&Credentials::default(), req)
}

fn done(v: &LocalVolume, req: Request) {
    call(v, req).expect("request");
}

fn unnamed(v: &LocalVolume) -> (u32, Handle) {
    match call(v, Request::TmpFile { parent: ROOT, perm: 0o640, exclusive: false })
        .expect("tmpfile")
    {
        Reply::Created { attr, handle } => {
            assert_eq!((attr.nlink, attr.perm), (0, 0o640));
            (attr.ino, handle)
        }
        other => panic!("{other:?}"),
    }
}

fn write(v: &LocalVolume, ino: u32, data: &[u8]) {
    let (data, append, kill_priv) = (data.to_vec(), false, false);
    done(
        v,
        Request::Write {
            file: ino.into(),
            offset: 0,
            data: data.into(),
            append,
            kill_priv,
            times: true,
        },
    );
}

fn read(v: &LocalVolume, ino: u32) -> Vec<u8> {
    match call(v, Request::Read { file: ino.into(), offset: 0, len: 1 << 20 }).expect("read") {
        Reply::Data(data) => data,
        Reply::Blocks(blocks) => blocks.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn lookup(v: &LocalVolume, name: &str) -> Option<Attr> {
    match call(v, Request::Lookup { parent: ROOT, name: name.into() }) {
        Ok(Reply::Entry(attr)) => Some(attr),
        Err(Error::Posix(libc::ENOENT)) => None,
        other => panic!("{other:?}"),
    }
}

fn fsync(v: &LocalVolume, ino: u32) {
    done(v, Request::Fsync { file: ino.into(), datasync: false });
}

fn link(v: &LocalVolume, ino: u32, name: &str) {
    done(v, Request::Link { ino, parent: ROOT, name: name.into() });
}

/// More staged transactions than one of recovery's own takes, and fewer than make a commit.
fn many(v: &LocalVolume, prefix: &str) {
    for i in 0..12 {
        let name = format!("{prefix}{i}").into_bytes();
        let made = call(v, Request::MakeDir { parent: ROOT, name, perm: 0o755 }).expect("mkdir");
        let Reply::Entry(attr) = made else { panic!("{made:?}") };
        fsync(v, attr.ino);
    }
}

fn names(v: &LocalVolume) -> Vec<Vec<u8>> {
    let opened = call(v, Request::OpenDir { ino: ROOT }).expect("opendir");
    let Reply::Opened { handle } = opened else { panic!("{opened:?}") };
    let list = Request::ReadDir { handle, cookie: 0, max_bytes: 1 << 16, plus: false };
    let Reply::Dir(entries) = call(v, list).expect("readdir") else { panic!("no entries") };
    done(v, Request::Release { handle });
    entries.into_iter().map(|e| e.name).collect()
}

/// No listing shows a name, the directory's times stay, and a crash or the last close leaves
/// nothing.
#[test]
fn without_a_name_it_is_gone() {
    for (sync, commit) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::new(MkfsOptions::default().lanes);
        let v = world.open();
        let Ok(Reply::Attr(before)) = call(&v, Request::GetAttr { file: ROOT.into() }) else {
            panic!()
        };
        world.clock.advance(1_000_000_000);
        let (ino, handle) = unnamed(&v);
        let (second, _open) = unnamed(&v);
        write(&v, ino, b"never seen");
        write(&v, second, b"neither");
        assert_eq!(names(&v).len(), 3, "., .. and lost+found");
        let Ok(Reply::Attr(after)) = call(&v, Request::GetAttr { file: ROOT.into() }) else {
            panic!()
        };
        assert_eq!((before.mtime, before.ctime), (after.mtime, after.ctime));
        if sync {
            fsync(&v, ino);
        }
        if commit {
            v.commit(false).expect("commit");
        }
        done(&v, Request::Release { handle });
        done(&v, Request::Forget { ino, count: 1 });
        let late = call(&v, Request::Link { ino, parent: ROOT, name: b"late".to_vec() });
        assert_eq!(late.unwrap_err().errno(), libc::ESTALE, "it was gone with its last reference");
        assert_eq!(world.after_crash(v, &["late"]), [None]);
    }
}

/// A recovery makes it again as it was made: the directory's times stay, and those of a file that
/// had a name do not.
#[test]
fn recovery_leaves_the_times_of_its_directory() {
    let times = |v: &LocalVolume| {
        let Ok(Reply::Attr(a)) = call(v, Request::GetAttr { file: ROOT.into() }) else { panic!() };
        (a.mtime, a.ctime)
    };
    for named in [false, true] {
        let world = World::new(MkfsOptions::default().lanes);
        let v = world.open();
        let before = times(&v);
        world.clock.advance(1_000_000_000);
        let (ino, _open) = unnamed(&v);
        write(&v, ino, b"soon");
        fsync(&v, ino);
        if named {
            world.clock.advance(1_000_000_000);
            link(&v, ino, "named");
            fsync(&v, ino);
        }
        let live = times(&v);
        assert_eq!(live == before, !named);
        v.abandon();
        let v = world.open();
        assert_eq!(times(&v), live, "named: {named}");
        assert_eq!(lookup(&v, "named").is_some(), named);
        v.close().expect("close");
        world.e2fsck();
    }
}

/// A file that lost its last name does not come back.
#[test]
fn unlinked_is_not_unnamed() {
    let world = World::new(MkfsOptions::default().lanes);
    let v = world.open();
    let made = call(&v, Request::Create { parent: ROOT, name: b"f".to_vec(), perm: 0o644 });
    let Ok(Reply::Created { attr, .. }) = made else { panic!("{made:?}") };
    done(&v, Request::Unlink { parent: ROOT, name: b"f".to_vec() });
    let again = call(&v, Request::Link { ino: attr.ino, parent: ROOT, name: b"g".to_vec() });
    assert_eq!(again.unwrap_err().errno(), libc::ENOENT);
    let (ino, _open) = unnamed(&v);
    link(&v, ino, "h");
    done(&v, Request::Unlink { parent: ROOT, name: b"h".to_vec() });
    let again = call(&v, Request::Link { ino, parent: ROOT, name: b"g".to_vec() });
    assert_eq!(again.unwrap_err().errno(), libc::ENOENT);
    v.close().expect("close");
}

/// What is durable when: whichever of the file and its directory is synced, and wherever a
/// transaction or many other records come between.
#[test]
fn with_a_name_it_is_as_durable_as_any_file() {
    let data = vec![9; 10_000];
    for case in 0..32u32 {
        let on = |bit: u32| case & (1 << bit) != 0;
        let (sync_before, commit_before, between) = (on(0), on(1), on(2));
        let (commit_after, sync_dir) = (on(3), on(4));
        let world = World::new(MkfsOptions::default().lanes);
        let v = world.open();
        let (ino, _open) = unnamed(&v);
        write(&v, ino, &data);
        if sync_before {
            fsync(&v, ino);
        }
        if commit_before {
            v.commit(false).expect("commit");
        }
        if between {
            many(&v, "before");
        }
        link(&v, ino, "named");
        if commit_after {
            v.commit(false).expect("commit");
        }
        fsync(&v, if sync_dir { ROOT } else { ino });
        if between {
            many(&v, "after");
        }
        let found = world.after_crash(v, &["named"]).remove(0);
        let found = found.unwrap_or_else(|| panic!("case {case:05b}: no name"));
        if sync_before || !sync_dir {
            assert!(found == data, "case {case:05b}: {} bytes", found.len());
        } else {
            assert!(found.iter().all(|b| *b == 9 || *b == 0), "case {case:05b}");
        }
    }
}

/// How a file without a name is made durable by a full commit in the test below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// More data than a record of the lane may carry.
    TooMuch,
    /// Its directory lies below one whose move is pending.
    MovedAbove,
    /// Not an fsync of the file, but `sync`.
    Sync,
    /// `sync` once its creation is durable: the data alone is left.
    SyncLater,
}

/// An fsync that needs a full commit, and a sync, are as good as any other: the file's bytes are
/// there once it has a name, however often it is rewritten and made durable before that.
#[test]
fn a_full_commit_makes_it_durable() {
    let reasons = [Reason::TooMuch, Reason::MovedAbove, Reason::Sync, Reason::SyncLater];
    for (reason, rewritten) in reasons.into_iter().flat_map(|r| [(r, false), (r, true)]) {
        let world = World::new(MkfsOptions::default().lanes);
        let v = world.open();
        let parent = match reason {
            Reason::MovedAbove => moved(&v),
            _ => ROOT,
        };
        let made =
            call(&v, Request::TmpFile { parent, perm: 0o640, exclusive: false }).expect("tmpfile");
        let Reply::Created { attr, .. } = made else { panic!("{made:?}") };
        if reason == Reason::SyncLater {
            v.commit(false).expect("commit");
        }
        let len = if reason == Reason::TooMuch { 1 << 20 } else { 1_413 };
        for round in 0..=u8::from(rewritten) {
            write(&v, attr.ino, &vec![7 + round; len]);
            match reason {
                Reason::TooMuch | Reason::MovedAbove => fsync(&v, attr.ino),
                Reason::Sync | Reason::SyncLater => done(&v, Request::SyncAll),
            }
        }
        let before = full_commits(&v);
        link(&v, attr.ino, "named");
        fsync(&v, ROOT);
        if matches!(reason, Reason::TooMuch | Reason::MovedAbove) {
            assert!(before > 0, "{reason:?}: the fsync was to need a full commit");
        }
        let found = world.after_crash(v, &["named"]).remove(0);
        let found = found.unwrap_or_else(|| panic!("{reason:?}: no name"));
        let (size, byte) = (found.len(), 7 + u8::from(rewritten));
        assert!(size == len && found.iter().all(|b| *b == byte), "{reason:?}: {size} bytes");
    }
}

/// A directory that lies below one whose move is pending.
fn moved(v: &LocalVolume) -> u32 {
    let mut parent = ROOT;
    for name in [b"above", b"below"] {
        let made = call(v, Request::MakeDir { parent, name: name.to_vec(), perm: 0o755 });
        let Ok(Reply::Entry(attr)) = made else { panic!("{made:?}") };
        parent = attr.ino;
    }
    v.commit(false).expect("commit");
    done(
        v,
        Request::Rename {
            parent: ROOT,
            name: b"above".to_vec(),
            new_parent: ROOT,
            new_name: b"elsewhere".to_vec(),
            mode: RenameMode::Replace,
        },
    );
    parent
}

fn full_commits(v: &LocalVolume) -> u64 {
    let Ok(Reply::Status(status)) = call(v, Request::Status) else { panic!("no status") };
    status.runtime.full_commits.values().sum()
}
