use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use super::*;
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;

/// A directory in memory.
fn dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn volatile(path: &Path) -> BytePlace {
    BytePlace::Volatile(path.to_owned())
}

fn create(path: &Path) -> ByteDevice {
    ByteDevice::create(&volatile(path), SIZE, ByteOptions::default()).unwrap()
}

#[track_caller]
fn refusal(result: Result<ByteDevice>) -> String {
    match result {
        Err(Error::Refused(message)) => message,
        Err(other) => panic!("refused with {other:?}"),
        Ok(_) => panic!("opened what it should have refused"),
    }
}

#[track_caller]
fn refused(place: &str, why: &str) {
    let said = refusal(ByteDevice::open(&place.parse().unwrap(), ByteOptions::default()));
    assert!(said.contains(why), "{place}: {said}");
}

#[test]
fn what_is_written_is_in_the_file() {
    let dir = dir();
    let path = dir.path().join("area");
    let device = create(&path);
    let mut rng = siftfs_base::Rng::new(7);
    let mut model = vec![0; SIZE as usize];
    for round in 0..400 {
        let (offset, len) = (rng.below(SIZE - 5000), rng.below(5000) as usize);
        let data: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        device.write(offset, &data, round % 2 == 0).unwrap();
        model[offset as usize..][..len].copy_from_slice(&data);
        let mut back = vec![0; len];
        device.read(offset, &mut back).unwrap();
        assert_eq!(back, data);
    }
    assert!(std::fs::read(&path).unwrap() == model);
}

#[test]
fn counts_tell_what_was_made_durable() {
    let dir = dir();
    let device = create(&dir.path().join("area"));
    let before = device.persists();
    device.write(0, &[1; 700], true).unwrap();
    device.write(0, &[1; 64], false).unwrap();
    let op = |offset| WriteOp { offset, data: &[2; 8] };
    device.write_batch(&[op(0), op(64)]).unwrap();
    device.flush().unwrap();
    let after = device.persists();
    assert_eq!(after.persists - before.persists, 2);
    assert_eq!(after.fences - before.fences, 4);
    assert_eq!(after.bytes - before.bytes, 780);
}

/// Rule R18: a process that was killed between its stores and their write-back leaves lines that
/// the next one reads; the next one's flush writes all of them back, once for each owner.
#[test]
fn the_first_flush_covers_what_a_dead_process_stored() {
    let dir = dir();
    let path = dir.path().join("area");
    drop(create(&path));
    let device = ByteDevice::open(&volatile(&path), ByteOptions::default()).unwrap();
    let inherited = || {
        device.flush().unwrap();
        device.persists().inherited
    };
    assert_eq!((inherited(), inherited()), (SIZE, SIZE));
    device.claim(Role::Host, PATIENCE).unwrap();
    assert_eq!((inherited(), inherited()), (2 * SIZE, 2 * SIZE));
}

/// Each of two flushes covers what another process has left, also the one that comes second.
#[test]
fn two_flushes_cover_what_a_dead_process_stored() {
    let dir = dir();
    let path = dir.path().join("area");
    drop(create(&path));
    let device = ByteDevice::open(&volatile(&path), ByteOptions::default()).unwrap();
    for round in 1..=200 {
        let both = std::sync::Barrier::new(2);
        let flush = || {
            both.wait();
            device.flush().unwrap();
            device.persists().inherited
        };
        let found = std::thread::scope(|scope| {
            [scope.spawn(flush), scope.spawn(flush)].map(|thread| thread.join().unwrap())
        });
        assert_eq!(found, [round * SIZE; 2], "written back once, and before both have ended");
        device.unclaim(Role::Host).unwrap();
        device.claim(Role::Host, PATIENCE).unwrap();
    }
}

#[test]
fn a_modelled_read_back_takes_its_time() {
    let dir = dir();
    let path = dir.path().join("area");
    drop(create(&path));
    let modelled_read_back = Duration::from_millis(5);
    let options = ByteOptions { modelled_read_back, ..ByteOptions::default() };
    let device = ByteDevice::open(&volatile(&path), options).unwrap();
    let start = Instant::now();
    device.write(0, &[1; 64], true).unwrap();
    assert!(start.elapsed() >= modelled_read_back);
    let said = refusal(ByteDevice::open(&"pmr:0000:01:00.0".parse().unwrap(), options));
    assert!(said.contains("for measurements on volatile:PATH"), "{said}");
}

#[test]
fn promises_are_said_in_plain_words() {
    let dir = dir();
    let path = dir.path().join("area");
    let device = create(&path);
    assert_eq!(device.promise(), BytePromise::Volatile);
    let info = device.describe();
    assert_eq!(info.path, format!("volatile:{}", path.display()));
    assert_eq!(info.path, device.place().to_string());
    assert_eq!(info.kind, "mapped file on tmpfs");
    assert_eq!(info.durable_write, "nothing survives a power cut");
    assert_eq!(device.promise().to_string(), "volatile: nothing survives a power cut");
    let sync = BytePromise::MapSync(LineFlush::Clwb);
    assert_eq!(sync.to_string(), "persistent: MAP_SYNC, clwb and sfence");
    assert!(BytePromise::ReadBack.is_persistent() && !BytePromise::Volatile.is_persistent());
}

