//! The servers that a client knows, by the addresses that mounts are given.

use crate::files::{self, Guard};
use crate::public::{Fingerprint, PublicKey, PublicLine, shortened, word};
use rustix::fs::FlockOperation;
use siftfs_base::{Error, Result};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest file, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// Most servers.
const MOST_SERVERS: usize = 4096;
/// Longest address, in bytes.
const MOST_ADDRESS: usize = 300;
/// Mode of a file that is made. Nothing in it is secret.
const MODE: u32 = 0o644;
/// How long another program may hold the lock.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that the client knows, and where that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownServer {
    /// The address, as a mount was given it.
    pub address: String,
    /// The server's key.
    pub key: PublicKey,
    /// The file that says so.
    pub file: PathBuf,
    /// The line that says so; the first is 1.
    pub line: usize,
}

impl KnownServer {
    /// What to say to a server of this address that has another key.
    fn contradict(&self, found: &Fingerprint) -> String {
        format!(
            "{}: the server has the key {found}, and line {} of {} says {}. Either another machine \
             answers in its place, or it has a new key: ask its administrator (`siftfs key show` \
             there prints the fingerprint), and if that is so, remove the line",
            self.address,
            self.line,
            self.file.display(),
            self.key.fingerprint()
        )
    }
}

/// Which key the server must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The one that the client knows it by.
    Known(KnownServer),
    /// One of this fingerprint.
    Fingerprint {
        /// The server's address, for messages.
        address: String,
        /// The fingerprint.
        fingerprint: Fingerprint,
    },
}

impl Expect {
    /// The server's address.
    pub fn address(&self) -> &str {
        match self {
            Expect::Known(server) => &server.address,
            Expect::Fingerprint { address, .. } => address,
        }
    }

    /// What to say if `key` is not the one.
    pub(crate) fn contradict(&self, key: &PublicKey) -> Option<String> {
        let found = key.fingerprint();
        match self {
            Expect::Known(server) if server.key == *key => None,
            Expect::Known(server) => Some(server.contradict(&found)),
            Expect::Fingerprint { fingerprint, .. } if *fingerprint == found => None,
            Expect::Fingerprint { address, fingerprint } => Some(format!(
                "{address}: the server has the key {found}, and the mount was told {fingerprint}. \
                 Either another machine answers in its place, or the fingerprint is wrong: \
                 `siftfs key show` on the server prints it"
            )),
        }
    }
}

/// The server of this address; `None`: the file does not name it, or is not there.
///
/// # Errors
/// A message that names the file, the line and what is wrong with it.
pub fn find(file: &Path, address: &str) -> Result<Option<KnownServer>> {
    check_address(address).map_err(Error::Refused)?;
    Ok(read(file)?.1.into_iter().find(|server| server.address == address))
}

/// Writes down the server of an address. Durable when it returns; other programs may do the same
/// at the same time.
///
/// # Errors
/// A message that names the file: it cannot be written, is held for too long by another program,
/// or has another key for this address.
pub fn learn(file: &Path, address: &str, key: &PublicKey) -> Result<KnownServer> {
    check_address(address).map_err(Error::Refused)?;
    files::folder(file)?;
    let _lock = lock(file)?;
    let (text, servers) = read(file)?;
    if let Some(known) = servers.iter().find(|server| server.address == address) {
        return match known.key == *key {
            true => Ok(known.clone()),
            false => Err(Error::Refused(known.contradict(&key.fingerprint()))),
        };
    }
    if servers.len() >= MOST_SERVERS {
        let what = format!("{}: it has {MOST_SERVERS} servers already", file.display());
        return Err(Error::Refused(what));
    }
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let whole = format!("{text}{end}{address} {}\n", key.line(""));
    files::replace(file, MODE, &whole)?;
    let line = whole.lines().count();
    Ok(KnownServer { address: address.to_string(), key: *key, file: file.into(), line })
}

