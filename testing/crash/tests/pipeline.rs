//! Assembly works ahead of its cut: what happens between two of its steps.

use siftfs_base::SystemClock;
use siftfs_crash::{Back, Bench, Layout, VolumeKind, base_image_of, status};
use siftfs_device::{Cut, Fault, FaultDevice, Gate, OpClass, OpKind};
use siftfs_model::pattern;
use siftfs_placement::{LocalVolume, OpenOptions, Threads};
use siftfs_proto::{Allocate, Credentials, ROOT_INO, Reply, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Two steps' worth, little enough for one record too.
const LEN: u64 = MIB + MIB / 4;

/// Holds the `n`th write to the area.
fn hold_area_write(b: &Bench, n: u64, gate: &Gate) {
    let area = Layout::of(VolumeKind::ROOMY).area;
    b.device.inject(Fault::hold(OpClass::Write, gate).within(area).after(n).once());
}

/// Another file's fsync does not wait for a commit that is busy writing data.
#[test]
fn a_commit_of_much_data_holds_nobody_up() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("other", &pattern(1, 0, 4096));
    b.settle();
    b.write_large("big", &pattern(2, 0, LEN));
    let gate = Gate::new();
    hold_area_write(&b, 0, &gate);
    let journal = Layout::of(VolumeKind::ROOMY).journal;
    thread::scope(|scope| {
        let commit = scope.spawn(|| b.commit(true));
        assert!(gate.wait_arrived(1, Duration::from_secs(20)), "data is written ahead of the cut");
        let ops = b.device.stats().writes;
        let fsync = scope.spawn(|| {
            b.write("other", 0, &pattern(3, 0, 4096));
            b.fsync("other");
        });
        let end = Instant::now() + Duration::from_secs(20);
        while !fsync.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        let waited = !fsync.is_finished() || commit.is_finished();
        let image = b.device.image(Cut::LoseAll);
        let writes = b.device.stats().writes - ops;
        gate.open();
        assert!(!waited, "the fsync waited for the commit");
        assert_eq!(writes, 1, "one staged transaction, and no journal transaction yet");
        assert_eq!(Back::from(&image).bytes("other"), pattern(3, 0, 4096));
    });
    b.device.record();
    b.write("other", 0, &pattern(4, 0, 4096));
    b.commit(true);
    assert!(b.device.take_log().iter().any(|o| journal.contains(&o.offset)));
    let back = b.recovered(Cut::LoseAll);
    assert!(back.bytes("big") == pattern(2, 0, LEN));
    assert_eq!(back.bytes("other"), pattern(4, 0, 4096));
}

/// A caller that finds the running transaction full goes on at its cut, before it is in the
/// journal.
#[test]
fn who_waits_for_room_goes_on_at_the_cut() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.write_large("big", &pattern(2, 0, LEN));
    let layout = Layout::of(VolumeKind::ROOMY);
    let (data, journal) = (Gate::new(), Gate::new());
    hold_area_write(&b, 0, &data);
    b.device.inject(Fault::hold(OpClass::Write, &journal).within(layout.journal).once());
    let (made, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let patience = Duration::from_secs(20);
    thread::scope(|scope| {
        let commit = scope.spawn(|| b.commit(true));
        assert!(data.wait_arrived(1, patience), "data is written ahead of the cut");
        scope.spawn(|| {
            // Each takes a block.
            for i in (0..5000).take_while(|_| !stop.load(Ordering::SeqCst)) {
                b.mkdir(&format!("d{i}"));
                made.fetch_add(1, Ordering::SeqCst);
            }
        });
        // It gets as far as there is room, within the time that it has.
        let (mut before, mut same) = (0, 0);
        for _ in 0..200 {
            thread::sleep(Duration::from_millis(50));
            let now = made.load(Ordering::SeqCst);
            same = if now > 0 && now == before { same + 1 } else { 0 };
            before = now;
            if same == 10 {
                break;
            }
        }
        data.open();
        let journaling = journal.wait_arrived(1, patience);
        let end = Instant::now() + patience;
        while made.load(Ordering::SeqCst) == before && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        let gone_on = made.load(Ordering::SeqCst) > before && !commit.is_finished();
        stop.store(true, Ordering::SeqCst);
        journal.open();
        assert!((1..5000).contains(&before), "{before} made");
        assert!(journaling && gone_on, "it waited until the transaction was in the journal");
    });
    b.stop();
}

