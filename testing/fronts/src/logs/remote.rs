//! Programs with private logs, as the process sees them that has them do something.

use crate::wire::Wire;
use siftfs_rig::place::{Failed, Result};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// One program, or the child of its fork.
pub struct Program {
    wire: Wire,
    /// Who it is.
    pub said: String,
    /// Calls that it made under a lease.
    pub leased: u64,
}

/// What a call gave, and by which way it was made.
pub struct Answer {
    /// As of the kernel.
    pub gave: std::result::Result<Vec<u8>, i32>,
    /// Under a lease.
    pub leased: bool,
}

impl Program {
    /// Asks it to do something.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask(
        &mut self,
        thread: u64,
        (verb, path): (&str, &Path),
        (slot, offset, len): (u64, u64, usize),
        bytes: &[u8],
    ) -> io::Result<Answer> {
        let [thread, slot, offset] = [thread, slot, offset].map(|number| number.to_string());
        let (path, len) = (path.to_string_lossy(), len.to_string());
        self.wire.send(&[&thread, verb, &path, &slot, &offset, &len], bytes)?;
        let (words, bytes) = self.wire.receive()?.ok_or(io::ErrorKind::ConnectionReset)?;
        let errno: Option<i32> = words.first().and_then(|word| word.parse().ok());
        let leased = words.get(1).is_some_and(|word| word == "1");
        self.leased += u64::from(leased);
        match errno.ok_or(io::ErrorKind::InvalidData)? {
            0 => Ok(Answer { gave: Ok(bytes), leased }),
            errno => Ok(Answer { gave: Err(errno), leased }),
        }
    }
}

fn accept(listener: &UnixListener, process: &mut Child) -> io::Result<UnixStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        if let Some(status) = process.try_wait()? {
            return Err(io::Error::other(format!("it ended with {status}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program and the child of its fork.
pub struct Programs {
    /// The program, and its child.
    pub all: Vec<Program>,
    process: Child,
}

impl Programs {
    /// Starts a program that has `file` open and leased, and forks.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(socket: &Path, file: &Path) -> Result<Self> {
        let said = |e: io::Error| Failed(format!("a program with private logs: {e}"));
        let listener = UnixListener::bind(socket).map_err(said)?;
        let program = std::env::current_exe().map_err(said)?;
        let mut command = Command::new(program);
        command.arg("--accelerated").arg(socket).arg("--on").arg(file);
        let mut process = command.spawn().map_err(said)?;
        listener.set_nonblocking(true).map_err(said)?;
        let mut all = Vec::new();
        for _ in 0..2 {
            let stream = accept(&listener, &mut process).map_err(said)?;
            let mut wire = Wire::new(stream);
            let (words, _) = wire.receive().map_err(said)?.unwrap_or_default();
            all.push(Program { wire, said: words.join(" "), leased: 0 });
        }
        all.sort_by(|a, b| b.said.cmp(&a.said));
        std::fs::remove_file(socket).map_err(said)?;
        Ok(Self { all, process })
    }

    /// Has both end, and waits for it.
    ///
    /// # Errors
    /// One of them failed.
    pub fn end(self) -> Result<()> {
        let Self { all, mut process } = self;
        drop(all);
        match process.wait() {
            Ok(status) if status.success() => Ok(()),
            other => Err(Failed(format!("a program with private logs ended: {other:?}"))),
        }
    }
}
