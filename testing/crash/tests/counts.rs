//! The numbers that the product promises, counted at the storage backend.
//!
//! A write with FUA is one write and one flush. The foreground is what a caller waits for; the
//! background has its own bound.

use siftfs_base::{SystemClock, Timestamp};
use siftfs_crash::{Bench, Io, Layout, VolumeKind, base_image_of, counters, status};
use siftfs_device::{Cut, FaultDevice, IoCounts, OpKind};
use siftfs_model::pattern;
use siftfs_placement::{LocalVolume, OpenOptions, Threads};
use siftfs_proto::{
    Credentials, FileService, ROOT_INO, Reply, Request, SetAttr, SetTime, WriteData,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn one_write(io: Io, largest: u64) {
    assert_eq!((io.writes, io.flushes), (1, 1), "{io:?}");
    assert!(io.largest <= largest, "{io:?}");
}

const NOTHING: Io = Io { writes: 0, largest: 0, flushes: 0 };

/// A mounted volume with one settled file.
fn settled() -> Bench {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("f", &pattern(1, 0, 1 << 20));
    b.settle();
    b
}

#[test]
fn overwrite_in_place() {
    let b = settled();
    for i in 0..50 {
        b.write("f", i * 8192, &pattern(2, 0, 4096));
        one_write(b.io(|b| b.fsync("f")), 8192);
        b.write("f", i * 8192, &pattern(3, 0, 4096));
        one_write(b.io(|b| b.fdatasync("f")), 8192);
    }
    b.stop();
}

#[test]
fn append_512_bytes() {
    let b = settled();
    for i in 0..50 {
        b.append("f", &pattern(i, 0, 512));
        one_write(b.io(|b| b.fsync("f")), 4096);
    }
    b.stop();
}

/// As the kernel's writeback cache sends it: the whole page as far as the file goes, then the
/// times. The record is as small as that of the bytes alone, and times or pages that say nothing
/// new make no record at all.
#[test]
fn append_512_bytes_as_a_page() {
    let b = settled();
    let (ino, mut content) = (b.ino("f"), b.read("f"));
    for i in 0..50 {
        let offset = content.len() as u64 / 4096 * 4096;
        content.extend(pattern(i, 0, 512));
        let send = |mtime: i64| {
            let data = WriteData::copy_of(offset, &content[offset as usize..]);
            b.call(Request::WriteBack { file: ino.into(), offset, data, times: false }).unwrap();
            let time = Timestamp { sec: mtime, nsec: 5 };
            let mtime = Some(SetTime::At(time));
            b.set("f", SetAttr { mtime, ctime: Some(time), ..SetAttr::default() });
        };
        send(2_000_000_000 + i as i64);
        one_write(b.io(|b| b.fsync("f")), 4096);
        assert_eq!(b.attr("f").mtime, Timestamp { sec: 2_000_000_000 + i as i64, nsec: 5 });
        send(2_000_000_000 + i as i64);
        assert_eq!(b.io(|b| b.fsync("f")), NOTHING, "the file says all that already");
    }
    assert!(b.read("f") == content);
    b.stop();
}

#[test]
fn create_write_fsync_then_its_directory() {
    let b = settled();
    b.mkdir("d");
    for i in 0..50 {
        let name = format!("d/n{i}");
        let io = b.io(|b| {
            b.create(&name);
            b.write(&name, 0, &pattern(i, 0, 4096));
            b.fsync(&name);
        });
        one_write(io, 8192);
        assert_eq!(b.io(|b| b.fsync("d")), NOTHING, "the entry is durable already");
        b.settle();
    }
    b.stop();
}

/// The same without a commit between them: the closure of one does not drag the others along.
#[test]
fn creations_do_not_pile_up() {
    let b = settled();
    b.mkdir("d");
    b.fsync("d");
    for i in 0..100 {
        let name = format!("d/n{i}");
        b.create(&name);
        b.write(&name, 0, &pattern(i, 0, 4096));
        one_write(b.io(|b| b.fsync(&name)), 8192);
        assert_eq!(b.io(|b| b.fsync("d")), NOTHING);
    }
    b.stop();
}

#[test]
fn atomic_replacement() {
    let b = settled();
    for i in 0..50 {
        let io = b.io(|b| {
            b.create("tmp");
            b.write("tmp", 0, &pattern(i, 0, 4096));
            b.fsync("tmp");
            b.rename("tmp", "f");
            b.fsync("/");
        });
        assert_eq!((io.writes, io.flushes), (2, 2), "round {i}: {io:?}");
    }
    b.stop();
}

#[test]
fn nothing_new() {
    let b = settled();
    assert_eq!(b.io(|b| b.fsync("f")), NOTHING);
    b.append("f", b"x");
    b.fsync("f");
    b.create("g");
    b.fsync("g");
    b.fsync("/");
    for path in ["f", "g", "/"] {
        assert_eq!(b.io(|b| b.fsync(path)), NOTHING, "{path}");
        assert_eq!(b.io(|b| b.fdatasync(path)), NOTHING, "{path}");
    }
    b.settle();
    assert_eq!(b.io(|b| b.fsync("f")), NOTHING);
    b.stop();
}

/// 64 tickets of one file and one wait are one write and one flush; so are those of 64 fsyncs
/// beside them. Staging alone does nothing, and what is durable costs nothing.
#[test]
fn tickets_share_a_write_and_a_flush() {
    let b = settled();
    for round in 0..4 {
        let mut last = None;
        let stage = |b: &Bench| {
            for i in 0..64 {
                b.write("f", i * 4096, &pattern(100 * round + i, 0, 4096));
                last = Some(b.stage("f"));
            }
        };
        assert_eq!(b.io(stage), NOTHING);
        let last = last.expect("many");
        let io = b.io(|b| b.wait(last, None).expect("durable"));
        assert_eq!((io.writes, io.flushes), (1, 1), "{io:?}");
        assert!(io.largest <= 64 * 8192, "{io:?}");
        assert_eq!(b.io(|b| b.wait(last, None).expect("still is")), NOTHING);
        assert_eq!(b.io(|b| b.fsync("f")), NOTHING, "the tickets carry it");
    }
    b.stop();
}

/// An fsync takes the tickets along: its own write, one for all of them, one flush. Two lanes are
/// two writes and one flush.
#[test]
fn an_fsync_takes_tickets_along() {
    let b = settled();
    for i in 0..32 {
        b.write("f", i * 4096, &pattern(i, 0, 4096));
        b.stage("f");
    }
    b.create("g");
    let io = b.io(|b| b.fsync("g"));
    assert_eq!((io.writes, io.flushes), (2, 1), "{io:?}");
    b.stop();
    let b = Bench::new(VolumeKind::TWO_LANES);
    let inodes: Vec<_> =
        (0..8).map(|i| b.durable(&format!("f{i}"), &pattern(i, 0, 4096))).collect();
    assert!(inodes.iter().any(|ino| ino % 2 != inodes[0] % 2), "both lanes are used");
    let mut last = None;
    for i in 0..8 {
        b.write(&format!("f{i}"), 0, &pattern(10 + i, 0, 4096));
        last = Some(b.stage(&format!("f{i}")));
    }
    let io = b.io(|b| b.wait(last.expect("many"), None).expect("durable"));
    assert_eq!((io.writes, io.flushes), (2, 1), "{io:?}");
    b.stop();
}

/// fsync of one file leaves another's unsynced megabytes alone.
#[test]
fn fsync_of_my_file_only() {
    let b = settled();
    b.create("big");
    b.write("big", 0, &pattern(1, 0, 2 << 20));
    b.append("f", &pattern(2, 0, 512));
    one_write(b.io(|b| b.fsync("f")), 4096);
    b.stop();
}

/// Recovery reads each staged byte at most twice and each journal byte once.
#[test]
fn recovery_reads() {
    let b = Bench::new(VolumeKind::SMALL);
    for i in 0..60 {
        b.durable(&format!("f{i}"), &pattern(i, 0, 6000));
        if i % 20 == 19 {
            b.commit(true);
        }
    }
    let staged = b.counters().staging.foreground.write_bytes;
    let journaled = b.counters().journal.background.write_bytes;
    let device = Arc::new(FaultDevice::from_image(b.crash(Cut::LoseAll), 1));
    device.record();
    let report = siftfs_placement::recover_on(device.clone(), &siftfs_crash::deterministic());
    println!("{:?}, {staged} bytes staged, {journaled} journaled", report.expect("recovers"));
    let layout = Layout::of(VolumeKind::SMALL);
    let (mut reads, mut written) = (HashMap::new(), HashSet::new());
    for op in device.take_log() {
        for block in op.offset / 4096..(op.offset + op.len as u64).div_ceil(4096) {
            match op.kind {
                OpKind::Read if !written.contains(&block) => *reads.entry(block).or_insert(0) += 1,
                OpKind::Write | OpKind::WriteFua => drop(written.insert(block)),
                _ => {}
            }
        }
    }
    let most = |region: &std::ops::Range<u64>| {
        let blocks = reads.iter().filter(|(b, _)| region.contains(&(**b * 4096)));
        blocks.map(|(_, n)| *n).max().unwrap_or(0)
    };
    assert!(most(&layout.staging) <= 2, "a staged byte is read {} times", most(&layout.staging));
    assert!(most(&layout.journal) <= 1, "a journal byte is read {} times", most(&layout.journal));
    assert!(most(&layout.journal) == 1 && most(&layout.staging) > 0, "nothing to read");
}

/// Where the journal repeats staged data, bulk fills the running transaction again and again. A
/// small fsync, and the write before it, find room all the same: none waits for a commit.
#[test]
fn bulk_leaves_room_in_the_transaction() {
    let b = Bench::new(VolumeKind::ROOMY.copies());
    b.durable("bulk", &pattern(1, 0, 1 << 20));
    b.durable("small", &pattern(1, 0, 1 << 20));
    b.settle();
    let full = |b: &Bench| {
        let stalls = b.status().runtime.stalls;
        stalls.get("the running transaction is full").copied().unwrap_or(0)
    };
    let before = full(&b);
    for i in 0..100 {
        // Of many lengths, so that one of them would fill it to the end.
        b.write("bulk", 0, &pattern(i, 0, (17 + i * 7 % 47) * 4096));
        b.fsync("bulk");
        let bulk = full(&b);
        b.write("small", i % 256 * 4096, &pattern(i, 0, 4096));
        b.fsync("small");
        assert_eq!(full(&b), bulk, "fsync {i}");
    }
    assert!(full(&b) > before, "bulk has filled it");
    b.stop();
}

/// A stream that is never synced fills the cache with unsynced data again and again, and then
/// waits. A caller that writes a page and syncs it does not wait.
#[test]
fn a_stream_leaves_room_for_unsynced_data() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("stream", &pattern(1, 0, 1 << 20));
    b.durable("small", &pattern(1, 0, 1 << 20));
    b.settle();
    let waits =
        |b: &Bench| b.status().runtime.stalls.get("too much unsynced data").copied().unwrap_or(0);
    let before = waits(&b);
    let mut at = 0;
    for i in 0..200 {
        // Of many lengths, so that one of them would fill it to the end.
        let len = (17 + i * 7 % 47) * 4096;
        b.write("stream", at, &pattern(i, 0, len));
        at = (at + len) % (8 << 20);
        let stream = waits(&b);
        b.write("small", i % 256 * 4096, &pattern(i, 0, 4096));
        b.fsync("small");
        assert_eq!(waits(&b), stream, "write {i}");
    }
    assert!(waits(&b) > before, "the stream has filled it");
    b.stop();
}

