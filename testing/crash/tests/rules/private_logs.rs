//! Rules about logs of programs: R16, R35 to R37, R41, R54.

use super::bytes;
use super::programs::{Folder, Program, dead, recovered};
use siftfs_base::{Clock, Error, ManualClock, Timestamp};
use siftfs_crash::{Back, Bench, VolumeKind, base_image_of, deterministic, devices};
use siftfs_crash::{e2fsck_image, fault_device, media_of, mem_media};
use siftfs_device::{Cut, Fault, FaultDevice, Image, OpClass};
use siftfs_fsck::Severity;
use siftfs_lease::{BATCH_UNIT, Held, LOG_BYTES};
use siftfs_log::{HOST_SLOTS, HostState};
use siftfs_placement::{Discarded, LocalVolume, OpenOptions, Threads, discard_log_on, recover_on};
use siftfs_registry::{Directory, RegisteredLease};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KIND: VolumeKind = VolumeKind::SMALL;
const SIZE: u64 = 20_000;
/// The newest record's bytes.
const NEW: &[u8] = b"acknowledged by the program's own log";

/// A volume with the durable files a and b, and a program that ends before the volume does.
struct World {
    b: Bench,
    folder: Folder,
    directory: Directory,
    program: Program,
    child: std::process::Child,
}

impl World {
    fn new(kind: VolumeKind) -> Self {
        let b = Bench::new(kind);
        b.durable("a", &bytes(1, SIZE));
        b.durable("b", &bytes(2, SIZE));
        let folder = Folder::new();
        let private = b.driver.volume.private_logs();
        let directory = private.directory(&folder.logs).expect("a registry");
        let child = dead();
        let program = Program::new(&directory, child.id());
        Self { b, folder, directory, program, child }
    }

    /// The program and the daemon die, and power is lost.
    fn crash(mut self) -> (Image, Folder) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
        (self.b.crash(Cut::LoseAll), self.folder)
    }
}

/// `old` with these bytes over it.
fn over(mut old: Vec<u8>, offset: usize, new: &[u8]) -> Vec<u8> {
    old.resize(old.len().max(offset + new.len()), 0);
    old[offset..offset + new.len()].copy_from_slice(new);
    old
}

/// A crash with acknowledged bytes in a log: over each other, in the lanes as well, over the file's
/// end; and what the files have to be.
fn crashed(kind: VolumeKind) -> (Image, Folder, [Vec<u8>; 2]) {
    let mut w = World::new(kind);
    let (a, b) = (w.program.lease(&w.b, "a", 1), w.program.lease(&w.b, "b", 2));
    w.program.log(a, 5000, &bytes(3, 300));
    w.program.log(b, 0, &bytes(4, 9000));
    // The daemon has taken that in, and newer bytes too, and then lost its power: nobody was
    // promised anything of it.
    w.b.write("a", 5000, &bytes(3, 300));
    w.b.write("a", 5100, &bytes(5, 100));
    w.b.fsync("a");
    w.program.log(a, 5100, NEW);
    w.program.log(b, SIZE + 3000, NEW);
    let wanted = [
        over(over(bytes(1, SIZE), 5000, &bytes(3, 300)), 5100, NEW),
        over(over(bytes(2, SIZE), 0, &bytes(4, 9000)), SIZE as usize + 3000, NEW),
    ];
    let (image, folder) = w.crash();
    folder.keep();
    (image, folder, wanted)
}

fn check(image: &Image, wanted: &[Vec<u8>; 2], what: &str) {
    let back = Back::from(image);
    assert!(back.bytes("a") == wanted[0], "{what}: a");
    assert!(back.bytes("b") == wanted[1], "{what}: b");
}

/// The host record of an image, and whether the superblock has the marker.
fn header(image: &Image) -> Option<(HostState, bool, bool)> {
    let view = mem_media(image).1.read().ok()?;
    let marked = view.area.as_ref().is_some_and(|area| area.marker || !area.checksum_ok);
    Some((view.host.state, view.host.registry.is_some(), marked))
}

