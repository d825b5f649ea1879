//! Who is turned away by a server: one message on both sides, and a log that stays short.

use crate::support::keys::Keys;
use crate::support::served::{Served, address};
use crate::support::{Setup, siftfs};
use rustix::process::Signal;
use siftfs::Volume;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A server that writes a log.
struct Logged {
    setup: Setup,
    server: Served,
}

impl Logged {
    fn at(setup: Setup, listen: &str, more: &[&str]) -> Self {
        let log = setup.tmp.path().join("log").display().to_string();
        let server = Served::at(&setup, listen, &[more, &["--log-file", &log]].concat());
        Self { setup, server }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.setup.tmp.path().join("log")).unwrap()
    }

    /// The server logs a refusal when it has told the client.
    #[track_caller]
    fn says(&self, text: &str) {
        let begun = Instant::now();
        while !self.log().contains(text) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{text}: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn end(self) {
        assert!(self.server.end(Signal::TERM).success());
        self.setup.assert_plain_ext4();
    }
}

/// Those that are turned away for one reason are a line now and then, which counts them.
#[test]
fn many_that_are_turned_away_are_few_lines() {
    let setup = Setup::of_size("64M");
    let listen = address(&setup);
    let logged = Logged::at(setup, &listen, &[]);
    let path = listen.trim_start_matches("unix:");
    for _ in 0..600 {
        let mut stream = UnixStream::connect(path).unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nand as much as a greeting has, or more";
        stream.write_all(request).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    drop(Volume::connect(&listen).unwrap());
    logged.says("more in the last 10 s");
    let log = logged.log();
    let lines = log.lines().filter(|line| line.contains("turned away")).count();
    assert!((2..10).contains(&lines), "{lines} lines: {log}");
    // All of them are counted.
    let more = log.lines().filter_map(|line| line.split(", and ").nth(1)?.split(' ').next());
    let more: u64 = more.filter_map(|number| number.parse::<u64>().ok()).sum();
    assert!(more + lines as u64 >= 300, "{more}: {log}");
    logged.end();
}

/// A client of another version is told which ones both speak, and so is the server's administrator.
#[test]
fn another_version_is_said_on_both_sides() {
    let setup = Setup::of_size("64M");
    let listen = address(&setup);
    let logged = Logged::at(setup, &listen, &[]);
    let mut hello = b"SiftLink".to_vec();
    for number in [99u32, 99, 3, 1000] {
        hello.extend(number.to_le_bytes());
    }
    for number in [0u64, 1 << 20, 0] {
        hello.extend(number.to_le_bytes());
    }
    hello.extend([0; 4]);
    hello.extend(siftfs_base::crc32c(&hello).to_le_bytes());
    let mut stream = UnixStream::connect(listen.trim_start_matches("unix:")).unwrap();
    stream.write_all(&hello).unwrap();
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    let told = String::from_utf8_lossy(&told);
    let both = "speaks versions 99 to 99 of the file protocol";
    assert!(told.contains(both), "{told}");
    logged.says(both);
    drop(Volume::connect(&listen).unwrap());
    logged.end();
}

/// A key that the server does not know, a server whose key is another one than the client was told,
/// and a file of keys that is nonsense: each is one message where a person looks for it, and the
/// server serves on as soon as the file is right.
#[test]
fn keys_that_do_not_fit_are_said_on_both_sides() {
    let setup = Setup::of_size("64M");
    let keys = Keys::new(setup.tmp.path(), "role=client squash=none volumes=volume");
    let right = std::fs::read_to_string(keys.file("authorized")).unwrap();
    let admits = keys.admits();
    let more: Vec<&str> = admits.iter().map(String::as_str).collect();
    let logged = Logged::at(setup, "tcp:127.0.0.1:0", &more);
    let (at, dir) = (logged.server.address.clone(), logged.setup.dir().to_string());
    let mount = |options: &str| siftfs(&["mount", &at, &dir, "-o", options]);
    // The machine's key is not in the file.
    keys.admit("# nobody\n");
    let said = mount(&keys.option()).fails(1, &["does not admit the key"]);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    logged.says("does not list it");
    // The file is full of nonsense: nobody gets in, and the log names file and line.
    let nonsense: String = (0..3000).map(|n| format!("role=emperor \u{fffd} {n}\n")).collect();
    keys.admit(&nonsense);
    let said = mount(&keys.option()).fails(1, &["does not admit the key"]);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    logged.says("authorized, line 1");
    logged.says("is refused, as all are");
    // Another server answers than the one that was meant.
    keys.admit(&right);
    let print = keys.fingerprint();
    let end = if print.ends_with("AAA") { "BBB" } else { "AAA" };
    let wrong = keys.option().replace(print, &format!("{}{end}", &print[..print.len() - 3]));
    let said = mount(&wrong).fails(1, &[print]);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    // The right key, from now on without a restart.
    mount(&keys.option()).ok();
    std::fs::write(logged.setup.path("f"), "x").unwrap();
    crate::support::patient(|| siftfs(&["umount", &dir])).ok();
    assert!(logged.log().lines().count() < 40, "{}", logged.log());
    logged.end();
}
