//! Tokens: what a program shows the daemon, so that it knows which open file the program means.
//!
//! A token is 16 random bytes that stand for an open file, a user and a process, for two seconds
//! and one use. It is gone with the file's RELEASE. The answer to one that is wrong says nothing of
//! why.

use crate::logs::programs::Programs;
use crate::serve::caller::{boot_ns, process_then};
use crate::serve::open_files::{OpenFiles, Opener, reads_and_writes};
use rustix::rand::{GetRandomFlags, getrandom};
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::commands::{SOCKET_BYTES, TOKEN_BYTES};
use siftfs_proto::{Credentials, Handle};
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Tokens of a mount at a time.
const MOST: usize = 4096;
/// How long one counts, in nanoseconds of CLOCK_BOOTTIME.
const TERM: u64 = 2_000_000_000;

type Token = [u8; TOKEN_BYTES];

/// The other end of a socket, as the kernel says (SO_PEERCRED), in the daemon's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
}

/// What a token stands for.
struct Given {
    ino: InodeNr,
    handle: Handle,
    reads: bool,
    credentials: Credentials,
    to: Peer,
    until: u64,
}

#[derive(Default)]
struct Table {
    tokens: HashMap<Token, Given>,
    /// The process that showed it has the file open, by handles.
    claims: HashMap<Handle, u32>,
}

impl Table {
    /// How many tokens a user has, and how many are free.
    fn room(&self, uid: u32) -> (usize, usize) {
        let own = self.tokens.values().filter(|given| given.to.uid == uid).count();
        (own, MOST.saturating_sub(self.tokens.len()))
    }
}

/// The tokens of a mount, and the programs that hold leases of its files.
pub struct Tokens {
    open_files: Arc<OpenFiles>,
    clock: fn() -> u64,
    socket: OnceLock<[u8; SOCKET_BYTES]>,
    table: Mutex<Table>,
    /// What the table has, to be seen at each RELEASE.
    noted: AtomicUsize,
    programs: Programs,
}

/// An open file that a program has shown a token of.
pub struct Redeemed {
    /// The file.
    pub ino: InodeNr,
    /// The program's process.
    pub process: u32,
    /// For whom it was opened.
    pub credentials: Credentials,
    /// May it be read by what the program has open?
    pub reads: bool,
    tokens: Arc<Tokens>,
}

impl Redeemed {
    /// How often the process has the file open to be written, through this mount and with what the
    /// daemon itself has open of it.
    ///
    /// It is counted anew each time. A file that is opened or closed meanwhile may hide behind
    /// another one: so it is to be counted before a lease is asked for, with `writers`, and once it
    /// is granted. If it is another number then, others may have the file open, and the lease is to
    /// be given back.
    pub fn writers(&self) -> u64 {
        self.tokens.writers(self.process, self.ino)
    }
}

impl Tokens {
    pub(crate) fn new(open_files: Arc<OpenFiles>) -> Self {
        Self::by(open_files, boot_ns)
    }