/// The data of many small new files goes to the area together, in few writes.
#[test]
fn small_files_are_pushed_together() {
    let b = settled();
    let files = 256;
    for i in 0..files {
        b.create(&format!("n{i}"));
        b.write(&format!("n{i}"), 0, &pattern(i, 0, 3000));
    }
    let area = Layout::of(VolumeKind::ROOMY).area;
    let log = b.log(|b| b.commit(true));
    let writes: Vec<usize> =
        log.iter().filter(|o| area.contains(&o.offset) && o.len > 0).map(|o| o.len).collect();
    assert_eq!(writes.iter().sum::<usize>(), files as usize * 4096);
    assert!(writes.len() <= 8, "{writes:?}");
    b.stop();
}

/// The running transaction, by what the report says of it, in parts of the most that it may hold.
fn transaction_fill(b: &Bench) -> f64 {
    let status = b.status();
    let blocks = status.pending.metadata_blocks + status.pending.inodes;
    blocks as f64 * 4096.0 * 4.0 / status.log.journal_bytes as f64
}

/// Data that no fsync asks for leaves the running transaction's last quarter to callers, until it
/// has waited for two commit intervals.
#[test]
fn data_that_waited_for_callers_goes_in_the_end() {
    let b = settled();
    let interval = OpenOptions::default().commit_ms * 1_000_000;
    b.create("late");
    b.write("late", 0, &pattern(2, 0, 64 << 10));
    let mut left = Vec::new();
    for round in 0..2 {
        b.driver.clock.advance(interval);
        for i in 0.. {
            if transaction_fill(&b) > 0.7 {
                break;
            }
            b.mkdir(&format!("d{round}-{i}"));
        }
        b.commit(false);
        left.push(b.status().cache.dirty_bytes);
    }
    assert_eq!(left, [64 << 10, 0], "dirty bytes after one and two commit intervals");
    b.stop();
}

