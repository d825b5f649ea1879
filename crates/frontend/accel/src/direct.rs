//! A leased file of which blocks are granted, so that this program reads and writes them at the
//! target of their volume (`docs/design/target.md`, "Programs that are not changed").

use crate::Through;
use crate::host::Host;
use crate::leased::{By, Leased, now};
use crate::medium::boot_time;
use crate::session::{Noted, Session, Shared};
use siftfs_base::{Error, errno};
use siftfs_device_target::{Address, Lines, TargetPlace, dial, over_socket};
use siftfs_direct::{DirectFile, Written};
use siftfs_lease::{FULL, Token, high, lasts, log_promises};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long no blocks are asked for after their target was not reached.
const UNREACHED: Duration = Duration::from_secs(10);

/// What an atomic section at the target came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Committed {
    /// All of its writes are there, and durable. `synced` says that so is everything which an
    /// fsync(2) of the file promises beside its bytes; else the caller makes one by the kernel.
    There {
        /// No fsync(2) is to be made.
        synced: bool,
    },
    /// Nothing of it is there, and the lease lasts: it is for a section of the mount.
    Elsewhere,
    /// Nothing of it is there, and the lease has ended: others may have changed the file.
    Ended,
}

/// A leased file that is read and written at the target. As [`Leased`], which it is, too.
pub struct Direct {
    /// Dropped before the lease.
    file: DirectFile,
    leased: Leased,
    /// One append at a time.
    appends: Mutex<()>,
}

impl Session {
    /// As [`Session::lease`], of a file that is open to be read and written, and with blocks of it
    /// granted. Each descriptor of a connection to the target is `noted` before it is used.
    ///
    /// # Errors
    /// As of [`Session::lease`]. The lease without blocks, if nothing is granted by this mount, or
    /// the target is not reached; or this file's handle may not be read.
    pub fn lease_direct(
        &self,
        file: impl AsFd,
        noted: Noted,
    ) -> io::Result<Result<Direct, Leased>> {
        let token = siftfs_client::grant(&file)?.token;
        if self.0.was_unreached() {
            return self.lease_with(&token).map(Err);
        }
        match self.lease_direct_with(&token, noted) {
            Err(e) if e.kind() == io::ErrorKind::HostUnreachable => self.lease(file).map(Err),
            leased => leased,
        }
    }

    /// As [`Session::lease_direct`], of the file that a token stands for.
    ///
    /// # Errors
    /// As of [`Session::lease_with`]; `EHOSTUNREACH` if blocks were granted and their target is not
    /// reached: there is no lease then.
    pub fn lease_direct_with(
        &self,
        token: &Token,
        noted: Noted,
    ) -> io::Result<Result<Direct, Leased>> {
        let leased = self.lease_with(token)?;
        let shared = leased.shared.clone();
        let granted = Arc::new(AtomicBool::new(false));
        let host = Host {
            shared: shared.clone(),
            held: leased.held,
            ino: leased.ino,
            taken: AtomicBool::new(false),
            granted: granted.clone(),
        };
        let finds = Box::new(move |target: &str| shared.lines(target, noted));
        let file = DirectFile::lent(finds, Arc::new(host));
        if !file.has_way() && granted.load(Ordering::Acquire) {
            *self.0.lock_unreached() = Some(Instant::now());
            drop(file);
            leased.close()?;
            return Err(io::Error::from_raw_os_error(libc::EHOSTUNREACH));
        }
        if !file.has_way() {
            return Ok(Err(leased));
        }
        Ok(Ok(Direct { file, leased, appends: Mutex::default() }))
    }

    /// Closes the connections to targets, of which no file is in use any more. The next file's
    /// makes new ones.
    pub fn disconnect(&self) {
        self.0.lock_lines().clear();
    }
}

impl Shared {
    /// Was the target not reached just now?
    fn was_unreached(&self) -> bool {
        self.lock_unreached().is_some_and(|at| at.elapsed() < UNREACHED)
    }

    /// The connections to the target that a host names so.
    fn lines(&self, target: &str, noted: Noted) -> siftfs_base::Result<Arc<Lines>> {
        let named = TargetPlace::parse(target).and_then(Result::ok);
        let (address, _) = named.ok_or_else(|| errno(libc::EOPNOTSUPP))?;
        let Address::Unix(path) = &address else {
            return Err(errno(libc::EOPNOTSUPP));
        };
        let mut lines = self.lock_lines();
        if let Some(known) = lines.get(target) {
            return Ok(known.clone());
        }
        let path = path.clone();
        let connects = move || {
            let socket = high(dial(&path)?);
            noted(socket.as_raw_fd());
            over_socket(socket, &address)
        };
        let made = Lines::by(Box::new(connects));
        lines.insert(target.to_owned(), made.clone());
        Ok(made)
    }
}

