//! Programs that know nothing of it read and write at the target: `siftfs accel --direct`, on a
//! mount of a target's volume. Target, mount and program are three processes.

use crate::support::{INSTALLED, Ran, Setup, run, siftfs};
use crate::{Device, address, await_that, kill_host, status};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Bytes of a program's file before it begins.
pub const FILE: usize = 1 << 20;

/// A target with a door for programs, and a mount of its volume.
pub struct Town {
    pub setup: Setup,
    pub target: Option<Device>,
    logs: bool,
}

impl Town {
    pub fn new() -> Self {
        Self::with_logs(false)
    }

    /// One whose volume has a redo lane of these bytes.
    pub fn with_lane(size: &str) -> Self {
        let setup = Setup::empty();
        siftfs(&["mkfs", setup.volume(), "--size", "256M", "--redo-lane", size]).ok();
        Self::of(setup, false)
    }

    /// One whose programs have logs of their own for files that are not at the target.
    fn with_logs(logs: bool) -> Self {
        Self::of(Setup::of_size("256M"), logs)
    }

    fn of(setup: Setup, logs: bool) -> Self {
        let target = Some(start(&setup));
        let town = Self { setup, target, logs };
        town.mount("");
        town
    }

    pub fn mount(&self, more: &str) {
        let place = format!("target:{}/volume", address(&self.setup));
        let log = self.setup.tmp.path().join("mount.log").display().to_string();
        let logs = match self.logs {
            true => self.setup.tmp.path().join("logs").display().to_string(),
            false => "daemon".into(),
        };
        let options = format!("private_logs={logs},write_cache=writethrough{more}");
        siftfs(&["mount", &place, self.setup.dir(), "--log-file", &log, "-o", &options]).ok();
    }

    /// What `siftfs status` says of the mount's programs.
    pub fn told(&self, what: &str) -> u64 {
        status(&self.setup)["mounts"][0]["private_logs"][what].as_u64().unwrap()
    }

    /// A program that has the direct lease of a file of ones.
    pub fn program(&self) -> Program {
        let path = self.setup.path("f");
        fs::write(&path, vec![1; FILE]).unwrap();
        let mut program = Program::start(&self.setup, &path);
        program.until_direct(self, "datasync");
        program
    }

    pub fn end(self) {
        self.setup.umount();
        assert_eq!(self.target.unwrap().end(Signal::TERM), 0);
        self.setup.assert_plain_ext4();
    }
}

/// A program under `siftfs accel --direct`, which becomes it.
pub fn direct(program: &Path) -> Command {
    let mut command = Command::new(&*INSTALLED);
    command.args(["accel", "--direct", "--"]).arg(program).env("SIFTFS_ACCEL", "eager");
    command
}

/// A C program beside these tests, compiled.
fn compiled(setup: &Setup, source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let program = setup.tmp.path().join(source.file_stem().unwrap());
    if !program.exists() {
        let words = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-w", "-pthread"];
        let out = [source.to_str().unwrap(), "-o", program.to_str().unwrap()];
        run("cc", &[&words[..], &out].concat()).ok();
    }
    program
}

pub fn start(setup: &Setup) -> Device {
    let programs = format!("unix:{}", setup.tmp.path().join("programs.sock").display());
    Device::start(setup, &["--programs", &programs])
}

/// `sources/direct.c`, with the library.
pub struct Program {
    pub child: Child,
    pub says: BufReader<ChildStdout>,
    pub told: ChildStdin,
}

impl Program {
    pub fn start(setup: &Setup, path: &Path) -> Self {
        Self::start_as(setup, path, 0)
    }

    /// One of this user.
    fn start_as(setup: &Setup, path: &Path, uid: u32) -> Self {
        let program = compiled(setup, "device/sources/direct.c");
        let mut child = direct(&program)
            .arg(path)
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let told = child.stdin.take().unwrap();
        Self { child, says, told }
    }