/// A volume with the background running.
struct Live {
    volume: LocalVolume,
    device: Arc<FaultDevice>,
}

impl Live {
    fn open(opts: &OpenOptions) -> Self {
        let image =
            base_image_of(VolumeKind { size: 128 << 20, log: 32 << 20, ..VolumeKind::SMALL });
        let device = Arc::new(FaultDevice::from_image(image, 1));
        let clock = Arc::new(SystemClock::default());
        let volume = LocalVolume::open_on(device.clone(), clock, opts, Threads::Real);
        Self { volume: volume.expect("opens"), device }
    }

    fn foreground(&self) -> IoCounts {
        counters(&*self.volume.endpoint()).sum(|o| o.foreground)
    }
}

fn call(service: &dyn FileService, req: Request) -> Reply {
    let shown = format!("{req:?}").chars().take(60).collect::<String>();
    service.call(&Credentials::default(), req).unwrap_or_else(|e| panic!("{shown}: {e}"))
}

fn create(service: &dyn FileService, name: &str) -> u32 {
    let name = name.into();
    match call(service, Request::Create { parent: ROOT_INO, name, perm: 0o644 }) {
        Reply::Created { attr, handle } => {
            call(service, Request::Release { handle });
            attr.ino
        }
        other => panic!("create: {other:?}"),
    }
}

