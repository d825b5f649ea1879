//! Who gets a token, what it is good for, and which open files are a program's own.

use super::*;
use siftfs_proto::Credentials;
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;

const INO: InodeNr = 20;
const WRITE: u32 = libc::O_WRONLY.cast_unsigned();

/// A process that does nothing.
struct Idle(Child);

impl Idle {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().expect("a process"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn opened(files: &OpenFiles, handle: u64, ino: InodeNr, pid: u32) -> Handle {
    let cred = Credentials { pid, ..Credentials::default() };
    files.opened(&cred, Handle(handle), ino, WRITE);
    Handle(handle)
}

fn tokens(clock: fn() -> u64) -> (Arc<OpenFiles>, Arc<Tokens>) {
    let files = Arc::new(OpenFiles::new(false));
    (files.clone(), Arc::new(Tokens::by(files, clock)))
}

fn refused<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |e| e.errno())
}

#[test]
fn a_token_is_good_for_its_process_once() {
    let (files, tokens) = tokens(boot_ns);
    let handle = opened(&files, 1, INO, std::process::id());
    let draw = || tokens.draw((INO, handle), (1000, 7)).unwrap();
    let peer = Peer { pid: 7, uid: 1000 };
    let token = draw();
    assert_ne!(token, draw());
    let redeemed = tokens.redeem(token, peer).unwrap();
    assert_eq!((redeemed.ino, redeemed.process), (INO, 7));
    assert_eq!(refused(tokens.redeem(token, peer)), libc::EACCES, "once");
    for other in [Peer { pid: 8, ..peer }, Peer { uid: 0, ..peer }] {
        let token = draw();
        assert_eq!(refused(tokens.redeem(token, other)), libc::EACCES);
        assert_eq!(refused(tokens.redeem(token, peer)), libc::EACCES, "nor for its own any more");
    }
    assert_eq!(refused(tokens.draw((INO, Handle(2)), (1000, 7))), libc::EBADF, "not open");
    assert_eq!(refused(tokens.draw((INO + 1, handle), (1000, 7))), libc::EBADF, "another's");
    let mut near = draw();
    near[15] ^= 1;
    assert_eq!(refused(tokens.redeem(near, peer)), libc::EACCES);
    assert_eq!(refused(tokens.redeem([0; TOKEN_BYTES], peer)), libc::EACCES);
}

#[test]
fn r54_a_token_is_over_after_two_seconds() {
    static NOW: AtomicU64 = AtomicU64::new(5);
    let (files, tokens) = tokens(|| NOW.load(Ordering::SeqCst));
    let handle = opened(&files, 1, INO, std::process::id());
    let peer = Peer { pid: 7, uid: 1000 };
    let [soon, late] = [(); 2].map(|()| tokens.draw((INO, handle), (1000, 7)).unwrap());
    NOW.fetch_add(TERM - 1, Ordering::SeqCst);
    assert!(tokens.redeem(soon, peer).is_ok());
    NOW.fetch_add(1, Ordering::SeqCst);
    assert_eq!(refused(tokens.redeem(late, peer)), libc::EACCES);
}

/// One user never has all of them, and what is over makes room.
#[test]
fn tokens_are_bounded_by_user() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let (files, tokens) = tokens(|| NOW.load(Ordering::SeqCst));
    let handle = opened(&files, 1, INO, std::process::id());
    let drawn = |uid| {
        let draw = || tokens.draw((INO, handle), (uid, 7));
        let drawn = (0..2 * MOST).take_while(|_| draw().is_ok()).count();
        (drawn, refused(draw()))
    };
    assert_eq!(drawn(1000), (MOST / 2, libc::EAGAIN));
    assert_eq!(drawn(1001), (MOST / 4, libc::EAGAIN));
    assert_eq!(drawn(0).1, libc::EAGAIN);
    assert!(tokens.table().tokens.len() < MOST);
    NOW.fetch_add(TERM, Ordering::SeqCst);
    assert_eq!(drawn(1000), (MOST / 2, libc::EAGAIN));
}

