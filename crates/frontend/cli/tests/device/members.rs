//! A striped volume whose members are at targets, each a process: made over the wire, served by a
//! process that puts them together, mounted, used by a direct program, while members are killed.

use crate::support::{Ran, SIFTFS, Setup, run, siftfs};
use crate::{Device, address, await_that, has, put};
use rustix::process::Signal;
use siftfs::Direct;
use siftfs_rig::device::Device as Server;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const UNIT: u64 = 64 << 10;
const BEGIN: u64 = 1 << 20;
const EACH: u64 = 48 << 20;
const NAMES: [&str; 2] = ["ma", "mb"];

/// The processes that have the members, and the log here.
struct Rack {
    setup: Setup,
    members: [Option<Device>; 2],
    name: String,
    log: String,
}

impl Rack {
    /// Members of no set yet, served.
    fn free() -> Self {
        let setup = Setup::empty();
        let path = |name: &str| setup.tmp.path().join(name).display().to_string();
        let name =
            NAMES.map(|name| format!("target:unix:{}/{name}", path(&format!("{name}.sock"))));
        let (name, log) = (format!("stripe:{},{}", name[0], name[1]), path("log"));
        for name in NAMES {
            siftfs(&["mkfs", "--member", &path(name), "--size", "48M"]).ok();
        }
        let mut rack = Self { setup, members: [None, None], name, log };
        (0..2).for_each(|at| rack.start(at));
        rack
    }

    fn made() -> Self {
        let rack = Self::free();
        rack.mkfs(&[]).ok();
        rack
    }

    fn mkfs(&self, more: &[&str]) -> Ran {
        let first = ["mkfs", &self.name, "--log", &self.log, "--log-size", "16M"];
        siftfs(&[&first[..], &["--stripe-unit", "64K"], more].concat())
    }

    fn member(&self, at: usize) -> String {
        self.setup.tmp.path().join(NAMES[at]).display().to_string()
    }

    fn start(&mut self, at: usize) {
        let listen = format!("unix:{}.sock", self.member(at));
        self.members[at] = Some(Device::at(&self.setup, &listen, &self.member(at), &[]));
    }

    fn kill(&mut self, at: usize) {
        self.members[at].take().expect("it runs").kill();
    }

    /// The process that puts the members together.
    fn front(&self) -> Device {
        Device::at(&self.setup, &address(&self.setup), &self.name, &["--log", &self.log])
    }

    /// Nobody has the members any more: the area is plain ext4, as the kernel's dm-stripe has it.
    fn is_sound(&self) {
        let whole = tempfile::NamedTempFile::new().unwrap();
        let files = [0, 1].map(|at| File::open(self.member(at)).unwrap());
        let mut unit = vec![0; UNIT as usize];
        for turn in 0..EACH / UNIT {
            for (at, file) in (0u64..).zip(&files) {
                file.read_exact_at(&mut unit, BEGIN + turn * UNIT).unwrap();
                whole.as_file().write_all_at(&unit, (2 * turn + at) * UNIT).unwrap();
            }
        }
        let seen = run("e2fsck", &["-fn", whole.path().to_str().unwrap()]);
        assert_eq!(seen.code, 0, "{seen:?}");
        let said = siftfs(&["fsck", &self.name, "--log", &self.log]).ok();
        assert!(said.out.contains("clean"), "{said:?}");
    }
}

/// A mount of the front's volume, whose files are fsynced while members die, one by one and both.
#[test]
fn members_are_killed_under_a_mount() {
    let mut rack = Rack::made();
    rack.is_sound();
    let front = rack.front();
    let place = format!("target:{}/ma", front.address);
    siftfs(&["mount", &place, rack.setup.dir()]).ok();
    let (done, dir) = (AtomicBool::new(false), rack.setup.dir());
    let kept = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut kept = 0usize;
            while !done.load(Ordering::SeqCst) && kept < 400 {
                let mut file = File::create_new(Path::new(dir).join(format!("f{kept}"))).unwrap();
                file.write_all(&vec![kept as u8; 70_000]).unwrap();
                file.sync_all().expect("a lost member is waited for");
                kept += 1;
                if kept.is_multiple_of(8) {
                    siftfs(&["checkpoint", dir]).ok();
                }
            }
            kept
        });
        for victims in [&[1][..], &[0], &[0, 1]] {
            thread::sleep(Duration::from_millis(400));
            victims.iter().for_each(|at| rack.kill(*at));
            thread::sleep(Duration::from_millis(200));
            victims.iter().for_each(|at| rack.start(*at));
        }
        thread::sleep(Duration::from_millis(300));
        done.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    assert!(kept > 3, "{kept} files");
    rack.setup.umount();
    assert_eq!(front.end(Signal::TERM), 0);
    rack.is_sound();
    // The same by a mount that puts the members together itself, taken away by its name.
    siftfs(&["mount", &rack.name, rack.setup.dir(), "--log", &rack.log]).ok();
    for n in 0..kept {
        let found = fs::read(rack.setup.path(&format!("f{n}"))).unwrap();
        assert!(found == vec![n as u8; 70_000], "f{n}");
    }
    put(&rack.setup, "more");
    rack.kill(1);
    rack.start(1);
    siftfs(&["checkpoint", rack.setup.dir()]).ok();
    siftfs(&["umount", &rack.name]).ok();
    rack.is_sound();
    siftfs(&["mount", &rack.name, rack.setup.dir(), "--log", &rack.log]).ok();
    has(&rack.setup, &["more"]);
    rack.setup.umount();
}

