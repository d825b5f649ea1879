use super::*;
use crate::pages::kernel_cache::DirectWrite;
use crate::serve::privileges::CAPABILITY;
use siftfs_base::Timestamp;
use siftfs_proto::{FileKind, Target};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

/// Answers directory reads with `entries` names, and records everything.
struct Fake {
    kind: FileKind,
    entries: u64,
    seen: Mutex<Vec<Request>>,
    /// Permission bits of every file.
    perm: AtomicU16,
}

fn attr(ino: InodeNr, kind: FileKind) -> Attr {
    let t = Timestamp::default();
    Attr {
        ino,
        generation: 1,
        kind,
        perm: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
        crtime: t,
        held: false,
    }
}

impl FileService for Fake {
    fn call(&self, _: &Credentials, req: Request) -> Result<Reply> {
        self.seen.lock().unwrap().push(req.clone());
        match req {
            Request::ReadDir { cookie, plus, .. } => {
                let end = (cookie + 5).min(self.entries);
                let entry = |i: u64| DirEntry {
                    ino: 100 + i as InodeNr,
                    cookie: i + 1,
                    kind: FileKind::Regular,
                    name: format!("f{i}").into_bytes(),
                    attr: plus.then(|| attr(100 + i as InodeNr, FileKind::Regular)),
                };
                Ok(Reply::Dir((cookie..end).map(entry).collect()))
            }
            Request::ListXattr { .. } => Ok(Reply::Names(vec![
                b"user.a".to_vec(),
                b"trusted.b".to_vec(),
                b"system.posix_acl_access".to_vec(),
            ])),
            Request::GetAttr { file } | Request::SetAttr { file, .. } => {
                let Target::Inode(ino) = file else { panic!("the kernel names inodes") };
                let perm = self.perm.load(Ordering::SeqCst);
                Ok(Reply::Attr(Attr { perm, ..attr(ino, self.kind) }))
            }
            Request::GetXattr { .. } => Err(errno(libc::ENODATA)),
            _ => Ok(Reply::Done),
        }
    }
}

fn server(kind: FileKind) -> (Arc<Fake>, Arc<Server>) {
    server_with(kind, false)
}

fn server_with(kind: FileKind, acls: bool) -> (Arc<Fake>, Arc<Server>) {
    let fake =
        Arc::new(Fake { kind, entries: 12, seen: Mutex::default(), perm: AtomicU16::new(0o644) });
    let server = Arc::new(Server::new(fake.clone(), Agreed { acls, ..Agreed::default() }));
    (fake, server)
}

fn user(uid: u32) -> Credentials {
    // A thread whose status cannot be read.
    Credentials { uid, gid: uid, ..Credentials::default() }
}

