//! Access control lists across a crash: with a file's own fsync, with one below it (rule R17), and
//! with the fsync of the directory in which they were inherited.

use siftfs_base::Error;
use siftfs_placement::{LocalVolume, MkfsOptions};
use siftfs_proto::*;

mod support;
use support::World;

const ROOT: u32 = ROOT_INO;
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

impl World {
    /// Power fails; what recovery brings back. e2fsck is content with it.
    fn crash(&self, v: LocalVolume) -> LocalVolume {
        v.abandon();
        self.open().close().expect("close");
        self.e2fsck();
        self.open()
    }
}

/// A list with one named user: owner rwx, user 1001 `user`, group r-x, the mask, others nothing.
fn list(user: u16, mask: u16) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, perm, id) in
        [(1u16, 7u16, none), (2, user, 1001), (4, 5, none), (16, mask, none), (32, 0, none)]
    {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

fn call(v: &LocalVolume, req: Request) -> Result<Reply, Error> {
    let cred = Credentials { umask: 0o077, ..Credentials::default() };
    v.endpoint().call(&cred, req)
}

fn attr(reply: Result<Reply, Error>) -> Attr {
    match reply.expect("request") {
        Reply::Entry(a) | Reply::Attr(a) | Reply::Created { attr: a, .. } => a,
        other => panic!("{other:?}"),
    }
}

fn create(v: &LocalVolume, parent: u32, name: &str) -> Attr {
    attr(call(v, Request::Create { parent, name: name.into(), perm: 0o666 }))
}

fn make_dir(v: &LocalVolume, parent: u32, name: &str) -> Attr {
    attr(call(v, Request::MakeDir { parent, name: name.into(), perm: 0o777 }))
}

fn set(v: &LocalVolume, ino: u32, name: &[u8], value: &[u8]) {
    let (name, value, mode) = (name.to_vec(), value.to_vec(), XattrMode::Set);
    let req = Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid: false };
    assert_eq!(call(v, req).expect("setxattr"), Reply::Done);
}

fn get(v: &LocalVolume, ino: u32, name: &[u8]) -> Option<Vec<u8>> {
    match call(v, Request::GetXattr { file: ino.into(), name: name.to_vec() }) {
        Ok(Reply::Data(value)) => Some(value),
        Err(Error::Posix(libc::ENODATA)) => None,
        other => panic!("{other:?}"),
    }
}

fn lookup(v: &LocalVolume, parent: u32, name: &str) -> Attr {
    attr(call(v, Request::Lookup { parent, name: name.into() }))
}

fn fsync(v: &LocalVolume, ino: u32) {
    call(v, Request::Fsync { file: ino.into(), datasync: false }).expect("fsync");
}

fn staged_only(v: &LocalVolume, what: &str) {
    let Ok(Reply::Status(status)) = call(v, Request::Status) else { panic!("no status") };
    let full = status.runtime.full_commits;
    assert!(full.values().all(|n| *n == 0), "{what}: full commits {full:?}");
}

/// fsync carries a list and the mode that goes with it, set, changed by chmod, and removed.
#[test]
fn an_fsync_carries_the_list() {
    for commit in [false, true] {
        let world = World::new(MkfsOptions::default().lanes);
        let v = world.open();
        let f = create(&v, ROOT, "f").ino;
        fsync(&v, f);
        if commit {
            v.commit(false).expect("commit");
        }
        set(&v, f, ACCESS, &list(7, 6));
        fsync(&v, f);
        staged_only(&v, "a list");
        let v = world.crash(v);
        assert_eq!((lookup(&v, ROOT, "f").perm, get(&v, f, ACCESS)), (0o760, Some(list(7, 6))));
        let perm = Some(0o640);
        attr(call(
            &v,
            Request::SetAttr {
                file: f.into(),
                set: SetAttr { perm, ..SetAttr::default() },
                times: true,
            },
        ));
        assert_eq!(get(&v, f, ACCESS).expect("a list")[12..14], [2, 0], "a named user");
        fsync(&v, f);
        let v = world.crash(v);
        let masked = get(&v, f, ACCESS).expect("a list");
        assert_eq!(
            (lookup(&v, ROOT, "f").perm, masked[28..32].to_vec()),
            (0o640, vec![16, 0, 4, 0])
        );
        call(&v, Request::RemoveXattr { file: f.into(), name: ACCESS.to_vec(), times: true })
            .expect("removexattr");
        fsync(&v, f);
        let v = world.crash(v);
        assert_eq!((lookup(&v, ROOT, "f").perm, get(&v, f, ACCESS)), (0o640, None));
        v.close().expect("close");
    }
}

/// Rule R17: an fsync below a directory whose list was just narrowed brings the list along.
#[test]
fn a_list_of_a_directory_above_is_not_overtaken() {
    let world = World::new(MkfsOptions::default().lanes);
    let v = world.open();
    let d = make_dir(&v, ROOT, "d").ino;
    set(&v, d, ACCESS, &list(7, 7));
    let f = create(&v, d, "f").ino;
    fsync(&v, f);
    v.commit(false).expect("commit");
    set(&v, d, ACCESS, &list(0, 7));
    let secret = b"for the owner only".to_vec();
    let (append, kill_priv) = (false, false);
    call(
        &v,
        Request::Write {
            file: f.into(),
            offset: 0,
            data: secret.clone().into(),
            append,
            kill_priv,
            times: true,
        },
    )
    .expect("write");
    fsync(&v, f);
    let v = world.crash(v);
    assert_eq!(get(&v, d, ACCESS), Some(list(0, 7)), "the secret came without its guard");
    let read = call(&v, Request::Read { file: f.into(), offset: 0, len: 100 });
    assert_eq!(read.expect("read"), Reply::Data(secret));
    v.close().expect("close");
}

