use super::*;
use crate::serve::agreed::Agreed;
use siftfs_proto::FileService;
use std::sync::Mutex;
use std::sync::mpsc::channel;

const WRITE: u32 = 1;
const READ: u32 = 2;

/// The number of an ioctl(2), as a C program's macros build it.
fn ioctl(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | 0xE5 << 8 | number
}

#[test]
fn arguments_have_one_size() {
    assert_eq!(ticket(&[1, 2, 0, 0, 0, 0, 0, 0x80]), Ok(Ticket(0x8000_0000_0000_0201)));
    let both = [[7, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]].concat();
    assert_eq!(wait(&both), Ok((Ticket(7), Some(Duration::from_nanos(65_536)))));
    let ends = [[7, 0, 0, 0, 0, 0, 0, 0], [0xff; 8]].concat();
    assert_eq!(wait(&ends), Ok((Ticket(7), None)));
    let long = [[0; 8], [0xfe; 8]].concat();
    assert_eq!(wait(&long).unwrap().1, Some(Duration::from_nanos(u64::from_le_bytes([0xfe; 8]))));
    let refused = errno(libc::ENOTTY);
    for len in (0..40).filter(|len| *len != 8) {
        assert_eq!(ticket(&vec![1; len]), Err(refused.clone()), "{len} bytes");
    }
    for len in (0..40).filter(|len| *len != 16) {
        assert_eq!(wait(&vec![1; len]), Err(refused.clone()), "{len} bytes");
    }
}

/// Answers waits when it is told to, and everything else at once.
#[derive(Default)]
struct Fake {
    seen: Mutex<Vec<Request>>,
    held: Mutex<Vec<Completion>>,
}

impl FileService for Fake {
    fn call(&self, _: &Credentials, req: Request) -> Result<Reply> {
        self.seen.lock().unwrap().push(req.clone());
        match req {
            Request::Stage { .. } | Request::Barrier => Ok(Reply::Ticket(Ticket(0x0102_0304))),
            Request::Poll { ticket } => Ok(Reply::Durable(ticket.0 == 9)),
            Request::Wait { timeout: Some(Duration::ZERO), .. } => Err(errno(libc::ETIMEDOUT)),
            Request::Wait { .. } => Ok(Reply::Done),
            _ => Err(errno(libc::EOPNOTSUPP)),
        }
    }

    fn submit(&self, _: &Credentials, req: Request, done: Completion) {
        self.seen.lock().unwrap().push(req);
        self.held.lock().unwrap().push(done);
    }
}

struct Place {
    fake: Arc<Fake>,
    server: Arc<Server>,
}

impl Place {
    fn new() -> Self {
        let fake = Arc::new(Fake::default());
        let server = Server::new(fake.clone(), Agreed::default());
        Self { fake, server: Arc::new(server) }
    }

    fn begin(&self, command: u32, input: &[u8]) -> std::sync::mpsc::Receiver<Result<Reply>> {
        let (tell, told) = channel();
        let answer = Box::new(move |reply| tell.send(reply).unwrap());
        let file = (12, Handle(0));
        self.server.ioctl(&Credentials::default(), file, (command, input), answer);
        told
    }

    fn ask(&self, command: u32, input: &[u8]) -> Result<Reply> {
        self.begin(command, input).recv_timeout(Duration::from_secs(60)).unwrap()
    }

    fn last(&self) -> Request {
        self.fake.seen.lock().unwrap().last().unwrap().clone()
    }
}

fn bytes(number: u64) -> Result<Reply> {
    Ok(Reply::Data(number.to_le_bytes().to_vec()))
}

fn waiting(ticket: u64, timeout: u64) -> Vec<u8> {
    [ticket.to_le_bytes(), timeout.to_le_bytes()].concat()
}

#[test]
fn operations_become_requests() {
    let p = Place::new();
    assert_eq!(p.ask(STAGE, &[]), bytes(0x0102_0304));
    assert_eq!(p.last(), Request::Stage { file: 12.into(), datasync: false });
    assert_eq!(p.ask(BARRIER, &[]), bytes(0x0102_0304));
    assert_eq!(p.last(), Request::Barrier);
    assert_eq!(p.ask(POLL, &9u64.to_le_bytes()), bytes(1));
    assert_eq!(p.ask(POLL, &8u64.to_le_bytes()), bytes(0));
    assert_eq!(p.ask(WAIT, &waiting(9, 0)), Err(errno(libc::ETIMEDOUT)));
    let refused = Err(errno(libc::ENOTTY));
    assert_eq!(p.ask(POLL, &[0; 7]), refused);
    assert_eq!(p.ask(WAIT, &[0; 8]), refused);
    for number in [0, 5, 15, 0xff] {
        assert_eq!(p.ask(ioctl(READ, number, 8), &[]), refused);
    }
    for size in [0, 4, 7, 9, 16] {
        assert_eq!(p.ask(ioctl(READ, 1, size), &[]), refused);
        assert_eq!(p.ask(ioctl(WRITE, 3, size - size / 16), &vec![0; size]), refused);
    }
}

/// A wait keeps no thread, and is answered by the storage or by the time limit, the earlier of
/// both.
#[test]
fn a_wait_is_answered_once_and_in_time() {
    let p = Place::new();
    let endless = p.begin(WAIT, &waiting(9, u64::MAX));
    let long = p.begin(WAIT, &waiting(9, 1 << 60));
    let short = p.begin(WAIT, &waiting(9, 20_000_000));
    assert_eq!(p.last(), Request::Wait { ticket: Ticket(9), timeout: None });
    assert_eq!(short.recv_timeout(Duration::from_secs(60)).unwrap(), Err(errno(libc::ETIMEDOUT)));
    assert!(endless.try_recv().is_err() && long.try_recv().is_err());
    for done in std::mem::take(&mut *p.fake.held.lock().unwrap()) {
        done(Ok(Reply::Done));
    }
    for answered in [endless, long] {
        assert_eq!(answered.recv().unwrap(), Ok(Reply::Data(Vec::new())));
    }
    assert!(short.try_recv().is_err(), "once");
}
