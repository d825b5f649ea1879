//! Freed space goes back to what the volume lies on (`docs/design/discard.md`).

use crate::places::Loop;
use crate::support::{Setup, patient, run, siftfs};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Bytes that are written and removed.
const WRITTEN: u64 = 200 * MIB;
/// Bytes that the volume's file may keep allocated after the removal: metadata in use from then on.
const KEPT: u64 = 8 * MIB;

/// Bytes that the volume's file takes of the file system below.
fn taken(volume: &str) -> u64 {
    let file = File::open(volume).unwrap();
    // The file system below may still have to allocate what it was given.
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512
}

/// Bytes that nobody can keep in fewer.
fn write(path: &Path, bytes: u64) {
    let mut file = File::create(path).unwrap();
    let piece: Vec<u8> = (0..MIB).map(|i| ((i * 31) >> 3) as u8 | 1).collect();
    (0..bytes / MIB).for_each(|_| file.write_all(&piece).unwrap());
    file.sync_all().unwrap();
}

fn status(s: &Setup) -> Value {
    let said = siftfs(&["status", s.dir(), "--json"]).ok().out;
    serde_json::from_str(&said).unwrap()
}

/// Writes much and removes it. Says what the volume's file took between, and after.
fn write_and_remove(s: &Setup, options: &str) -> (u64, u64) {
    s.mount(options);
    write(&s.path("large"), WRITTEN);
    siftfs(&["checkpoint", s.dir()]).ok();
    let between = taken(s.volume());
    fs::remove_file(s.path("large")).unwrap();
    siftfs(&["checkpoint", s.dir()]).ok();
    s.umount();
    s.assert_plain_ext4();
    (between, taken(s.volume()))
}

#[test]
fn removed_files_give_their_space_back() {
    let s = Setup::of_size("512M");
    let new = taken(s.volume());
    let (between, after) = write_and_remove(&s, "");
    assert!(between > new + WRITTEN - KEPT, "{between} bytes while they are there");
    assert!(after < new + KEPT, "a new volume takes {new} bytes, this one {after}");
}

#[test]
fn discard_off_leaves_the_space_where_it_is() {
    let s = Setup::of_size("512M");
    let (between, after) = write_and_remove(&s, "discard=off");
    assert!(after > between - KEPT, "{between} bytes before the removal, {after} after it");
    s.mount("nodiscard");
    assert_eq!(status(&s)["runtime"]["discard"]["online"], false);
    // A remount switches it on, for what is freed from then on.
    write(&s.path("again"), WRITTEN);
    let full = taken(s.volume());
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,discard"]).ok();
    assert_eq!(status(&s)["runtime"]["discard"]["online"], true);
    fs::remove_file(s.path("again")).unwrap();
    s.umount();
    let after = taken(s.volume());
    assert!(after < full - WRITTEN + KEPT, "{full} bytes before the removal, {after} after it");
}

/// Somebody meant to keep the space: what is given back may be another's when it is needed again.
#[test]
fn a_file_without_a_hole_keeps_its_space() {
    let s = Setup::of_size("512M");
    run("fallocate", &["-l", "512M", s.volume()]).ok();
    let new = taken(s.volume());
    let (_, after) = write_and_remove(&s, "");
    assert_eq!(after, new);
    s.mount("");
    let discard = &status(&s)["runtime"]["discard"];
    assert_eq!((&discard["online"], &discard["blocks"]), (&false.into(), &0.into()));
    s.umount();
}

/// A loop device takes discards, and makes holes in the file below.
#[test]
fn a_block_device_gives_its_space_back() {
    let s = Setup::empty();
    File::create(s.volume()).unwrap().set_len(512 * MIB).unwrap();
    let device = Loop::over(s.volume());
    siftfs(&["mkfs", &device.0]).ok();
    let new = taken(s.volume());
    siftfs(&["mount", &device.0, s.dir()]).ok();
    write(&s.path("large"), WRITTEN);
    siftfs(&["checkpoint", s.dir()]).ok();
    let between = taken(s.volume());
    fs::remove_file(s.path("large")).unwrap();
    siftfs(&["checkpoint", s.dir()]).ok();
    let area = status(&s)["runtime"]["devices"][0]["kind"].clone();
    patient(|| siftfs(&["umount", s.dir()])).ok();
    let after = taken(s.volume());
    assert_eq!(area, "block device");
    assert!(between > new + WRITTEN - KEPT, "{between} bytes while they are there");
    assert!(after < new + KEPT, "a new volume takes {new} bytes, this one {after}");
    assert_eq!(run("e2fsck", &["-fn", &device.0]).code, 0);
}