    fn by(open_files: Arc<OpenFiles>, clock: fn() -> u64) -> Self {
        Self {
            open_files,
            clock,
            socket: OnceLock::new(),
            table: Mutex::default(),
            noted: AtomicUsize::new(0),
            programs: Programs::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, table: &Table) {
        self.noted.store(table.tokens.len() + table.claims.len(), Ordering::SeqCst);
    }

    /// The socket where tokens are redeemed. Before that is said, once, no program gets one.
    ///
    /// # Errors
    /// `InvalidInput` for a path that no socket can have, and for a second one.
    pub fn listen_at(&self, socket: &Path) -> io::Result<()> {
        let bytes = socket.as_os_str().as_bytes();
        let mut path = [0; SOCKET_BYTES];
        match path.get_mut(..bytes.len()) {
            // It ends with a NUL.
            Some(place) if bytes.len() < SOCKET_BYTES => place.copy_from_slice(bytes),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        self.socket.set(path).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    pub(crate) fn socket(&self) -> Option<[u8; SOCKET_BYTES]> {
        self.socket.get().copied()
    }

    /// A token of an open file for this user and process. A user gets one only while more are free
    /// than the user has.
    ///
    /// # Errors
    /// `EBADF` if it is not open to be written, `EAGAIN` if there are too many.
    pub(crate) fn draw(
        &self,
        (ino, handle): (InodeNr, Handle),
        (uid, pid): (u32, u32),
    ) -> Result<Token> {
        let mut token = [0; TOKEN_BYTES];
        let drawn = getrandom(&mut token, GetRandomFlags::empty());
        if drawn.map_err(|e| errno(e.raw_os_error()))? != TOKEN_BYTES {
            return Err(errno(libc::EAGAIN));
        }
        // The opening thread may be gone: then the file is the process's that asks for the token.
        let openers = self.open_files.openers(ino);
        let opener = openers.into_iter().find(|opener| opener.handle == handle);
        let Opener { cred: credentials, at, .. } = opener.ok_or(errno(libc::EBADF))?;
        let reads = reads_and_writes(self.open_files.flags(handle));
        let opened = process_then(credentials.pid, at);
        let now = (self.clock)();
        let mut table = self.table();
        let (own, free) = table.room(uid);
        if own >= free {
            table.tokens.retain(|_, given| given.until > now);
            let (own, free) = table.room(uid);
            if own >= free {
                return Err(errno(libc::EAGAIN));
            }
        }
        let until = now.saturating_add(TERM);
        let to = Peer { pid, uid };
        table.tokens.insert(token, Given { ino, handle, reads, credentials, to, until });
        table.claims.entry(handle).or_insert(opened.unwrap_or(pid));
        self.note(&table);
        Ok(token)
    }

    /// What a token stands for that `peer` shows. It is gone then.
    ///
    /// # Errors
    /// `EACCES` if nothing, not any more, or for another peer.
    pub fn redeem(self: &Arc<Self>, token: Token, peer: Peer) -> Result<Redeemed> {
        let now = (self.clock)();
        let mut table = self.table();
        let given = table.tokens.remove(&token);
        self.note(&table);
        drop(table);
        match given.filter(|given| given.to == peer && now < given.until) {
            Some(Given { ino, reads, credentials, .. }) => {
                let (process, tokens) = (peer.pid, self.clone());
                Ok(Redeemed { ino, process, credentials, reads, tokens })
            }
            None => Err(errno(libc::EACCES)),
        }
    }

    /// A file is closed.
    pub(crate) fn released(&self, handle: Handle) {
        if self.noted.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut table = self.table();
        if table.claims.remove(&handle).is_some() {
            table.tokens.retain(|_, given| given.handle != handle);
            self.note(&table);
        }
    }

    fn writers(&self, process: u32, ino: InodeNr) -> u64 {
        let own = [process, std::process::id()];
        let openers = self.open_files.openers(ino);
        let claims: Vec<Option<u32>> = {
            let table = self.table();
            openers.iter().map(|opener| table.claims.get(&opener.handle).copied()).collect()
        };
        let of = openers.iter().zip(claims).filter(|(opener, claim)| {
            let process = claim.or_else(|| process_then(opener.cred.pid, opener.at));
            process.is_some_and(|process| own.contains(&process))
        });
        u64::try_from(of.count()).unwrap_or(u64::MAX)
    }

    /// The process holds one lease more of the file: what it opens is opened beside that.
    pub fn holds(&self, process: u32, ino: InodeNr) {
        self.programs.holds(process, ino);
    }

    /// It holds one less.
    pub fn returns(&self, process: u32, ino: InodeNr) {
        self.programs.returns(process, ino);
    }

    /// Does the process of this thread hold the file's lease?
    pub(crate) fn is_held_by(&self, thread: u32, ino: InodeNr) -> bool {
        self.programs.has(thread, ino)
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
