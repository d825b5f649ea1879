//! Threads that sleep, and ends, over a queue pair of the test's own: it makes an event for one
//! completion after each time it was asked to, as devices do.

use super::*;
use crate::channel::socket::Socket;
use rustix::fd::BorrowedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use siftfs_rdma::{BUFFER_LEN, BUFFERS, CONTROLS, Done};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const WITHIN: Duration = Duration::from_secs(60);
const INCOMING: u32 = BUFFERS + CONTROLS;

struct Side {
    posted: VecDeque<u32>,
    done: VecDeque<Done>,
    arrived: Vec<(u32, Vec<u8>)>,
    event: Arc<OwnedFd>,
    asked: bool,
    gone: bool,
}

impl Side {
    fn new() -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Self {
            posted: (0..INCOMING).collect(),
            done: VecDeque::new(),
            arrived: Vec::new(),
            event: Arc::new(eventfd(0, flags).unwrap()),
            asked: true,
            gone: false,
        }
    }

    fn is_done(&mut self, done: Option<Done>) {
        self.done.extend(done);
        if std::mem::take(&mut self.asked) {
            rustix::io::write(&*self.event, &1u64.to_le_bytes()).unwrap();
        }
    }
}

struct Fake {
    sides: Arc<Mutex<[Side; 2]>>,
    end: usize,
    event: Arc<OwnedFd>,
    space: Vec<Vec<u8>>,
    incoming: Vec<Vec<u8>>,
}

impl Fake {
    fn pair() -> (Self, Self) {
        let sides = Arc::new(Mutex::new([Side::new(), Side::new()]));
        let end = |end: usize| {
            let buffers = |n: u32| vec![vec![0; BUFFER_LEN as usize]; n as usize];
            let event = sides.lock().unwrap()[end].event.clone();
            let (space, incoming) = (buffers(BUFFERS), buffers(INCOMING));
            Self { sides: sides.clone(), end, event, space, incoming }
        };
        (end(0), end(1))
    }

    fn deliver(&self, bytes: &[u8], carried: u32, done: Done) -> io::Result<()> {
        let sides = &mut *self.sides.lock().unwrap();
        if sides.iter().any(|side| side.gone) {
            return Err(io::Error::other("the queue pair is gone"));
        }
        let peer = &mut sides[1 - self.end];
        let buffer = peer.posted.pop_front().expect("credits see to it that there is a buffer");
        peer.arrived.push((buffer, bytes.to_vec()));
        peer.is_done(Some(Done::Received { buffer, len: bytes.len() as u32, carried }));
        sides[self.end].is_done(Some(done));
        Ok(())
    }
}

impl Queue for Fake {
    fn outgoing(&mut self, buffer: u32) -> &mut [u8] {
        &mut self.space[buffer as usize]
    }
    fn incoming(&self, buffer: u32) -> &[u8] {
        &self.incoming[buffer as usize]
    }
    fn send(&mut self, buffer: u32, len: u32, carried: u32) -> io::Result<()> {
        let bytes = &self.space[buffer as usize][..len as usize];
        self.deliver(bytes, carried, Done::Sent(buffer))
    }
    fn send_control(&mut self, carried: u32) -> io::Result<()> {
        self.deliver(&[], carried, Done::SentControl)
    }
    fn post(&mut self, buffer: u32) -> io::Result<()> {
        self.sides.lock().unwrap()[self.end].posted.push_back(buffer);
        Ok(())
    }
    fn poll(&mut self) -> io::Result<Option<Done>> {
        let side = &mut self.sides.lock().unwrap()[self.end];
        for (buffer, bytes) in side.arrived.drain(..) {
            self.incoming[buffer as usize][..bytes.len()].copy_from_slice(&bytes);
        }
        match side.done.pop_front() {
            None if side.gone => Err(io::Error::other("the queue pair is gone")),
            done => Ok(done),
        }
    }
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
    fn take_events(&mut self) -> io::Result<()> {
        let side = &mut self.sides.lock().unwrap()[self.end];
        side.asked |= rustix::io::read(&*self.event, &mut [0; 8]).is_ok();
        Ok(())
    }
    fn stop(&mut self) {
        self.sides.lock().unwrap().iter_mut().for_each(|side| {
            side.gone = true;
            side.is_done(None);
        });
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop();
    }
}

type End = Rdma<Socket, Fake>;

/// The two ends, and the socket below of the second one.
fn ends() -> (End, End, UnixStream) {
    let flags = SocketFlags::CLOEXEC;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let below = UnixStream::from(b.try_clone().unwrap());
    let (one, other) = Fake::pair();
    let end = |fd, queue| Rdma::new(Socket::new(fd).unwrap(), queue).unwrap();
    (end(a, one), end(b, other), below)
}

