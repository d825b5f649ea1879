use super::*;
use siftfs_proto::compound::{StepNr, Wanted};
use siftfs_proto::{Level, Rights, WriteData};
use std::sync::Mutex;

/// The directory that is the mount's root.
const OWN: InodeNr = 40;

/// Keeps what it is asked, and answers as it is told.
#[derive(Default)]
struct Told {
    asked: Mutex<Vec<Request>>,
    answers: Mutex<Vec<Result<Reply>>>,
}

impl FileService for Told {
    fn call(&self, _: &Credentials, req: Request) -> Result<Reply> {
        self.asked.lock().unwrap().push(req);
        self.answers.lock().unwrap().pop().unwrap_or(Ok(Reply::Done))
    }

    fn has_looked_up(&self, ino: InodeNr) -> bool {
        ino == 7
    }
}

fn attr(ino: InodeNr) -> Attr {
    let zero = siftfs_base::Timestamp { sec: 0, nsec: 0 };
    let (atime, mtime, ctime, crtime) = (zero, zero, zero, zero);
    let kind = FileKind::Directory;
    let (perm, nlink, uid, gid, rdev, size, blocks) = (0o755, 2, 0, 0, 0, 0, 0);
    let generation = 9;
    Attr {
        ino,
        generation,
        kind,
        perm,
        nlink,
        uid,
        gid,
        rdev,
        size,
        blocks,
        atime,
        mtime,
        ctime,
        crtime,
        held: false,
    }
}

/// A mount of that directory, and what stands behind it.
fn below() -> (Arc<Told>, Arc<dyn FileService>, Switch) {
    let told = Arc::new(Told::default());
    told.answers.lock().unwrap().push(Ok(Reply::Entry(attr(OWN))));
    let read_only = Switch::new(false);
    let scope = Scope::before(told.clone(), OWN, read_only.clone()).unwrap();
    let first = told.asked.lock().unwrap().pop();
    assert_eq!(first, Some(Request::Lookup { parent: OWN, name: b".".to_vec() }));
    (told, scope, read_only)
}

fn ask(scope: &Arc<dyn FileService>, req: Request) -> Result<Reply> {
    scope.call(&Credentials::default(), req)
}

fn lookup(parent: InodeNr) -> Request {
    Request::Lookup { parent, name: b"x".to_vec() }
}

#[test]
fn the_root_is_the_directory() {
    let (told, scope, _) = below();
    let answer = |reply| told.answers.lock().unwrap().push(Ok(reply));
    answer(Reply::Entry(attr(50)));
    assert_eq!(ask(&scope, lookup(ROOT_INO)), Ok(Reply::Entry(attr(50))));
    let parent = ROOT_INO;
    let (name, new_name) = (b"a".to_vec(), b"b".to_vec());
    let mode = siftfs_proto::RenameMode::Replace;
    let rename = |parent, new_parent| {
        let (name, new_name) = (name.clone(), new_name.clone());
        Request::Rename { parent, name, new_parent, new_name, mode }
    };
    ask(&scope, rename(parent, 50)).unwrap();
    ask(&scope, rename(50, parent)).unwrap();
    ask(&scope, Request::GetAttr { file: ROOT_INO.into() }).unwrap();
    ask(&scope, Request::GetAttr { file: siftfs_proto::Handle(2).into() }).unwrap();
    let wanted = [
        lookup(OWN),
        rename(OWN, 50),
        rename(50, OWN),
        Request::GetAttr { file: OWN.into() },
        Request::GetAttr { file: siftfs_proto::Handle(2).into() },
    ];
    assert_eq!(*told.asked.lock().unwrap(), wanted);
    // It comes back as the root, with a root's generation.
    answer(Reply::Attr(attr(OWN)));
    let root = Attr { ino: ROOT_INO, generation: 0, ..attr(OWN) };
    assert_eq!(ask(&scope, Request::GetAttr { file: ROOT_INO.into() }), Ok(Reply::Attr(root)));
    assert!(scope.has_looked_up(ROOT_INO) && scope.has_looked_up(7));
    assert!(!scope.has_looked_up(OWN) && !scope.has_looked_up(8));
}

/// Neither the directory's own number nor the volume's root is anything here; what was counted for
/// an answer that is not given is given back.
#[test]
fn nothing_above_has_a_number() {
    let (told, scope, _) = below();
    let stale = Err(errno(libc::ESTALE));
    assert_eq!(ask(&scope, lookup(OWN)), stale);
    assert_eq!(ask(&scope, Request::OpenDir { ino: OWN }), stale);
    assert!(told.asked.lock().unwrap().is_empty());
    told.answers.lock().unwrap().extend([Ok(Reply::Done), Ok(Reply::Entry(attr(ROOT_INO)))]);
    assert_eq!(ask(&scope, lookup(50)), stale);
    let wanted = [lookup(50), Request::Forget { ino: ROOT_INO, count: 1 }];
    assert_eq!(*told.asked.lock().unwrap(), wanted);
}

