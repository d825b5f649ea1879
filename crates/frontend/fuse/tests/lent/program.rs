//! Programs that use a mount.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A program that evaluates Python.
pub struct Program {
    child: Child,
    answers: Receiver<String>,
}

impl Program {
    pub fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lent/program.py");
        let mut child = Command::new("python3")
            .arg("-u")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need python3");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let program = Self { child, answers };
        assert_eq!(program.answer(), program.child.id().to_string());
        program
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it begin with something.
    pub fn tell(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{what}").expect("it listens");
    }

    /// What the next thing came to that it was told.
    #[track_caller]
    pub fn answer(&self) -> String {
        self.answers.recv_timeout(PATIENCE).expect("an answer")
    }

    /// Has it do something.
    #[track_caller]
    pub fn say(&mut self, what: &str) -> String {
        self.tell(what);
        self.answer()
    }

    /// Opens a file.
    #[track_caller]
    pub fn open(&mut self, name: &str, path: &Path, flags: i32) {
        let open = format!("opens({name:?}, {:?}, {flags})", path.to_str().expect("plain"));
        assert_eq!(self.say(&open), "None");
    }

    /// The size that stat(2) tells.
    #[track_caller]
    pub fn size(&mut self, path: &Path) -> String {
        self.say(&format!("os.stat({:?}).st_size", path.to_str().expect("plain")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