fn append(service: &dyn FileService, ino: u32, data: Vec<u8>) {
    let data = data.into();
    call(
        service,
        Request::Write {
            file: ino.into(),
            offset: 0,
            data,
            append: true,
            kill_priv: false,
            times: true,
        },
    );
}

fn fsync(service: &dyn FileService, ino: u32) {
    call(service, Request::Fsync { file: ino.into(), datasync: false });
}

/// The table again with commit timer and checkpointer at work all the time: what the foreground
/// does stays the same. An fsync that waits for background work counts that as its own, so the
/// sum over many is compared, with one in fifty to spare.
#[test]
fn with_the_background_active() {
    let opts = OpenOptions { commit_ms: 20, low_watermark: 95, ..OpenOptions::default() };
    let live = Live::open(&opts);
    let service = live.volume.endpoint();
    let ino = create(&*service, "f");
    append(&*service, ino, pattern(1, 0, 4096));
    fsync(&*service, ino);
    let rounds = 400u64;
    let before = live.foreground();
    for i in 0..rounds {
        append(&*service, ino, pattern(i, 0, 512));
        fsync(&*service, ino);
        fsync(&*service, ino);
        if i % 20 == 0 {
            std::thread::sleep(Duration::from_millis(25));
        }
    }
    let did = live.foreground() - before;
    println!("{rounds} appends of 512 bytes: {did:?}");
    let most = rounds + rounds / 50;
    assert!(did.writes <= most && did.flushes <= most, "{did:?}");
    assert!(did.write_bytes <= most * 4096, "{did:?}");
    background_bound(&*service);
    live.volume.close().expect("closes");
}

/// A program that only polls sees a ticket durable at once, and not at the commit interval.
#[test]
fn a_poll_does_not_wait_for_the_commit_interval() {
    let live = Live::open(&OpenOptions { commit_ms: 60_000, ..OpenOptions::default() });
    let service = live.volume.endpoint();
    let ino = create(&*service, "f");
    let mut longest = Duration::ZERO;
    for i in 0..50 {
        append(&*service, ino, pattern(i, 0, 4096));
        let Reply::Ticket(ticket) =
            call(&*service, Request::Stage { file: ino.into(), datasync: false })
        else {
            panic!("no ticket");
        };
        let start = Instant::now();
        while call(&*service, Request::Poll { ticket }) != Reply::Durable(true) {
            std::thread::sleep(Duration::from_millis(1));
        }
        longest = longest.max(start.elapsed());
    }
    println!("the longest wait by polls: {longest:?}");
    // Milliseconds on a quiet machine.
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    live.volume.close().expect("closes");
}