#[test]
fn listings_lead_nowhere_above() {
    let (told, scope, _) = below();
    let entry = |name: &[u8], ino| DirEntry {
        ino,
        cookie: 1,
        kind: FileKind::Directory,
        name: name.to_vec(),
        attr: None,
    };
    let list = |entries: &[DirEntry]| {
        told.answers.lock().unwrap().push(Ok(Reply::Dir(entries.to_vec())));
        let handle = siftfs_proto::Handle(1);
        let listing = Request::ReadDir { handle, cookie: 0, max_bytes: 999, plus: true };
        let entries = ask(&scope, listing).and_then(Reply::entries).unwrap();
        entries.into_iter().map(|e| e.ino).collect::<Vec<_>>()
    };
    // The root's own listing, with a parent that is the volume's root or not.
    for parent in [ROOT_INO, 30] {
        let inodes = list(&[entry(b".", OWN), entry(b"..", parent), entry(b"x", 50)]);
        assert_eq!(inodes, [ROOT_INO, ROOT_INO, 50]);
    }
    assert_eq!(list(&[entry(b".", 50), entry(b"..", OWN)]), [50, ROOT_INO]);
    // A directory that was moved out meanwhile.
    assert_eq!(list(&[entry(b".", 50), entry(b"..", ROOT_INO)]), [50, ROOT_INO]);
}

#[test]
fn what_changed_is_named_as_the_mount_has_it() {
    let (told, scope, _) = below();
    let names = vec![(OWN, b"a".to_vec()), (50, b"b".to_vec())];
    let shown = vec![(ROOT_INO, b"a".to_vec()), (50, b"b".to_vec())];
    let published = Reply::Published { names: names.clone(), files: vec![51] };
    told.answers.lock().unwrap().push(Ok(published));
    let publish = Request::Publish {
        base: ROOT_INO,
        entries: Vec::new(),
        level: Level::Visible,
        rights: Rights::default(),
    };
    let got = ask(&scope, publish);
    assert_eq!(got, Ok(Reply::Published { names: shown.clone(), files: vec![51] }));
    let values = vec![Value::File { ino: 51, generation: 3, handle: None }];
    let done = |names| {
        let (files, written) = (vec![51], Vec::new());
        Reply::Compounded(Compounded::Done { values: values.clone(), names, files, written })
    };
    told.answers.lock().unwrap().push(Ok(done(names)));
    assert_eq!(ask(&scope, compound(ROOT_INO, Vec::new())), Ok(done(shown)));
    match told.asked.lock().unwrap().last() {
        Some(Request::Compound(compound)) => assert_eq!(compound.base, OWN),
        other => panic!("{other:?}"),
    }
    let mut owed = Owed::default();
    let mut notice = Notice::new(&mut owed);
    notice.attributes = vec![ROOT_INO, OWN, 50];
    notice.names = vec![(OWN, b"a".to_vec()), (ROOT_INO, b"b".to_vec())];
    Part(OWN).show_notice(&mut notice);
    assert_eq!(notice.attributes, [ROOT_INO, 50]);
    assert_eq!(notice.names, [(ROOT_INO, b"a".to_vec())]);
}

fn compound(base: InodeNr, steps: Vec<Step>) -> Request {
    Request::Compound(Box::new(Compound {
        base,
        steps,
        level: Level::Visible,
        rights: Rights::default(),
        wanted: Wanted::All,
    }))
}

#[test]
fn a_removed_directory_and_a_file_are_no_root() {
    for (attr, why) in [
        (Attr { nlink: 0, ..attr(OWN) }, libc::ENOENT),
        (Attr { kind: FileKind::Regular, ..attr(OWN) }, libc::ENOTDIR),
    ] {
        let told = Arc::new(Told::default());
        told.answers.lock().unwrap().push(Ok(Reply::Entry(attr)));
        let made = Scope::before(told, OWN, Switch::new(false));
        assert_eq!(made.err(), Some(errno(why)));
    }
}

/// Read-only: what changes something is refused, what only looks goes through, now and again when
/// it is switched.
#[test]
fn a_read_only_mount_changes_nothing() {
    let (told, scope, read_only) = below();
    let file = siftfs_proto::Target::Inode(50);
    let path = || b"x".to_vec();
    let open = |access, truncate| Request::Open {
        ino: 50,
        access,
        truncate,
        kill_priv: false,
        times: true,
        beside_lease: false,
    };
    use siftfs_proto::compound::{Access, FileArg, NumberArg};
    let read = Step::Read { file: FileArg::Step(StepNr(0)), offset: NumberArg::Given(0), len: 1 };
    let changes = [
        Request::Unlink { parent: 50, name: path() },
        Request::WriteBack { file, offset: 0, data: WriteData::copy_of(0, b"x"), times: true },
        Request::SetFlags { file, flags: 0 },
        Request::SectionStart { file },
        open(Access::Both, false),
        open(Access::Read, true),
        compound(50, vec![Step::Lookup { path: path() }, Step::Unlink { path: path() }]),
        compound(50, vec![Step::Open { path: path(), access: Access::Write, truncate: false }]),
    ];
    let looks = [
        lookup(50),
        Request::Fsync { file, datasync: false },
        Request::Forget { ino: 50, count: 1 },
        Request::EndSession,
        open(Access::Read, false),
        compound(50, vec![Step::Lookup { path: path() }, read]),
    ];
    for (on, expected) in [(false, None), (true, Some(errno(libc::EROFS))), (false, None)] {
        read_only.set(on);
        for req in &changes {
            assert_eq!(ask(&scope, req.clone()).err(), expected, "{req:?}");
            let (result, owed) = scope.call_owing(&Credentials::default(), req.clone());
            assert_eq!(result.err(), expected, "{req:?}");
            assert!(owed.is_settled());
        }
        for req in &looks {
            ask(&scope, req.clone()).unwrap();
        }
    }
    let both = told.asked.lock().unwrap().len();
    assert_eq!(both, 2 * 2 * changes.len() + 3 * looks.len());
}