/// Entries that did not fit are given back exactly once, and the next call starts with them.
#[test]
fn a_full_directory_buffer_gives_references_back() {
    let (fake, server) = server(FileKind::Directory);
    let mut got = Vec::new();
    let mut cookie = 0;
    for _ in 0..20 {
        let before = got.len();
        let mut room = 3;
        let cursor = DirCursor { dir: Dir::Open(Handle(1)), cookie, plus: true, room: 1 << 20 };
        server
            .read_dir(&user(0), cursor, &mut |e| {
                if room == 0 {
                    return false;
                }
                room -= 1;
                cookie = e.cookie;
                got.push(e.ino);
                true
            })
            .unwrap();
        if got.len() == before {
            break;
        }
    }
    assert_eq!(got, (100..112).collect::<Vec<_>>());
    let mut refs = [0i64; 12];
    let mut cookies = Vec::new();
    for r in fake.seen.lock().unwrap().iter() {
        match r {
            Request::ReadDir { cookie, .. } => {
                cookies.push(*cookie);
                (*cookie..(*cookie + 5).min(12)).for_each(|i| refs[i as usize] += 1);
            }
            Request::Forget { ino, count } => refs[*ino as usize - 100] -= *count as i64,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refs, [1; 12], "reads started at {cookies:?}");
}

fn killed(kind: FileKind, uid: u32, set: SetAttr) -> bool {
    let (fake, server) = server(kind);
    server.set_attr(&user(uid), 11, set).unwrap();
    let seen = fake.seen.lock().unwrap();
    match seen.last() {
        Some(Request::SetAttr { set, .. }) => set.kill_priv,
        other => panic!("{other:?}"),
    }
}

/// The kernel says when privileges die.
#[test]
fn privileges_die_when_the_kernel_says_so() {
    use FileKind::{Directory, Regular};
    let size = |kill_priv| SetAttr { size: Some(1), kill_priv, ..SetAttr::default() };
    let chmod = SetAttr { perm: Some(0o6755), ..SetAttr::default() };
    assert!(killed(Regular, 0, size(true)));
    assert!(!killed(Regular, 1000, size(false)));
    assert!(!killed(Regular, 1000, chmod));
    assert!(killed(Regular, 0, SetAttr::default()));
    assert!(!killed(Directory, 1000, SetAttr::default()));
}

#[test]
fn xattr_namespaces() {
    let (_, server) = server(FileKind::Regular);
    assert_eq!(server.list_xattr(&user(0), 11).unwrap(), b"user.a\0trusted.b\0");
    assert_eq!(server.list_xattr(&user(7), 11).unwrap(), b"user.a\0");
    let acl = server.get_xattr(&user(0), 11, b"system.posix_acl_access".to_vec());
    assert_eq!(acl, Err(errno(libc::EOPNOTSUPP)), "nobody would enforce it");
    let (_, server) = server_with(FileKind::Regular, true);
    let all = b"user.a\0system.posix_acl_access\0";
    assert_eq!(server.list_xattr(&user(7), 11).unwrap(), all);
    assert_eq!(server.agreed.check_xattr_name(b"system.posix_acl_default"), Ok(()));
    for other in [&b"system.richacl"[..], b"system.data", b"system."] {
        assert_eq!(server.agreed.check_xattr_name(other), Err(errno(libc::EOPNOTSUPP)));
    }
}

/// A stranger's announcement is refused while the file is not open for writing; else it is carried
/// out with the write itself.
#[test]
fn a_stranger_announces_a_write() {
    let (fake, server) = server(FileKind::Regular);
    fake.perm.store(0o6755, Ordering::SeqCst);
    let stranger = user(1000);
    let kills = || {
        let seen = std::mem::take(&mut *fake.seen.lock().unwrap());
        seen.iter().filter(|r| matches!(r, Request::SetAttr { .. })).count()
    };
    let nothing = |who: &Credentials| server.set_attr(who, 11, SetAttr::default()).map(drop);
    assert_eq!(nothing(&stranger), Err(errno(libc::EPERM)));
    assert_eq!(kills(), 0);
    server.open_files.opened(&user(0), Handle(5), 11, libc::O_WRONLY.cast_unsigned());
    assert_eq!(nothing(&stranger), Ok(()));
    assert_eq!(kills(), 0, "it may be a chown");
    let write = |who: &Credentials| {
        let data = WriteData::Bytes(b"x".to_vec());
        // What the service answers is of no interest here.
        let _ = server.write(who, 11, Place::at(0), data, true);
        kills()
    };
    assert_eq!(write(&Credentials { pid: 2, ..user(1001) }), 0, "another thread's");
    assert_eq!((write(&stranger), write(&stranger)), (1, 0));
    assert_eq!(nothing(&user(0)), Ok(()));
    assert_eq!(kills(), 1, "the owner's is carried out at once");
    let owner_only = server.remove_xattr(&stranger, 11, CAPABILITY);
    assert_eq!(owner_only, Ok(()));
    let removed = |r: &Request| matches!(r, Request::RemoveXattr { .. });
    assert!(!fake.seen.lock().unwrap().iter().any(removed), "announced only");
    server.remove_xattr(&user(0), 11, CAPABILITY).unwrap();
    assert!(fake.seen.lock().unwrap().iter().any(removed));
}

/// A write past the cache is durable before its answer, as its descriptor says.
#[test]
fn direct_writes_are_made_durable() {
    let (fake, server) = server(FileKind::Regular);
    let (dsync, sync) = (libc::O_DSYNC.cast_unsigned(), libc::O_SYNC.cast_unsigned());
    for (flags, expected) in [(0, None), (dsync, Some(true)), (sync, Some(false))] {
        let write = DirectWrite { ino: 11, handle: Handle(5), offset: 0, len: 1, flags };
        let (answered, answer) = std::sync::mpsc::channel();
        let done = Box::new(move |result: Result<Reply>| answered.send(result).unwrap());
        server.finish_direct(&user(0), write, done);
        assert_eq!(answer.recv().unwrap(), Ok(Reply::Done));
        let seen = std::mem::take(&mut *fake.seen.lock().unwrap());
        let synced: Vec<bool> = seen
            .iter()
            .filter_map(|r| match r {
                Request::Fsync { datasync, .. } => Some(*datasync),
                _ => None,
            })
            .collect();
        assert_eq!(synced, Vec::from_iter(expected));
    }
}
