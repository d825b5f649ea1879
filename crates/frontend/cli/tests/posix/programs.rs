//! Programs that say whose rights they were given, run by a user who has none.

use crate::pair::as_user;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The user who runs programs, and its only group.
const RUNNER: (u32, u32) = (1004, 4000);
/// Bytes after the program that it does without. They begin on a page.
pub const SPARE: u64 = 3 * 4096;

/// A program that prints the file which its argument names, and [`SPARE`] bytes.
pub fn program() -> Vec<u8> {
    let mut bytes = std::fs::read("/bin/cat").unwrap();
    let spare = usize::try_from(SPARE).unwrap();
    bytes.resize(bytes.len().next_multiple_of(4096) + spare, 0);
    bytes
}

/// Where the bytes begin that [`program`] does without.
pub fn spare_of(len: u64) -> u64 {
    len - SPARE
}

/// The user, the group and the capabilities that a copy of [`program`] has when a user without
/// rights executes it, or why that user could not.
pub fn executed(path: &Path) -> String {
    let output = match as_user(RUNNER.0, &[RUNNER.1], || execute(path)) {
        Ok(output) => output,
        Err(e) => return format!("not executed: {e}"),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = |name: &str, at: usize| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().nth(at)).unwrap_or("?").to_string()
    };
    // The first is the real one.
    let (user, group, rights) = (field("Uid:", 1), field("Gid:", 1), field("CapEff:", 0));
    format!("executed as {user}:{group} with {rights}, status {:?}", output.status.code())
}

/// A process that another test has just started may hold descriptors of ours for a moment, and the
/// file is not executed while it is open for writing.
fn execute(path: &Path) -> std::io::Result<Output> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match Command::new(path).arg("/proc/self/status").output() {
            Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}
