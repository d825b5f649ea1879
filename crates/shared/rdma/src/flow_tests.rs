//! The credits, over a queue pair of the test's own: it delivers when the test says so, and breaks
//! where a device would.

use super::*;
use crate::BUFFER_LEN;
use proptest::prelude::*;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

const INCOMING: u32 = BUFFERS + CONTROLS;

/// A message on its way, and the outgoing buffer that it came from.
struct Sent {
    from: Option<u32>,
    bytes: Vec<u8>,
    carried: u32,
}

#[derive(Default)]
struct Side {
    under_way: VecDeque<Sent>,
    posted: VecDeque<u32>,
    done: VecDeque<Done>,
    arrived: Vec<(u32, Vec<u8>)>,
    broken: Option<&'static str>,
}

/// Both ends.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<[Side; 2]>>);

struct Fake {
    wire: Wire,
    end: usize,
    space: Vec<Vec<u8>>,
    incoming: Vec<Vec<u8>>,
    refuses: bool,
}

impl Wire {
    fn ends(&self) -> (Flow<Fake>, Flow<Fake>) {
        let end = |end: usize| {
            self.0.lock().unwrap()[end].posted = (0..INCOMING).collect();
            let buffers = |n: u32| vec![vec![0; BUFFER_LEN as usize]; n as usize];
            let (space, incoming) = (buffers(BUFFERS), buffers(INCOMING));
            Flow::new(Fake { wire: self.clone(), end, space, incoming, refuses: false })
        };
        (end(0), end(1))
    }

    /// Delivers the next message of an end; whether there was one.
    fn deliver(&self, end: usize) -> bool {
        let sides = &mut *self.0.lock().unwrap();
        let Some(Sent { from, bytes, carried }) = sides[end].under_way.pop_front() else {
            return false;
        };
        let Some(buffer) = sides[1 - end].posted.pop_front() else {
            sides[end].broken = Some("the receiver is not ready");
            return false;
        };
        sides[end].done.push_back(from.map_or(Done::SentControl, Done::Sent));
        let len = bytes.len() as u32;
        sides[1 - end].arrived.push((buffer, bytes));
        sides[1 - end].done.push_back(Done::Received { buffer, len, carried });
        true
    }

    fn settle(&self) {
        while self.deliver(0) | self.deliver(1) {}
    }

    /// Something that a peer says which is no `Flow`.
    fn says(&self, end: usize, bytes: &[u8], carried: u32) {
        let sent = Sent { from: None, bytes: bytes.to_vec(), carried };
        self.0.lock().unwrap()[end].under_way.push_back(sent);
        assert!(self.deliver(end));
    }

    fn breaks(&self, end: usize) {
        self.0.lock().unwrap()[end].broken = Some("it broke");
    }
}

impl Fake {
    fn with<T>(&self, what: impl FnOnce(&mut Side) -> T) -> T {
        what(&mut self.wire.0.lock().unwrap()[self.end])
    }

    fn say(&mut self, sent: Sent) -> io::Result<()> {
        let refuses = self.refuses.then_some("it takes nothing");
        self.with(|side| match side.broken.or(refuses) {
            Some(why) => Err(io::Error::other(why)),
            None => {
                side.under_way.push_back(sent);
                Ok(())
            }
        })
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
        assert!((1..=BUFFER_LEN).contains(&len), "{len} bytes");
        let bytes = self.space[buffer as usize][..len as usize].to_vec();
        self.say(Sent { from: Some(buffer), bytes, carried })
    }
    fn send_control(&mut self, carried: u32) -> io::Result<()> {
        let under_way = self.with(|s| s.under_way.iter().filter(|s| s.bytes.is_empty()).count());
        assert!(under_way < CONTROLS as usize, "there is room for it at the peer");
        self.say(Sent { from: None, bytes: Vec::new(), carried })
    }
    fn post(&mut self, buffer: u32) -> io::Result<()> {
        self.with(|side| {
            assert!(!side.posted.contains(&buffer), "a buffer is posted once");
            side.posted.push_back(buffer);
        });
        Ok(())
    }
    fn poll(&mut self) -> io::Result<Option<Done>> {
        let (done, arrived, broken) = self
            .with(|side| (side.done.pop_front(), std::mem::take(&mut side.arrived), side.broken));
        for (buffer, bytes) in arrived {
            self.incoming[buffer as usize][..bytes.len()].copy_from_slice(&bytes);
        }
        match (done, broken) {
            (None, Some(why)) => Err(io::Error::other(why)),
            (done, _) => Ok(done),
        }
    }
    fn descriptor(&self) -> BorrowedFd<'_> {
        rustix::stdio::stdin()
    }
    fn take_events(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn stop(&mut self) {
        self.with(|side| side.broken = Some("it was stopped"));
    }
}

