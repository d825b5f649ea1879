use super::*;
use crate::device::calls::lock;
use crate::device::programs::door_tests::*;
use crate::device::programs::request::MOST_WAITING;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, Rng, SharedBlock};
use siftfs_device::{Device, FileDevice, FileOptions, open_for_service};
use siftfs_device_target::{Kind, Lines, Next, Queue, RequestOrder};
use siftfs_transport::Received;
use siftfs_wire::{PROTOCOL_VERSION, ProgramStatistics, QUEUE_WINDOW, ToService};
use std::collections::HashSet;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;

fn place(number: u64, first: u64) -> Place {
    Place { queue: 0, number, first }
}

fn write(block: u64, byte: u8) -> StorageCall {
    let blocks = vec![SharedBlock::from([byte; BLOCK_SIZE])];
    let (offset, len) = (block * BLOCK_BYTES, BLOCK_SIZE as u32);
    StorageCall::Write { device: 0, offset, len, durable: false, blocks }
}

fn failed(errno: i32) -> StorageAnswer {
    StorageAnswer::Failed { error: Error::Posix(errno) }
}

fn block_of(device: &Gated, block: u64) -> u8 {
    let mut bytes = [0; BLOCK_SIZE];
    device.memory.read(block * BLOCK_BYTES, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a write in part");
    bytes[0]
}

/// A connection is lost while a write of it is on its way to the disk. The program sends that
/// write again, and then a newer one of the same block: the lost one does not come over it.
#[test]
fn a_write_of_a_lost_connection_comes_over_no_newer_one() {
    let (door, device) = (Door::new(), Gated::new(false));
    let token = door.all(&device);
    let mut first = door.raw();
    assert!(first.attaches(token, 1));
    device.shut(Some(1));
    first.say(place(0, 0), write(3, 1));
    device.wait_for_one();
    first.end.sender.cut();
    let own = device.clone();
    let opens = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        own.shut(None);
    });
    let mut second = door.raw();
    assert!(second.attaches(token, 2));
    // The same bytes, as far as the target can tell another write.
    second.say(place(0, 0), write(3, 2));
    assert_eq!(second.answer(PATIENCE), Some((2, StorageAnswer::Done)));
    second.say(place(1, 1), write(3, 3));
    assert_eq!(second.answer(PATIENCE), Some((3, StorageAnswer::Done)));
    opens.join().unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(block_of(&device, 3), 3);
}

/// Requests over two connections of one queue, in an order that is not the one in which they come.
#[test]
fn connections_share_one_order() {
    let (door, device) = (Door::new(), Gated::new(false));
    let token = door.all(&device);
    let (mut one, mut two) = (door.raw(), door.raw());
    assert!(one.attaches(token, 1));
    assert!(two.attaches(token, 1));
    for round in 0..200u64 {
        let (low, byte) = (3 * round, (round % 80) as u8 * 3);
        let last = two.say(place(low + 2, low + 2), write(5, byte + 2));
        let middle = one.say(place(low + 1, low + 1), write(5, byte + 1));
        assert_eq!(two.answer(Duration::ZERO), None, "it is behind what did not come");
        let first = two.say(place(low, low), write(5, byte));
        assert_eq!(one.answer(PATIENCE), Some((middle, StorageAnswer::Done)));
        let mut own = [two.answer(PATIENCE).unwrap(), two.answer(PATIENCE).unwrap()];
        own.sort_by_key(|(id, _)| *id);
        assert_eq!(own, [(last, StorageAnswer::Done), (first, StorageAnswer::Done)]);
        assert_eq!(block_of(&device, 5), byte + 2);
        // A queue is looked at once, however often something waits.
        assert!(lock(&door.tokens.watched).len() <= 1);
    }
    let waited = door.tokens.statistics().waited;
    // Most come before what they wait for; one that is received by a slow thread may not.
    assert!((1..=400).contains(&waited), "{waited} waited");
    let counted =
        ProgramStatistics { queues: 1, requests: 600, groups: 600, waited, further_lives: 0 };
    assert_eq!(door.tokens.statistics(), counted);
    assert!(one.attaches(token, 2));
    door.grants.revoke(1, &token).unwrap();
    let counted = ProgramStatistics { queues: 0, further_lives: 1, ..counted };
    assert_eq!(door.tokens.statistics(), counted);
}