#[test]
fn a_token_ends_with_its_open_file() {
    let (files, tokens) = tokens(boot_ns);
    let handles = [1, 2].map(|handle| opened(&files, handle, INO, std::process::id()));
    let peer = Peer { pid: 7, uid: 1000 };
    let drawn = handles.map(|handle| tokens.draw((INO, handle), (1000, 7)).unwrap());
    tokens.released(handles[0]);
    assert_eq!(refused(tokens.redeem(drawn[0], peer)), libc::EACCES);
    assert!(tokens.redeem(drawn[1], peer).is_ok());
    tokens.released(handles[1]);
    tokens.released(Handle(3));
    assert_eq!(tokens.noted.load(Ordering::SeqCst), 0);
}

/// A program's own open files are those that its threads opened, and those of threads that are gone
/// for which it drew a token. The daemon's count with them, and nobody else's do.
#[test]
fn writers_are_counted_by_process() {
    let (files, tokens) = tokens(boot_ns);
    let (program, other, gone) = (Idle::new(), Idle::new(), Idle::new());
    let handle = opened(&files, 1, INO, program.pid());
    let theirs = opened(&files, 2, INO, other.pid());
    let left = opened(&files, 3, INO, gone.pid());
    opened(&files, 4, INO + 1, program.pid());
    opened(&files, 5, INO, 0);
    drop(gone);
    let peer = Peer { pid: program.pid(), uid: 0 };
    let token = tokens.draw((INO, handle), (0, peer.pid)).unwrap();
    let redeemed = tokens.redeem(token, peer).unwrap();
    assert_eq!(redeemed.writers(), 1);
    opened(&files, 6, INO, program.pid());
    opened(&files, 7, INO, std::process::id());
    assert_eq!(redeemed.writers(), 3, "it is counted anew");
    tokens.draw((INO, left), (0, peer.pid)).unwrap();
    assert_eq!(redeemed.writers(), 4, "one that it has shown to have open");
    tokens.draw((INO, theirs), (0, peer.pid)).unwrap();
    assert_eq!(redeemed.writers(), 4, "another program opened it");
    files.closed(left);
    tokens.released(left);
    assert_eq!(redeemed.writers(), 3);
    // A number that a thread has now was another one's before it began.
    assert_eq!(process_then(program.pid(), 0), None);
    assert_eq!(process_then(program.pid(), boot_ns()), Some(program.pid()));
}

#[test]
fn a_program_holds_what_was_noted() {
    let (_, tokens) = tokens(boot_ns);
    let (program, other) = (Idle::new(), Idle::new());
    let held = |ino| [&program, &other].map(|process| tokens.is_held_by(process.pid(), ino));
    assert_eq!(held(INO), [false, false]);
    tokens.holds(program.pid(), INO);
    tokens.holds(program.pid(), INO);
    assert_eq!((held(INO), held(INO + 1)), ([true, false], [false, false]));
    assert!(!tokens.is_held_by(0, INO), "a caller that cannot be known");
    tokens.returns(program.pid(), INO);
    tokens.returns(other.pid(), INO);
    assert_eq!(held(INO), [true, false]);
    tokens.returns(program.pid(), INO);
    assert_eq!(held(INO), [false, false]);
}

#[test]
fn a_socket_is_named_once() {
    let (_, tokens) = tokens(boot_ns);
    assert!(tokens.listen_at(Path::new(&"x".repeat(SOCKET_BYTES))).is_err());
    assert_eq!(tokens.socket(), None);
    tokens.listen_at(Path::new("/run/x")).unwrap();
    assert!(tokens.listen_at(Path::new("/run/y")).is_err());
    assert!(tokens.socket().unwrap().starts_with(b"/run/x\0"));
}