fn write(flow: &mut Flow<Fake>, bytes: &[u8]) -> usize {
    let (front, rest) = bytes.split_at(bytes.len() / 3);
    flow.write(&[IoSlice::new(front), IoSlice::new(rest)]).unwrap()
}

fn read(flow: &mut Flow<Fake>, most: usize) -> Vec<u8> {
    let mut space = vec![0; most];
    let (front, rest) = space.split_at_mut(most / 3);
    let n = flow.read(&mut [IoSliceMut::new(front), IoSliceMut::new(rest)]).unwrap();
    space.truncate(n);
    space
}

/// One direction under way: what is sent, and how far it is.
struct Way {
    bytes: Vec<u8>,
    sent: usize,
    got: Vec<u8>,
}

impl Way {
    fn new(len: usize, salt: usize) -> Self {
        let bytes = (0..len).map(|i| (i * salt + i / 251) as u8).collect();
        Self { bytes, sent: 0, got: Vec::new() }
    }
    fn step(&mut self, from: &mut Flow<Fake>, to: &mut Flow<Fake>, piece: usize, most: usize) {
        let end = self.bytes.len().min(self.sent + piece);
        self.sent += write(from, &self.bytes[self.sent..end]);
        self.got.extend(read(to, most));
    }
    fn is_over(&self) -> bool {
        self.got.len() == self.bytes.len()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Both directions at once, in any steps and delays: nothing is lost, nobody waits for good,
    /// and no message finds the receiver without a buffer for it.
    #[test]
    fn bytes_arrive_in_order_and_find_a_buffer(
        out in 1usize..4_000_000, back in 0usize..4_000_000,
        steps in prop::collection::vec((0usize..300_000, 1usize..300_000, 0usize..40, 0usize..40, 0u8..4), 1..12),
    ) {
        let wire = Wire::default();
        let (mut a, mut b) = wire.ends();
        let (mut there, mut here) = (Way::new(out, 7), Way::new(back, 13));
        let mut rounds = 0;
        for (piece, most, from_a, from_b, pumps) in steps.iter().cycle() {
            there.step(&mut a, &mut b, *piece + 1, *most);
            here.step(&mut b, &mut a, *most, *piece + 1);
            (0..*from_a).for_each(|_| { wire.deliver(0); });
            (0..*from_b).for_each(|_| { wire.deliver(1); });
            if pumps & 1 == 0 { a.pump(); }
            if pumps & 2 == 0 { b.pump(); }
            if there.is_over() && here.is_over() {
                break;
            }
            rounds += 1;
            // Every 64th step delivers and pumps everything, which the random steps may leave
            // undone for long.
            if rounds % 64 == 0 {
                wire.settle();
                a.pump();
                b.pump();
            }
            prop_assert!(rounds < 2_000_000, "it stands still");
        }
        prop_assert!(there.got == there.bytes && here.got == here.bytes);
    }
}

/// What the peer does not read is bounded, is not lost, and goes on when it is read, though the
/// peer has nothing to say that could carry its credits.
#[test]
fn a_full_flow_takes_nothing_until_it_is_read() {
    let wire = Wire::default();
    let (mut a, mut b) = wire.ends();
    let piece = vec![7; 3 * BUFFER_LEN as usize];
    let mut sent = 0;
    loop {
        match write(&mut a, &piece) {
            0 => break,
            n => sent += n,
        }
        wire.settle();
        a.pump();
        b.pump();
    }
    assert_eq!(sent, (BUFFERS * BUFFER_LEN) as usize);
    assert!(!a.has_room() && a.is_through() && b.has_bytes());
    // One byte less than half of the messages: nothing is returned yet.
    let half = (MOST_OWED * BUFFER_LEN) as usize;
    assert_eq!(read(&mut b, half - 1).len(), half - 1);
    wire.settle();
    assert_eq!(a.pump(), Changed::default());
    assert_eq!(read(&mut b, 1).len(), 1);
    wire.settle();
    assert!(a.pump().room && a.has_room());
    assert_eq!(write(&mut a, &vec![7; 2 * half]), half);
}

/// One direction alone, filled and read again and again: also the buffers of messages without bytes
/// are posted again.
#[test]
fn messages_without_bytes_give_their_buffers_back() {
    let wire = Wire::default();
    let (mut a, mut b) = wire.ends();
    let all = (BUFFERS * BUFFER_LEN) as usize;
    for round in 0..2 * INCOMING {
        assert_eq!(write(&mut a, &vec![3; 2 * all]), all, "round {round}");
        wire.settle();
        b.pump();
        assert_eq!(read(&mut b, 2 * all).len(), all);
        wire.settle();
        a.pump();
        b.pump();
    }
}

/// Credits go with bytes where those go back anyway.
#[test]
fn bytes_carry_credits_back() {
    let wire = Wire::default();
    let (mut a, mut b) = wire.ends();
    for _ in 0..10 * BUFFERS {
        assert_eq!(write(&mut a, &[1; 8]), 8);
        wire.settle();
        b.pump();
        assert_eq!(read(&mut b, 64), [1; 8]);
        assert_eq!(write(&mut b, &[2; 16]), 16);
        assert!(wire.0.lock().unwrap()[1].under_way.iter().all(|sent| !sent.bytes.is_empty()));
        wire.settle();
        a.pump();
        assert_eq!(read(&mut a, 64), [2; 16]);
    }
}

#[test]
fn a_peer_that_lies_is_found_out() {
    for (sent, carried, why) in [
        (0, 1, "returns 1 credits, and 32 are here"),
        (3, 4, "returns 4 credits, and 29 are here"),
        (3, u32::MAX, "returns 4294967295 credits"),
        (0, 0, "a message says nothing"),
    ] {
        let wire = Wire::default();
        let (mut a, _b) = wire.ends();
        for _ in 0..sent {
            write(&mut a, &[1; 8]);
        }
        wire.says(1, &[], carried);
        assert!(a.pump().bytes);
        let error = a.read(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(a.write(&[IoSlice::new(&[1; 8])]).is_err());
    }
}

/// A peer that takes the buffers for messages without bytes for others, too, fills those and no
/// more.
#[test]
fn a_peer_without_credits_fills_what_was_posted_and_no_more() {
    let wire = Wire::default();
    let (mut a, _b) = wire.ends();
    for _ in 0..INCOMING {
        wire.says(1, &[5; 100], 0);
    }
    let sent = Sent { from: None, bytes: vec![5], carried: 0 };
    wire.0.lock().unwrap()[1].under_way.push_back(sent);
    assert!(!wire.deliver(1), "the device refuses it");
    a.pump();
    assert_eq!(read(&mut a, 1 << 20).len(), 100 * INCOMING as usize);
}

/// A device that takes no requests any more has messages that came before.
#[test]
fn what_came_is_read_though_nothing_can_be_sent() {
    let wire = Wire::default();
    let (mut a, mut b) = wire.ends();
    write(&mut a, b"last");
    wire.settle();
    b.queue.refuses = true;
    assert!(b.write(&[IoSlice::new(b"x")]).is_err());
    assert!(b.is_broken() && !b.has_bytes());
    b.pump();
    assert_eq!(read(&mut b, 64), b"last");
    let error = b.read(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap_err();
    assert_eq!(error.to_string(), "it takes nothing");
}

#[test]
fn what_came_before_the_end_is_read_first() {
    let wire = Wire::default();
    let (mut a, mut b) = wire.ends();
    assert!(!b.has_bytes());
    write(&mut a, b"last");
    assert!(!a.is_through());
    wire.settle();
    wire.breaks(1);
    assert_eq!(b.pump(), Changed { bytes: true, room: true });
    assert!(b.has_bytes() && b.is_broken() && !b.has_room());
    assert_eq!(read(&mut b, 64), b"last");
    let error = b.read(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap_err();
    assert_eq!(error.to_string(), "it broke");
    assert!(b.write(&[IoSlice::new(b"x")]).is_err());
    // One that was stopped from here says so, whatever the device says after it.
    a.stop();
    a.pump();
    assert!(a.is_through() && !a.has_room());
    let error = a.write(&[IoSlice::new(b"x")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
}
