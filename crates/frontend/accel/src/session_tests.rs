//! A daemon that does not do what it should. What a right one does is tested with the grantor, in
//! `testing/holders`.

use super::*;
use crate::Through;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siftfs_lease::{Created, Held, LogMedium, LogShape, Own, Reader, create, vouch};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

const TOKEN: Token = [3; 16];

struct Daemon {
    socket: Packets,
    memory: Arc<Memory>,
    reader: Reader<Memory, View>,
}

impl Daemon {
    fn asked(&self) -> Option<Ask> {
        self.socket.receive(HEADER, false).ok()?.map(|p| Ask::decode(&p.bytes).unwrap())
    }

    fn answer(&self, answer: &Answer) {
        self.socket.send(&answer.encode(), &[]).unwrap();
    }

    /// Gives no file log.
    fn no_log(&self) {
        assert_eq!(self.asked(), Some(Ask::Log));
        self.answer(&Answer::Failed(libc::EOPNOTSUPP));
    }

    /// Grants what is asked for.
    fn grant(&mut self, size: u64) -> Held {
        assert_eq!(self.asked(), Some(Ask::Lease(TOKEN)));
        let held = self.reader.grant(0);
        self.answer(&Answer::Leased { held, size, mtime: 0, ino: 12 });
        held
    }
}

/// A daemon that lets one program in, and then does this.
fn daemon(then: impl FnOnce(Daemon) + Send + 'static) -> (Session, JoinHandle<()>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let listener: OwnedFd = rustix::net::socket_with(kind.0, kind.1, kind.2, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 4).unwrap();
    let thread = std::thread::spawn(move || {
        let socket = Packets::from(rustix::net::accept(&listener).unwrap());
        let Created { grantor, holder, passed: [one, two] } = create().unwrap();
        let memory = Arc::new(grantor);
        let reader = Reader::new((memory.clone(), Arc::new(holder)), FULL, (7, 1 << 40));
        vouch(&*memory, u64::MAX);
        let daemon = Daemon { socket, memory, reader };
        assert_eq!(daemon.asked(), Some(Ask::Enter(TOKEN)));
        let entered = Answer::Entered { epoch: 7, largest: 1 << 40 }.encode();
        daemon.socket.send(&entered, &[one.as_fd(), two.as_fd()]).unwrap();
        then(daemon);
    });
    (Session::enter_with(&path, &TOKEN).unwrap(), thread)
}

#[test]
fn a_daemon_that_dies_leaves_the_program_to_the_mount() {
    let (session, thread) = daemon(|mut daemon| _ = daemon.grant(5));
    let leased = session.lease_with(&TOKEN).unwrap();
    thread.join().unwrap();
    // The lease word says granted for ever, and somebody vouches for it for a while. What is
    // published is not lost by this side.
    assert_eq!(leased.append(b"x"), Through::Lease(5));
    assert_eq!(leased.sync(true).unwrap(), Through::Mount);
    assert_eq!(leased.append(b"x"), Through::Mount, "it is known to be over");
    assert_eq!((leased.len(), leased.is_empty()), (Through::Mount, Through::Mount));
    assert_eq!(leased.read_at(0, &mut [0; 9]).unwrap(), Through::Mount);
    assert!(session.lease_with(&TOKEN).is_err());
    leased.close().unwrap();
}

/// R37: a program that asks nothing learns by the clock that its daemon was killed.
#[test]
fn r37_the_words_of_a_daemon_that_died_run_out() {
    let (session, thread) = daemon(|mut daemon| {
        daemon.grant(5);
        vouch(&*daemon.memory, boot_time());
    });
    let leased = session.lease_with(&TOKEN).unwrap();
    thread.join().unwrap();
    assert_eq!(leased.write_at(0, b"x"), Through::Mount);
    assert_eq!(leased.append(b"x"), Through::Mount);
    assert_eq!(leased.read_at(0, &mut [0; 9]).unwrap(), Through::Mount);
    assert_eq!(leased.len(), Through::Mount);
    assert_eq!(leased.sync(true).unwrap(), Through::Mount);
    assert_eq!(session.0.writer().published(), 0, "nothing is written to memory of the dead");
}

