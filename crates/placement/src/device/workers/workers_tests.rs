use super::*;
use crate::device::programs::door_tests::*;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, SharedBlock};
use siftfs_transport::Received;
use siftfs_wire::{FromService, Place, StorageAnswer, ToService, Token};
use std::process::Command;

fn place(number: u64) -> Place {
    Place { queue: 0, number, first: number }
}

fn write(block: u64, byte: u8) -> StorageCall {
    let blocks = vec![SharedBlock::from([byte; BLOCK_SIZE])];
    let (offset, len) = (block * BLOCK_BYTES, BLOCK_SIZE as u32);
    StorageCall::Write { device: 0, offset, len, durable: false, blocks }
}

fn run(start: u64, len: u64) -> Vec<BlockRun> {
    vec![BlockRun { start, len }]
}

fn done(raw: &mut Raw, number: u64, call: StorageCall) {
    let id = raw.say(place(number), call);
    assert_eq!(raw.answer(PATIENCE), Some((id, StorageAnswer::Done)));
}

fn attached(door: &Door, token: Token) -> Raw {
    let mut raw = door.raw();
    assert!(raw.attaches(token, 1));
    raw
}

fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let comm = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    tasks.map(comm).filter(|comm| comm.starts_with(name)).count()
}

/// The most connections that there may be, with requests of all of them under way, have no more
/// threads than the bound; one more is turned away, and one that ends makes room. Other tests have
/// threads, too, so this one runs in a process of its own.
#[test]
fn connections_have_no_threads() {
    const ALONE: &str = "SIFTFS_THREADS_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return count_threads();
    }
    let name = "device::workers::tests::connections_have_no_threads";
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let ran = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

fn count_threads() {
    let (door, device) = (Door::new(), Gated::new(false));
    device.shut(Some(1));
    let mut all = Vec::new();
    for lease in 0..BLOCKS {
        let token = door.grant(lease, run(lease, 1), &device);
        for _ in 0..MOST_CONNECTIONS as u64 / BLOCKS {
            all.push(attached(&door, token));
        }
    }
    assert_eq!(all.len(), MOST_CONNECTIONS);
    let mut late = door.raw();
    assert!(matches!(late.end.receiver.recv(Some(PATIENCE)), Ok(Received::Closed) | Err(_)));
    let mut ids = Vec::new();
    for (at, raw) in all.iter_mut().enumerate() {
        let (lease, number) = (at as u64 / 2, at as u64 % 2);
        ids.push(raw.say(Place { queue: 0, number, first: 0 }, write(lease, 1)));
    }
    device.wait_for_one();
    thread::sleep(Duration::from_millis(300));
    let own = (threads("siftfs-worker"), threads("siftfs-helper"));
    // A connection at this side has a thread: those of the target have none, but for the one that
    // was turned away, which the door keeps.
    let links = threads("siftfs-link");
    device.shut(None);
    assert_eq!(own, (2, helpers::MOST));
    assert!(links <= MOST_CONNECTIONS + 2, "{links}");
    for (raw, id) in all.iter_mut().zip(ids) {
        assert_eq!(raw.answer(PATIENCE), Some((id, StorageAnswer::Done)));
    }
    drop(all.pop());
    let begun = Instant::now();
    loop {
        let next = door.raw();
        let closed = { next }.end.receiver.recv(Some(Duration::from_millis(300)));
        if matches!(closed, Ok(Received::Timeout)) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "there is room again");
    }
}

