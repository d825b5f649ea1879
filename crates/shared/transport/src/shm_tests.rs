use super::*;
use crate::handshake::{Agreement, Greeting};
use crate::link::Met;
use crate::mapping::Layout;
use crate::ring::{Memory, Place};
use crate::{CallerEnd, Received, ServerEnd, TransportOptions, link};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use siftfs_base::BlockRun;
use siftfs_wire::{BlockProtocol, DirectRun, FromService, ToService};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const SLOTS: u32 = 4;

/// Two ends over shared memory, and that memory.
struct Rig {
    host: CallerEnd<BlockProtocol>,
    device: ServerEnd<BlockProtocol>,
    memory: Arc<Mapping>,
    host_socket: Socket,
}

fn rig() -> Rig {
    let flags = SocketFlags::CLOEXEC;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let (a, b) = (Socket::new(a).unwrap(), Socket::new(b).unwrap());
    let patience = Duration::from_secs(60);
    let deadline = Instant::now() + patience;
    let greeting = |socket, give| {
        let stop = &AtomicBool::new(false);
        let greeting = Greeting { channel: socket, peer: "the peer", deadline, patience, stop };
        let layout = Layout::new(SLOTS, false);
        if give { greeting.give_memory(layout) } else { greeting.take_memory(layout) }
    };
    let (ours, theirs) = std::thread::scope(|s| {
        let theirs = s.spawn(|| greeting(&b, false).unwrap());
        (greeting(&a, true).unwrap(), theirs.join().unwrap())
    });
    let memory = ours.memory.clone();
    let host_socket = Socket::new(rustix::io::dup(&a).unwrap()).unwrap();
    // No heartbeat comes between the steps of a test.
    let heartbeat = Duration::from_secs(600);
    let stall = Duration::from_secs(3600);
    let options = TransportOptions { heartbeat, stall, ..Default::default() };
    let agreement = Agreement { version: 1, max_message: 1 << 20, slots: SLOTS, rdma: false };
    let (host, cut) = pipes(End::Caller, ours, a, "the Service");
    let host = link::open::<BlockProtocol, _, _>(
        End::Caller,
        &agreement,
        &options,
        Met { peer: "the Service".into(), process: None, key: None },
        host,
        cut,
    );
    let (device, cut) = pipes(End::Server, theirs, b, "the Runtime");
    let device = link::open::<BlockProtocol, _, _>(
        End::Server,
        &agreement,
        &options,
        Met { peer: "the Runtime".into(), process: None, key: None },
        device,
        cut,
    );
    Rig { host: host.unwrap(), device: device.unwrap(), memory, host_socket }
}

fn block(seed: u8) -> SharedBlock {
    SharedBlock::from([seed; BLOCK_SIZE])
}

fn direct(seeds: &[u8]) -> ToService {
    let run = BlockRun { start: 3, len: seeds.len() as u64 };
    let runs = vec![DirectRun { run, data: seeds.iter().map(|s| block(*s)).collect() }];
    ToService::Direct { seq: siftfs_base::TxnSeq(1), runs, waited: true }
}

fn receive(device: &mut ServerEnd<BlockProtocol>) -> Result<Option<ToService>> {
    match device.receiver.recv(Some(Duration::ZERO))? {
        Received::Message(message) => Ok(Some(message)),
        Received::Timeout => Ok(None),
        Received::Closed => panic!("nobody closed"),
    }
}

fn is_corrupt<T: std::fmt::Debug>(result: Result<T>, why: &str) {
    let named = matches!(&result, Err(e @ Error::Corrupt { .. }) if e.to_string().contains(why));
    assert!(named, "{why}: {result:?}");
}

/// Forges a word of a ring's control.
fn forge(rig: &Rig, place: Place, word: usize, value: u64) {
    rig.memory.word(place.control + word).store(value, Ordering::SeqCst);
}

const TAIL: usize = 0;
const HEAD: usize = 8;

#[test]
fn forged_positions_break_the_connection_and_nothing_else() {
    for position in [u64::MAX, 1 << 63, (32 << 10) + 1] {
        let mut rig = rig();
        forge(&rig, rig.memory.layout.to_server, TAIL, position);
        is_corrupt(receive(&mut rig.device), "further apart than its size");
        assert!(rig.device.sender.send(FromService::Statistics(Box::default())).is_err());
    }
    let rig = rig();
    forge(&rig, rig.memory.layout.to_server, HEAD, 1);
    is_corrupt(rig.host.sender.send(ToService::Statistics), "further apart than its size");
}

