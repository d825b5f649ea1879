use super::*;
use crate::ioctl::section_table::takes_locks;
use crate::kernel::reply::Answer;
use crate::serve::agreed::Agreed;
use siftfs_base::Timestamp;
use siftfs_proto::{Attr, DirEntry, FileService};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const INO: InodeNr = 12;
const OWNER: Handle = Handle(7);
const OTHER: Handle = Handle(8);

/// A service with one file, of 100 bytes, and at most one section of it.
#[derive(Default)]
struct One {
    open: AtomicBool,
    full: AtomicBool,
    before_commit: Mutex<Option<Then>>,
    seen: Mutex<Vec<&'static str>>,
}

impl One {
    fn seen(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn in_section(&self, what: &'static str, reply: Reply) -> Result<Reply> {
        if !self.open.load(Ordering::SeqCst) {
            return Err(errno(libc::EINVAL));
        }
        if self.full.load(Ordering::SeqCst) {
            return Err(errno(libc::EFBIG));
        }
        self.seen.lock().unwrap().push(what);
        Ok(reply)
    }
}

fn attr() -> Attr {
    let t = Timestamp::default();
    Attr {
        ino: INO,
        generation: 1,
        kind: FileKind::Regular,
        perm: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 100,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
        crtime: t,
        held: false,
    }
}

impl FileService for One {
    fn call(&self, _: &Credentials, req: Request) -> Result<Reply> {
        let written = |data: &WriteData| Reply::Written { len: data.len() as u32 };
        match req {
            Request::GetAttr { .. } => Ok(Reply::Attr(attr())),
            Request::SectionStart { .. } => {
                self.open.store(true, Ordering::SeqCst);
                Ok(Reply::Section(SectionId(1)))
            }
            Request::SectionWrite { data, .. } => self.in_section("into it", written(&data)),
            Request::SectionRead { .. } => self.in_section("of it", Reply::Data(b"its".to_vec())),
            Request::SectionCommit { .. } | Request::SectionAbort { .. } => {
                if let Some(before) = self.before_commit.lock().unwrap().take() {
                    before();
                }
                let ended = self.in_section("end", Reply::Done);
                self.open.store(false, Ordering::SeqCst);
                ended
            }
            Request::Write { data, .. } | Request::WriteBack { data, .. } => {
                self.seen.lock().unwrap().push("into the file");
                Ok(written(&data))
            }
            Request::Read { .. } => Ok(Reply::Data(b"the file's".to_vec())),
            other => panic!("{other:?}"),
        }
    }
}

fn root() -> Credentials {
    Credentials { pid: std::process::id(), ..Credentials::default() }
}

/// A server, with a section that [`OWNER`] has started.
fn started() -> (Arc<One>, Arc<Server>) {
    let one = Arc::new(One::default());
    let server = Arc::new(Server::new(one.clone(), Agreed::default()));
    server.open_files.opened(&root(), OWNER, INO, 2);
    server.open_files.opened(&root(), OTHER, INO, 2);
    assert_eq!(ioctl(&server, OWNER, START), Ok(()));
    (one, server)
}

fn ioctl(server: &Arc<Server>, handle: Handle, command: u32) -> std::result::Result<(), i32> {
    let (tell, told) = channel();
    let answer = Box::new(move |result: Result<Reply>| tell.send(result).unwrap());
    server.section_ioctl(&root(), (INO, handle), command, answer);
    told.recv().unwrap().map(drop).map_err(|e| e.errno())
}

fn write(server: &Server, handle: Handle) -> bool {
    let written = server.write_by(&root(), (INO, handle), Place::at(0), vec![1; 300].into(), false);
    let (len, in_section) = written.unwrap();
    assert_eq!(len, 300);
    in_section
}

fn read(server: &Server, handle: Handle) -> Option<Vec<u8>> {
    let read = server.read_section(&root(), (INO, handle), (0, 10), false);
    read.map(|r| r.unwrap().data().unwrap())
}

#[test]
fn its_own_handle_alone_reads_and_writes_it() {
    let (one, server) = started();
    assert!(write(&server, OWNER) && !write(&server, OTHER));
    assert_eq!(one.seen(), ["into it", "into the file"]);
    assert_eq!((read(&server, OWNER), read(&server, OTHER)), (Some(b"its".to_vec()), None));
    assert!(!server.sections.has(INO, OTHER) && server.sections.has(INO, OWNER));
    assert_eq!(ioctl(&server, OTHER, COMMIT), Err(libc::EINVAL));
    assert_eq!(ioctl(&server, OTHER, ABORT), Err(libc::EINVAL));
    assert_eq!(ioctl(&server, OWNER, COMMIT), Ok(()));
    assert!(!write(&server, OWNER) && read(&server, OWNER).is_none());
    assert!(server.sections.none());
}

/// Between the look-up and the request it may end: then it is a write like any other.
#[test]
fn what_comes_behind_its_end_is_the_files() {
    let (one, server) = started();
    one.open.store(false, Ordering::SeqCst);
    assert!(!write(&server, OWNER) && read(&server, OWNER).is_none());
    assert_eq!(one.seen(), ["into the file"]);
    assert_eq!(server.take_pages(&root(), INO, 0, &vec![1; 9].into()), None);
}

/// Pages that the kernel sends belong to the section, also those that another program wrote. They
/// are lost while the section ends, and never refused: a section without room for them is not
/// committed.
#[test]
fn pages_of_the_kernel() {
    let (one, server) = started();
    let page: WriteData = vec![1; 9].into();
    assert_eq!(server.take_pages(&root(), INO, 4096, &page), Some(9));
    assert_eq!(one.seen(), ["into it"]);
    assert_eq!(server.sections.arrived(INO), (1, false));
    one.full.store(true, Ordering::SeqCst);
    assert_eq!(server.take_pages(&root(), INO, 4096, &page), Some(9));
    one.full.store(false, Ordering::SeqCst);
    assert_eq!(ioctl(&server, OWNER, COMMIT), Err(libc::EFBIG));
    let Ok(Some(_)) = server.sections.end(INO, OWNER, Box::new(|| {})) else {
        panic!("it ends once")
    };
    assert_eq!(server.take_pages(&root(), INO, 4096, &page), Some(9));
    assert_eq!(one.seen(), [""; 0], "lost");
    assert_eq!(server.take_pages(&root(), INO + 1, 4096, &page), None, "another file's");
}

#[test]
fn the_kernel_has_one_size() {
    let (_, server) = started();
    let shown = || {
        let mut answer = Answer::Attr(attr());
        server.sections.show(&mut answer);
        let Answer::Attr(attr) = answer else { panic!("attributes") };
        attr.size
    };
    assert_eq!(shown(), 100);
    write(&server, OWNER);
    assert_eq!(shown(), 300);
    server.sections.resized(INO);
    assert_eq!(shown(), 100, "a truncation is seen");
    let (_, server) = started();
    write(&server, OWNER);
    let entry = DirEntry {
        ino: INO,
        cookie: 1,
        kind: FileKind::Regular,
        name: b"f".to_vec(),
        attr: Some(attr()),
    };
    let size = |e: &DirEntry| e.attr.as_ref().map(|a| a.size);
    assert_eq!(server.sections.show_entry(&entry, size), Some(300));
    assert_eq!(ioctl(&server, OWNER, ABORT), Ok(()));
    assert_eq!(server.sections.show_entry(&entry, size), Some(100));
}

/// ABORT, FLUSH and RELEASE may meet: each is answered when the section has ended, which it does
/// once.
#[test]
fn all_that_end_it_are_answered() {
    let (one, server) = started();
    write(&server, OWNER);
    one.seen();
    let (tell, told) = channel();
    for _ in 0..3 {
        let (tell, one) = (tell.clone(), one.clone());
        let then = Box::new(move || tell.send(one.open.load(Ordering::SeqCst)).unwrap());
        server.end_section(INO, OWNER, then);
    }
    for _ in 0..3 {
        assert_eq!(told.recv(), Ok(false), "answered when it had ended");
    }
    assert_eq!(one.seen(), ["end"]);
    assert!(server.sections.none());
}

/// A commit that meets an end on another thread leaves what waits for that to it.
#[test]
fn a_commit_takes_nobodys_answer_away() {
    let (one, server) = started();
    let (tell, told) = channel();
    let met = server.clone();
    let (answer, answered) = channel();
    let ends = move || {
        let then = Box::new(move || tell.send(()).unwrap());
        assert!(met.sections.end(INO, OWNER, then).is_ok_and(|first| first.is_some()));
    };
    *one.before_commit.lock().unwrap() = Some(Box::new(ends));
    let done = Box::new(move |result: Result<Reply>| answer.send(result.is_ok()).unwrap());
    server.section_ioctl(&root(), (INO, OWNER), COMMIT, done);
    assert_eq!(answered.recv(), Ok(true));
    assert_eq!(told.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty), "it waits for the end");
    drop(Ending { server: server.clone(), ino: INO, id: SectionId(1), section: None });
    told.recv().unwrap();
}