/// What was acknowledged by a log is there after a recovery, wherever that is cut; and an image
/// that says clean, or names no registry any more, has it without the log.
///
/// Seen to fail when the registry goes before the files are durable, when the lanes' recovery says
/// clean before the logs are read, and when the record area gets the next epoch after the header.
#[test]
fn r36_logs_are_taken_in_whatever_recovery_is_cut() {
    for kind in [KIND, VolumeKind::APART, KIND.with_area()] {
        let (image, folder, wanted) = crashed(kind);
        let device = Arc::new(fault_device(image.clone(), 1));
        device.record_history();
        let report = recover_on(media_of(&device, &image), &deterministic()).expect("recovered");
        let logs = report.private_logs;
        assert_eq!((logs.logs, logs.batches, logs.records, logs.passed_over), (1, 4, 4, 0));
        assert_eq!(logs.bytes, 9300 + 2 * NEW.len() as u64);
        assert!(logs.lost.is_empty(), "{:?}", logs.lost);
        assert!(folder.files().is_empty(), "nothing is left: {:?}", folder.files());
        let (mut named, mut gone) = (0, 0);
        device.take_history().expect("recorded").each_cut(|cut, cache| {
            for image in [cache.image(Cut::LoseAll), cache.image(Cut::Random(cut))] {
                let (state, registry, marked) = header(&image).expect("a header");
                assert!(!(registry && state == HostState::Clean), "cut {cut}");
                assert!(!registry || marked, "cut {cut}: the marker goes last");
                named += u32::from(registry && state == HostState::Mounted);
                gone += u32::from(!registry);
                match registry {
                    true => folder.bring_back(),
                    false => folder.clear(),
                }
                check(&image, &wanted, &format!("{kind:?}, cut {cut}"));
            }
        });
        assert!(named > 10 && gone > 2, "{named} with a registry, {gone} without");
    }
}

/// The epoch of the mount that died and the one that takes the logs in are cut in turn: the second
/// recovery of a cut one is complete.
#[test]
fn r36_a_log_is_taken_in_again_and_again() {
    let (mut image, folder, wanted) = crashed(KIND);
    for round in 0..6 {
        folder.bring_back();
        let device = Arc::new(fault_device(image.clone(), round));
        device.record_history();
        recover_on(media_of(&device, &image), &deterministic()).expect("recovered");
        let mut last = None;
        device.take_history().expect("recorded").each_cut(|cut, cache| {
            let next = cache.image(Cut::Random(cut));
            if header(&next).is_some_and(|(_, registry, _)| registry) {
                last = Some(next);
            }
        });
        image = last.expect("a cut with the registry named");
    }
    folder.bring_back();
    check(&image, &wanted, "the last one");
}

/// An unmount takes the registry away, and leaves a volume that builds without one take.
///
/// Seen to fail when the clean record is the first that names none.
#[test]
fn r36_an_unmount_takes_the_registry_away() {
    let w = World::new(KIND);
    let private = w.b.driver.volume.private_logs();
    assert_eq!(private.directory(&w.folder.logs).expect("the same").name(), w.directory.name());
    let other = private.directory(&w.folder.kept).map(drop).expect_err("there is one");
    assert!(other.to_string().contains("already"), "{other}");
    let named = w.b.device.image(Cut::LoseAll);
    assert_eq!(header(&named), Some((HostState::Mounted, true, true)), "durable, and named");
    let World { b, folder, mut child, .. } = w;
    child.kill().and_then(|()| child.wait()).expect("gone");
    b.device.record_history();
    let history = {
        let device = b.device.clone();
        let closed = b.close();
        assert_eq!(header(&closed), Some((HostState::Clean, false, false)));
        let view = mem_media(&closed).1.read().expect("read");
        for (copy, slot) in
            view.header.header_offsets.iter().flat_map(|c| HOST_SLOTS.map(|s| (c, s)))
        {
            assert_eq!(closed.bytes(copy + slot + 8, 4), 2u32.to_le_bytes(), "its version");
        }
        device.take_history().expect("recorded")
    };
    assert!(folder.files().is_empty(), "{:?}", folder.files());
    history.each_cut(|cut, cache| {
        let image = cache.image(Cut::Random(cut));
        let (state, registry, marked) = header(&image).expect("a header");
        assert!(!registry || marked && state == HostState::Mounted, "cut {cut}");
    });
}

