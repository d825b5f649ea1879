use super::*;
use siftfs_base::Timestamp;
use siftfs_keys::{KeyPair, Role};
use siftfs_proto::{Attr, FileKind, Notice};
use std::sync::Mutex;

/// Keeps what it is asked, and answers as it is told.
#[derive(Default)]
pub(super) struct Told {
    pub asked: Mutex<Vec<Request>>,
    pub entered: Mutex<Vec<Vec<u8>>>,
    /// Why its directory is not to be had.
    pub refuses: Option<i32>,
    pub answers: Mutex<Vec<Reply>>,
}

impl Told {
    /// What paths lead to.
    pub const DIRECTORY: InodeNr = 40;

    /// Answers the next request with this, before what it was given earlier.
    pub fn answer(&self, reply: Reply) {
        self.answers.lock().unwrap().push(reply);
    }
}

impl FileService for Told {
    fn call(&self, _: &Credentials, req: Request) -> Result<Reply> {
        self.asked.lock().unwrap().push(req);
        Ok(self.answers.lock().unwrap().pop().unwrap_or(Reply::Done))
    }

    fn has_looked_up(&self, ino: InodeNr) -> bool {
        [7, Self::DIRECTORY].contains(&ino)
    }

    fn enter(&self, path: &[u8]) -> Result<InodeNr> {
        self.entered.lock().unwrap().push(path.to_vec());
        self.refuses.map_or(Ok(Self::DIRECTORY), |number| Err(errno(number)))
    }
}

pub(super) fn attr(ino: InodeNr) -> Attr {
    let time = Timestamp { sec: 0, nsec: 0 };
    let (generation, kind, perm, nlink) = (9, FileKind::Directory, 0o755, 2);
    let (uid, gid, rdev, size, blocks) = (5000, 6000, 0, 0, 0);
    let (atime, mtime, ctime, crtime, held) = (time, time, time, time, false);
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
        held,
    }
}

/// The line of a client's key with these options.
pub(super) fn line(options: &str) -> AuthorizedLine {
    let key = KeyPair::generate("somebody").unwrap().line();
    format!("role=admin {options} {key}").parse().unwrap()
}

/// A session that is bounded by a line with these options, and what stands behind it.
pub(super) fn session(options: &str) -> (Arc<Told>, Arc<dyn FileService>) {
    let told = Arc::new(Told::default());
    let inner = told.clone();
    (told, bounded(&line(options), None, |_| Ok(inner as Arc<dyn FileService>)).unwrap())
}

#[test]
fn a_line_without_bounds_leaves_the_session_alone() {
    for options in ["", "squash=all anon=7:7", "subtree=/ uids=* gids=*"] {
        let told: Arc<dyn FileService> = Arc::new(Told::default());
        let opened = bounded(&line(options), None, |_| Ok(told.clone())).unwrap();
        assert!(Arc::ptr_eq(&told, &opened), "{options}");
    }
}

/// Whatever the key's role says.
#[test]
fn a_bounded_session_is_no_administrators() {
    for options in ["subtree=/a", "uids=0:1000:10", "gids=0:1000:10"] {
        let (told, service) = session(options);
        assert_eq!(line(options).role, Role::Admin);
        let whole = [
            Request::Status,
            Request::Checkpoint,
            Request::SyncAll,
            Request::Trim { start: 0, len: 1, least: 1 },
        ];
        for req in whole {
            let refused = service.call(&Credentials::default(), req);
            assert_eq!(refused, Err(errno(libc::EPERM)), "{options}");
        }
        service.call(&Credentials::default(), Request::StatFs).unwrap();
        assert_eq!(*told.asked.lock().unwrap(), [Request::StatFs]);
    }
}

/// A cache passes as it is where the client sees all of the tree.
#[test]
fn the_cache_is_bounded_with_the_tree() {
    struct Silent;
    impl Cache for Silent {
        fn take_back(&self, _: Notice) {}
    }
    for (options, same) in [("", true), ("uids=0:1000:10", true), ("subtree=/a", false)] {
        let cache: Arc<dyn Cache> = Arc::new(Silent);
        let given = Some(cache.clone());
        let _session = bounded(&line(options), given, |passed| {
            assert_eq!(Arc::ptr_eq(&passed.unwrap(), &cache), same, "{options}");
            Ok(Arc::new(Told::default()) as Arc<dyn FileService>)
        });
    }
}