/// A request that waits for one that does not come is over after the term, and stalls no other
/// queue until then; the end of its connection and of its grant are that, too.
#[test]
fn a_slot_that_is_never_filled_stalls_its_queue_alone() {
    let (door, device) = (Door::new(), Gated::new(false));
    let run = |start| vec![BlockRun { start, len: 8 }];
    let (token, other) = (door.grant(1, run(0), &device), door.grant(2, run(8), &device));
    let ended = door.grant(3, run(16), &device);
    let (mut waits, mut gone) = (door.raw(), door.raw());
    assert!(waits.attaches(token, 1));
    let id = waits.say(place(1, 1), write(0, 1));
    let begun = Instant::now();
    assert!(gone.attaches(ended, 1));
    let over = gone.say(place(1, 1), write(16, 1));
    assert_eq!(gone.answer(Duration::from_millis(200)), None);
    door.grants.revoke(3, &ended).unwrap();
    assert_eq!(gone.answer(PATIENCE), Some((over, failed(libc::ESTALE))));
    let honest = door.queue(other, RequestOrder::Merging);
    let mut answered = None;
    while answered.is_none() {
        honest.write_at(8 * BLOCK_BYTES, &[7; BLOCK_SIZE], true).unwrap();
        answered = waits.answer(Duration::from_millis(1));
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(answered, Some((id, failed(libc::ESTALE))));
    assert!(begun.elapsed() >= Duration::from_secs(9), "it might have come");
    assert!(waits.attaches(token, 2));
    let id = waits.say(place(0, 0), write(0, 2));
    assert_eq!(waits.answer(PATIENCE), Some((id, StorageAnswer::Done)));
    assert_eq!((block_of(&device, 0), block_of(&device, 16)), (2, 0));
    // The next one goes with its connection, at once.
    waits.say(place(2, 2), write(0, 3));
    drop(waits);
    let mut next = door.raw();
    assert!(next.attaches(token, 3));
    let id = next.say(place(0, 0), write(0, 4));
    assert_eq!(next.answer(PATIENCE), Some((id, StorageAnswer::Done)));
    assert_eq!(block_of(&device, 0), 4);
    // A connection that is lost ends the life for all others: what it was to bring will not come.
    let mut lost = door.raw();
    assert!(lost.attaches(token, 3));
    drop(lost);
    let begun = Instant::now();
    let mut number = 1;
    let answer = loop {
        next.say(place(number, number), write(0, 5));
        number += 1;
        match next.answer(PATIENCE).unwrap().1 {
            StorageAnswer::Done => assert!(begun.elapsed() < Duration::from_secs(5)),
            other => break other,
        }
    };
    assert_eq!(answer, failed(libc::ESTALE));
}

/// Places that no honest program names are refused and counted; the queue goes on.
#[test]
fn forged_places_are_refused() {
    let (door, device) = (Door::new(), Gated::new(false));
    let token = door.all(&device);
    let mut raw = door.raw();
    assert!(raw.attaches(token, 1));
    let forged = [
        Place { queue: 1, number: 0, first: 0 },
        Place { queue: u32::MAX, number: 0, first: 0 },
        place(QUEUE_WINDOW, 0),
        place(u64::MAX - 1, 0),
        place(0, 1),
        place(5, u64::MAX),
    ];
    for place in forged {
        let id = raw.say(place, write(0, 9));
        let (answered, answer) = raw.answer(PATIENCE).unwrap();
        assert!(matches!(answer, StorageAnswer::Failed { error: Error::Refused(_) }), "{place:?}");
        assert_eq!(answered, id);
    }
    assert_eq!(door.refused.load(Ordering::SeqCst), forged.len());
    let id = raw.say(place(0, 0), write(0, 1));
    assert_eq!(raw.answer(PATIENCE), Some((id, StorageAnswer::Done)));
    assert!(matches!(raw.attach(token, 0), StorageAnswer::Failed { .. }));
    assert_eq!(block_of(&device, 0), 1);
    // What failed has ended, and was not carried out.
    raw.say(place(1, 0), write(BLOCKS, 9));
    assert!(matches!(raw.answer(PATIENCE), Some((_, StorageAnswer::Failed { .. }))));
    let StorageAnswer::Attached { carried } = raw.attach(token, 2) else { panic!("it lasts") };
    assert_eq!((carried.life, carried.low), (1, 2));
    assert_eq!([0, 1, 2].map(|number| carried.has(number)), [true, false, false]);
}

/// What may wait has an end; what does not fit is answered, and its program begins a new life.
#[test]
fn there_is_an_end_of_what_waits() {
    let (door, device) = (Door::new(), Gated::new(false));
    let token = door.all(&device);
    let mut raw = door.raw();
    assert!(raw.attaches(token, 1));
    raw.say(place(1, 1), write(0, 1));
    while door.tokens.waiting.load(Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    door.tokens.waiting.fetch_add(MOST_WAITING - BLOCK_SIZE, Ordering::SeqCst);
    let id = raw.say(place(2, 1), write(0, 1));
    assert_eq!(raw.answer(PATIENCE), Some((id, failed(libc::EAGAIN))));
    door.tokens.waiting.fetch_sub(MOST_WAITING - BLOCK_SIZE, Ordering::SeqCst);
    assert!(raw.attaches(token, 2));
    let begun = Instant::now();
    while door.tokens.waiting.load(Ordering::SeqCst) > 0 {
        assert!(begun.elapsed() < PATIENCE, "what is over takes no room");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Many queues on one connection: each is its own file's, and an idle one takes little. Other tests
/// take memory, too, so this one runs in a process of its own.
#[test]
fn a_connection_carries_65536_queues() {
    const ALONE: &str = "SIFTFS_QUEUES_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return carry_queues();
    }
    let name = "device::programs::attached::tests::a_connection_carries_65536_queues";
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let ran = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

fn carry_queues() {
    // Its own memory and what it shares, without files: more of this program's code is mapped while
    // it runs.
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        (kib("RssAnon:") + kib("RssShmem:")) * 1024
    };
    let (door, device) = (Door::new(), Gated::new(false));
    let before = resident();
    let queues: Vec<Token> = (0..CONNECTION_MAX_QUEUES as u64)
        .map(|lease| door.grant(lease, vec![BlockRun { start: lease, len: 1 }], &device))
        .collect();
    let mut raw = door.raw();
    for (queue, token) in (0u32..).zip(&queues) {
        raw.id += 1;
        let (version, token) = (PROTOCOL_VERSION, *token);
        let call = StorageCall::Attach { version, token, queue, life: 1 };
        raw.end.sender.send(ToService::Storage { id: raw.id, call }).unwrap();
        let answer = raw.answer(PATIENCE).unwrap().1;
        assert!(matches!(answer, StorageAnswer::Attached { .. }));
    }
    let each = resident().saturating_sub(before) / CONNECTION_MAX_QUEUES as u64;
    println!("{each} bytes for an idle queue");
    assert!(each <= 1024, "{each} bytes for an idle queue");
    for queue in [0, 7, 62] {
        let id = raw.say(Place { queue, number: 0, first: 0 }, write(u64::from(queue), 5));
        assert_eq!(raw.answer(PATIENCE), Some((id, StorageAnswer::Done)));
        let id = raw.say(Place { queue, number: 1, first: 1 }, write(u64::from(queue + 1), 5));
        let refused = raw.answer(PATIENCE).unwrap();
        assert!(matches!(refused.1, StorageAnswer::Failed { error: Error::Refused(_) }), "{id}");
    }
}

/// A connection without a grant is closed after a while.
#[test]
fn a_connection_without_a_grant_is_closed() {
    let (door, device) = (Door::new(), Gated::new(false));
    let token = door.all(&device);
    let lines = Lines::new(door.place.clone());
    let queue = Queue::open(lines.clone(), token, RequestOrder::Merging).unwrap();
    let mut raw = door.raw();
    assert!(raw.attaches(token, 1));
    door.grants.revoke(1, &token).unwrap();
    let begun = Instant::now();
    while !matches!(raw.end.receiver.recv(Some(PATIENCE)), Ok(Received::Closed)) {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(queue.write_at(0, &[1; BLOCK_SIZE], true).is_err());
    // The program connects again for what is granted next.
    let token = door.all(&device);
    let queue = Queue::open(lines, token, RequestOrder::Merging).unwrap();
    queue.write_at(0, &[2; BLOCK_SIZE], true).unwrap();
    assert_eq!(block_of(&device, 0), 2);
}

/// Bytes of a unit, of which a history's calls read and write some. It is half a block, so that two
/// calls can have parts of one block.
const UNIT: usize = BLOCK_SIZE / 2;
/// Units of the file.
const UNITS: usize = 6;

/// A call of a history: its times, the units, and what it wrote in them or found there.
struct Did {
    begun: Instant,
    ended: Instant,
    first: usize,
    bytes: Vec<u8>,
    writes: bool,
}

/// Is there an order of the calls, each at one moment between its begin and its end, in which each
/// finds what those before it wrote? Calls that were taken are bits of `taken`.
fn is_in_order(all: &[Did], taken: u32, units: &[u8], seen: &mut HashSet<(u32, Vec<u8>)>) -> bool {
    if taken.count_ones() as usize == all.len() {
        return true;
    }
    if !seen.insert((taken, units.to_vec())) {
        return false;
    }
    let open = |at: &usize| taken & (1 << at) == 0;
    let earliest = (0..all.len()).filter(open).map(|at| all[at].ended).min().unwrap();
    (0..all.len()).filter(open).filter(|at| all[*at].begun <= earliest).any(|at| {
        let Did { first, bytes, writes, .. } = &all[at];
        let range = *first..first + bytes.len();
        let mut next = units.to_vec();
        match writes {
            true => next[range].copy_from_slice(bytes),
            false if next[range] != *bytes => return false,
            false => {}
        }
        is_in_order(all, taken | 1 << at, &next, seen)
    })
}

/// The byte of a unit; one that nobody writes if it has several.
fn byte_of(unit: &[u8]) -> u8 {
    if unit.iter().all(|byte| *byte == unit[0]) { unit[0] } else { u8::MAX }
}

/// Three threads, on connections of their own, each with a few calls on one to four of six units.
fn history(queue: &Queue, seed: u64) -> Vec<Did> {
    let calls = |thread: u64| {
        let mut rng = Rng::new(seed * 10 + thread);
        let mut own = Vec::new();
        for call in 0..8 {
            let first = rng.below(UNITS as u64) as usize;
            let len = 1 + rng.below((UNITS - first) as u64).min(3) as usize;
            let (offset, writes) = ((first * UNIT) as u64, rng.chance(50));
            let mut bytes = vec![0; len * UNIT];
            let begun = Instant::now();
            if writes {
                bytes.fill((thread * 8 + call + 1) as u8);
                queue.write_at(offset, &bytes, false).unwrap();
            } else {
                queue.read_at(offset, &mut bytes).unwrap();
            }
            let ended = Instant::now();
            let bytes = bytes.chunks(UNIT).map(byte_of).collect();
            own.push(Did { begun, ended, first, bytes, writes });
        }
        own
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || calls(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// How many of some histories are in no order.
fn out_of_order<D>(device: &Arc<D>, order: RequestOrder, histories: u64) -> usize
where
    D: Device + 'static,
{
    let door = Door::new();
    let token = door.all(device);
    let queue = door.queue(token, order);
    let bad = |seed: &u64| {
        let zeros = vec![0; UNITS * UNIT];
        queue.write_at(0, &zeros, false).unwrap();
        !is_in_order(&history(&queue, *seed), 0, &[0; UNITS], &mut HashSet::new())
    };
    (0..histories).filter(bad).count()
}

/// A file, whose accesses the kernel carries out in any order where it has io_uring.
fn file(dir: &std::path::Path) -> Arc<FileDevice> {
    let path = dir.join("area");
    std::fs::File::create(&path).unwrap().set_len(AREA).unwrap();
    Arc::new(open_for_service(&path, FileOptions::default()).unwrap())
}

const ORDERS: [RequestOrder; 3] =
    [RequestOrder::Merging, RequestOrder::Basic, RequestOrder::Locked];

/// Each call is carried out as a whole, at one moment between its begin and its end.
#[test]
fn histories_have_an_order() {
    for order in ORDERS {
        assert_eq!(out_of_order(&Gated::new(true), order, 60), 0, "{order:?}");
    }
}

/// The same where workers begin accesses without a wait, beside those of helpers.
#[test]
fn histories_on_a_file_have_an_order() {
    let dir = tempfile::tempdir().unwrap();
    for order in ORDERS {
        assert_eq!(out_of_order(&file(dir.path()), order, 200), 0, "{order:?}");
    }
}

/// Without an order they have none: what shows that the test above can see it.
#[test]
fn histories_without_an_order_are_noticed() {
    assert!(out_of_order(&Gated::new(true), RequestOrder::Unordered, 60) > 0);
}

/// Two writes of one block, of which one is on its way to the disk and the other one waits behind
/// it, when the connections break: how each was answered, and the queue.
fn broken(door: &Door, device: &Arc<Gated>, token: Token, end: impl FnOnce()) -> Queue {
    let queue = door.queue(token, RequestOrder::Merging);
    device.shut(Some(1));
    let write = |byte: u8| {
        let turn = queue.turn(Kind::Write, [BLOCK_SIZE], false);
        queue.write(&turn, &[(3 * BLOCK_BYTES, &[byte; BLOCK_SIZE])], false).unwrap_err()
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| write(1));
        device.wait_for_one();
        let second = scope.spawn(|| write(2));
        while door.tokens.waiting.load(Ordering::SeqCst) < 2 * BLOCK_SIZE {
            thread::sleep(Duration::from_millis(1));
        }
        door.cut();
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            device.shut(None);
        });
        assert!(first.join().unwrap().kept && second.join().unwrap().kept);
        end();
    });
    assert!(queue.has_unanswered());
    queue
}

/// A write whose answer was lost is not written again: another one may have come over it. What was
/// not carried out is, in the next life, and before any further call.
#[test]
fn what_was_carried_out_is_not_repeated() {
    let (door, device) = (Door::new(), Gated::new(false));
    let token = door.all(&device);
    let queue = broken(&door, &device, token, || ());
    let Next::Life(queue, done) = queue.again() else { panic!("the grant lasts") };
    assert_eq!((done, queue.has_unanswered()), (Ok(()), false));
    assert_eq!(*lock(&device.log), [1, 2]);
    queue.write_at(3 * BLOCK_BYTES, &[3; BLOCK_SIZE], false).unwrap();
    assert_eq!(*lock(&device.log), [1, 2, 3]);
    queue.flush().unwrap();
    assert!(queue.is_flushed());
}

/// Also where the grant has ended meanwhile: what was not carried out is left to the caller.
#[test]
fn the_rest_of_an_ended_grant_is_left() {
    // The end waits for the write that runs, and may find it done a moment before it is counted.
    for round in 0..40 {
        let (door, device) = (Door::new(), Gated::new(false));
        let token = door.all(&device);
        let end = || assert!(door.grants.revoke(1, &token).unwrap().written);
        let queue = broken(&door, &device, token, end);
        let Next::Ended(left, doubt) = queue.again() else { panic!("the grant has ended") };
        assert_eq!((left.len(), doubt), (1, Ok(())), "round {round}");
        assert_eq!((left[0].offset, left[0].data[0]), (3 * BLOCK_BYTES, 2));
        assert_eq!(*lock(&device.log), [1]);
    }
}

/// A queue that somebody else with the token has taken over does not say what became of a write.
#[test]
fn writes_of_a_queue_that_was_taken_over_are_in_doubt() {
    let (door, device) = (Door::new(), Gated::new(false));
    let token = door.all(&device);
    let queue = broken(&door, &device, token, || ());
    let mut other = door.raw();
    assert!(other.attaches(token, 2));
    other.say(place(0, 0), write(3, 7));
    assert_eq!(other.answer(PATIENCE).unwrap().1, StorageAnswer::Done);
    drop(other);
    let Next::Life(queue, done) = queue.again() else { panic!("the grant lasts") };
    assert_eq!((done, queue.has_unanswered()), (Err(Error::Posix(libc::EIO)), false));
    assert_eq!((lock(&device.log).clone(), block_of(&device, 3)), (vec![1, 7], 7));
}
