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
    let door = Door::with(16 << 20);
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
