//! Striped volumes by the commands: made, mounted by two ways, checked, repaired; what is refused.

use crate::support::{Ran, SIFTFS, Setup, run, siftfs};
use crate::{Device, address, has, put, status};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const UNIT: u64 = 64 << 10;
const BEGIN: u64 = 1 << 20;

/// The members, the log beside the first of them, and their name.
struct Set {
    setup: Setup,
    members: [String; 2],
    name: String,
}

impl Set {
    fn new() -> Self {
        let setup = Setup::empty();
        let path = |name: &str| setup.tmp.path().join(name).display().to_string();
        let members = [path("volume"), path("other")];
        let name = format!("stripe:{},{}", members[0], members[1]);
        let set = Self { setup, members, name };
        set.mkfs(&["--stripe-unit", "64K"]).ok();
        set
    }

    fn mkfs(&self, more: &[&str]) -> Ran {
        let log = format!("{}.log", self.members[0]);
        let first = ["mkfs", &self.name, "--size", "64M", "--log", &log, "--log-size", "16M"];
        siftfs(&[&first, more].concat())
    }

    /// The area in one file.
    fn whole(&self) -> tempfile::NamedTempFile {
        let whole = tempfile::NamedTempFile::new().unwrap();
        let files = self.members.each_ref().map(|path| File::open(path).unwrap());
        let mut unit = vec![0; UNIT as usize];
        for turn in 0..(32 << 20) / UNIT {
            for (at, file) in (0u64..).zip(&files) {
                file.read_exact_at(&mut unit, BEGIN + turn * UNIT).unwrap();
                whole.as_file().write_all_at(&unit, (2 * turn + at) * UNIT).unwrap();
            }
        }
        whole
    }

    /// It is plain ext4, as e2fsck sees it, and as `siftfs fsck` does.
    fn is_sound(&self) {
        let whole = self.whole();
        let seen = run("e2fsck", &["-fn", whole.path().to_str().unwrap()]);
        assert_eq!(seen.code, 0, "{seen:?}");
        let said = siftfs(&["fsck", &self.name]).ok();
        assert!(said.out.contains("clean"), "{said:?}");
    }

    /// As fsck(8) starts it.
    fn fsck(&self, flags: &[&str]) -> Ran {
        let mut command = Command::new(SIFTFS);
        command.arg0("fsck.siftfs").args(flags).arg(&self.name).output().unwrap().into()
    }
}

/// As any volume: mounted by its name, used, killed, recovered, taken away by its name.
#[test]
fn a_mount_of_stripes() {
    let set = Set::new();
    let setup = &set.setup;
    set.is_sound();
    siftfs(&["mount", &set.name, setup.dir(), "-o", "shared"]).ok();
    put(setup, "first");
    let large: Vec<u8> = (0..5_000_000u32).map(|n| (n / 4096) as u8 ^ n as u8).collect();
    let file = File::create_new(setup.path("large")).unwrap();
    file.write_all_at(&large, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let now = status(setup);
    assert_eq!(now["volume"].as_str(), Some(&*set.name));
    assert!(now.to_string().contains("stripes of 64 KiB"), "{now}");
    siftfs(&["fsck", &set.name]).fails(8, &["in use"]);
    let second = setup.tmp.path().join("second");
    fs::create_dir(&second).unwrap();
    let second = second.to_str().unwrap();
    siftfs(&["mount", &set.name, second]).ok();
    assert!(fs::read(format!("{second}/large")).unwrap() == large, "one more mount of it");
    siftfs(&["umount", second]).ok();
    let daemon = setup.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    let said = siftfs(&["fsck", &set.name]);
    assert!(said.code != 0 && said.out.contains("not unmounted"), "{said:?}");
    siftfs(&["recover", &set.name]).ok();
    set.is_sound();
    siftfs(&["mount", &set.name, setup.dir()]).ok();
    has(setup, &["first"]);
    assert!(fs::read(setup.path("large")).unwrap() == large);
    siftfs(&["umount", &set.name]).ok();
    set.is_sound();
}

/// The target has the members, and the host neither of them; it dies in between.
#[test]
fn a_device_process_serves_stripes() {
    let set = Set::new();
    let setup = &set.setup;
    let start = || Device::at(setup, &address(setup), &set.name, &[]);
    let device = start();
    let place = format!("target:{}/volume", device.address);
    siftfs(&["mount", &place, setup.dir()]).ok();
    put(setup, "first");
    siftfs(&["checkpoint", setup.dir()]).ok();
    device.kill();
    let device = start();
    put(setup, "second");
    setup.umount();
    siftfs(&["recover", &place]).ok();
    assert_eq!(device.end(Signal::TERM), 0);
    set.is_sound();
    siftfs(&["mount", &set.name, setup.dir(), "-o", "ro"]).ok();
    has(setup, &["first", "second"]);
    setup.umount();
}

/// What inspect says is how the bytes lie: dmsetup's table names each member at its first data.
#[test]
fn inspect_says_the_table() {
    let set = Set::new();
    let said = siftfs(&["inspect", &set.name]).ok().out;
    let [a, b] = &set.members;
    let table = format!("0 131072 striped 2 128 {a} 2048 {b} 2048");
    assert!(said.contains(&format!("dmsetup     {table}\n")), "{said}");
    assert!(said.contains("2 members with 32.0 MiB each, in turns of 64.0 KiB"), "{said}");
    let json = siftfs(&["inspect", &set.name, "--json"]).ok().out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["stripes"]["dmsetup"].as_str(), Some(&*table));
    assert_eq!(json["stripes"]["unit"].as_u64(), Some(UNIT));
    assert_eq!(json["external_log"].as_bool(), Some(true), "all else is said, too");
}

