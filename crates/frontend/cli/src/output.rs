//! Writing to standard output, whose reader may go away (`siftfs status DIR | head -1`).

use crate::failure::Failure;
use std::io::{self, Write};

/// Writes all of `text`; false if nobody reads it any more.
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