#[test]
fn places_that_promise_nothing_are_refused() {
    let disk = tempfile::tempdir().unwrap();
    let shm = dir();
    for dir in [disk.path(), shm.path()] {
        let path = dir.join("area");
        std::fs::write(&path, vec![0; 8192]).unwrap();
        let shown = path.to_str().unwrap();
        let way_out = format!("volatile:{shown} uses it for tests and measurements");
        refused(shown, "is not DAX");
        refused(shown, &way_out);
        let new = dir.join("new");
        let place = BytePlace::Path(new.clone());
        let said = refusal(ByteDevice::create(&place, SIZE, ByteOptions::default()));
        assert!(said.contains("is not DAX") && !new.exists(), "{said}");
        ByteDevice::open(&volatile(&path), ByteOptions::default()).unwrap();
    }
}

#[test]
fn what_is_no_record_area_is_refused() {
    let dir = dir();
    let missing = dir.path().join("missing");
    refused(missing.to_str().unwrap(), "No such file");
    refused(&format!("volatile:{}", missing.display()), "No such file");
    let small = dir.path().join("small");
    std::fs::write(&small, vec![0; 4095]).unwrap();
    refused(&format!("volatile:{}", small.display()), "at least 4096: make it larger");
    let said = refusal(ByteDevice::create(&volatile(&small), 64, ByteOptions::default()));
    assert!(said.contains("at least 4096"), "{said}");
    refused(dir.path().to_str().unwrap(), "neither a file nor a /dev/dax device");
    refused(&format!("volatile:{}", dir.path().display()), "not a regular file");
    refused("/dev/null", "no DAX device");
    refused("volatile:/dev/null", "not a regular file");
    refused("pmr:ffff:fe:1f.7", "there is no PCI device ffff:fe:1f.7");
}

/// One byte too many is no record: the rest is left alone.
#[test]
fn sizes_are_whole_records() {
    let dir = dir();
    let path = dir.path().join("area");
    std::fs::write(&path, vec![9; 8192 + 63]).unwrap();
    let device = ByteDevice::open(&volatile(&path), ByteOptions::default()).unwrap();
    assert_eq!(device.size(), 8192);
    drop(device);
    let device = create(&path);
    assert_eq!(std::fs::read(&path).unwrap(), vec![0; SIZE as usize]);
    assert_eq!(device.size(), SIZE);
}

#[test]
fn a_record_area_has_one_writer_per_role() {
    let dir = dir();
    let path = dir.path().join("area");
    let device = create(&path);
    let open = || ByteDevice::open(&volatile(&path), ByteOptions::default()).unwrap();
    let service = open();
    let none = Duration::ZERO;
    let said = service.claim(Role::Host, none).unwrap_err().to_string();
    assert!(said.contains(&format!("in use by process {}", std::process::id())), "{said}");
    device.unclaim(Role::Service).unwrap();
    service.claim(Role::Service, none).unwrap();
    refusal(ByteDevice::open_exclusive(&volatile(&path), ByteOptions::default()));
    drop(service);
    // Another process has the open file, and with it the lock.
    let file = device.file.try_clone().unwrap();
    let mut heir = Command::new("sleep").arg("60").stdin(file).spawn().unwrap();
    drop(device);
    let other = open();
    let said = other.claim(Role::Host, none).unwrap_err().to_string();
    assert!(said.contains(&format!("process {} (sleep)", heir.id())), "{said}");
    let said = refusal(ByteDevice::create(&volatile(&path), 8192, ByteOptions::default()));
    assert!(said.contains("in use by"), "{said}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE, "it was not made shorter");
    heir.kill().unwrap();
    heir.wait().unwrap();
    other.claim(Role::Host, Duration::from_secs(5)).unwrap();
}

#[test]
fn readers_share_and_write_nothing() {
    let dir = dir();
    let path = dir.path().join("area");
    drop(create(&path));
    let options = ByteOptions { read_only: true, ..ByteOptions::default() };
    let open = || ByteDevice::open_exclusive(&volatile(&path), options).unwrap();
    let (reader, _other) = (open(), open());
    let mut bytes = [1; 64];
    reader.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 64]);
    let errno = |r: Result<()>| r.unwrap_err().to_string();
    assert!(errno(reader.write(0, &[1], false)).contains("Read-only"));
    let op = WriteOp { offset: 0, data: &[1] };
    assert!(errno(reader.write_batch(&[op])).contains("Read-only"));
    refusal(ByteDevice::open_exclusive(&volatile(&path), ByteOptions::default()));
    refusal(ByteDevice::create(&volatile(&path), SIZE, options));
}

#[test]
fn what_became_shorter_is_not_claimed() {
    let dir = dir();
    let path = dir.path().join("area");
    drop(create(&path));
    let device = ByteDevice::open(&volatile(&path), ByteOptions::default()).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let said = device.claim(Role::Host, Duration::ZERO).unwrap_err().to_string();
    assert!(said.contains("made shorter"), "{said}");
}

#[test]
fn a_memfd_is_sealed_against_shrinking() {
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let memfd = File::from(rustix::fs::memfd_create(c"area", flags).unwrap());
    memfd.set_len(8192).unwrap();
    let path = format!("/proc/self/fd/{}", memfd.as_raw_fd());
    let device = ByteDevice::open(&volatile(path.as_ref()), ByteOptions::default()).unwrap();
    assert!(memfd.set_len(4096).is_err());
    device.write(0, &[1; 64], true).unwrap();
}