fn trim(s: &Setup) -> u64 {
    let said = siftfs(&["trim", s.dir(), "--json"]).ok().out;
    let done: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&done["failed"], &done["incomplete"]), (&0.into(), &false.into()), "{said}");
    done["bytes"].as_u64().unwrap()
}

/// What was freed without it: by a command, and by fstrim(8), through the kernel.
#[test]
fn a_trim_gives_back_what_is_free() {
    let s = Setup::of_size("512M");
    let new = taken(s.volume());
    for by_fstrim in [false, true] {
        s.mount("discard=off");
        write(&s.path("large"), WRITTEN);
        write(&s.path("stays"), 2 * MIB);
        fs::remove_file(s.path("large")).unwrap();
        siftfs(&["checkpoint", s.dir()]).ok();
        let between = taken(s.volume());
        let bytes = if by_fstrim {
            let said = run("fstrim", &["-v", s.dir()]).ok().out;
            let number = said.split('(').nth(1).and_then(|rest| rest.split(' ').next());
            number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{said}"))
        } else {
            trim(&s)
        };
        let after = taken(s.volume());
        assert!(bytes >= WRITTEN, "{bytes} bytes");
        assert!(after < new + 2 * MIB + KEPT, "{new} bytes new, {between} and then {after}");
        let stays = fs::read(s.path("stays")).unwrap();
        assert!(stays.iter().zip(0..).all(|(b, i)| *b == (((i % MIB) * 31) >> 3) as u8 | 1));
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Files come and go while it is trimmed, and none of them loses a byte.
#[test]
fn a_trim_beside_writers() {
    let s = Setup::of_size("512M");
    s.mount("discard=off,commit=0.05");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = |name: &'static str| {
            let (s, done) = (&s, &done);
            move || {
                let mut round = 0u8;
                while !done.load(std::sync::atomic::Ordering::Relaxed) || round < 4 {
                    round = round.wrapping_add(1);
                    let path = s.path(&format!("{name}{}", round % 3));
                    let data = vec![round; (3 * MIB) as usize + usize::from(round) * 4096];
                    fs::write(&path, &data).unwrap();
                    let file = File::open(&path).unwrap();
                    file.sync_all().unwrap();
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                    assert!(fs::read(&path).unwrap() == data, "{name}, round {round}");
                    if round.is_multiple_of(2) {
                        fs::remove_file(&path).unwrap();
                    }
                }
            }
        };
        let writers = ["a", "b"].map(|name| scope.spawn(writer(name)));
        (0..6).for_each(|_| assert!(trim(&s) > 0));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        writers.into_iter().for_each(|w| w.join().unwrap());
    });
    s.umount();
    s.assert_plain_ext4();
}

/// Reserved blocks are for this volume alone, whatever is asked.
#[test]
fn a_reserved_volume_is_never_punched() {
    let s = Setup::empty();
    siftfs(&["mkfs", s.volume(), "--size", "512M", "--reserve"]).ok();
    let new = taken(s.volume());
    let (_, after) = write_and_remove(&s, "discard=online");
    assert_eq!(after, new);
    s.mount("discard=online");
    siftfs(&["trim", s.dir()])
        .fails(1, &["cannot take space back, or the volume's blocks are reserved"]);
    run("fstrim", &[s.dir()]).fails(1, &["not supported"]);
    assert_eq!(status(&s)["runtime"]["discard"]["unit_bytes"], 0);
    s.umount();
    assert_eq!(taken(s.volume()), new);
}

/// Who may not administer the system may not make it work.
#[test]
fn a_trim_takes_the_right_to_administer() {
    let s = Setup::new();
    s.mount("");
    run("setpriv", &["--bounding-set=-sys_admin", "fstrim", s.dir()]).fails(1, &["not permitted"]);
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,ro"]).ok();
    run("fstrim", &[s.dir()]).fails(1, &["Read-only file system"]);
    s.umount();
}
