use super::super::tests::{Told, attr, session};
use super::*;
use siftfs_base::{Error, Result};
use siftfs_proto::compound::{Compounded, FileArg, Step, StepNr, Value, Wanted, WrittenFile};
use siftfs_proto::{FileKind, Level, Owed, RenameMode, Rights};
use std::sync::Mutex;

/// The directory that is the client's root.
const OWN: InodeNr = Told::DIRECTORY;
/// A directory below it.
const BELOW: InodeNr = 50;

fn below() -> (Arc<Told>, Arc<dyn FileService>) {
    session("subtree=/a/b")
}

fn ask(service: &Arc<dyn FileService>, req: Request) -> Result<Reply> {
    service.call(&Credentials::default(), req)
}

fn rename(parent: InodeNr, new_parent: InodeNr) -> Request {
    let (name, new_name) = (b"a".to_vec(), b"b".to_vec());
    Request::Rename { parent, name, new_parent, new_name, mode: RenameMode::Replace }
}

fn compound(base: InodeNr) -> Request {
    let (level, rights, wanted) = (Level::Visible, Rights::default(), Wanted::All);
    let steps = vec![Step::Close { file: FileArg::Open(Handle(OWN.into())) }];
    Request::Compound(Box::new(siftfs_proto::compound::Compound {
        base,
        steps,
        level,
        rights,
        wanted,
    }))
}

#[test]
fn the_directory_is_the_root() {
    let (told, service) = below();
    assert_eq!(*told.entered.lock().unwrap(), [b"/a/b".to_vec()]);
    let of = |dir, below| {
        [
            Request::Lookup { parent: dir, name: b"x".to_vec() },
            rename(dir, below),
            rename(below, dir),
            Request::GetAttr { file: dir.into() },
            Request::OpenDir { ino: dir },
            Request::Publish {
                base: dir,
                entries: Vec::new(),
                level: Level::Visible,
                rights: Rights::default(),
            },
            compound(dir),
            // A handle is no inode.
            Request::GetAttr { file: Handle(2).into() },
        ]
    };
    for req in of(ROOT_INO, BELOW) {
        ask(&service, req).unwrap();
    }
    assert_eq!(*told.asked.lock().unwrap(), of(OWN, BELOW));
    assert!(service.has_looked_up(ROOT_INO) && service.has_looked_up(7));
    assert!(!service.has_looked_up(OWN) && !service.has_looked_up(8));
}

/// The directory that the client sees as its root cannot be named by its real number as well. The
/// reference that the session has to this root is not the client's to give back.
#[test]
fn the_directorys_number_is_stale_and_the_root_stays() {
    let (told, service) = below();
    let all = [
        Request::Lookup { parent: OWN, name: b"x".to_vec() },
        Request::GetAttr { file: OWN.into() },
        Request::Forget { ino: OWN, count: 1 },
        Request::Link { ino: 7, parent: OWN, name: b"x".to_vec() },
        rename(OWN, BELOW),
        rename(BELOW, OWN),
        compound(OWN),
    ];
    for req in all {
        assert_eq!(ask(&service, req.clone()), Err(errno(libc::ESTALE)), "{req:?}");
    }
    assert_eq!(ask(&service, Request::Forget { ino: ROOT_INO, count: 9 }), Ok(Reply::Done));
    for parent in [ROOT_INO, BELOW] {
        let up = Request::Lookup { parent, name: b"..".to_vec() };
        assert_eq!(ask(&service, up), Err(errno(libc::EINVAL)));
    }
    assert_eq!(*told.asked.lock().unwrap(), []);
}

#[test]
fn replies_have_the_clients_numbers() {
    let names = |dir| vec![(dir, b"x".to_vec()), (BELOW, b"y".to_vec())];
    let of = |ino: InodeNr, attr: Attr| {
        let written = vec![WrittenFile { ino, resized: true, grown: false }];
        let values =
            vec![Value::File { ino, generation: 3, handle: None }, Value::Bytes(vec![OWN as u8])];
        let files = vec![ino, 7];
        [
            Reply::Entry(attr.clone()),
            Reply::Attr(attr.clone()),
            Reply::Created { attr, handle: Handle(OWN.into()) },
            Reply::Published { names: names(ino), files: files.clone() },
            Reply::Compounded(Compounded::Done { values, names: names(ino), files, written }),
            Reply::Compounded(Compounded::Refused { step: StepNr(OWN), errno: 5 }),
            Reply::Offset(OWN.into()),
        ]
    };
    let root = Attr { generation: 0, ..attr(ROOT_INO) };
    for (told, shown) in of(OWN, attr(OWN)).into_iter().zip(of(ROOT_INO, root)) {
        let (inner, service) = below();
        inner.answer(told.clone());
        assert_eq!(ask(&service, Request::Barrier), Ok(shown.clone()));
        let (sent, received) = std::sync::mpsc::channel();
        inner.answer(told);
        let done = Box::new(move |result| sent.send(result).unwrap());
        service.submit(&Credentials::default(), Request::Barrier, done);
        assert_eq!(received.recv().unwrap(), Ok(shown));
    }
    for told in of(ROOT_INO, attr(ROOT_INO)).into_iter().take(5) {
        let (inner, service) = below();
        inner.answer(told);
        assert_eq!(ask(&service, Request::Barrier), Err(errno(libc::ESTALE)));
    }
}

