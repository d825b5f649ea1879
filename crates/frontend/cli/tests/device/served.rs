//! Programs that know nothing of it read and write at the target, on a mount of a volume that
//! another process serves. Target, server, mount and program are four processes.

use crate::accel::{FILE, Program, at_target, start};
use crate::support::serving::Server;
use crate::support::{Setup, siftfs};
use crate::{Device, address, await_that, status};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileExt;

/// A target with a door for programs, a server of its volume, and a mount of that.
struct Town {
    setup: Setup,
    target: Device,
    server: Option<Server>,
}

impl Town {
    fn new() -> Self {
        let setup = Setup::of_size("256M");
        let target = start(&setup);
        let mut town = Self { setup, target, server: None };
        town.serve();
        let server = town.address();
        let log = town.setup.tmp.path().join("mount.log").display().to_string();
        let options = "private_logs=daemon";
        siftfs(&["mount", &server, town.setup.dir(), "--log-file", &log, "-o", options]).ok();
        town
    }

    fn address(&self) -> String {
        format!("unix:{}", self.setup.tmp.path().join("server.sock").display())
    }

    fn serve(&mut self) {
        let place = format!("target:{}/volume", address(&self.setup));
        let server = Server::try_at(&place, &self.address());
        self.server = Some(server.unwrap_or_else(|ran| panic!("{ran:?}")));
    }

    /// The server is killed, and another one comes in its place.
    fn server_dies(&mut self) {
        self.server.take().unwrap().end(Signal::KILL);
        self.serve();
    }

    fn direct(&self) -> u64 {
        let told = status(&self.setup)["mounts"][0]["private_logs"]["direct"].as_u64();
        told.unwrap()
    }

    /// Syncs until blocks of the program's file are granted.
    fn until_direct(&self, program: &mut Program) {
        await_that("blocks are granted", || {
            assert_eq!(program.tell("datasync"), "0");
            self.direct() == 1
        });
    }

    /// Has the program write so until it does it at the target: more of its file is granted there
    /// with what is written beside that.
    fn writes(&self, program: &mut Program, what: &str) {
        let had = at_target(&self.setup);
        let len = what.split(' ').nth(2).unwrap();
        await_that("the target is asked", || {
            (0..70).for_each(|_| assert_eq!(program.tell(what), len));
            at_target(&self.setup) > had
        });
    }

    fn end(mut self) {
        self.setup.umount();
        assert!(self.server.take().unwrap().end(Signal::TERM).success());
        assert_eq!(self.target.end(Signal::TERM), 0);
        self.setup.assert_plain_ext4();
    }
}

/// The program's calls go to the target; others see them by the mount. The server is killed: what
/// was synced is there, and so is what went over written blocks. What was appended and not synced
/// is an error of the next sync, once. Then the program goes on.
#[test]
fn a_server_dies_under_a_direct_program() {
    let mut town = Town::new();
    let path = town.setup.path("f");
    let mut model = vec![1; FILE];
    fs::write(&path, &model).unwrap();
    let mut program = Program::start(&town.setup, &path);
    town.until_direct(&mut program);
    town.writes(&mut program, "write 8192 4096 2");
    assert_eq!(program.tell("read 8192 4096"), "4096 of 2");
    assert_eq!(program.tell("datasync"), "0");
    model[8192..12_288].fill(2);
    assert!(fs::read(&path).unwrap() == model, "another program, by the mount");
    assert_eq!(program.tell("appending"), "0");
    town.until_direct(&mut program);
    for byte in [3, 4, 5] {
        assert_eq!(program.tell(&format!("append 50000 {byte}")), "50000");
        model.resize(model.len() + 50_000, byte);
    }
    assert_eq!(program.tell("datasync"), "0");
    assert_eq!(town.direct(), 1, "the stream went to the target");
    assert_eq!(program.tell("plain"), "0");
    town.until_direct(&mut program);
    assert_eq!(program.tell("write 0 4096 6"), "4096");
    model[..4096].fill(6);
    assert_eq!(program.tell(&format!("seek {}", model.len())), model.len().to_string());
    for _ in 0..4 {
        assert_eq!(program.tell("here 100000 7"), "100000");
    }
    assert_eq!(town.direct(), 1, "the next stream went to the target");
    town.server_dies();
    assert_eq!(program.tell("datasync"), format!("errno {}", libc::EIO));
    assert_eq!(program.tell("datasync"), "0", "it is told once");
    let found = fs::read(&path).unwrap();
    assert!(found.len() >= model.len() && found[..model.len()] == model, "what was synced");
    assert!(found.len() < model.len() + 400_000, "what was not is lost: {}", found.len());
    model = found;
    town.until_direct(&mut program);
    assert_eq!(program.tell("write 4096 4096 8"), "4096");
    assert_eq!(program.tell("datasync"), "0");
    model[4096..8192].fill(8);
    program.end();
    assert!(fs::read(&path).unwrap() == model);
    town.end();
}

/// Servers die under a program that has synced what it wrote: nothing is told, and what another
/// program of the mount had written there before, and not synced, does not come over it.
#[test]
fn what_the_mount_keeps_is_older() {
    let mut town = Town::new();
    let path = town.setup.path("f");
    fs::write(&path, vec![1; FILE]).unwrap();
    let mut program = Program::start(&town.setup, &path);
    for turn in 1..=3_u8 {
        town.until_direct(&mut program);
        let others = fs::File::options().write(true).open(&path).unwrap();
        others.write_all_at(&[10 * turn; 40_960], 0).unwrap();
        drop(others);
        town.until_direct(&mut program);
        let byte = 10 * turn + 1;
        town.writes(&mut program, &format!("write 4096 8192 {byte}"));
        assert_eq!(program.tell("datasync"), "0");
        town.server_dies();
        assert_eq!(program.tell("read 4096 8192"), format!("8192 of {byte}"));
        assert_eq!(program.tell("datasync"), "0", "all of it was synced");
        let found = fs::read(&path).unwrap();
        assert!(found[..4096] == [10 * turn; 4096] && found[4096..12_288] == [byte; 8192]);
        assert!(found[12_288..40_960] == [10 * turn; 28_672], "what the mount repeats");
    }
    program.end();
    town.end();
}
