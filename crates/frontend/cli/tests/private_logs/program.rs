//! A program in a process of its own that holds a lease: this test program, started once more.

use crate::Held;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Says to the child which file it is to hold.
const FILE: &str = "SIFTFS_TEST_HELD_FILE";

/// The process, from outside.
pub struct Program {
    child: Child,
    says: BufReader<ChildStdout>,
    told: ChildStdin,
}

impl Program {
    /// Starts one that holds the lease of a file.
    pub fn start(file: &Path) -> Self {
        let own = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(own)
            .args(["--ignored", "--exact", "--nocapture", "program::holds_a_lease"])
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let says = BufReader::new(child.stdout.take().expect("a pipe"));
        let told = child.stdin.take().expect("a pipe");
        let mut program = Self { child, says, told };
        program.await_line("leased");
        program
    }

    fn await_line(&mut self, wanted: &str) {
        let mut line = String::new();
        loop {
            line.clear();
            let n = self.says.read_line(&mut line).expect("a line");
            assert!(n > 0, "it ended before it said {wanted}");
            // The test harness says things on the same line.
            if line.trim_end().ends_with(wanted) {
                return;
            }
        }
    }

    /// Has it append a line to the file, by its lease.
    pub fn append(&mut self, text: &str) {
        writeln!(self.told, "{text}").expect("it listens");
        self.await_line("appended");
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }
}

/// The process itself: appends each line that it is told.
#[test]
#[ignore = "a part of other tests, which start it"]
fn holds_a_lease() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let held = Held::of(Path::new(&file));
    println!("leased");
    for line in std::io::stdin().lines() {
        held.append(format!("{}\n", line.expect("a line")).as_bytes());
        println!("appended");
    }
}
