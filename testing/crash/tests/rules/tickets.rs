//! Tickets: clause S5, and rules R3, R4, R11, R21 and R31 where records wait to be written.

use super::{bytes, images};
use siftfs_crash::{Back, Bench, Io, Layout, VolumeKind};
use siftfs_device::{Cut, Fate, Fault, Gate, Image, OpClass};
use siftfs_proto::{Credentials, FileService, Opening, Reply, Request, Ticket};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const FILES: [&str; 4] = ["a", "b", "c", "d"];
const SOON: Duration = Duration::from_secs(60);

fn old(nr: usize) -> Vec<u8> {
    bytes(nr as u64 + 1, 2000)
}

fn new(nr: usize) -> Vec<u8> {
    bytes(nr as u64 + 11, 2000)
}

/// A volume of two lanes with [`FILES`], all in the area, whose records alternate between the
/// lanes; then all are written again and not synced.
fn four_files() -> Bench {
    let b = Bench::new(VolumeKind::TWO_LANES);
    for (nr, name) in FILES.iter().enumerate() {
        let ino = b.durable(name, &old(nr)) as usize;
        assert_eq!(ino % 2, (b.ino("a") as usize + nr) % 2, "lanes alternate");
    }
    b.settle();
    for (nr, name) in FILES.iter().enumerate() {
        b.write(name, 0, &new(nr));
    }
    b
}

/// How many of the files have their new bytes. Those are the first ones, and the others have their
/// old bytes.
fn prefix(image: &Image, case: &str) -> usize {
    let back = Back::from(image);
    let is_new: Vec<bool> = (0..FILES.len())
        .map(|nr| {
            let found = back.bytes(FILES[nr]);
            assert!(found == old(nr) || found == new(nr), "{case}: {} is torn", FILES[nr]);
            found == new(nr)
        })
        .collect();
    let first = is_new.iter().take_while(|new| **new).count();
    assert!(is_new[first..].iter().all(|new| !new), "{case}: one without those before it");
    first
}

/// S5: whatever becomes of the writes, what was staged later does not survive without what was
/// staged earlier.
///
/// Seen to fail when recovery does not end at a gap (`cut_at_gap`).
#[test]
fn s5_tickets_keep_their_order() {
    let b = four_files();
    let tickets = FILES.map(|name| b.stage(name));
    let gate = Gate::new();
    b.device.inject(Fault::hold(OpClass::Flush, &gate).once());
    let (service, last) = (b.service.clone(), tickets[3]);
    let waits = std::thread::spawn(move || {
        let req = Request::Wait { ticket: last, timeout: None };
        service.call(&Credentials::default(), req)
    });
    assert!(gate.wait_arrived(1, SOON), "all is written, nothing is flushed");
    let pending = b.device.pending();
    assert_eq!(pending.len(), 2, "one write per lane: {pending:?}");
    let fates = [Fate::Keep, Fate::Lose];
    let mut seen = Vec::new();
    for first in &fates {
        for second in &fates {
            let mut order = [first.clone(), second.clone()].into_iter();
            let image = b.device.image_with(|_| order.next().expect("two writes"));
            seen.push(prefix(&image, "a write lost"));
        }
    }
    for seed in 0..40 {
        seen.push(prefix(&b.device.image(Cut::Random(seed)), &format!("seed {seed}")));
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 2, "the cuts differ: {seen:?}");
    assert!(tickets.iter().all(|ticket| b.poll(*ticket) == Ok(false)), "nothing is promised");
    gate.open();
    assert_eq!(waits.join().expect("no panic"), Ok(Reply::Done));
    assert!(tickets.iter().all(|ticket| b.poll(*ticket) == Ok(true)), "one flush for all");
    assert_eq!(prefix(&b.crash(Cut::LoseAll), "waited for"), 4);
}