#[test]
fn a_message_changed_in_the_ring_is_refused_whatever_word_it_is() {
    let words = {
        let rig = rig();
        rig.host.sender.send(direct(&[1, 2])).unwrap();
        rig.memory.word(rig.memory.layout.to_server.control + TAIL).load(Ordering::SeqCst)
    };
    assert!(words > 8, "a header, a section with two slots");
    for word in 0..words as usize {
        for flip in [1, 1 << 31, u64::MAX] {
            let mut rig = rig();
            rig.host.sender.send(direct(&[1, 2])).unwrap();
            let changed = rig.memory.word(rig.memory.layout.to_server.data + word);
            changed.store(changed.load(Ordering::SeqCst) ^ flip, Ordering::SeqCst);
            is_corrupt(receive(&mut rig.device), "message 0 from the Runtime");
        }
    }
}

#[test]
fn a_slot_lent_twice_or_given_back_unasked_breaks_the_connection() {
    let rig = rig();
    let back = rig.memory.layout.callers.freed;
    for slot in [3, 4, u64::MAX] {
        let mut lender = Lender::new(&rig.memory, rig.memory.layout.callers);
        rig.memory.word(back.data).store(slot, Ordering::SeqCst);
        forge(&rig, back, TAIL, 1);
        is_corrupt(lender.collect(), "came back and was not lent");
        forge(&rig, back, TAIL, 0);
    }
    let borrower = Borrower::new(&rig.memory, rig.memory.layout.callers);
    let kept = borrower.borrow(2, "the Runtime").unwrap();
    is_corrupt(borrower.borrow(2, "the Runtime"), "lent before");
    is_corrupt(borrower.borrow(SLOTS, "the Runtime"), "lent before");
    drop(kept);
    borrower.borrow(2, "the Runtime").unwrap();
}

#[test]
fn a_slot_comes_back_when_the_last_reference_to_its_block_is_dropped() {
    let mut rig = rig();
    let freed = |rig: &Rig| {
        rig.memory.word(rig.memory.layout.callers.freed.control + TAIL).load(Ordering::SeqCst)
    };
    rig.host.sender.send(direct(&[1, 2, 3])).unwrap();
    let message = receive(&mut rig.device).unwrap().expect("a message");
    let ToService::Direct { runs, .. } = &message else { panic!("another message") };
    let kept = runs[0].data[1].clone();
    assert_eq!(freed(&rig), 0, "given back while in use");
    drop(message);
    assert_eq!(freed(&rig), 2);
    assert_eq!(kept, block(2));
    drop(kept);
    assert_eq!(freed(&rig), 3);
    // And they are used again.
    for i in 0..20 {
        rig.host.sender.send(direct(&[i, i + 1, i + 2, i + 3])).unwrap();
        assert_eq!(receive(&mut rig.device).unwrap(), Some(direct(&[i, i + 1, i + 2, i + 3])));
    }
}

#[test]
fn a_block_outlives_its_connection() {
    let mut rig = rig();
    rig.host.sender.send(direct(&[9])).unwrap();
    let message = receive(&mut rig.device).unwrap();
    drop(rig);
    assert_eq!(message, Some(direct(&[9])));
}

/// A Runtime that changes a block under the Service's eyes: every read sees the same bytes.
#[test]
fn a_block_that_was_looked_at_does_not_change_any_more() {
    let mut rig = rig();
    rig.host.sender.send(direct(&[1])).unwrap();
    let message = receive(&mut rig.device).unwrap();
    let Some(ToService::Direct { runs, .. }) = message else { panic!("another message") };
    let lent = &runs[0].data[0];
    assert_eq!(lent[..], [1; BLOCK_SIZE]);
    (0..SLOTS).for_each(|slot| {
        rig.memory.write_slot(&rig.memory.layout.callers, slot, &[0xee; BLOCK_SIZE])
    });
    assert_eq!(lent[..], [1; BLOCK_SIZE], "a second look saw other bytes");
    let mut copied = [0; BLOCK_SIZE];
    lent.copy_to(&mut copied);
    assert_eq!(copied, [1; BLOCK_SIZE], "a copy has other bytes than a look");
}

/// What makes the arena worth having: nothing is copied before the bytes are asked for.
#[test]
fn a_block_that_nobody_looked_at_is_read_from_its_slot() {
    let mut rig = rig();
    rig.host.sender.send(direct(&[1])).unwrap();
    let message = receive(&mut rig.device).unwrap();
    (0..SLOTS).for_each(|slot| {
        rig.memory.write_slot(&rig.memory.layout.callers, slot, &[0xee; BLOCK_SIZE])
    });
    let Some(ToService::Direct { runs, .. }) = message else { panic!("another message") };
    let mut copied = [0; BLOCK_SIZE];
    runs[0].data[0].copy_to(&mut copied);
    assert_eq!(copied, [0xee; BLOCK_SIZE]);
}

#[test]
fn bytes_beside_the_ring_break_the_connection() {
    let mut rig = rig();
    assert_eq!(rig.host_socket.write(&[IoSlice::new(b"x")]).unwrap(), 1);
    is_corrupt(rig.device.receiver.recv(None), "it came beside the ring");
}
