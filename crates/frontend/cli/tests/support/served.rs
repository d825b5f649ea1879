//! `siftfs serve` in a process of its own.

use super::{SIFTFS, Setup};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// A server; killed when dropped.
pub struct Served {
    child: Child,
    said: BufReader<ChildStdout>,
    /// Where it listens.
    pub address: String,
}

/// Where a server of this volume listens by itself.
pub fn address(setup: &Setup) -> String {
    format!("unix:{}", setup.tmp.path().join("volume.sock").display())
}

impl Served {
    pub fn start(setup: &Setup) -> Self {
        let listen = address(setup);
        let served = Self::at(setup, &listen, &[]);
        assert_eq!(served.address, listen);
        served
    }

    pub fn at(setup: &Setup, listen: &str, more: &[&str]) -> Self {
        let mut child = Command::new(SIFTFS)
            .args(["serve", setup.volume(), "--listen", listen, "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(value["pid"], child.id());
        assert!(value["executors"].as_u64() >= Some(2) && value["schedule"] == "fair", "{line}");
        Self { child, said, address: value["listening"].as_str().unwrap().into() }
    }

    pub fn end(mut self, signal: Signal) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
        let status = self.child.wait().unwrap();
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        // A line for each further listener, and nothing else.
        assert!(rest.lines().all(|line| line.contains("\"listening\":")), "{rest}");
        status
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