/// S5: a ticket that was waited for survives every cut, with all that was staged before it. One
/// that nobody waited for may be lost, whether or not it has been written.
///
/// Seen to fail when a wait answers without a flush, and when a ticket's record that was written
/// plainly counts as durable.
#[test]
fn s5_what_was_waited_for_survives() {
    let b = four_files();
    let [_, second] = ["a", "b"].map(|name| b.stage(name));
    let third = b.stage("c");
    for image in images(&b) {
        assert_eq!(prefix(&image, "nothing is written"), 0);
    }
    b.wait(second, None).expect("durable");
    let fourth = b.stage("d");
    for image in images(&b) {
        let kept = prefix(&image, "two are promised");
        assert!((2..=3).contains(&kept), "{kept} came back");
    }
    assert_eq!(b.poll(third), Ok(true), "written along with those before it");
    b.driver.volume.tick().expect("ticks");
    assert_eq!(b.poll(fourth), Ok(false), "written, and not flushed");
    assert_eq!(prefix(&b.device.image(Cut::LoseAll), "three are durable"), 3);
    assert_eq!(prefix(&b.crash(Cut::KeepAll), "the fourth is written"), 4);
}

/// Rule R3: an fsync is not acknowledged over a record that waits to be written, in whichever lane
/// that is. The same for a commit's sources (rule R4), a sync, and an fsync of the same file, which
/// finds nothing new (rule R12).
///
/// Seen to fail when records of tickets are not in flight before they are written, and when an
/// fsync that finds nothing new returns at once.
#[test]
fn r03_no_acknowledgement_over_a_ticket() {
    type Ask = fn(&Bench);
    let cases: [(&str, Ask, usize); 5] = [
        ("fsync in the other lane", |b| b.fsync("b"), 2),
        ("fsync of the same file", |b| b.fsync("a"), 1),
        ("commit", |b| b.commit(false), 1),
        ("sync", |b| b.commit(true), 4),
        ("checkpoint", |b| b.settle(), 4),
    ];
    for (case, ask, promised) in cases {
        let b = four_files();
        let ticket = b.stage("a");
        ask(&b);
        assert_eq!(b.poll(ticket), Ok(true), "{case}");
        for image in images(&b) {
            assert!(prefix(&image, case) >= promised, "{case}: acknowledged and lost");
        }
        b.stop();
    }
}

/// Rule R11: a page whose record waits to be written is read from the cache, however much is read
/// meanwhile.
///
/// Seen to fail when records of tickets count as written.
#[test]
fn r11_a_page_stays_until_its_ticket_is_written() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.write_large("large", &bytes(1, 12 << 20));
    b.durable("f", &bytes(2, 8192));
    b.settle();
    b.write("f", 0, &bytes(3, 8192));
    let ticket = b.stage("f");
    let Io { writes, flushes, .. } = b.io(|b| {
        for _ in 0..2 {
            assert_eq!(b.read("large").len(), 12 << 20);
        }
        assert!(b.read("f") == bytes(3, 8192), "old bytes");
    });
    assert_eq!((writes, flushes), (0, 0), "reading writes nothing");
    b.wait(ticket, None).expect("durable");
    assert!(b.read("f") == bytes(3, 8192));
    b.stop();
}

/// A poll makes it durable soon: by the background, or by the thread that polls when the
/// background has something else to do. A poll of a durable ticket says so as often as one likes.
///
/// Seen to fail when a poll asks for nothing, and when it waits for the background alone.
#[test]
fn a_poll_makes_it_durable_soon() {
    for by_background in [true, false] {
        let b = four_files();
        let ticket = b.stage("a");
        assert_eq!(b.io(|b| assert_eq!(b.poll(ticket), Ok(false))).writes, 0);
        if by_background {
            b.driver.volume.tick().expect("ticks");
        } else {
            assert_eq!(b.poll(ticket), Ok(false), "too soon");
            b.driver.clock.advance(6_000_000);
        }
        for _ in 0..3 {
            assert_eq!(b.poll(ticket), Ok(true));
        }
        assert_eq!(prefix(&b.crash(Cut::LoseAll), "polled"), 1);
    }
}

/// A barrier is a ticket of what is staged so far, and of nothing else.
#[test]
fn a_barrier_covers_what_is_staged() {
    let b = four_files();
    let empty = b.ticket(Request::Barrier);
    assert_eq!(b.poll(empty), Ok(true));
    b.stage("a");
    b.stage("b");
    let barrier = b.ticket(Request::Barrier);
    b.stage("c");
    let io = b.io(|b| b.wait(barrier, None).expect("durable"));
    assert_eq!((io.writes, io.flushes), (2, 1), "{io:?}");
    let kept = prefix(&b.crash(Cut::LoseAll), "a barrier");
    assert!(kept >= 2, "{kept} came back");
}