/// A volume is not closed as clean while a program's log counts, and no log counts any more that
/// did not when it is closed.
///
/// Seen to fail when the end of a mount looks at no row.
#[test]
fn r36_a_volume_is_not_clean_while_a_log_counts() {
    let mut w = World::new(KIND);
    let (a, attr) = (w.program.lease(&w.b, "a", 1), w.b.attr("a"));
    w.program.log(a, 5000, NEW);
    let mut idle = Program::new(&w.directory, w.child.id());
    let World { b, folder, directory, mut program, mut child } = w;
    child.kill().and_then(|()| child.wait()).expect("gone");
    let Bench { device, driver, service } = b;
    drop(service);
    let error = driver.volume.close().expect_err("a log counts");
    assert!(error.to_string().contains("next mount"), "{error}");
    let lease = RegisteredLease { slot: 2, number: 2, ino: attr.ino, generation: attr.generation };
    assert!(matches!(idle.row.register(lease), Err(Error::Latched(_))), "it did not count");
    assert_eq!(program.row.register(lease), Ok(true), "it does");
    assert!(!directory.seal());
    let image = device.image(Cut::LoseAll);
    assert_eq!(header(&image), Some((HostState::Mounted, true, true)));
    assert!(!folder.files().is_empty());
    let back = Back::from(&image);
    assert!(back.bytes("a") == over(bytes(1, SIZE), 5000, NEW));
}

/// A volume whose registry is lost is not used without it: its lanes are recovered, and no more.
/// The registry of before, brought back, serves; else the logs are given up.
///
/// Seen to fail when a missing registry counts as an empty one.
#[test]
fn r16_a_registry_that_is_lost() {
    let (image, folder, wanted) = crashed(KIND);
    let (device, media) = mem_media(&image);
    folder.clear();
    for round in 0..3 {
        let error = recover_on(media.clone(), &deterministic()).expect_err("refused");
        let says = error.to_string();
        assert!(matches!(error, Error::Refused(_)), "{says}");
        assert!(says.contains("missing") && says.contains("--discard-log"), "{round}: {says}");
    }
    let found = siftfs_fsck::check_on(devices(&media));
    assert!(found.iter().all(|f| f.severity == Severity::Info), "{found:?}");
    assert!(found.iter().any(|f| f.code == "registry.named"), "{found:?}");
    let refused = device.snapshot();
    let names: Vec<PathBuf> =
        fs::read_dir(&folder.kept).expect("kept").map(|e| e.expect("one").path()).collect();
    // A log without its registry, and the other way round.
    for name in &names {
        fs::copy(name, folder.logs.join(name.file_name().expect("one"))).expect("copied");
        let error = recover_on(mem_media(&refused).1, &deterministic()).expect_err("refused");
        assert!(error.to_string().contains("--discard-log"), "{}: {error}", name.display());
        folder.clear();
    }
    folder.bring_back();
    check(&refused, &wanted, "brought back");
    folder.bring_back();
    assert_eq!(discard_log_on(media).expect("given up"), Discarded::Emptied);
    assert!(folder.files().is_empty(), "what was given up goes: {:?}", folder.files());
    let image = device.snapshot();
    e2fsck_image(&image).expect("a sound file system");
    let back = Back::from(&image);
    let newer = over(over(bytes(1, SIZE), 5000, &bytes(3, 300)), 5100, &bytes(5, 100));
    assert!(back.bytes("a") == newer, "what was durable in the lanes is there");
}

/// What makes of the log's file something else than the program's library would.
struct Forgery {
    name: &'static str,
    forge: fn(&Path, &[u8]),
    /// Batches that are found all the same, and whether something is told as lost.
    found: (u64, bool),
}

fn write(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("opened");
    file.write_all_at(bytes, at).expect("written");
}

