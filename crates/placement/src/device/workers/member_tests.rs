use super::*;
use crate::device::programs::door_tests::{Gated, PATIENCE, Raw};
use crate::device::programs::{HostGrants, Tokens};
use siftfs_base::BLOCK_SIZE;
use siftfs_device::Device;
use siftfs_transport::{Address, Listener, TransportOptions, connect};
use siftfs_wire::{BlockProtocol, GrantRun, Place};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tempfile::TempDir;

/// A program's connection with two queues, and the target's end of it, which no worker serves.
struct Pair {
    raw: Raw,
    member: Member,
    refused: Arc<AtomicUsize>,
    _grants: HostGrants,
    _dir: TempDir,
}

impl Pair {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = TransportOptions { shared_memory: 0, ..TransportOptions::default() };
        let address = Address::Unix(dir.path().join("door"));
        let listener = Listener::<BlockProtocol>::bind(&address, &options).unwrap();
        let (own, theirs) = thread::scope(|scope| {
            let own = scope.spawn(|| connect::<BlockProtocol>(&address, &options).unwrap());
            let theirs = listener.accept(Some(PATIENCE)).unwrap().unwrap();
            (own.join().unwrap(), theirs)
        });
        let tokens = Arc::new(Tokens::new(None, std::env::temp_dir()));
        let (grants, device) = (HostGrants::new(&tokens), Gated::new(false));
        let device: Arc<dyn Device> = device;
        let refused = Arc::new(AtomicUsize::new(0));
        let counted = refused.clone();
        let counts: Refusals = Box::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let newcomer = Newcomer {
            end: theirs,
            first: None,
            until: Instant::now() + PATIENCE,
            number: 7,
            attached: Attached::new(&tokens),
            refused: counts,
        };
        let member = Member::new(newcomer, &Arc::new(Mailbox::new().unwrap())).unwrap();
        let raw = Raw { end: own, id: 0 };
        let mut pair = Self { raw, member, refused, _grants: grants, _dir: dir };
        for queue in 0..2 {
            let block = u64::from(queue) * 8;
            let runs = vec![GrantRun { block, len: 8, first: 0, fresh: false }];
            let of = (u64::from(queue), u64::from(queue));
            let token = pair._grants.grant(of, (true, runs), &device, 0..1 << 40).unwrap();
            let call = StorageCall::Attach { version: PROTOCOL_VERSION, token, queue, life: 1 };
            pair.raw.end.sender.send(ToService::Storage { id: 1, call }).unwrap();
            while !pair.receive() {}
            let answer = pair.raw.answer(PATIENCE).unwrap().1;
            assert!(matches!(answer, StorageAnswer::Attached { .. }), "{answer:?}");
        }
        pair
    }

    /// One turn; whether anything came.
    fn receive(&mut self) -> bool {
        self.member.receive().unwrap_or_else(|_| panic!("the connection lasts"))
    }

    fn say(&mut self, queue: u32, number: u64) {
        let call = StorageCall::Read { device: 0, offset: 0, len: BLOCK_SIZE as u32 };
        self.raw.say(Place { queue, number, first: 0 }, call);
    }
}

/// What a program sends without a pause takes a turn of its worker, and not all of its time.
#[test]
fn a_turn_takes_a_few_messages() {
    let mut pair = Pair::new();
    for number in 0..100 {
        pair.say(9, number);
    }
    thread::sleep(Duration::from_millis(200));
    let refused = |pair: &Pair| pair.refused.load(Ordering::SeqCst);
    assert!(pair.receive());
    assert_eq!(refused(&pair), TURN);
    let begun = Instant::now();
    while refused(&pair) < 100 {
        let before = refused(&pair);
        pair.receive();
        assert!(refused(&pair) - before <= TURN);
        assert!(begun.elapsed() < PATIENCE, "all of them come");
    }
}

/// What may begin and does not has an end: then nothing more is taken of the connection.
#[test]
fn what_may_begin_has_an_end() {
    let mut pair = Pair::new();
    for number in 0..60 {
        pair.say(0, number);
        pair.say(1, number);
    }
    let begun = Instant::now();
    while pair.member.ready.len() < MOST_READY {
        pair.receive();
        assert!(begun.elapsed() < PATIENCE);
    }
    thread::sleep(Duration::from_millis(200));
    assert!(!pair.receive() && pair.member.pauses());
    assert_eq!(pair.member.ready.len(), MOST_READY);
    drop(pair.member.ready.pop_front());
    assert!(pair.receive());
    assert_eq!(pair.member.ready.len(), MOST_READY);
}

/// Answers that nobody takes first stop the connection, and then end it: if they are too many, or
/// if none of them has left for the term.
#[test]
fn answers_that_are_not_taken_end_a_connection() {
    let mut pair = Pair::new();
    let member = &mut pair.member;
    let lasts = |member: &mut Member, kept| member.set_kept(kept).is_ok();
    assert!(lasts(member, PAUSES_AT - 1) && !member.pauses());
    assert!(lasts(member, PAUSES_AT) && member.pauses());
    assert!(lasts(member, MOST_KEPT));
    assert!(!lasts(member, MOST_KEPT + 1));
    // Some has left a moment ago, or none for too long.
    member.kept_since = Instant::now().checked_sub(TERM).unwrap();
    assert!(lasts(member, PAUSES_AT));
    member.kept_since = Instant::now().checked_sub(TERM).unwrap();
    assert!(!lasts(member, PAUSES_AT));
    assert!(!lasts(member, PAUSES_AT + 1));
    assert!(lasts(member, 0) && !member.pauses());
}