/// e2fsck sees damage on any member, and repairs it there.
#[test]
fn damage_is_seen_and_repaired() {
    let set = Set::new();
    let setup = &set.setup;
    siftfs(&["mount", &set.name, setup.dir()]).ok();
    (0..300).for_each(|n| fs::write(setup.path(&format!("f{n}")), "bytes").unwrap());
    setup.umount();
    set.is_sound();
    // Used inodes in two units of the first group's table that follow each other.
    let mut table = [0; 4];
    set.whole().as_file().read_exact_at(&mut table, 4096 + 8).unwrap();
    let first = u64::from(u32::from_le_bytes(table)) * 4096 + 20 * 256;
    for place in [first, first + UNIT] {
        let (member, turn) = ((place / UNIT) as usize % 2, place / UNIT / 2);
        let file = fs::OpenOptions::new().write(true).open(&set.members[member]).unwrap();
        file.write_all_at(&[0xff; 512], BEGIN + turn * UNIT + place % UNIT).unwrap();
    }
    let before = set.members.each_ref().map(|member| fs::read(member).unwrap());
    siftfs(&["fsck", &set.name]).fails(4, &[]);
    let after = set.members.each_ref().map(|member| fs::read(member).unwrap());
    assert!(before == after, "a check writes nothing");
    let repaired = set.fsck(&["-y", "-f"]);
    assert_eq!(repaired.code, 1, "{repaired:?}");
    for (member, was) in set.members.iter().zip(&before) {
        assert!(fs::read(member).unwrap() != *was, "{member} was repaired");
    }
    set.is_sound();
    assert_eq!(set.fsck(&["-y", "-f"]).code, 0);
    assert_eq!(set.fsck(&["-a"]).code, 0);
}

#[test]
fn what_does_not_go_is_refused() {
    let set = Set::new();
    let (setup, [a, b]) = (&set.setup, &set.members);
    let wrong = format!("stripe:{b},{a}");
    for command in [&["mount", &wrong, setup.dir()][..], &["fsck", &wrong], &["recover", &wrong]] {
        let ran = siftfs(command);
        assert!(ran.code != 0 && ran.err.contains("wrong order"), "{ran:?}");
        assert!(ran.err.contains(&set.name), "the right one is said: {ran:?}");
    }
    let listen = address(setup);
    let device = ["device", &wrong, "--listen", &listen];
    siftfs(&device).fails(1, &["wrong order"]);
    siftfs(&["adopt", &set.name, "--log", "x"]).fails(1, &["siftfs mkfs"]);
    siftfs(&["mount", "stripe:a,b,", setup.dir()]).fails(2, &["empty name"]);
    siftfs(&["mount", a, setup.dir()]).fails(1, &["member of a striped volume"]);
    let gone = format!("stripe:{a},{b}x");
    siftfs(&["mount", &gone, setup.dir()]).fails(1, &["No such file"]);
    set.mkfs(&[]).fails(1, &["holds data already"]);
    siftfs(&["mkfs", &set.name, "--size", "64M"]).fails(1, &["--log"]);
    set.is_sound();
    siftfs(&["release", &set.name]).ok();
    siftfs(&["mount", &set.name, setup.dir()]).fails(1, &[]);
}