/// A file that was closed to others and then moved, or linked, to where they come does not
/// arrive open.
#[test]
fn a_new_name_does_not_overtake_permissions() {
    for (what, by_list) in [("rename", false), ("rename", true), ("link", false), ("link", true)] {
        let world = World::new(MkfsOptions::default().lanes);
        let v = world.open();
        let (private, public) =
            (make_dir(&v, ROOT, "private").ino, make_dir(&v, ROOT, "public").ino);
        let f = create(&v, private, "f").ino;
        set(&v, f, ACCESS, &list(7, 7));
        [f, public, private].iter().for_each(|i| fsync(&v, *i));
        v.commit(false).expect("commit");
        if by_list {
            set(&v, f, ACCESS, &list(0, 7));
        } else {
            let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
            attr(call(&v, Request::SetAttr { file: f.into(), set, times: true }));
        }
        let (mode, name) = (RenameMode::Replace, b"f".to_vec());
        let new_name = name.clone();
        let op = match what {
            "link" => Request::Link { ino: f, parent: public, name },
            _ => Request::Rename { parent: private, name, new_parent: public, new_name, mode },
        };
        call(&v, op).expect(what);
        fsync(&v, public);
        let v = world.crash(v);
        let public = lookup(&v, ROOT, "public").ino;
        let moved = lookup(&v, public, "f");
        let list = get(&v, moved.ino, ACCESS).expect("a list");
        let (user, mask) = (list[14], list[30]);
        let wanted = if by_list { (0o770, 0, 7) } else { (0o600, 7, 0) };
        assert_eq!((moved.perm, user, mask), wanted, "{what}");
        v.close().expect("close");
    }
}

/// What is made in a directory with a default list has its lists however its name became durable.
#[test]
fn inherited_lists_come_with_the_name() {
    for (what, commit) in [("file", false), ("directory", false), ("above", false), ("none", true)]
    {
        let world = World::new(MkfsOptions::default().lanes);
        let v = world.open();
        let d = make_dir(&v, ROOT, "d");
        assert_eq!(d.perm, 0o700, "by the umask");
        set(&v, d.ino, DEFAULT, &list(6, 7));
        if commit {
            v.commit(false).expect("commit");
        }
        let sub = make_dir(&v, d.ino, "sub");
        let f = create(&v, sub.ino, "f");
        let unnamed =
            attr(call(&v, Request::TmpFile { parent: d.ino, perm: 0o666, exclusive: false })).ino;
        call(&v, Request::Link { ino: unnamed, parent: sub.ino, name: b"t".to_vec() })
            .expect("link");
        assert_eq!((sub.perm, f.perm), (0o770, 0o660), "by the list");
        match what {
            "file" => [f.ino, unnamed].iter().for_each(|i| fsync(&v, *i)),
            "directory" => fsync(&v, sub.ino),
            "above" => [d.ino, sub.ino].iter().for_each(|i| fsync(&v, *i)),
            _ => v.commit(false).expect("commit"),
        }
        let v = world.crash(v);
        let d = lookup(&v, ROOT, "d").ino;
        assert_eq!(get(&v, d, DEFAULT), Some(list(6, 7)), "{what}");
        let sub = lookup(&v, d, "sub");
        assert_eq!((sub.perm, get(&v, sub.ino, DEFAULT)), (0o770, Some(list(6, 7))), "{what}");
        assert_eq!(get(&v, sub.ino, ACCESS), Some(list(6, 7)), "{what}");
        for name in ["f", "t"] {
            let f = lookup(&v, sub.ino, name);
            let list = get(&v, f.ino, ACCESS).unwrap_or_else(|| panic!("{what}: {name} without"));
            assert_eq!((f.perm, list[4..8].to_vec()), (0o660, vec![1, 0, 6, 0]), "{what}");
            assert_eq!(list[28..32], [16, 0, 6, 0], "{what}: the mask of {name}");
            assert_eq!(get(&v, f.ino, DEFAULT), None);
        }
        v.close().expect("close");
    }
}

/// Lists that do not fit what is made refuse its making, and nothing is left of it.
#[test]
fn lists_too_large_to_inherit_twice() {
    let world = World::new(MkfsOptions::default().lanes);
    let v = world.open();
    let d = make_dir(&v, ROOT, "d").ino;
    let none = u32::MAX;
    let mut value = 2u32.to_le_bytes().to_vec();
    let named = (0..400).map(|i| (8u16, 5u16, 10_000 + i));
    let all = [(1, 7, none), (4, 5, none)].into_iter().chain(named);
    for (tag, perm, id) in all.chain([(16, 7, none), (32, 0, none)]) {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    set(&v, d, DEFAULT, &value);
    let twice = call(&v, Request::MakeDir { parent: d, name: b"sub".to_vec(), perm: 0o777 });
    assert_eq!(twice.unwrap_err().errno(), libc::ENOSPC);
    let none = call(&v, Request::Lookup { parent: d, name: b"sub".to_vec() });
    assert_eq!(none.unwrap_err().errno(), libc::ENOENT);
    let once = create(&v, d, "f");
    assert!(get(&v, once.ino, ACCESS).is_some(), "one fits");
    fsync(&v, once.ino);
    let v = world.crash(v);
    let d = lookup(&v, ROOT, "d").ino;
    let f = lookup(&v, d, "f").ino;
    assert_eq!(get(&v, f, ACCESS).map(|l| l.len()), Some(value.len()));
    v.close().expect("close");
}
