//! Codes of authenticity that only their maker can make, by a secret that it keeps in a file: what
//! it has said can be shown to it again, and it believes that without having written it down.

use ring::hmac::{Context, HMAC_SHA256, Key};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;
/// What every code begins with, so that none of them is one of another use of the secret.
const PURPOSE: &[u8] = b"siftfs seal 1";

/// A code: the first half of an HMAC with SHA-256.
pub type Seal = [u8; 16];

/// What makes codes and knows them again.
#[derive(Clone, Debug)]
pub struct Seals(Key);

impl Seals {
    /// By a secret that nobody has after this process.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn new() -> io::Result<Self> {
        Ok(Self::of(&drawn()?))
    }

    /// By the secret in this file, which is made if it is not there, with its directory. Both can
    /// be read by their owner alone.
    ///
    /// # Errors
    /// Those of files; `InvalidData` if the file is no secret.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        loop {
            match read(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => make(path)?,
                read => return read.map(|secret| Self::of(&secret)),
            }
        }
    }

    /// By this secret.
    pub fn of(secret: &[u8; SECRET_BYTES]) -> Self {
        Self(Key::new(HMAC_SHA256, secret))
    }

    /// The code of these parts in this order.
    pub fn seal(&self, parts: &[&[u8]]) -> Seal {
        let mut context = Context::with_key(&self.0);
        for part in [PURPOSE].iter().chain(parts) {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let code = context.sign();
        let half = code.as_ref().first_chunk();
        *half.expect("SHA-256 has 32 bytes")
    }

    /// Is this the code of these parts? The time that it takes says nothing of where it is wrong.
    pub fn knows(&self, parts: &[&[u8]], seal: &Seal) -> bool {
        let own = self.seal(parts);
        let differ = own.iter().zip(seal).fold(0, |differ, (a, b)| differ | (a ^ b));
        std::hint::black_box(differ) == 0
    }
}

fn drawn() -> io::Result<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    Ok(secret)
}

fn read(path: &Path) -> io::Result<[u8; SECRET_BYTES]> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(SECRET_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let no_secret = |_| io::Error::new(ErrorKind::InvalidData, "it is no secret of a server's");
    bytes.try_into().map_err(no_secret)
}

/// Makes the file, unless another process has made it meanwhile.
fn make(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let dir = path.parent().ok_or(ErrorKind::InvalidInput)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&drawn()?)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => fs::File::open(dir)?.sync_all(),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.error),
    }
}

#[cfg(test)]
#[path = "seals_tests.rs"]
mod tests;