const FORGERIES: [Forgery; 7] = [
    Forgery {
        name: "random bytes",
        forge: |path, _| write(path, 0, &bytes(9, LOG_BYTES)),
        found: (0, false),
    },
    Forgery {
        name: "cut off in the middle of the second batch",
        forge: |path, _| {
            let file = fs::OpenOptions::new().write(true).open(path).expect("opened");
            file.set_len(BATCH_UNIT as u64 * 2).expect("cut off");
        },
        found: (1, false),
    },
    Forgery {
        name: "nothing left",
        forge: |path, _| fs::write(path, b"").expect("emptied"),
        found: (0, false),
    },
    Forgery {
        name: "a damaged batch before whole ones",
        forge: |path, _| write(path, 100, &[1]),
        found: (0, true),
    },
    Forgery {
        name: "the last batch again, behind itself",
        forge: |path, log| {
            let last = log.rchunks(BATCH_UNIT).position(|block| block[0] != 0).expect("a batch");
            let at = log.len() - (last + 1) * BATCH_UNIT;
            write(path, (at + BATCH_UNIT) as u64, &log[at..at + BATCH_UNIT]);
        },
        found: (4, false),
    },
    Forgery {
        name: "longer than it was",
        forge: |path, _| write(path, LOG_BYTES, &bytes(9, 4096)),
        found: (4, false),
    },
    Forgery {
        name: "lengths that cannot be",
        forge: |path, _| write(path, 24, &[0xff; 8]),
        found: (0, true),
    },
];

/// No contents of a log's file keep the volume from being recovered (rules R35, R41).
///
/// Seen to fail when a log that ends early ends the recovery.
#[test]
fn r41_a_hostile_log_never_stops_the_volume() {
    let (image, folder, _) = crashed(KIND);
    for Forgery { name, forge, found } in FORGERIES {
        folder.bring_back();
        let path = folder.files().into_iter().find(|path| path.to_string_lossy().contains("/log-"));
        let path = path.expect("the log");
        let log = fs::read(&path).expect("read");
        fs::remove_file(&path).expect("the kept one stays");
        fs::write(&path, &log).expect("a copy");
        forge(&path, &log);
        let (image, logs) = recovered(&image);
        assert_eq!((logs.batches, !logs.lost.is_empty()), found, "{name}: {:?}", logs.lost);
        e2fsck_image(&image).unwrap_or_else(|e| panic!("{name}: {e}"));
        let back = Back::from(&image);
        assert_eq!(back.bytes("a").len() as u64, SIZE, "{name}");
    }
}

/// A record says which lease it is of, and the registry says which file that is, and from where on
/// batches count. What fits no file ends the log.
///
/// Seen to fail when all records of a log count, and when the begin is not minded.
#[test]
fn r35_the_registry_says_whose_records_count() {
    let mut w = World::new(KIND);
    let (a, b) = (w.program.lease(&w.b, "a", 1), w.program.lease(&w.b, "b", 2));
    w.program.log(a, 0, b"forgotten");
    w.program.row.begin(w.program.batches.position()).expect("durable");
    for stranger in
        [Held { slot: 1, number: 3 }, Held { slot: 2, number: 1 }, Held { slot: 9, ..a }]
    {
        w.program.log(stranger, 0, b"nobody's");
    }
    w.program.log(b, 0, b"ended");
    w.program.row.end(&[2]).expect("durable");
    w.program.log(a, 10, NEW);
    let (image, _folder) = w.crash();
    let (image, logs) = recovered(&image);
    assert_eq!((logs.batches, logs.records, logs.passed_over), (5, 1, 4));
    assert!(logs.lost.is_empty(), "{:?}", logs.lost);
    check(&image, &[over(bytes(1, SIZE), 10, NEW), bytes(2, SIZE)], "the registry");
}

