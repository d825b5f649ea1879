//! `siftfs serve`: programs that have a volume by a socket. Needs e2fsprogs, and root to mount.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use siftfs::Volume;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use support::{SIFTFS, Setup, run, siftfs};

/// A server; killed when dropped.
struct Served {
    child: Child,
    said: BufReader<ChildStdout>,
    address: String,
}

fn address(setup: &Setup) -> String {
    format!("unix:{}", setup.tmp.path().join("volume.sock").display())
}

impl Served {
    fn start(setup: &Setup) -> Self {
        let listen = address(setup);
        let mut child = Command::new(SIFTFS)
            .args(["serve", setup.volume(), "--listen", &listen, "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(value["listening"], listen.as_str());
        assert_eq!(value["pid"], child.id());
        assert!(value["executors"].as_u64() >= Some(2) && value["schedule"] == "fair", "{line}");
        Self { child, said, address: listen }
    }

    fn end(mut self, signal: Signal) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
        let status = self.child.wait().unwrap();
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        status
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program's files survive a killed server, and the volume is plain ext4 after an orderly end.
#[test]
fn a_killed_server_loses_nothing_that_was_acknowledged() {
    let setup = Setup::of_size("64M");
    let server = Served::start(&setup);
    let volume = Volume::connect(&server.address).unwrap();
    let file = volume.create("/kept", 0o644).unwrap();
    file.write_at(0, &[7; 10_000]).unwrap();
    file.sync_all().unwrap();
    server.end(Signal::KILL);
    assert_eq!(file.read_at(0, 1).unwrap_err().errno(), libc::EIO);
    assert_eq!(volume.stat("/kept").unwrap_err().errno(), libc::EIO);
    drop((file, volume));

    let server = Served::start(&setup);
    let volume = Volume::connect(&server.address).unwrap();
    assert_eq!(volume.open_file("/kept").unwrap().read_at(0, 20_000).unwrap(), [7; 10_000]);
    let other = Volume::connect(&server.address).unwrap();
    let written = volume.create("/both", 0o644).unwrap();
    written.write_at(0, b"seen").unwrap();
    assert_eq!(other.open_file("/both").unwrap().read_at(0, 10).unwrap(), b"seen");
    assert_eq!(volume.status().unwrap().failed, None);
    // A client that is still there does not keep the server from ending.
    assert!(server.end(Signal::TERM).success());
    assert_eq!(written.read_at(0, 1).unwrap_err().errno(), libc::EIO);
    siftfs(&["fsck", setup.volume()]).ok();
    setup.assert_plain_ext4();
    let read = run("debugfs", &["-R", "cat /both", setup.volume()]);
    assert_eq!(read.out, "seen");
}

/// One process has a volume, and each of the others is told which has it.
#[test]
fn a_served_volume_is_in_use() {
    let setup = Setup::of_size("64M");
    let server = Served::start(&setup);
    let other = format!("{}-2", address(&setup));
    for words in [
        &["serve", setup.volume(), "--listen", &other][..],
        &["mount", setup.volume(), setup.dir()],
        &["fsck", setup.volume()],
    ] {
        let said = siftfs(words);
        assert!(said.code != 0 && said.err.contains("in use"), "{words:?}: {}", said.err);
    }
    let said = siftfs(&["serve", setup.volume(), "--listen", &server.address]);
    assert!(said.err.contains("another process listens there"), "{}", said.err);
    assert!(server.end(Signal::INT).success());
    setup.assert_plain_ext4();
}

/// A port is opened on request alone, and says why.
#[test]
fn a_port_is_opened_by_that_name() {
    let setup = Setup::of_size("64M");
    let said = siftfs(&["serve", setup.volume(), "--listen", "tcp:127.0.0.1:0"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("--insecure") && !said.err.contains("panicked"), "{}", said.err);
    for (address, why) in [
        ("unix:/nowhere/x.sock", "No such file"),
        ("here", "neither a unix socket nor a TCP address"),
    ] {
        let said = siftfs(&["serve", setup.volume(), "--listen", address]);
        assert!(said.code != 0 && said.err.contains(why), "{}", said.err);
    }
}