/// A wait ends in time, while another thread's write takes long, and does not keep the answer of
/// another one; without a timeout a wait that was submitted holds no thread.
///
/// Seen to fail (it hangs) when the timeout is not looked at.
#[test]
fn a_wait_ends_in_time() {
    let b = four_files();
    let gate = Gate::new();
    let staging = Layout::of(VolumeKind::TWO_LANES).staging;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(staging).once());
    let late = super::fsync_on_thread(&b, "a");
    assert!(gate.wait_arrived(1, SOON));
    let ticket = b.stage("b");
    let start = Instant::now();
    for timeout in [Duration::ZERO, Duration::from_millis(50)] {
        let error = b.wait(ticket, Some(timeout)).expect_err("the first is not written");
        assert_eq!(error.errno(), libc::ETIMEDOUT);
    }
    assert!(start.elapsed() >= Duration::from_millis(50));
    gate.open();
    assert!(late.join().expect("no panic"));
    b.wait(ticket, Some(SOON)).expect("durable");
    let (tell, told) = channel();
    let ticket = b.stage("c");
    let req = Request::Wait { ticket, timeout: None };
    let done = Box::new(move |answer| tell.send(answer).expect("listens"));
    b.service.submit(&Credentials::default(), req, done);
    assert_eq!(told.recv_timeout(SOON), Ok(Ok(Reply::Done)));
    assert_eq!(prefix(&b.crash(Cut::LoseAll), "waited for"), 3);
}

/// Rule R21: a ticket whose record could not be written, and every later one, is EIO for ever; one
/// that was durable stays so.
///
/// Seen to fail when a failed write of the records that waited is not told to the sequencer.
#[test]
fn r21_a_failed_ticket() {
    let b = four_files();
    let good = b.stage("a");
    b.wait(good, None).expect("durable");
    let bad = b.stage("b");
    let staging = Layout::of(VolumeKind::TWO_LANES).staging;
    b.device.inject(Fault::fail(OpClass::Write, libc::EIO).within(staging).once());
    let later = b.stage("c");
    for ticket in [bad, later, bad] {
        let errno = |result: Result<(), _>| result.map_err(|e: siftfs_base::Error| e.errno());
        assert_eq!(errno(b.wait(ticket, None)), Err(libc::EIO));
        assert_eq!(errno(b.wait(ticket, Some(SOON))), Err(libc::EIO));
        assert_eq!(errno(b.poll(ticket).map(drop)), Err(libc::EIO));
    }
    assert_eq!(b.poll(good), Ok(true));
    let refused = [Request::Barrier, Request::Stage { file: (b.ino("d")).into(), datasync: false }];
    for req in refused {
        assert_eq!(b.call(req).expect_err("refused").errno(), libc::EIO);
    }
    assert!(prefix(&b.crash(Cut::LoseAll), "a failed write") >= 1);
}

/// Rule R31: a ticket means nothing in another session, nor after its own has ended, nor after a
/// crash.
///
/// Seen to fail when numbers count from 0 in every session.
#[test]
fn r31_a_ticket_belongs_to_its_session() {
    let b = four_files();
    let session = || b.driver.volume.session(Opening::kernel()).expect("a session");
    let ask = |service: &Arc<dyn FileService>, req| {
        service.call(&Credentials::default(), req).map_err(|e| e.errno())
    };
    let by = |service: &Arc<dyn FileService>, ticket| {
        let polled = ask(service, Request::Poll { ticket });
        (polled, ask(service, Request::Wait { ticket, timeout: None }))
    };
    let drawn = |service: &Arc<dyn FileService>, req| match ask(service, req) {
        Ok(Reply::Ticket(ticket)) => ticket,
        other => panic!("no ticket: {other:?}"),
    };
    let stage = |name| Request::Stage { file: b.ino(name).into(), datasync: false };
    let unknown = (Err(libc::EINVAL), Err(libc::EINVAL));
    let (own, other) = (session(), session());
    let ticket = drawn(&own, stage("a"));
    assert_eq!(by(&other, ticket), unknown, "it has drawn none");
    let theirs = drawn(&other, Request::Barrier);
    assert_eq!(by(&other, ticket), unknown);
    assert_eq!(by(&own, theirs), unknown);
    for never in [ticket.0.wrapping_add(1), 0, 1, u64::MAX] {
        assert_eq!(by(&own, Ticket(never)), unknown);
    }
    assert_eq!(by(&own, ticket), (Ok(Reply::Durable(false)), Ok(Reply::Done)));
    assert_eq!(ask(&own, Request::EndSession), Ok(Reply::Done));
    assert_eq!(by(&own, ticket), (Err(libc::ESTALE), Err(libc::ESTALE)));
    assert_eq!(ask(&own, Request::EndSession), Ok(Reply::Done), "it has ended");
    let next = session();
    drawn(&next, stage("b"));
    assert_eq!(by(&next, ticket), unknown, "of the session before");
    drop((own, other, next));
    let image = b.crash(Cut::KeepAll);
    let b = Bench::on(image);
    b.ticket(Request::Barrier);
    assert_eq!(by(&b.service, ticket), unknown, "of the mount before");
    b.stop();
}