/// Records that fit no file: what is before them stays, and the log ends.
#[test]
fn a_record_that_fits_no_file_ends_its_log() {
    type Break = fn(&mut World, Held);
    let breaks: [Break; 4] = [
        |w, held| w.program.log(held, u64::MAX - 3, b"beyond"),
        |w, held| w.program.log(held, siftfs_proto::MAX_FILE_SIZE - 1, b"beyond"),
        |w, _| {
            let dir = w.b.mkdir("dir");
            w.b.fsync("dir");
            let lease = RegisteredLease { slot: 7, number: 7, ino: dir, generation: 0 };
            w.program.row.register(lease).expect("durable");
            w.program.log(Held { slot: 7, number: 7 }, 0, b"no file");
        },
        |w, _| {
            let attr = w.b.attr("b");
            let (ino, generation) = (attr.ino, attr.generation.wrapping_add(1));
            let lease = RegisteredLease { slot: 7, number: 7, ino, generation };
            w.program.row.register(lease).expect("durable");
            w.program.log(Held { slot: 7, number: 7 }, 0, b"another file");
        },
    ];
    for break_it in breaks {
        let mut w = World::new(KIND);
        let a = w.program.lease(&w.b, "a", 1);
        w.program.log(a, 10, NEW);
        break_it(&mut w, a);
        w.program.log(a, 10, b"behind the end");
        let mut other = Program::new(&w.directory, w.child.id());
        let b = other.lease(&w.b, "b", 1);
        other.log(b, 20, NEW);
        let (image, _folder) = w.crash();
        let (image, logs) = recovered(&image);
        assert_eq!((logs.logs, logs.records, logs.lost.len()), (2, 2, 1), "{:?}", logs.lost);
        let wanted = [over(bytes(1, SIZE), 10, NEW), over(bytes(2, SIZE), 20, NEW)];
        check(&image, &wanted, "each log by itself");
    }
}

/// A record's time is the file's, but not of before its last change, and not of tomorrow.
///
/// Seen to fail when the time is believed, and when it is not used.
#[test]
fn r54_a_record_says_when_and_is_not_believed_everything() {
    let mtime = |ns: i64| {
        let mut w = World::new(KIND);
        let before = w.b.attr("a").mtime;
        let a = w.program.lease(&w.b, "a", 1);
        w.program.log_at(a, 0, NEW, ns);
        let (image, _folder) = w.crash();
        let b = Bench::on(recovered(&image).0);
        assert_eq!(b.read("a"), over(bytes(1, SIZE), 0, NEW));
        (before, b.attr("a").mtime)
    };
    let between = Timestamp { sec: 1_650_000_000, nsec: 7 };
    assert_eq!(mtime(between.sec * 1_000_000_000 + 7).1, between);
    for past in [i64::MIN, -1, 0] {
        let (before, after) = mtime(past);
        assert_eq!(after, before, "{past}: not before it was changed last");
    }
    let (_, after) = mtime(i64::MAX);
    let now = siftfs_base::SystemClock::default().now();
    assert!(after > between && after <= now, "not after now: {after:?}");
}

/// A clock that stands still, and counts how long it was slept by.
struct Slept {
    clock: ManualClock,
    ns: AtomicU64,
}