/// Writes and flushes of the background per journal transaction: one write and one flush to
/// journal it, one flush more for data written straight to the area; its checkpoint is one flush
/// of the area, the tail record in both header copies, and a flush for that. The area's own
/// writes are bounded by what was journaled.
fn background_bound(service: &dyn FileService) {
    let report = status(service);
    let count = counters(service);
    let transactions = report.service.journaled_transactions;
    assert!(transactions > 3, "the background was idle: {report:?}");
    let (journal, area) = (count.journal.background, count.area.background);
    let header = count.header.background;
    let flushes = count.sum(|o| o.background).flushes;
    println!(
        "{transactions} transactions: journal {journal:?}, area {area:?}, header {header:?}, \
         {flushes} flushes"
    );
    assert!(journal.writes <= transactions, "more than one journal write per transaction");
    assert!(flushes <= 4 * transactions, "more than four flushes per transaction");
    assert!(header.writes <= 2 * transactions, "more than two header writes per transaction");
}

/// Flushes per fsync of four threads with a file each and a flush of 1 ms, one at a time or side by
/// side; and the way that was found to be the better one.
fn flushes_of_four(group_wait_us: u64, serial: bool) -> (f64, String) {
    let opts = OpenOptions { group_wait_us, ..OpenOptions::default() };
    let live = Live::open(&opts);
    let service = live.volume.endpoint();
    let files: Vec<u32> = (0..4).map(|i| create(&*service, &format!("t{i}"))).collect();
    files.iter().for_each(|ino| fsync(&*service, *ino));
    live.volume.commit(true).expect("commits");
    live.device.set_flush_delay(Duration::from_millis(1));
    live.device.set_serial_flushes(serial);
    let before = live.foreground();
    let start = Instant::now();
    let rounds = 600;
    std::thread::scope(|scope| {
        for ino in &files {
            let service = service.clone();
            scope.spawn(move || {
                for i in 0..rounds {
                    append(&*service, *ino, pattern(i, 0, 512));
                    fsync(&*service, *ino);
                }
            });
        }
    });
    let did = live.foreground() - before;
    live.device.set_flush_delay(Duration::ZERO);
    let fsyncs = (rounds * files.len() as u64) as f64;
    let rate = did.flushes as f64 / fsyncs;
    let mut measured = status(&*service).group.measured.into_iter();
    let four = measured.find(|m| m.callers == "3 to 4").expect("four callers");
    println!(
        "group wait {group_wait_us} us: {did:?}, {rate:.3} per fsync, {:?}, {four:?}",
        start.elapsed()
    );
    live.volume.close().expect("closes");
    (rate, four.way)
}

/// Where flushes go one at a time, a shared one is the better way, and that is found out.
#[test]
fn four_threads_share_flushes() {
    let (plain, way) = flushes_of_four(0, true);
    assert_eq!(way, "shared");
    assert!(plain <= 0.55, "{plain:.3} flushes per fsync");
    // The wait ends as soon as the others are there. Its bound is what a busy machine may keep a
    // thread from running for, not what it costs.
    let (waiting, way) = flushes_of_four(20_000, true);
    assert_eq!(way, "shared");
    assert!(waiting <= 0.35, "{waiting:.3} flushes per fsync with the adaptive wait");
}

/// Where durable writes of one's own go side by side, they are used: no caller waits for another's
/// flush first.
#[test]
fn four_threads_write_durably_where_that_is_quicker() {
    let (rate, way) = flushes_of_four(0, false);
    assert_eq!(way, "parallel");
    assert!(rate > 0.8, "{rate:.3} flushes per fsync");
}

/// Memory is bounded by the configured caches whatever the backlog.
#[test]
fn memory_is_bounded_by_the_caches() {
    let opts = OpenOptions { page_cache: 8 << 20, meta_cache: 1 << 20, ..OpenOptions::default() };
    let live = Live::open(&opts);
    let service = live.volume.endpoint();
    for i in 0..40 {
        let ino = create(&*service, &format!("big{i}"));
        for part in 0..4 {
            append(&*service, ino, pattern(part, 0, 256 << 10));
        }
        if i % 3 == 0 {
            fsync(&*service, ino);
        }
    }
    let cache = status(&*service).cache;
    println!("{cache:?}");
    assert!(cache.pages <= cache.page_limit, "{cache:?}");
    assert!(cache.page_limit <= (8 << 20) / 4096, "{cache:?}");
    live.volume.close().expect("closes");
}
