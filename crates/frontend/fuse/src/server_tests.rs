use super::*;
use siftfs_base::Timestamp;
use std::sync::Mutex;

/// Answers directory reads with `entries` names, and records everything.
struct Fake {
    kind: FileKind,
    entries: u64,
    seen: Mutex<Vec<Request>>,
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
    }
}

impl FileService for Fake {
    fn call(&self, _: SessionId, _: &Credentials, req: Request) -> Result<Reply> {
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
            Request::GetAttr { ino } | Request::SetAttr { ino, .. } => {
                Ok(Reply::Attr(attr(ino, self.kind)))
            }
            _ => Ok(Reply::Done),
        }
    }
}

fn server(kind: FileKind) -> (Arc<Fake>, Arc<Server>) {
    server_with(kind, false)
}

fn server_with(kind: FileKind, acls: bool) -> (Arc<Fake>, Arc<Server>) {
    let fake = Arc::new(Fake { kind, entries: 12, seen: Mutex::default() });
    let server = Arc::new(Server::new(fake.clone(), SessionId(1), acls));
    (fake, server)
}

fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, pid: 1, umask: 0 }
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
        let cursor = DirCursor { handle: Handle(1), cookie, plus: true };
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

/// The kernel says when privileges die, and announces a write by a change of nothing.
#[test]
fn privileges_die_when_the_kernel_says_so() {
    use FileKind::{Directory, Regular};
    let size = |kill_priv| SetAttr { size: Some(1), kill_priv, ..SetAttr::default() };
    let chmod = SetAttr { perm: Some(0o6755), ..SetAttr::default() };
    assert!(killed(Regular, 0, size(true)));
    assert!(!killed(Regular, 1000, size(false)));
    assert!(!killed(Regular, 1000, chmod));
    assert!(killed(Regular, 1000, SetAttr::default()));
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
    assert_eq!(server.check_xattr_name(b"system.posix_acl_default"), Ok(()));
    for other in [&b"system.richacl"[..], b"system.data", b"system."] {
        assert_eq!(server.check_xattr_name(other), Err(errno(libc::EOPNOTSUPP)));
    }
}