    /// What came of it.
    pub fn tell(&mut self, what: &str) -> String {
        writeln!(self.told, "{what}").unwrap();
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Syncs until the file is leased, and blocks of it are granted.
    pub fn until_direct(&mut self, town: &Town, sync: &str) {
        await_that("blocks are granted", || {
            assert_eq!(self.tell(sync), "0");
            town.told("direct") == 1
        });
    }

    pub fn end(mut self) {
        drop(self.told);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Requests of programs that the target has had, in places of their queues.
pub fn at_target(setup: &Setup) -> u64 {
    let now = status(setup);
    now["runtime"]["service"]["device"]["programs"]["requests"].as_u64().unwrap()
}

/// The program's reads, writes and syncs go to the target, and make no request of the mount. Other
/// processes that look at the file see all of it, by every door.
#[test]
fn a_program_that_is_not_changed() {
    let town = Town::new();
    let mut program = town.program();
    let path = town.setup.path("f");
    let requests = |town: &Town| {
        let now = status(&town.setup);
        let of = |name: &str| now["mounts"][0]["requests"][name].as_u64().unwrap_or(0);
        ["read", "write", "fsync"].map(of)
    };
    assert_eq!(program.tell("datasync"), "0");
    let before = requests(&town);
    let (records, had) = (town.told("records"), at_target(&town.setup));
    let mut model = vec![1; FILE];
    for turn in 0..50_usize {
        let (at, len, byte) = (turn * 20_011 % (FILE - 70_000), 1 + turn * 1361, turn as u8 + 2);
        assert_eq!(program.tell(&format!("write {at} {len} {byte}")), len.to_string());
        model[at..at + len].fill(byte);
        assert_eq!(program.tell(&format!("read {at} {len}")), format!("{len} of {byte}"));
        assert_eq!(program.tell("datasync"), "0");
    }
    assert_eq!(requests(&town), before, "the kernel was asked");
    assert_eq!((town.told("direct"), town.told("records")), (1, records));
    assert!(at_target(&town.setup) >= had + 100, "{} requests", at_target(&town.setup) - had);
    let text = siftfs(&["status", town.setup.dir()]).ok().out;
    assert!(text.contains("1 files leased (1 of them at the target)"), "{text}");
    // Size and times, without a recall.
    assert_eq!(fs::metadata(&path).unwrap().len(), FILE as u64);
    assert_eq!(town.told("direct"), 1);
    assert!(fs::read(&path).unwrap() == model, "by the mount");
    await_that("the lease has ended", || town.told("leases") == 0);
    // The other one writes, and the program sees that.
    let other = fs::File::options().write(true).open(&path).unwrap();
    other.write_all_at(&[99; 5000], 3000).unwrap();
    assert_eq!(program.tell("read 3000 5000"), "5000 of 99");
    assert_eq!(program.tell("write 3000 100 98"), "100");
    assert_eq!(program.tell("datasync"), "0");
    drop(other);
    model[3000..8000].fill(99);
    model[3000..3100].fill(98);
    program.until_direct(&town, "datasync");
    assert_eq!(program.tell("read 3000 100"), "100 of 98");
    program.end();
    await_that("the session ends", || town.told("sessions") == 0);
    assert!(fs::read(&path).unwrap() == model);
    town.end();
}

/// A file that others may read or write past the library goes back, and comes again after it.
#[test]
fn what_the_library_does_not_do_is_the_kernels() {
    let town = Town::new();
    let mut program = town.program();
    let direct = |town: &Town| town.told("direct");
    // A child has none of it, and both see what the other one writes.
    assert_eq!(program.tell("write 0 4096 2"), "4096");
    assert_eq!(program.tell("fork 8192 3"), "0");
    assert_eq!(direct(&town), 0);
    assert_eq!(program.tell("read 0 4096"), "4096 of 2");
    assert_eq!(program.tell("read 8192 4096"), "4096 of 3");
    program.until_direct(&town, "datasync");
    // Another number of the same open file, and the same offset.
    assert_eq!(program.tell("seek 4096"), "4096");
    assert_eq!(program.tell("dup"), "40");
    assert_eq!(program.tell("append 100 4"), "100");
    assert_eq!(program.tell("next 4000"), "3996, 3996 of 1".replace("3996, 3996", "4000, 3996"));
    assert_eq!(program.tell("read 4096 100"), "100 of 4");
    // Shorter, and longer: zeros are behind the old end.
    assert_eq!(program.tell("truncate 300000"), "0");
    assert_eq!(direct(&town), 0);
    program.until_direct(&town, "datasync");
    assert_eq!(program.tell("end"), "300000");
    assert_eq!(program.tell("truncate 400000"), "0");
    assert_eq!(program.tell("stat"), "400000");
    program.until_direct(&town, "datasync");
    assert_eq!(program.tell("read 300000 99999"), "99999 of 0");
    assert_eq!(program.tell("read 399999 5"), "1 of 0");
    assert_eq!(program.tell("read 400000 5"), "nothing");
    // Whatever is closed, the library's connections are not.
    assert_eq!(program.tell("closeall"), "0");
    assert_eq!(program.tell("write 0 8192 5"), "8192");
    assert_eq!(program.tell("datasync"), "0");
    assert_eq!(direct(&town), 1);
    // What is mapped stays the kernel's.
    assert_eq!(program.tell("map 0 6"), "5");
    assert_eq!(program.tell("read 0 4096"), "4096 of 6");
    for _ in 0..5 {
        assert_eq!(program.tell("datasync"), "0");
    }
    assert_eq!(direct(&town), 0);
    program.end();
    let found = fs::read(town.setup.path("f")).unwrap();
    assert_eq!((found.len(), &found[4095..4097]), (400_000, &[6, 5][..]));
    town.end();
}

/// Appends by a descriptor that may only write: the kernel is asked whether the program may read.
/// Of four threads none loses a byte.
#[test]
fn appends() {
    let town = Town::new();
    let mut program = town.program();
    assert_eq!(program.tell("appending"), "0");
    program.until_direct(&town, "datasync");
    let had = at_target(&town.setup);
    let mut model = vec![1; FILE];
    for turn in 0..40_usize {
        let (len, byte) = (1 + turn * 3001, turn as u8 + 2);
        assert_eq!(program.tell(&format!("append {len} {byte}")), len.to_string());
        model.resize(model.len() + len, byte);
        assert_eq!(program.tell("stat"), model.len().to_string());
        if turn % 8 == 7 {
            assert_eq!(program.tell("datasync"), "0");
        }
    }
    assert!(at_target(&town.setup) >= had + 30, "{} requests", at_target(&town.setup) - had);
    assert_eq!(town.told("direct"), 1);
    assert_eq!(program.tell("threads"), "4");
    assert_eq!(town.told("direct"), 1, "nothing was recalled");
    let found = fs::read(town.setup.path("f")).unwrap();
    assert!(found[..model.len()] == model);
    assert_eq!(found.len(), model.len() + 4 * 50 * 3000);
    for byte in 11..=14 {
        let own = found[model.len()..].iter().filter(|found| **found == byte).count();
        assert_eq!(own, 50 * 3000, "{byte}");
    }
    // The kernel appends behind what was appended at the target, and the other way round.
    assert_eq!(program.tell("append 7 20"), "7");
    program.until_direct(&town, "datasync");
    assert_eq!(program.tell("append 90000 21"), "90000");
    program.end();
    let found = fs::read(town.setup.path("f")).unwrap();
    let tail = &found[model.len() + 4 * 50 * 3000..];
    assert!(tail[..7] == [20; 7] && tail[7..] == [21; 90_000], "{}", tail.len());
    town.end();
}

/// Handlers of signals run while the library is at work, in the program's threads alone.
#[test]
fn signals() {
    let town = Town::new();
    let mut program = town.program();
    let pid = Pid::from_child(&program.child);
    for turn in 0..200 {
        kill_process(pid, Signal::USR1).unwrap();
        assert_eq!(program.tell(&format!("write {} 5000 {}", turn * 999, turn % 100)), "5000");
        assert_eq!(program.tell("datasync"), "0");
    }
    let caught: u32 = program.tell("caught").parse().unwrap();
    assert!(caught >= 100, "{caught}");
    assert_eq!(program.tell("mask 1"), "0");
    let caught = program.tell("caught");
    for _ in 0..20 {
        kill_process(pid, Signal::USR1).unwrap();
        assert_eq!(program.tell("datasync"), "0");
    }
    assert_eq!(program.tell("caught"), caught, "another thread has it");
    assert_eq!(program.tell("mask 0"), "0");
    assert_ne!(program.tell("caught"), caught);
    assert_eq!(town.told("direct"), 1);
    program.end();
    town.end();
}

/// The target dies under the program, which goes on; then the program dies, and then the mount's
/// daemon. What was synced is there, and what was only written until the daemon was killed.
#[test]
fn deaths() {
    die(Town::new());
}

/// Nor does a log of the program's own undo anything at the next mount.
#[test]
fn deaths_beside_a_log() {
    die(Town::with_logs(true));
}

fn die(mut town: Town) {
    let mut program = town.program();
    assert_eq!(program.tell("write 0 4096 2"), "4096");
    assert_eq!(program.tell("datasync"), "0");
    assert_eq!(program.tell("write 4096 4096 3"), "4096");
    town.target.take().unwrap().kill();
    town.target = Some(start(&town.setup));
    assert_eq!(program.tell("read 4096 4096"), "4096 of 3");
    assert_eq!(program.tell("write 8192 4096 4"), "4096");
    assert_eq!(program.tell("datasync"), "0");
    program.until_direct(&town, "datasync");
    // Rule R47: it lies at the target.
    assert_eq!(program.tell("write 12288 4096 5"), "4096");
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let path = town.setup.path("f");
    let mut model = vec![1; FILE];
    for (block, byte) in [(0, 2), (1, 3), (2, 4), (3, 5)] {
        model[block << 12..(block + 1) << 12].fill(byte);
    }
    assert!(fs::read(&path).unwrap() == model);
    let mut program = Program::start(&town.setup, &path);
    program.until_direct(&town, "datasync");
    assert_eq!(program.tell("write 16384 4096 6"), "4096");
    assert_eq!(program.tell("datasync"), "0");
    kill_host(&town.setup);
    // Until the target knows it, what is granted may be read there. Then the mount has gone, and
    // says so by the kernel.
    await_that("the grant ends", || program.tell("read 0 4096").starts_with("errno"));
    for what in ["read 0 4096", "write 0 4096 9", "datasync"] {
        assert!(program.tell(what).starts_with("errno"), "{what}");
    }
    program.end();
    town.mount("");
    model[16_384..20_480].fill(6);
    assert!(fs::read(&path).unwrap() == model);
    town.end();
}

/// Thousands of random calls on a few files answer the same with the library and without it, and
/// leave the same (`preload/sources/calls.c`).
#[test]
fn calls_answer_the_same() {
    let town = Town::new();
    answer_the_same(&town, 1..=4);
    town.end();
}

/// As before; what is not at the target goes by the program's own log.
#[test]
fn calls_answer_the_same_beside_a_log() {
    let town = Town::with_logs(true);
    answer_the_same(&town, 5..=8);
    town.end();
}

fn answer_the_same(town: &Town, seeds: std::ops::RangeInclusive<u32>) {
    let program = compiled(&town.setup, "preload/sources/calls.c");
    let before = town.told("grants");
    for seed in seeds {
        let [ours, theirs] =
            ["ours", "theirs"].map(|kind| town.setup.path(&format!("{kind}{seed}")));
        let mut said = Vec::new();
        for (dir, mut command) in [(&ours, direct(&program)), (&theirs, Command::new(&program))] {
            fs::create_dir(dir).unwrap();
            let out = command.arg(dir).args([&seed.to_string(), "3000"]).output().unwrap();
            said.push(Ran::from(out).ok().out);
        }
        for ((one, other), line) in said[0].lines().zip(said[1].lines()).zip(1..) {
            assert_eq!(one, other, "seed {seed}, line {line}");
        }
        assert_eq!(said[0].len(), said[1].len(), "seed {seed}");
        run("diff", &["-r", ours.to_str().unwrap(), theirs.to_str().unwrap()]).ok();
    }
    let grants = town.told("grants") - before;
    // They grow, so there are fewer than leases that were used.
    assert!(grants > 40, "{grants} grants");
    assert_eq!((town.told("ended"), town.told("lost")), (0, 0));
}

/// SQLite with each journal: what it says of itself, and that it wrote at the target.
#[test]
fn a_database() {
    let town = Town::new();
    for journal in ["wal", "truncate", "persist"] {
        let path = town.setup.path(&format!("{journal}.db"));
        let mut work = format!("PRAGMA journal_mode={journal}; PRAGMA synchronous=full;");
        work += "CREATE TABLE t(n INTEGER PRIMARY KEY, x BLOB);";
        for turn in 0..200 {
            work += &format!("INSERT INTO t VALUES({turn}, randomblob({}));", 100 + turn * 37);
            if turn % 3 == 0 {
                work += &format!("UPDATE t SET x = zeroblob(5000) WHERE n = {};", turn / 2);
            }
        }
        work += "PRAGMA integrity_check; SELECT count(*), sum(length(x)) FROM t;";
        let had = at_target(&town.setup);
        let out = direct(Path::new("sqlite3")).arg(&path).arg(&work).output().unwrap();
        let out = Ran::from(out).ok().out;
        assert!(out.starts_with(&format!("{journal}\nok\n200|")), "{out}");
        assert!(at_target(&town.setup) > had, "{journal}: nothing was written at the target");
        let check = "PRAGMA integrity_check; SELECT count(*), sum(length(x)) FROM t;";
        let plain = run("sqlite3", &[path.to_str().unwrap(), check]).ok().out;
        assert_eq!(out[journal.len() + 1..], plain);
    }
    town.end();
}

/// Writes the keys that it is told, each durably; small tables are made and removed all the time.
const PUT: &str = "
import sys, plyvel
db = plyvel.DB(sys.argv[1], create_if_missing=True, write_buffer_size=1 << 18)
for n in range(int(sys.argv[2])):
    key = b'%012d' % (n * 7919 % 100003)
    db.put(key, (key + b' ') * (1 + n * 7 % 600), sync=True)
db.close()
";
/// Reads all of them, with the checksums, and says how many there are.
const CHECK: &str = "
import sys, plyvel
db = plyvel.DB(sys.argv[1], paranoid_checks=True)
values = {b'%012d' % (n * 7919 % 100003): n for n in range(int(sys.argv[2]))}
n = 0
with db.iterator(verify_checksums=True, fill_cache=False) as entries:
    for key, value in entries:
        n += 1
        assert value == (key + b' ') * (1 + values[key] * 7 % 600), (key, value)
print(n)
";

/// LevelDB, by Debian's Python binding (`python3-plyvel`): what it wrote by the library it reads
/// without it, with all checksums, and so does a LevelDB with the library.
#[test]
fn leveldb() {
    let town = Town::new();
    let path = town.setup.path("db");
    let python = Path::new("/usr/bin/python3");
    let had = (town.told("grants"), town.told("records"));
    let work = |command: &mut Command, script: &str| {
        let out = command.args(["-c", script]).arg(&path).arg("1500").output().unwrap();
        Ran::from(out).ok().out
    };
    assert_eq!(work(&mut direct(python), PUT), "");
    // Its log is granted, and goes by records: a little is appended between two syncs.
    assert!(town.told("grants") > had.0 && town.told("records") > had.1 + 500);
    assert_eq!(work(&mut Command::new(python), CHECK), "1500\n");
    assert_eq!(work(&mut direct(python), CHECK), "1500\n");
    town.end();
}

/// A user without rights has his file at the target, by the door for programs, and reads nothing
/// there that he may not read. Where that door is not, he has a private log.
#[test]
fn programs_of_any_user() {
    const NOBODY: u32 = 65_534;
    for door in [true, false] {
        let setup = Setup::of_size("256M");
        let dir = setup.tmp.path();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        let target = if door { start(&setup) } else { Device::start(&setup, &[]) };
        let town = Town { setup, target: Some(target), logs: false };
        town.mount(",allow_other");
        let path = town.setup.path("f");
        fs::write(&path, vec![1; FILE]).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut program = Program::start_as(&town.setup, &path, NOBODY);
        let until_leased = |program: &mut Program| {
            await_that("the file is leased", || {
                assert_eq!(program.tell("datasync"), "0");
                town.told("leases") == 1
            });
        };
        until_leased(&mut program);
        assert_eq!(town.told("direct") == 1, door);
        assert_eq!(program.tell("write 4096 4096 2"), "4096");
        assert_eq!(program.tell("read 4096 4096"), "4096 of 2");
        assert_eq!(program.tell("datasync"), "0");
        // He may write it, and not read it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o200)).unwrap();
        assert_eq!(program.tell("appending"), "0");
        let grants = town.told("grants");
        until_leased(&mut program);
        assert_eq!(program.tell("append 100000 3"), "100000");
        assert_eq!(program.tell("datasync"), "0");
        assert_eq!((town.told("grants"), town.told("direct")), (grants, 0));
        program.end();
        let found = fs::read(&path).unwrap();
        assert!(found[4096..8192] == [2; 4096] && found[FILE..] == [3; 100_000]);
        town.end();
    }
}
