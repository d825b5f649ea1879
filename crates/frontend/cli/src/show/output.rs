//! Writing to standard output and standard error, whose readers may go away
//! (`siftfs status DIR | head -1`).

use crate::show::failure::Failure;
use std::fmt::Display;
use std::io::{self, Write};

/// Writes all of `text`; returns false if the reader has closed the pipe.
///
/// # Errors
/// Any other failure, such as a full disk.
pub fn print(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failure::plain(format!("cannot write the answer: {e}"))),
    }
}

/// Writes `line` and its end.
///
/// # Errors
/// As [`print()`]; a reader that has closed the pipe is no error.
pub fn say(line: impl Display) -> Result<(), Failure> {
    print(&format!("{line}\n")).map(drop)
}

/// Tells people something on standard error. When that fails, no reader is left to tell.
pub fn complain(message: impl Display) {
    let _ = writeln!(io::stderr().lock(), "siftfs: {message}");
}

/// Asks a question on standard error; the line is not ended.
pub fn ask(question: impl Display) {
    let _ = write!(io::stderr().lock(), "siftfs: {question} ");
}

/// Prints a report as one JSON document.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::plain)?;
    say(text)
}