fn send(channel: &End, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (front, rest) = bytes.split_at(bytes.len().min(200_000) / 3);
        match channel.write(&[IoSlice::new(front), IoSlice::new(rest)]).unwrap() {
            0 => sleeps(channel, For::Room),
            n => bytes = &bytes[n..],
        }
    }
}

fn receive(channel: &End, len: usize) -> Vec<u8> {
    let (mut got, mut space) = (Vec::new(), vec![0; 70_000]);
    while got.len() < len {
        match channel.read(&mut [IoSliceMut::new(&mut space)]).unwrap() {
            Took::Bytes(n) => got.extend_from_slice(&space[..n]),
            Took::Nothing => sleeps(channel, For::Bytes),
            Took::End => panic!("it ended after {} of {len} bytes", got.len()),
        }
    }
    got
}

/// Nobody sleeps for as long as it may: something happens all the time.
fn sleeps(channel: &End, who: For) {
    let began = Instant::now();
    channel.sleep(who, WITHIN).unwrap();
    assert!(began.elapsed() < WITHIN, "a thread that sleeps for {:?} was not woken", who as u8);
}

fn nothing(channel: &End) -> io::Result<Took> {
    channel.read(&mut [IoSliceMut::new(&mut [0; 64])])
}

/// Two threads of each end, which take each other's completions and sleep for their own.
#[test]
fn threads_of_both_directions_wake_each_other() {
    for round in 0..20 {
        let (ours, theirs, _below) = ends();
        let bytes: Vec<u8> = (0..3_000_000 + round).map(|i| (i * 7 + i / 251) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| send(&ours, &bytes));
            scope.spawn(|| send(&theirs, &bytes));
            let there = scope.spawn(|| receive(&theirs, bytes.len()));
            assert!(receive(&ours, bytes.len()) == bytes && there.join().unwrap() == bytes);
        });
    }
}

/// A thread that only asks takes the completions of one that sleeps, and the event stays asked for.
#[test]
fn one_that_sleeps_is_woken_by_one_that_asks() {
    let (ours, theirs, _below) = ends();
    for turn in 0..2_000 {
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| receive(&theirs, 8));
            if turn % 2 == 0 {
                scope.spawn(|| (0..50).for_each(|_| assert!(theirs.has_room())));
            }
            send(&ours, &[turn as u8; 8]);
            assert_eq!(sleeper.join().unwrap(), [turn as u8; 8]);
        });
    }
}

#[test]
fn what_is_on_its_way_is_bounded() {
    let (ours, theirs, _below) = ends();
    let piece = vec![7; 64 << 10];
    let mut sent = 0;
    while let n @ 1.. = ours.write(&[IoSlice::new(&piece)]).unwrap() {
        sent += n;
        assert!(sent < 64 << 20, "without a bound");
    }
    assert!(!ours.has_room() && theirs.has_room());
    assert!(receive(&theirs, sent).iter().all(|byte| *byte == 7));
    assert!(ours.has_room());
}

#[test]
fn an_end_comes_after_what_was_sent() {
    let (ours, theirs, _below) = ends();
    assert!(matches!(nothing(&theirs), Ok(Took::Nothing)));
    send(&ours, b"last");
    ours.end(Duration::ZERO);
    drop(ours);
    sleeps(&theirs, For::Bytes);
    assert_eq!(receive(&theirs, 4), b"last");
    assert!(matches!(nothing(&theirs), Ok(Took::End)));
    assert!(theirs.write(&[IoSlice::new(b"x")]).is_err() && !theirs.has_room());
    // It does not sleep for what cannot come.
    sleeps(&theirs, For::Bytes);
    sleeps(&theirs, For::Room);
}

#[test]
fn a_cut_wakes_both_sides_and_nothing_crosses_any_more() {
    let (ours, theirs, _below) = ends();
    std::thread::scope(|scope| {
        let sleepers = [&ours, &theirs].map(|end| {
            scope.spawn(move || {
                while matches!(nothing(end), Ok(Took::Nothing)) {
                    sleeps(end, For::Bytes);
                }
            })
        });
        std::thread::sleep(Duration::from_millis(20));
        ours.cut();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
    for end in [&ours, &theirs] {
        assert!(end.write(&[IoSlice::new(b"x")]).is_err());
    }
    // Also before either has looked at the connection below.
    let (ours, theirs, _below) = ends();
    ours.cut();
    for end in [&ours, &theirs] {
        assert!(end.write(&[IoSlice::new(b"x")]).is_err());
    }
}

/// The connection below is for the greeting alone: its end is the end, and bytes there are a lie.
#[test]
fn the_connection_below_is_watched() {
    let (ours, _theirs, below) = ends();
    below.shutdown(std::net::Shutdown::Write).unwrap();
    sleeps(&ours, For::Bytes);
    assert!(!ours.has_room());
    assert!(matches!(nothing(&ours), Ok(Took::End)));

    let (ours, _theirs, mut below) = ends();
    below.write_all(b"x").unwrap();
    let error = ours.wait_readable(WITHIN).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}