/// A block whose data is on its way to the area stays in the cache, even if an fsync has staged the
/// bytes that were written: the rest of the block is nowhere else, and the area still holds another
/// file's.
#[test]
fn a_block_on_its_way_is_not_read_from_the_area() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("large", &pattern(5, 0, 6 << 20));
    b.durable("old", &pattern(6, 0, 64 << 10));
    b.settle();
    b.unlink("old");
    b.settle();
    let layout = Layout::of(VolumeKind::ROOMY);
    let data = Gate::new();
    for i in 0..8 {
        b.create(&format!("f{i}"));
        b.write(&format!("f{i}"), 1000, b"a few bytes");
    }
    b.device.inject(Fault::hold(OpClass::Write, &data).within(layout.area).once());
    thread::scope(|scope| {
        scope.spawn(|| b.commit(true));
        assert!(data.wait_arrived(1, Duration::from_secs(20)), "data is written ahead of the cut");
        let mut expected = vec![0; 1000];
        expected.extend(b"a few bytes");
        let read = |name: &str| {
            let (ino, len) = (b.ino(name), 4096);
            match b.call(Request::Read { file: ino.into(), offset: 0, len }) {
                Ok(Reply::Data(data)) => data,
                other => panic!("{other:?}"),
            }
        };
        for i in 0..8 {
            b.fsync(&format!("f{i}"));
        }
        // The cache takes 4 MiB.
        for _ in 0..4 {
            for at in (0..6 << 20).step_by(64 << 10) {
                let (ino, len) = (b.ino("large"), 64 << 10);
                b.call(Request::Read { file: ino.into(), offset: at, len }).expect("read");
            }
        }
        let wrong: Vec<u32> = (0..8).filter(|i| read(&format!("f{i}")) != expected).collect();
        data.open();
        assert!(wrong.is_empty(), "{wrong:?}");
    });
    b.stop();
}

/// The lock is held a step at a time, and nothing larger than a hand-off is written at once.
#[test]
fn steps_and_hand_offs_are_bounded() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.write_large("big", &pattern(2, 0, LEN));
    let holds = |b: &Bench| status(&*b.service).assembly_lock_hold.count;
    let before = holds(&b);
    let log = b.log(|b| b.commit(true));
    assert!(holds(&b) >= before + 4, "two steps of data at least, begin and cut");
    let area = Layout::of(VolumeKind::ROOMY).area;
    let direct: Vec<usize> =
        log.iter().filter(|o| area.contains(&o.offset) && o.len > 0).map(|o| o.len).collect();
    assert_eq!(direct.iter().sum::<usize>() as u64, LEN);
    assert!(direct.iter().all(|len| *len as u64 <= MIB), "{direct:?}");
    assert_eq!(log.iter().filter(|o| o.kind == OpKind::Flush).count(), 2, "data, then journal");
    b.stop();
}

/// Thousands of dirty pages with holes between them are scanned in steps, too: each page has a
/// mapping of its own, and a step that scanned all of them held the lock for 20 ms, again and
/// again.
#[test]
fn scattered_pages_are_looked_at_in_steps() {
    let kind = VolumeKind { size: 128 << 20, log: 32 << 20, ..VolumeKind::SMALL };
    let device = Arc::new(FaultDevice::from_image(base_image_of(kind), 1));
    let clock = Arc::new(SystemClock::default());
    let opts = OpenOptions { page_cache: 64 << 20, ..OpenOptions::default() };
    let volume = LocalVolume::open_on(device, clock, &opts, Threads::None).expect("opens");
    let service = volume.endpoint();
    let call = |req| service.call(&Credentials::default(), req).expect("done");
    let Reply::Created { attr, .. } =
        call(Request::Create { parent: ROOT_INO, name: b"f".into(), perm: 0o644 })
    else {
        panic!("not created");
    };
    let pages = 3000;
    for i in 0..pages {
        let data = pattern(i, 0, 4096);
        let (ino, offset) = (attr.ino, i * 8192);
        call(Request::write(ino, offset, data));
    }
    let holds = || status(&*service).assembly_lock_hold.count;
    let before = holds();
    call(Request::SyncAll);
    // The begin, two steps that only scan, and one for each MiB; then the cut.
    let steps = 1 + pages / 1024 + pages.div_ceil(256) + 1;
    assert!(holds() - before >= steps, "{} steps, not {steps}", holds() - before);
    let read = |i: u64| call(Request::Read { file: attr.ino.into(), offset: i * 8192, len: 4096 });
    for i in 0..pages {
        assert!(matches!(read(i), Reply::Data(data) if data == pattern(i, 0, 4096)), "page {i}");
    }
    volume.close().expect("closes");
}

/// What a program may do to a file while a commit is pushing it.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    OverwriteAndSync,
    Overwrite,
    Shrink,
    Empty,
    Punch,
    Zero,
    Append,
    Unlink,
    RenameOver,
}

/// Everything.
const ALL: [Meanwhile; 9] = [
    Meanwhile::OverwriteAndSync,
    Meanwhile::Overwrite,
    Meanwhile::Shrink,
    Meanwhile::Empty,
    Meanwhile::Punch,
    Meanwhile::Zero,
    Meanwhile::Append,
    Meanwhile::Unlink,
    Meanwhile::RenameOver,
];

const OTHER: u64 = 200_000;