/// Which key the server of an address must have.
///
/// `fingerprint` is what the mount was given. If the address is unknown and no fingerprint was
/// given, `prove` is asked for the key that the server proves to have
/// ([`crate::ClientTls::server_key`], on a connection of its own), and `confirm`, if there is a
/// person to be asked, with a text of several
/// lines. What is confirmed is written down.
///
/// # Errors
/// A message: the file, the given fingerprint and the server contradict each other, or nobody
/// confirms the key.
pub fn expect(
    file: &Path,
    address: &str,
    fingerprint: Option<&Fingerprint>,
    prove: &dyn Fn() -> Result<PublicKey>,
    confirm: Option<&dyn Fn(&str) -> bool>,
) -> Result<Expect> {
    match (find(file, address)?, fingerprint) {
        (Some(known), Some(given)) if known.key.fingerprint() != *given => {
            let (line, file, says) = (known.line, known.file.display(), known.key.fingerprint());
            Err(Error::Refused(format!(
                "{address}: the mount was told {given}, and line {line} of {file} says {says}; \
                 correct what is wrong, or remove the line"
            )))
        }
        (Some(known), _) => Ok(Expect::Known(known)),
        (None, Some(given)) => {
            Ok(Expect::Fingerprint { address: address.to_string(), fingerprint: *given })
        }
        (None, None) => ask(file, address, prove, confirm),
    }
}

fn ask(
    file: &Path,
    address: &str,
    prove: &dyn Fn() -> Result<PublicKey>,
    confirm: Option<&dyn Fn(&str) -> bool>,
) -> Result<Expect> {
    let Some(confirm) = confirm else {
        return Err(Error::Refused(format!(
            "{address}: its key is not known ({} does not name it), and there is no terminal to \
             ask on; say fingerprint=SHA256:..., as `siftfs key show` prints it on the server",
            file.display()
        )));
    };
    let key = prove()?;
    let print = key.fingerprint();
    let question = format!(
        "{address} is not known yet. The server there has the key\n{print}\n`siftfs key show` on \
         the server prints its fingerprint. Is it this one?"
    );
    match confirm(&question) {
        true => learn(file, address, &key).map(Expect::Known),
        false => Err(Error::Refused(format!("{address}: its key {print} was not confirmed"))),
    }
}

/// The file's text and servers. A file that is not there is empty.
fn read(file: &Path) -> Result<(String, Vec<KnownServer>)> {
    let Some(read) = files::read_if_there(file, Guard::Trusted, MOST_BYTES)? else {
        return Ok((String::new(), Vec::new()));
    };
    Ok((read.text.to_string(), parse(file, &read.text)?))
}

fn parse(file: &Path, text: &str) -> Result<Vec<KnownServer>> {
    let mut servers: Vec<KnownServer> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let refuse = |what| Error::Refused(format!("{}, line {number}: {what}", file.display()));
        let start = line.trim_start_matches([' ', '\t']);
        if start.is_empty() || start.starts_with('#') {
            continue;
        }
        if servers.len() == MOST_SERVERS {
            return Err(refuse(format!("there are more than {MOST_SERVERS} servers")));
        }
        let (address, rest) = word(start);
        check_address(address).map_err(refuse)?;
        let public: PublicLine = rest.parse().map_err(refuse)?;
        if let Some(first) = servers.iter().find(|server| server.address == address) {
            return Err(refuse(format!("its address is that of line {}, too", first.line)));
        }
        let (address, key) = (address.to_string(), public.key);
        servers.push(KnownServer { address, key, file: file.into(), line: number });
    }
    Ok(servers)
}

/// An address is a word of plain characters.
fn check_address(address: &str) -> std::result::Result<(), String> {
    let plain = address.bytes().all(|b| b.is_ascii_graphic()) && !address.starts_with('#');
    match plain && !address.is_empty() && address.len() <= MOST_ADDRESS {
        true => Ok(()),
        false => Err(format!("`{}` is no address", shortened(address))),
    }
}

/// Takes the lock of a file that is replaced as a whole: on a file beside it, which stays.
fn lock(file: &Path) -> Result<File> {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(".lock");
    let path = file.with_file_name(name);
    let refuse = |what: String| Error::Refused(format!("{}: {what}", path.display()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(&path).map_err(|e| refuse(format!("cannot be opened: {e}")))?;
    let end = Instant::now() + PATIENCE;
    while let Err(e) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if Instant::now() >= end {
            return Err(refuse(format!("another program holds it: {e}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(lock)
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