impl Clock for Slept {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
    fn mono_ns(&self) -> u64 {
        self.clock.mono_ns()
    }
    fn sleep(&self, time: Duration) {
        self.ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// A program that outlives its daemon may believe for two seconds what that said last, so its log
/// is not read before; one that is gone is not waited for.
///
/// Seen to fail when recovery reads at once, and when it always waits.
#[test]
fn r37_recovery_waits_for_a_program_that_lives() {
    let opts: OpenOptions = deterministic();
    let slept = |process: u32, registered: bool, child: Option<std::process::Child>| {
        let b = Bench::new(KIND);
        b.durable("a", &bytes(1, SIZE));
        let folder = Folder::new();
        let directory = b.driver.volume.private_logs().directory(&folder.logs).expect("made");
        let mut program = Program::new(&directory, process);
        if registered {
            let held = program.lease(&b, "a", 1);
            program.log(held, 0, NEW);
        }
        if let Some(mut child) = child {
            child.kill().and_then(|()| child.wait()).expect("gone");
        }
        let image = b.crash(Cut::LoseAll);
        let device: Arc<FaultDevice> = Arc::new(fault_device(image.clone(), 1));
        let clock = Arc::new(Slept { clock: ManualClock::new(1_700_000_000), ns: 0.into() });
        let media = media_of(&device, &image);
        let volume =
            LocalVolume::open_on(media, clock.clone(), &opts, Threads::None).expect("open");
        volume.abandon();
        clock.ns.load(Ordering::Relaxed)
    };
    let two = Duration::from_secs(2).as_nanos() as u64;
    let child = dead();
    assert_eq!(slept(child.id(), true, Some(child)), 0, "nobody is left");
    assert_eq!(slept(std::process::id(), true, None), two, "this program lives");
    assert_eq!(slept(std::process::id(), false, None), 0, "it has no lease in its log");
}

/// A volume that is only read takes no logs; one that nothing names has no registry to lose.
#[test]
fn a_volume_that_is_only_read_has_no_registry() {
    let folder = Folder::new();
    let image = base_image_of(KIND);
    let clock = Arc::new(ManualClock::new(1_700_000_000));
    let opts = OpenOptions { read_only: true, ..deterministic() };
    let volume =
        LocalVolume::open_on(mem_media(&image).1, clock, &opts, Threads::None).expect("open");
    let refused = volume.private_logs().directory(&folder.logs).map(drop);
    assert_eq!(refused, Err(Error::Posix(libc::EROFS)));
    assert!(!folder.logs.exists());
    volume.close().expect("closed");
}

/// A registry whose naming failed may be named all the same: no log of it is handed over, and it
/// stays for a recovery.
///
/// Seen to fail when the registry is handed out although its naming failed.
#[test]
fn a_registry_that_could_not_be_named_is_not_used() {
    for fault in [Fault::fail_torn(libc::EIO), Fault::fail(OpClass::Write, libc::EIO).after(1)] {
        let b = Bench::new(KIND);
        b.durable("a", &bytes(1, SIZE));
        let (folder, private) = (Folder::new(), b.driver.volume.private_logs());
        b.device.inject(fault.once());
        let directory = || private.directory(&folder.logs).map(drop);
        assert!(matches!(directory(), Err(Error::Io { .. })));
        assert!(matches!(directory(), Err(Error::Latched(_))), "not even the second time");
        assert_eq!(folder.files().len(), 1, "either record may be found");
        folder.keep();
        for image in super::images(&b) {
            folder.bring_back();
            assert!(Back::from(&image).bytes("a") == bytes(1, SIZE));
        }
        folder.bring_back();
        let closed = b.close();
        assert_eq!(header(&closed), Some((HostState::Clean, false, false)));
        assert!(folder.files().is_empty(), "{:?}", folder.files());
    }
}

/// What finds no space ends its log and is told; the volume is recovered, and so is the next log.
#[test]
fn a_full_disk_ends_a_log_and_not_the_recovery() {
    let mut w = World::new(KIND);
    let a = w.program.lease(&w.b, "a", 1);
    w.b.create("fill");
    let (mut at, mut piece) = (0, 1 << 18);
    while piece >= 4096 {
        match w.b.try_write("fill", at, &bytes(7, piece)) {
            Ok(()) => at += piece,
            Err(_) => piece /= 2,
        }
    }
    w.b.fsync("fill");
    w.program.log(a, 10, NEW);
    w.program.log(a, 1 << 20, &bytes(8, 60_000));
    w.program.log(a, 30, b"behind the end");
    let mut other = Program::new(&w.directory, w.child.id());
    let b = other.lease(&w.b, "b", 1);
    other.log(b, 20, NEW);
    let (image, _folder) = w.crash();
    let (image, logs) = recovered(&image);
    assert_eq!((logs.logs, logs.records, logs.lost.len()), (2, 2, 1), "{:?}", logs.lost);
    assert!(logs.lost[0].why.contains("No space"), "{:?}", logs.lost);
    let wanted = [over(bytes(1, SIZE), 10, NEW), over(bytes(2, SIZE), 20, NEW)];
    check(&image, &wanted, "what there was space for");
}