fn entry(name: &[u8], ino: InodeNr) -> DirEntry {
    let (cookie, kind) = (u64::from(ino), FileKind::Directory);
    DirEntry { ino, cookie, kind, name: name.to_vec(), attr: None }
}

/// Also if `.` is in another answer.
#[test]
fn the_roots_parent_is_the_root() {
    let list = |dir: InodeNr, entries: &[DirEntry]| {
        let (told, service) = below();
        // The answers come in the reverse order.
        told.answer(Reply::Attr(attr(dir)));
        told.answer(Reply::Dir(entries.to_vec()));
        let read = Request::ReadDir { handle: Handle(1), cookie: 0, max_bytes: 1, plus: true };
        let shown = ask(&service, read).unwrap().entries().unwrap();
        shown.into_iter().map(|entry| entry.ino).collect::<Vec<_>>()
    };
    assert_eq!(list(OWN, &[entry(b".", OWN), entry(b"..", 30)]), [ROOT_INO, ROOT_INO]);
    assert_eq!(list(OWN, &[entry(b"..", 30)]), [ROOT_INO]);
    assert_eq!(list(OWN, &[entry(b"..", ROOT_INO), entry(b"x", 9)]), [ROOT_INO, 9]);
    assert_eq!(list(BELOW, &[entry(b".", BELOW), entry(b"..", OWN)]), [BELOW, ROOT_INO]);
    assert_eq!(list(BELOW, &[entry(b"..", 7)]), [7]);
    // Others have moved it there.
    assert_eq!(list(BELOW, &[entry(b"..", ROOT_INO)]), [BELOW]);
    let plus = DirEntry { attr: Some(attr(9)), ..entry(b"x", 9) };
    assert_eq!(list(OWN, &[plus]), [9]);
}

/// Keeps what it is told, without acknowledging it.
#[derive(Default)]
struct Kept(Mutex<Vec<(bool, Notice)>>);

impl Cache for Kept {
    fn take_back(&self, notice: Notice) {
        self.0.lock().unwrap().push((false, notice));
    }

    fn forget_all(&self, notice: Notice) {
        self.0.lock().unwrap().push((true, notice));
    }
}

fn notice(owed: &mut Owed, inodes: &[InodeNr]) -> Notice {
    let mut notice = Notice::new(owed);
    notice.attributes = inodes.to_vec();
    notice.sizes = inodes.to_vec();
    notice.data = inodes.iter().map(|ino| (*ino, 1, 2)).collect();
    notice.names = inodes.iter().map(|ino| (*ino, b"x".to_vec())).collect();
    notice
}

/// The client is not told of a change of the volume's root, and the change waits for no client.
#[test]
fn notices_are_of_what_the_client_may_see() {
    let (kept, part) = (Arc::new(Kept::default()), Arc::new(OnceLock::new()));
    let cache = Below::before(kept.clone(), part.clone());
    for all in [false, true] {
        let tell = |inodes: &[InodeNr]| {
            let mut owed = Owed::default();
            let notice = notice(&mut owed, inodes);
            match all {
                true => cache.forget_all(notice),
                false => cache.take_back(notice),
            }
            owed
        };
        if !all {
            assert!(tell(&[OWN]).is_settled(), "the client knows nothing yet");
            part.set(Part(OWN)).unwrap();
        }
        assert_eq!(tell(&[ROOT_INO]).is_settled(), !all);
        kept.0.lock().unwrap().clear();
        let owed = tell(&[ROOT_INO, OWN, BELOW]);
        assert!(!owed.is_settled());
        let (told_all, told) = kept.0.lock().unwrap().pop().unwrap();
        let expected = notice(&mut Owed::default(), &[ROOT_INO, BELOW]);
        assert_eq!(told_all, all);
        assert_eq!((&told.attributes, &told.sizes), (&expected.attributes, &expected.sizes));
        assert_eq!((&told.data, &told.names), (&expected.data, &expected.names));
        drop(told);
        assert!(owed.is_settled());
    }
}

#[test]
fn a_path_that_is_no_directory_is_told() {
    let refused = |errno: i32| {
        let told = Arc::new(Told { refuses: Some(errno), ..Told::default() });
        let line = super::super::tests::line("subtree=/a/b");
        let opened = super::super::bounded(&line, None, |_| Ok(told as Arc<dyn FileService>));
        opened.err().unwrap()
    };
    let words = [
        (libc::ENOENT, "the directory /a/b, to which the client's key is bounded, is not there"),
        (libc::ENOTDIR, "is no directory"),
        (libc::ELOOP, "has a symbolic link in it, which is not followed"),
    ];
    for (errno, words) in words {
        let error = refused(errno);
        assert!(matches!(&error, Error::Refused(why) if why.contains(words)), "{error}");
    }
    assert_eq!(refused(libc::EIO), errno(libc::EIO));
}
