//! How the process that is killed is asked for what the program in it does: one line with words,
//! and perhaps bytes, in either direction. No path has a space.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Longest line.
const LINE: u64 = 1 << 10;
/// Most bytes of a message.
const MOST: usize = 1 << 20;

/// A connection.
pub struct Wire {
    stream: BufReader<UnixStream>,
}

impl Wire {
    /// Asks the process that listens here.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self::new(UnixStream::connect(socket)?))
    }

    /// Over a stream that is there.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Sends words and bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&mut self, words: &[&str], bytes: &[u8]) -> io::Result<()> {
        let mut message = format!("{} {}\n", bytes.len(), words.join(" ")).into_bytes();
        message.extend_from_slice(bytes);
        self.stream.get_mut().write_all(&message)
    }

    /// The next message; `None` where the other side has ended.
    ///
    /// # Errors
    /// The kernel's; anything but a message.
    pub fn receive(&mut self) -> io::Result<Option<(Vec<String>, Vec<u8>)>> {
        let mut line = String::new();
        if self.stream.by_ref().take(LINE).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(String::from);
        let len: Option<usize> = words.next().and_then(|word| word.parse().ok());
        let len = len.filter(|len| *len <= MOST && line.ends_with('\n'));
        let mut bytes = vec![0; len.ok_or_else(|| io::Error::other(format!("{line:?}")))?];
        self.stream.read_exact(&mut bytes)?;
        Ok(Some((words.collect(), bytes)))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the process answered; `ENOTCONN` if it has ended.
    pub fn ask(&mut self, words: &[&str], bytes: &[u8]) -> io::Result<Vec<u8>> {
        let answer = self.send(words, bytes).and_then(|()| self.receive());
        let Ok(Some((words, bytes))) = answer else {
            return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
        };
        match words.first().map(|word| word.parse()) {
            Some(Ok(0)) => Ok(bytes),
            Some(Ok(errno)) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(io::Error::other(words.join(" "))),
        }
    }
}