/// A direct program of the front's volume: what it synced is there, whichever member dies.
#[test]
fn a_direct_program_over_members() {
    let mut rack = Rack::made();
    let front = rack.front();
    let (place, log) = (format!("target:{}/ma", front.address), rack.setup.tmp.path().join("h"));
    let listen = format!("unix:{}", rack.setup.tmp.path().join("host.sock").display());
    let server = Server::serve(Path::new(SIFTFS), Path::new(&place), &listen, &log, &[]).unwrap();
    let direct = Direct::connect(server.address(), "").unwrap();
    let file = direct.create("/f", 0o644).unwrap();
    let mut model = vec![1; 600_000];
    file.write_at(0, &model).unwrap();
    file.sync_all().unwrap();
    await_that("something is granted", || file.is_direct());
    for n in 0..12usize {
        let (at, victim) = (n * 47_000 / 512 * 512, n % 2);
        if n % 3 == 1 {
            rack.kill(victim);
        }
        model[at..at + 20_000].fill(n as u8 + 2);
        let begun = mpsc::channel();
        thread::scope(|scope| {
            let (file, model) = (&file, &model);
            scope.spawn(move || {
                file.write_at(at as u64, &model[at..at + 20_000]).unwrap();
                file.sync_data().expect("a lost member is waited for");
                begun.0.send(()).unwrap();
            });
            if n % 3 == 1 {
                assert!(begun.1.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
                rack.start(victim);
            }
        });
    }
    assert!(file.read_at(0, 600_000).unwrap() == model);
    drop((file, direct));
    server.end().unwrap();
    assert_eq!(front.end(Signal::TERM), 0);
    rack.is_sound();
    siftfs(&["mount", &rack.name, rack.setup.dir(), "--log", &rack.log]).ok();
    assert!(fs::read(rack.setup.path("f")).unwrap() == model);
    rack.setup.umount();
}

/// What is a member is no volume; what is of a set becomes no other one over the wire; a log is of
/// this machine; a command waits for no member, and a front that is to end waits for none.
#[test]
fn what_does_not_go_is_refused() {
    let mut rack = Rack::free();
    let (a, dir) = (rack.member(0), rack.setup.dir());
    siftfs(&["mount", &rack.name, dir]).fails(1, &["of no set yet"]);
    rack.mkfs(&[]).ok();
    rack.mkfs(&["--force"]).fails(1, &["of a set already", "--member --force"]);
    let alone = rack.name.strip_prefix("stripe:").unwrap().split(',').next().unwrap();
    siftfs(&["mount", alone, dir]).fails(1, &["member of a striped volume"]);
    siftfs(&["mount", &rack.name, dir, "--log", alone]).fails(1, &[]);
    siftfs(&["mount", &rack.name, dir, "-o", "private_logs=on"]).fails(2, &["--log"]);
    siftfs(&["mkfs", "--member", &a, "--size", "48M"]).fails(1, &["holds data already"]);
    siftfs(&["mkfs", "--member", "x", "--size", "1M", "--log", "y"]).fails(2, &["--member"]);
    let listen = address(&rack.setup);
    let programs = ["device", &a, "--listen", &listen, "--programs", "unix:/x"];
    siftfs(&programs).fails(2, &["one member of a striped volume"]);
    let front = rack.front();
    siftfs(&["mount", &format!("target:{}/ma", front.address), dir]).ok();
    siftfs(&["mkfs", "--member", &a, "--size", "48M", "--force"]).fails(1, &["in use"]);
    rack.kill(1);
    siftfs(&["inspect", &rack.name, "--log", &rack.log]).fails(8, &["mb.sock"]);
    rack.start(1);
    siftfs(&["umount", dir]).ok();
    rack.kill(1);
    assert_eq!(front.end(Signal::TERM), 0, "it waits for no member");
    rack.start(1);
    rack.is_sound();
    (0..2).for_each(|at| rack.kill(at));
    siftfs(&["mkfs", "--member", &a, "--size", "48M"]).fails(1, &["holds data already"]);
    siftfs(&["mkfs", "--member", &a, "--size", "48M", "--force"]).ok();
    (0..2).for_each(|at| rack.start(at));
    let gone = siftfs(&["mount", &rack.name, dir, "--log", &rack.log]);
    assert!(gone.code != 0 && gone.err.contains("of no set yet"), "{gone:?}");
}