/// A program that takes none of its answers delays no other one of its worker, and is ended when
/// its term is over.
#[test]
fn one_that_does_not_read_delays_nobody() {
    let (door, device) = (Door::new(), Gated::new(false));
    let (own, other) = (door.grant(1, run(0, 32), &device), door.grant(2, run(32, 32), &device));
    let mut full = attached(&door, own);
    // Three more: whatever worker has the full one has others.
    let mut others: Vec<Raw> = (0..3).map(|_| attached(&door, other)).collect();
    // Its own thread would take some of them.
    full.end.receiver.attend().unwrap().unwrap();
    let read = StorageCall::Read { device: 0, offset: 0, len: 32 * BLOCK_SIZE as u32 };
    for number in 0..60 {
        full.say(Place { queue: 0, number, first: 0 }, read.clone());
    }
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < Duration::from_secs(12) {
        for raw in &mut others {
            let at = Instant::now();
            done(raw, number, write(40, number as u8));
            assert!(at.elapsed() < Duration::from_secs(2), "it is delayed");
            number += 1;
        }
        thread::sleep(Duration::from_millis(5));
    }
    // What was on its way comes, and then the end.
    let mut answers = 0;
    let end = loop {
        match full.end.receiver.recv(Some(Duration::from_secs(5))) {
            Ok(Received::Message(FromService::Storage { .. })) => answers += 1,
            other => break other,
        }
    };
    assert!(end.is_err() && answers < 60, "{end:?} after {answers}");
}

/// The end of a grant waits for the access that is under way, and for nothing else; what comes
/// behind it is not carried out, and hears of it when the end is over.
#[test]
fn an_end_waits_for_what_is_under_way() {
    let (door, device) = (Door::new(), Gated::new(false));
    let _opens = Opens(device.clone());
    let (token, other) = (door.grant(1, run(0, 8), &device), door.grant(2, run(8, 8), &device));
    let (mut raw, mut beside) = (attached(&door, token), attached(&door, other));
    device.shut(Some(1));
    let held = raw.say(place(0), write(0, 1));
    device.wait_for_one();
    let behind = raw.say(Place { queue: 0, number: 1, first: 0 }, write(1, 2));
    assert_eq!(raw.answer(PATIENCE), Some((behind, StorageAnswer::Done)));
    thread::scope(|scope| {
        let ends = scope.spawn(|| door.grants.revoke(1, &token).unwrap());
        thread::sleep(Duration::from_millis(100));
        assert!(!ends.is_finished());
        let late = raw.say(Place { queue: 0, number: 2, first: 0 }, write(2, 3));
        assert_eq!(raw.answer(Duration::from_millis(100)), None, "it is told behind the flush");
        for number in 0..20 {
            done(&mut beside, number, write(8, 9));
        }
        assert!(!ends.is_finished());
        device.shut(None);
        assert!(ends.join().unwrap().written);
        let mut answers = [raw.answer(PATIENCE).unwrap(), raw.answer(PATIENCE).unwrap()];
        answers.sort_by_key(|(id, _)| *id);
        let stale = StorageAnswer::Failed { error: Error::Posix(libc::ESTALE) };
        assert_eq!(answers, [(held, StorageAnswer::Done), (late, stale)]);
    });
    assert!(!lock(&device.log).contains(&3), "nothing begins behind the end");
    let StorageAnswer::Ended { carried } = raw.attach(token, 2) else { panic!("it has ended") };
    assert_eq!([0, 1, 2].map(|number| carried.has(number)), [true, true, false]);
}

/// Who breaks the protocol ends his connection, and no other one.
#[test]
fn a_broken_connection_is_the_only_one() {
    let (door, device) = (Door::new(), Gated::new(false));
    let token = door.grant(1, run(0, 8), &device);
    let mut honest: Vec<Raw> = (0..2).map(|_| attached(&door, token)).collect();
    let mut number = 0;
    for first in [true, false, true, false] {
        let mut bad = door.raw();
        if !first {
            let other = door.grant(7 + number, run(8 + number, 1), &device);
            assert!(bad.attaches(other, 1));
        }
        bad.end.sender.send(ToService::Goodbye).unwrap();
        let end = loop {
            match bad.end.receiver.recv(Some(PATIENCE)) {
                Ok(Received::Message(FromService::Refused { .. })) => assert!(first),
                other => break other,
            }
        };
        assert!(matches!(end, Ok(Received::Closed) | Err(Error::Link(_))), "{end:?}");
        for raw in &mut honest {
            done(raw, number, write(0, 5));
            number += 1;
        }
    }
    // One whose token is not granted is told so, and closed.
    let mut foreign = door.raw();
    assert!(matches!(foreign.attach([7; 32], 1), StorageAnswer::Failed { .. }));
    assert!(matches!(foreign.end.receiver.recv(Some(PATIENCE)), Ok(Received::Closed)));
}