/// Does it; returns where the file is now and what it holds.
fn carry_out(b: &Bench, what: Meanwhile, mut data: Vec<u8>) -> Option<(&'static str, Vec<u8>)> {
    let patch = |data: &mut Vec<u8>, at: u64, len: u64| {
        let new = pattern(7, at, len);
        b.write("f", at, &new);
        data[at as usize..(at + len) as usize].copy_from_slice(&new);
    };
    match what {
        Meanwhile::OverwriteAndSync => {
            patch(&mut data, 1000, 9000);
            patch(&mut data, LEN - 5000, 5000);
            b.fsync("f");
        }
        Meanwhile::Overwrite => {
            patch(&mut data, 0, 4096);
            patch(&mut data, MIB / 2 + 10, 700_000);
        }
        Meanwhile::Shrink => {
            b.truncate("f", MIB / 2 + 77);
            data.truncate((MIB / 2 + 77) as usize);
        }
        Meanwhile::Empty => {
            b.truncate("f", 0);
            data.clear();
            data.resize(50_000, 0);
            patch(&mut data, 0, 50_000);
        }
        Meanwhile::Punch => {
            b.allocate("f", Allocate::PunchHole, 5000, MIB + 4000);
            data[5000..5000 + (MIB + 4000) as usize].fill(0);
        }
        Meanwhile::Zero => {
            b.allocate("f", Allocate::ZeroRangeKeepSize, 100, MIB);
            data[100..100 + MIB as usize].fill(0);
        }
        Meanwhile::Append => {
            b.append("f", &pattern(7, LEN, 300_000));
            data.extend(pattern(7, LEN, 300_000));
        }
        Meanwhile::Unlink => {
            b.unlink("f");
            return None;
        }
        Meanwhile::RenameOver => {
            b.rename("f", "old");
            return Some(("old", data));
        }
    }
    Some(("f", data))
}

/// At every cut the tree is sound, no byte is foreign, and no size is ahead of its data (rule R20);
/// what the commit and the next one leave is what the program saw.
#[test]
fn a_file_may_change_between_two_steps() {
    for what in ALL {
        for held in 0..2 {
            between_two_steps(what, held, false);
        }
        between_two_steps(what, 0, true);
    }
}

fn between_two_steps(what: Meanwhile, held: u64, exists: bool) {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("old", &pattern(5, 0, OTHER));
    if exists {
        b.durable("f", &pattern(6, 0, 8192));
    }
    b.settle();
    if exists {
        b.append("f", &pattern(6, 8192, LEN - 8192));
    } else {
        b.write_large("f", &pattern(6, 0, LEN));
    }
    b.device.record_history();
    let gate = Gate::new();
    hold_area_write(&b, held, &gate);
    let after = thread::scope(|scope| {
        let commit = scope.spawn(|| b.commit(true));
        assert!(gate.wait_arrived(1, Duration::from_secs(20)), "{what:?}: no write {held}");
        let change = scope.spawn(|| carry_out(&b, what, pattern(6, 0, LEN)));
        // A rename over a file waits until little of the new one is unsynced: for this commit.
        let end = Instant::now() + Duration::from_millis(300);
        while !change.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        let waited = !change.is_finished();
        gate.open();
        commit.join().expect("commits");
        assert!(!waited || matches!(what, Meanwhile::RenameOver), "{what:?} waited");
        change.join().expect("no panic")
    });
    let synced = b.device.image(Cut::LoseAll);
    b.commit(true);
    let history = b.device.take_history().expect("recorded");
    let last = b.recovered(Cut::LoseAll);
    match &after {
        None => assert!(!last.has("f")),
        Some((name, data)) => assert!(last.bytes(name) == *data, "{what:?}, write {held} held"),
    }
    if let (Meanwhile::OverwriteAndSync, Some((name, data))) = (what, &after) {
        assert!(Back::from(&synced).bytes(name) == *data, "acknowledged before the commit ended");
    }
    history.each_cut(|cut, cache| {
        for how in [Cut::LoseAll, Cut::Random(cut)] {
            let back = Back::from(&cache.image(how));
            let old = back.bytes("old");
            let replaced = after.as_ref().is_some_and(|(n, d)| *n == "old" && old == *d);
            assert!(replaced || old == pattern(5, 0, OTHER), "{what:?}, cut {cut}: old");
            let foreign = back.bytes("f").iter().enumerate().any(|(at, byte)| {
                let at = at as u64;
                *byte != 0 && [6, 7].iter().all(|id| pattern(*id, at, 1) != [*byte])
            });
            assert!(!foreign, "{what:?}, cut {cut}: a byte nobody wrote");
            let zeros = matches!(what, Meanwhile::Punch | Meanwhile::Zero | Meanwhile::Empty);
            let ahead = !zeros && back.bytes("f").contains(&0);
            assert!(!ahead, "{what:?}, cut {cut}, exists {exists}: the size is ahead of the data");
        }
    });
}