/// close(2) ends a section if it takes its process's locks, and those of no other.
#[test]
fn whose_close_ends_it() {
    let ours = std::process::id();
    assert!(takes_locks(ours, ours));
    let thread = std::thread::spawn(|| {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert_ne!(thread, std::process::id());
        assert!(takes_locks(std::process::id(), thread), "one process");
    });
    thread.join().unwrap();
    assert!(takes_locks(ours, 0) && takes_locks(0, ours), "nobody knows");
    let mut ended = Command::new("true").spawn().unwrap();
    let starter = ended.id();
    while caller::is_running(starter) {
        std::thread::yield_now();
    }
    assert!(takes_locks(starter, ours), "its end has told nobody");
    ended.wait().unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    assert!(!takes_locks(ours, child.id()), "another process");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(takes_locks(ours, child.id()), "nobody knows who that was");
    let (one, server) = started();
    let (tell, told) = channel();
    let other = Command::new("sleep").arg("60").spawn();
    let mut other = other.unwrap();
    let then = |tell: &std::sync::mpsc::Sender<()>| -> Then {
        let tell = tell.clone();
        Box::new(move || tell.send(()).unwrap())
    };
    server.flush(INO, other.id(), then(&tell));
    told.recv().unwrap();
    assert!(one.open.load(Ordering::SeqCst), "another process closed its copy");
    server.flush(INO + 1, ours, then(&tell));
    told.recv().unwrap();
    assert!(one.open.load(Ordering::SeqCst), "of another file");
    server.flush(INO, ours, then(&tell));
    told.recv().unwrap();
    assert!(!one.open.load(Ordering::SeqCst));
    other.kill().unwrap();
    other.wait().unwrap();
}