/// The same over shared memory, whose bells are waited for with sockets.
#[test]
fn shared_memory_is_served_beside_sockets() {
    let device = Gated::new(false);
    let door = Door::with(16 << 20, 2);
    let token = door.grant(1, run(0, 8), &device);
    let mut shared = attached(&door, token);
    assert!(shared.end.shares_memory);
    for number in 0..200 {
        done(&mut shared, number, write(number % 8, number as u8));
        if number % 50 == 0 {
            // Both sides sleep.
            thread::sleep(Duration::from_millis(30));
        }
    }
    let read = StorageCall::Read { device: 0, offset: 0, len: BLOCK_SIZE as u32 };
    let id = shared.say(place(200), read);
    let Some((answered, StorageAnswer::Data { blocks })) = shared.answer(PATIENCE) else {
        panic!("it is read")
    };
    let mut block = [0; BLOCK_SIZE];
    blocks.iter().for_each(|own| own.copy_to(&mut block));
    assert_eq!((answered, block[0]), (id, 192));
}

fn read(block: u64) -> StorageCall {
    StorageCall::Read { device: 0, offset: block * BLOCK_BYTES, len: BLOCK_SIZE as u32 }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Storage that does not come back delays only the connection whose access waits for it, though all
/// connections have the same worker; and that connection has two helpers at most. When it is lost
/// then, what has not begun is not done, and nothing is left of it.
#[test]
fn storage_that_waits_delays_one_connection() {
    let (door, device) = (Door::with(0, 1), Gated::new(false));
    let _opens = Opens(device.clone());
    let (token, other) = (door.grant(1, run(0, 32), &device), door.grant(2, run(32, 8), &device));
    let (mut held, mut beside) = (attached(&door, token), attached(&door, other));
    device.shut(Some(1));
    for number in 0..40 {
        held.say(Place { queue: 0, number, first: 0 }, write(number % 32, 1));
    }
    device.wait_for_one();
    for number in 0..100 {
        done(&mut beside, number, write(32 + number % 8, 2));
    }
    assert_eq!(device.held(), 2, "helpers of a connection");
    let counts = door.workers.as_ref().unwrap().statistics();
    assert_eq!((counts.workers, counts.connections, counts.begun), (1, 2, 0));
    assert_eq!((counts.helped, counts.broken), (102, 0));
    // Fourteen more have entered the grant, and wait for the two.
    assert!(counts.waited >= 14, "{} waited", counts.waited);
    assert!((2..=4).contains(&counts.most_helpers), "{} helpers", counts.most_helpers);
    held.end.sender.cut();
    let statistics = || door.workers.as_ref().unwrap().statistics();
    until("it is gone", || statistics().connections == 1);
    device.shut(None);
    let mut next = attached_again(&door, token);
    until("what is over takes no room", || door.tokens.waiting.load(Ordering::SeqCst) == 0);
    done(&mut next, 0, write(0, 3));
    let begun = lock(&device.log).iter().filter(|byte| **byte == 1).count();
    assert_eq!(begun, 2, "what had not begun is not done");
    assert!(door.grants.revoke(1, &token).unwrap().written);
}

/// Attaches with the next life, which is answered when nothing runs of the one before.
fn attached_again(door: &Door, token: Token) -> Raw {
    let mut raw = door.raw();
    assert!(raw.attaches(token, 2));
    raw
}

/// What is under way has a bound, for a connection and for a worker, and all of it ends.
#[test]
fn what_is_under_way_has_bounds() {
    let (door, device) = (Door::with(0, 1), Later::new(Duration::from_millis(400)));
    let mut all = Vec::new();
    for lease in 0..20 {
        let token = door.grant(lease, run(lease, 1), &device);
        all.push(attached(&door, token));
    }
    let ask = |(block, raw): (u64, &mut Raw)| {
        for number in 0..40 {
            raw.say(Place { queue: 0, number, first: 0 }, read(block));
        }
    };
    let await_all = |raw: &mut Raw| {
        for _ in 0..40 {
            let answer = raw.answer(PATIENCE).unwrap().1;
            assert!(matches!(answer, StorageAnswer::Data { .. }), "{answer:?}");
        }
    };
    let most = || [&device.most, &device.most_of_one].map(|n| n.load(Ordering::SeqCst));
    let (first, others) = all.split_first_mut().unwrap();
    ask((0, first));
    await_all(first);
    assert_eq!(most(), [16, 16]);
    (1..).zip(&mut *others).for_each(ask);
    others.iter_mut().for_each(await_all);
    assert_eq!(most(), [256, 16]);
    let counts = door.workers.as_ref().unwrap().statistics();
    assert_eq!((counts.begun, counts.helped, counts.most_helpers), (800, 0, 0));
}

/// The end of a grant waits for accesses that are under way without a helper, too; what they have
/// done counts.
#[test]
fn an_end_waits_for_what_a_worker_has_begun() {
    let (door, device) = (Door::new(), Later::new(Duration::from_millis(300)));
    let token = door.grant(1, run(0, 8), &device);
    let mut raw = attached(&door, token);
    let begun = Instant::now();
    let held = raw.say(place(0), write(0, 1));
    until("it has begun", || device.most.load(Ordering::SeqCst) == 1);
    assert!(door.grants.revoke(1, &token).unwrap().written);
    assert!(begun.elapsed() >= Duration::from_millis(300), "it ends while a write is under way");
    assert_eq!(raw.answer(PATIENCE), Some((held, StorageAnswer::Done)));
    let StorageAnswer::Ended { carried } = raw.attach(token, 2) else { panic!("it has ended") };
    assert!(carried.has(0));
}

/// An access that fails is its request's failure, and is counted as not carried out. The queue goes
/// on.
#[test]
fn an_access_that_fails_is_told() {
    let (door, device) = (Door::new(), Later::new(Duration::from_millis(1)));
    let token = door.grant(1, run(0, 8), &device);
    let mut raw = attached(&door, token);
    device.fails.store(true, Ordering::SeqCst);
    let failed = StorageAnswer::Failed { error: Error::Posix(libc::EIO) };
    for (number, call) in [(0, write(0, 1)), (1, read(0))] {
        let id = raw.say(place(number), call);
        assert_eq!(raw.answer(PATIENCE), Some((id, failed.clone())));
    }
    device.fails.store(false, Ordering::SeqCst);
    done(&mut raw, 2, write(0, 2));
    assert!(door.grants.revoke(1, &token).unwrap().written);
    let StorageAnswer::Ended { carried } = raw.attach(token, 2) else { panic!("it has ended") };
    assert_eq!([0, 1, 2].map(|number| carried.has(number)), [false, false, true]);
}

/// A new connection goes to the worker that has the fewest.
#[test]
fn connections_are_spread() {
    let (door, device) = (Door::with(0, 3), Gated::new(false));
    // A connection that ends is the end of the life of its queue, so each has another one.
    let mut leases = 0..;
    let mut next = || {
        let lease = leases.next().unwrap();
        attached(&door, door.grant(lease, run(lease, 1), &device))
    };
    let workers = door.workers.clone().unwrap();
    let members = || {
        let started = lock(&workers.started);
        started.iter().map(|(own, _)| own.members.load(Ordering::SeqCst)).collect::<Vec<_>>()
    };
    let mut all: Vec<Raw> = (0..9).map(|_| next()).collect();
    assert_eq!(members(), [3, 3, 3]);
    // Every third one has the same worker.
    (0..3).rev().for_each(|at| drop(all.remove(3 * at)));
    until("three have gone", || members() == [0, 3, 3]);
    all.extend((0..3).map(|_| next()));
    assert_eq!(members(), [3, 3, 3]);
}

/// There is a worker, and not more than 64, whatever is asked for.
#[test]
fn workers_have_bounds() {
    for (asked, has) in [(0, 1), (3, 3), (1000, 64)] {
        let (door, device) = (Door::with(0, asked), Gated::new(false));
        let token = door.grant(1, run(0, 8), &device);
        assert_eq!(door.workers.as_ref().unwrap().statistics().workers, 0);
        done(&mut attached(&door, token), 0, write(0, 1));
        assert_eq!(door.workers.as_ref().unwrap().statistics().workers, has);
    }
}
