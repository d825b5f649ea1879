//! Programs that lock what they are told to.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A program.
pub struct Puppet {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    /// Calls that are not answered.
    open: usize,
}

impl Puppet {
    pub fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks/puppet.py");
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
        let input = child.stdin.take();
        let puppet = Self { child, input, answers, open: 0 };
        let pid = puppet.answers.recv_timeout(PATIENCE).expect("it begins");
        assert_eq!(pid, puppet.child.id().to_string());
        puppet
    }

    /// One that has the file at `path` open as `f`.
    pub fn with(path: &Path) -> Self {
        let mut puppet = Self::new();
        puppet.open("f", path);
        puppet
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens a file, which is made if it is not there.
    pub fn open(&mut self, slot: &str, path: &Path) {
        let flags = libc::O_RDWR | libc::O_CREAT;
        assert_eq!(self.call(&format!("open {slot} {} {flags}", path.display())), "ok");
    }

    /// Has it make a call.
    pub fn tell(&mut self, call: &str) {
        self.open += 1;
        let input = self.input.as_mut().expect("it listens");
        writeln!(input, "{call}").expect("it listens");
    }

    /// What a call that was told came to.
    #[track_caller]
    pub fn answer(&mut self) -> String {
        let answer = self.answers.recv_timeout(PATIENCE).expect("an answer");
        self.open -= 1;
        answer
    }

    /// The same, if there is one yet.
    pub fn answered(&mut self) -> Option<String> {
        let answer = self.answers.try_recv().ok()?;
        self.open -= 1;
        Some(answer)
    }

    /// Has it make a call, and returns what that comes to.
    #[track_caller]
    pub fn call(&mut self, call: &str) -> String {
        self.tell(call);
        self.answer()
    }

    /// Does it sleep inside of a call about locks? If it has not been answered by then, it waits.
    pub fn sleeps(&self) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid()));
        let text = text.unwrap_or_default();
        let calls = [libc::SYS_fcntl, libc::SYS_flock].map(|n| format!("{n} "));
        calls.iter().any(|call| text.starts_with(call))
    }

    /// Has it make a call, and returns when it sleeps there.
    pub fn waits(&mut self, call: &str) {
        self.tell(call);
        self.until_it_sleeps();
    }

    /// Returns when it sleeps in the call that it was told.
    pub fn until_it_sleeps(&self) {
        let begin = Instant::now();
        while !self.sleeps() {
            assert!(begin.elapsed() < PATIENCE, "it comes to its call");
            sleep(Duration::from_millis(1));
        }
    }

    pub fn signal(&self, signal: i32) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let signal = rustix::process::Signal::from_named_raw(signal).expect("a signal");
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    /// Kills it, and returns when it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is there");
        let begin = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break status,
                None => assert!(begin.elapsed() < PATIENCE, "whoever is killed ends"),
            }
            sleep(Duration::from_millis(2));
        };
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        let rest = loop {
            match self.answers.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(end) => break end,
            }
        };
        assert_eq!(rest, RecvTimeoutError::Disconnected);
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.input = None;
        if self.open > 0 || std::thread::panicking() {
            let _ = self.child.kill();
        }
        if !std::thread::panicking() {
            let _ = self.child.wait();
        }
    }
}