/// What cannot be staged is durable when its ticket is returned.
///
/// Seen to fail when the ticket is returned without the full commit.
#[test]
fn what_cannot_be_staged_is_committed() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.mkdir("d");
    b.create("d/f");
    b.write("d/f", 0, &bytes(1, 5000));
    b.rename("d", "e");
    let ticket = b.stage("e/f");
    assert_eq!(b.status().runtime.full_commits.values().sum::<u64>(), 1);
    assert_eq!(b.io(|b| assert_eq!(b.poll(ticket), Ok(true))), Io::default());
    assert!(b.recovered(Cut::LoseAll).bytes("e/f") == bytes(1, 5000));
}

/// A rename of a file that was staged is in order with it, as after an fsync (rule R2).
#[test]
fn r02_a_staged_file_is_published_with_its_bytes() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("f", &bytes(1, 5000));
    for round in 2..12 {
        b.create("tmp");
        b.write("tmp", 0, &bytes(round, 5000));
        b.stage("tmp");
        b.rename("tmp", "f");
        let ticket = b.stage("/");
        for image in images(&b) {
            let found = Back::from(&image).bytes("f");
            assert!((1..=round).any(|id| found == bytes(id, 5000)), "round {round}");
        }
        if round % 3 == 0 {
            b.wait(ticket, None).expect("durable");
            assert!(Back::from(&b.device.image(Cut::LoseAll)).bytes("f") == bytes(round, 5000));
        }
    }
    b.stop();
}

/// The volume is unmounted while tickets are open.
#[test]
fn an_unmount_takes_tickets_along() {
    let b = four_files();
    for name in FILES {
        b.stage(name);
    }
    assert_eq!(prefix(&b.close(), "unmounted"), 4);
}

/// This many tickets may be open that are not durable, and no more; what is durable makes room.
///
/// Seen to fail when there is no bound.
#[test]
fn open_tickets_are_bounded() {
    let b = four_files();
    let first = b.stage("a");
    for _ in 1..65_536 {
        b.ticket(Request::Barrier);
    }
    for req in [Request::Barrier, Request::Stage { file: (b.ino("b")).into(), datasync: false }] {
        let io = b.io(|b| assert_eq!(b.call(req).expect_err("too many").errno(), libc::EAGAIN));
        assert_eq!(io, Io::default());
    }
    b.driver.volume.tick().expect("the background sees to it");
    let second = b.stage("b");
    assert_eq!((b.poll(first), b.poll(second)), (Ok(true), Ok(false)));
    b.stop();
}

/// Records that do not fit the queue, or a lane, are written; bulk is staged like anything else.
#[test]
fn more_than_waits_in_memory() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 256 << 10));
    b.settle();
    let mut tickets = Vec::new();
    for round in 0..200 {
        let len = if round % 20 == 0 { 200_000 } else { 9000 };
        b.write("f", round * 500, &bytes(round, len));
        tickets.push(b.stage("f"));
        assert!(b.status().memory.buffers < 16 << 20);
    }
    let want = b.read("f");
    b.wait(*tickets.last().expect("many"), None).expect("durable");
    assert!(tickets.iter().all(|ticket| b.poll(*ticket) == Ok(true)));
    assert!(b.recovered(Cut::LoseAll).bytes("f") == want);
}