/// A recall that never ends, because the daemon is killed in it: the writer had looked at the word
/// before, and waits.
#[test]
fn a_daemon_that_dies_in_a_recall_holds_up_nobody() {
    let (session, thread) = daemon(|mut daemon| {
        let held = daemon.grant(0);
        // The program says by a question that it has published.
        daemon.no_log();
        assert!(matches!(daemon.asked(), Some(Ask::Fsync { .. })));
        let recalled = held.number << 2 | 2;
        daemon.memory.store(FULL.word(held.slot), recalled, Ordering::SeqCst);
        daemon.answer(&Answer::Done);
        // Dies when the program waits, or before.
        assert_eq!(daemon.asked(), Some(Ask::Nudge));
    });
    let leased = session.lease_with(&TOKEN).unwrap();
    let publish =
        session.0.writer().publish(Held { slot: 0, number: 1 }, siftfs_lease::Place::End, b"x", 0);
    let Publish::Published(published) = publish else { panic!("there is room") };
    assert_eq!(leased.sync(true).unwrap(), Through::Lease(()));
    session.0.nudge();
    assert_eq!(session.0.settle(&published), None);
    thread.join().unwrap();
    assert_eq!(leased.append(b"x"), Through::Mount);
}

#[test]
fn answers_to_other_questions_end_the_session() {
    for odd in [
        Answer::Ended,
        Answer::Data(vec![1; 9]),
        Answer::Entered { epoch: 7, largest: 1 },
        Answer::Leased { held: Held { slot: 9999, number: 1 }, size: 0, mtime: 0, ino: 1 },
        Answer::Leased { held: Held { slot: 0, number: 0 }, size: 0, mtime: 0, ino: 1 },
        Answer::Leased { held: Held { slot: 0, number: 1 }, size: u64::MAX, mtime: 0, ino: 1 },
    ] {
        let (session, thread) = daemon(move |daemon| {
            assert_eq!(daemon.asked(), Some(Ask::Lease(TOKEN)));
            daemon.answer(&odd);
            assert_eq!(daemon.asked(), None, "the program has gone");
        });
        assert!(session.lease_with(&TOKEN).is_err());
        assert!(!session.0.is_usable());
        thread.join().unwrap();
    }
}

#[test]
fn more_bytes_than_were_asked_for_are_no_answer() {
    let (session, thread) = daemon(|mut daemon| {
        daemon.grant(5);
        assert!(matches!(daemon.asked(), Some(Ask::Read { offset: 0, len: 4096, .. })));
        daemon.answer(&Answer::Data(vec![1; 4097]));
        assert_eq!(daemon.asked(), None);
    });
    let leased = session.lease_with(&TOKEN).unwrap();
    assert_eq!(leased.read_at(0, &mut [0; 4]).unwrap(), Through::Mount);
    assert!(!session.0.is_usable());
    drop(leased);
    thread.join().unwrap();
}

/// A tail that cannot be: the session is of no use, and no index follows from it.
#[test]
fn a_tail_that_cannot_be_ends_the_session() {
    let (session, thread) = daemon(|mut daemon| {
        daemon.grant(0);
        daemon.no_log();
        assert!(matches!(daemon.asked(), Some(Ask::Fsync { .. })));
        daemon.memory.store(16, 99, Ordering::SeqCst);
        daemon.answer(&Answer::Done);
        assert_eq!(daemon.asked(), None);
    });
    let leased = session.lease_with(&TOKEN).unwrap();
    assert_eq!(leased.sync(false).unwrap(), Through::Lease(()));
    assert_eq!(leased.append(b"x"), Through::Mount);
    assert!(!session.0.is_usable());
    drop(leased);
    thread.join().unwrap();
}

#[test]
fn a_refusal_is_told() {
    let (session, thread) = daemon(|daemon| {
        assert_eq!(daemon.asked(), Some(Ask::Lease(TOKEN)));
        daemon.answer(&Answer::Failed(libc::EBUSY));
    });
    let refused = session.lease_with(&TOKEN).err().and_then(|e| e.raw_os_error());
    assert_eq!(refused, Some(libc::EBUSY));
    thread.join().unwrap();
}

/// The daemon passes something that is no file log: the session is of no use.
#[test]
fn odd_file_logs_end_the_session() {
    let shape = LogShape { len: siftfs_lease::LOG_BYTES, key: 1, medium: LogMedium::File };
    let file = |len: u64| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        OwnedFd::from(file)
    };
    let short = LogShape { len: 4096, ..shape };
    for (shape, passed) in [
        (shape, vec![]),
        (shape, vec![file(shape.len - 1)]),
        (shape, vec![OwnedFd::from(std::io::pipe().unwrap().0)]),
        (short, vec![file(short.len)]),
        (LogShape { len: u64::MAX, ..shape }, vec![file(0)]),
    ] {
        let (session, thread) = daemon(move |mut daemon| {
            daemon.grant(0);
            assert_eq!(daemon.asked(), Some(Ask::Log));
            let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
            daemon.socket.send(&Answer::Log(shape).encode(), &passed).unwrap();
            assert_eq!(daemon.asked(), None);
        });
        let leased = session.lease_with(&TOKEN).unwrap();
        assert_eq!(leased.sync(true).unwrap(), Through::Mount);
        assert!(!session.0.is_usable());
        drop(leased);
        thread.join().unwrap();
    }
}