impl Direct {
    /// As [`Leased::write_at`], of any length. What is granted is carried out at the target when it
    /// returns.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Through<usize> {
        if !self.leased.shared.is_usable() || self.file.write_at(offset, bytes).is_err() {
            return Through::Mount;
        }
        self.note(offset.saturating_add(bytes.len() as u64));
        Through::Lease(bytes.len())
    }

    /// Writes `bytes` at the file's end, or a begin of them; answers where that was, and how many.
    pub fn append(&self, bytes: &[u8]) -> Through<(u64, usize)> {
        let _turn = self.appends.lock().unwrap_or_else(PoisonError::into_inner);
        // What others have appended since is behind the end that is known here.
        if !self.lasts() {
            return Through::Mount;
        }
        let Ok((begin, written)) = self.file.append(bytes) else { return Through::Mount };
        self.note(begin.saturating_add(written as u64));
        Through::Lease((begin, written))
    }

    /// Others are shown the size and the time of what was written.
    fn note(&self, end: u64) {
        self.leased.shared.writer().note(self.leased.held, end, now());
    }

    /// Does the lease last, after what was done before this?
    fn lasts(&self) -> bool {
        let shared = &self.leased.shared;
        shared.is_usable() && lasts(&*shared.view, &FULL, self.leased.held)
    }

    /// Reads into `bytes`, and answers how many there were: fewer at the file's end.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Through<usize> {
        if !self.leased.shared.is_usable() {
            return Through::Mount;
        }
        match self.file.read_at(offset, bytes.len()) {
            Ok(read) if self.lasts() => {
                bytes.iter_mut().zip(&read).for_each(|(to, from)| *to = *from);
                Through::Lease(read.len().min(bytes.len()))
            }
            _ => Through::Mount,
        }
    }

    /// As [`Leased::len`].
    pub fn size(&self) -> Through<u64> {
        let size = self.file.size();
        if self.lasts() { Through::Lease(size) } else { Through::Mount }
    }

    /// Makes all of these writes of an atomic section, the later ones over the earlier ones, or
    /// none: by the redo lane of the target.
    ///
    /// # Errors
    /// What the target reports; `EIO` if nobody can say whether they are there, or if they are, and
    /// what was ordered before is not known to be durable.
    pub fn commit(&self, writes: &[(u64, Vec<u8>)]) -> io::Result<Committed> {
        let error = |error: Error| io::Error::from_raw_os_error(error.errno());
        if !self.lasts() {
            return Ok(Committed::Ended);
        }
        match self.file.write_atomic(writes).map_err(error)? {
            Written::There => {}
            _ if self.lasts() => return Ok(Committed::Elsewhere),
            Written::Not => return Ok(Committed::Ended),
            Written::NotWhileLeased => return Err(io::Error::from_raw_os_error(libc::EIO)),
        }
        self.note(0);
        // What others have ordered is not to be overtaken, and the file's name belongs to it (rules
        // R38, R46).
        if self.promises() {
            return Ok(Committed::There { synced: true });
        }
        let synced = matches!(self.sync_by(false)?, Through::Lease(_));
        Ok(Committed::There { synced })
    }

    /// As [`Leased::sync_by`].
    ///
    /// # Errors
    /// Those of fsync(2), once: something that was written may be lost.
    pub fn sync_by(&self, datasync: bool) -> io::Result<Through<By>> {
        if !self.leased.shared.is_usable() {
            return Ok(Through::Mount);
        }
        if datasync && self.promises() {
            match self.file.sync_data() {
                // What others have ordered meanwhile is not to be overtaken (rule R46).
                Ok(()) if self.promises() => return Ok(Through::Lease(By::Target)),
                Ok(()) => {}
                Err(error) => return failed(&error),
            }
        }
        match self.file.sync_all() {
            Ok(()) if self.lasts() => Ok(Through::Lease(By::Daemon)),
            // Whether names were included is not known.
            Ok(()) => Ok(Through::Mount),
            Err(error) => failed(&error),
        }
    }

    /// Is a flush at the target all that fdatasync(2) promises?
    fn promises(&self) -> bool {
        log_promises(&*self.leased.shared.view, &FULL, self.leased.held, boot_time())
    }

    /// As [`Leased::close`].
    ///
    /// # Errors
    /// As there; `EIO` if something that was written at the target may be lost.
    pub fn close(self) -> io::Result<()> {
        let Self { file, leased, .. } = self;
        let given_up = file.give_up();
        drop(file);
        leased.close()?;
        given_up.map_err(|e| io::Error::from_raw_os_error(e.errno()))
    }
}

/// A sync failed: the kernel is asked where there is no lease any more.
fn failed(error: &Error) -> io::Result<Through<By>> {
    match error.errno() {
        libc::ESTALE | libc::ENOTCONN | libc::EAGAIN | libc::EOPNOTSUPP => Ok(Through::Mount),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
