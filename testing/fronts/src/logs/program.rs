//! A program with private logs, which does what it is asked for.

#![allow(unsafe_code)] // fork(2) has no safe wrapper

use crate::wire::Wire;
use rustix::fs::FallocateFlags;
use rustix::process::{Pid, WaitOptions, waitpid};
use siftfs_accel::{Leased, Session, Through};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads of a program.
pub const THREADS: u64 = 3;

/// A file that the program has open, and its lease.
pub struct Logged {
    /// The descriptor.
    pub file: File,
    leased: Mutex<Option<Arc<Leased>>>,
}

/// The sessions of a program, by mounts, and an open file that all threads use.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<u64, Session>>, Mutex<Option<Arc<Logged>>>);

fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// The lease of an open file.
    fn lease(&self, file: &File) -> io::Result<Leased> {
        let mount = file.metadata()?.dev();
        let session = relock(&self.0).get(&mount).cloned();
        let session = match session {
            Some(session) => session,
            None => Session::enter(file)?,
        };
        let leased = session.lease(file);
        relock(&self.0).entry(mount).or_insert(session);
        leased
    }
}

impl Sessions {
    /// The file that all threads use, opened by `open` if it is not there or is to be opened anew.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn shared(
        &self,
        anew: bool,
        open: impl FnOnce() -> io::Result<Logged>,
    ) -> io::Result<Arc<Logged>> {
        let mut shared = relock(&self.1);
        match shared.take().filter(|_| !anew) {
            Some(file) => Ok(shared.insert(file).clone()),
            None => Ok(shared.insert(Arc::new(open()?)).clone()),
        }
    }

    /// No thread that comes uses it any more.
    pub fn close_shared(&self) {
        relock(&self.1).take();
    }
}

/// By which way a call was made, and what it gave.
type Gave = io::Result<(bool, Vec<u8>)>;

impl Logged {
    /// A file without a lease.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self { file, leased: Mutex::default() }
    }

    fn leased(&self) -> Option<Arc<Leased>> {
        relock(&self.leased).clone()
    }

    /// Takes the lease, if the program has none. False: others use the file just now.
    ///
    /// # Errors
    /// Anything else.
    pub fn lease(&self, sessions: &Sessions) -> io::Result<bool> {
        let ended = {
            let mut leased = relock(&self.leased);
            let ended = leased.as_ref().is_some_and(|leased| leased.len() == Through::Mount);
            if ended { leased.take() } else { None }
        };
        if let Some(ended) = ended {
            // Another thread may use it still: then it is closed by that one.
            Arc::into_inner(ended).map_or(Ok(()), Leased::close)?;
        }
        if self.leased().is_some() {
            return Ok(true);
        }
        match sessions.lease(&self.file) {
            Ok(leased) => {
                *relock(&self.leased) = Some(Arc::new(leased));
                Ok(true)
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Gives the lease back.
    ///
    /// # Errors
    /// Of earlier writes.
    pub fn give_back(&self) -> io::Result<()> {
        let leased = relock(&self.leased).take();
        leased.and_then(Arc::into_inner).map_or(Ok(()), Leased::close)
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Gave {
        if let Some(leased) = self.leased()
            && let Through::Lease(_) = leased.write_at(offset, bytes)
        {
            return Ok((true, Vec::new()));
        }
        self.file.write_all_at(bytes, offset).map(|()| (false, Vec::new()))
    }

    /// Appends, by a descriptor that does so.
    ///
    /// # Errors
    /// The kernel's.
    pub fn append(&self, bytes: &[u8]) -> Gave {
        if let Some(leased) = self.leased()
            && let Through::Lease(_) = leased.append(bytes)
        {
            return Ok((true, Vec::new()));
        }
        (&self.file).write_all(bytes).map(|()| (false, Vec::new()))
    }

    /// Reads.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn read_at(&self, offset: u64, len: usize) -> Gave {
        let mut into = vec![0; len];
        if let Some(leased) = self.leased()
            && let Through::Lease(n) = leased.read_at(offset, &mut into)?
        {
            into.truncate(n);
            return Ok((true, into));
        }
        let n = self.file.read_at(&mut into, offset)?;
        into.truncate(n);
        Ok((false, into))
    }

    fn size(&self) -> Gave {
        if let Some(leased) = self.leased()
            && let Through::Lease(len) = leased.len()
        {
            return Ok((true, len.to_le_bytes().into()));
        }
        Ok((false, self.file.metadata()?.len().to_le_bytes().into()))
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// Those of fsync(2).
    pub fn sync(&self, datasync: bool) -> Gave {
        if let Some(leased) = self.leased()
            && let Through::Lease(()) = leased.sync(datasync)?
        {
            return Ok((true, Vec::new()));
        }
        let synced = if datasync { self.file.sync_data() } else { self.file.sync_all() };
        synced.map(|()| (false, Vec::new()))
    }

    /// The same program makes a call by the kernel, past its lease.
    fn past(&self, verb: &str, offset: u64, len: usize, bytes: &[u8]) -> Gave {
        let file = &self.file;
        let done = |result: io::Result<()>| result.map(|()| Vec::new());
        let gave = match verb {
            "kernel-write" => done(file.write_all_at(bytes, offset)),
            "kernel-append" => done((&*file).write_all(bytes)),
            "kernel-read" => Self::new(file.try_clone()?).read_at(offset, len).map(|gave| gave.1),
            "kernel-truncate" => done(file.set_len(offset)),
            "kernel-stat" => Ok(file.metadata()?.len().to_le_bytes().into()),
            "kernel-zero" => {
                let flags = FallocateFlags::ZERO_RANGE;
                let zero = rustix::fs::fallocate(file, flags, offset, len as u64);
                done(zero.map_err(Into::into))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        gave.map(|bytes| (false, bytes))
    }
}

/// What the threads of a program share.
#[derive(Default)]
struct Shared {
    sessions: Sessions,
    slots: Mutex<HashMap<u64, Arc<Logged>>>,
}

/// What is asked for.
struct Asked {
    verb: String,
    path: String,
    slot: u64,
    offset: u64,
    len: usize,
    bytes: Vec<u8>,
}

impl Asked {
    /// The thread, and what it is asked for: thread, verb, path, slot, offset, length.
    fn of(words: &[String], bytes: Vec<u8>) -> io::Result<(u64, Self)> {
        let [thread, verb, path, slot, offset, len] = words else {
            return Err(io::Error::other("other words"));
        };
        let number = |word: &String| word.parse::<u64>().map_err(io::Error::other);
        let (slot, offset, len) = (number(slot)?, number(offset)?, number(len)? as usize);
        let (verb, path) = (verb.clone(), path.clone());
        Ok((number(thread)?, Self { verb, path, slot, offset, len, bytes }))
    }
}

impl Shared {
    fn carry_out(&self, asked: &Asked) -> Gave {
        let Asked { verb, path, slot, offset, len, bytes } = asked;
        if let Some(how) = verb.strip_prefix("open-") {
            let mut options = File::options();
            options.read(how.contains('r')).create(how.contains('c'));
            options.write(!how.contains('a')).append(how.contains('a'));
            let logged = Arc::new(Logged::new(options.open(path)?));
            relock(&self.slots).insert(*slot, logged);
            return Ok((false, Vec::new()));
        }
        if verb == "close" {
            relock(&self.slots).remove(slot);
            return Ok((false, Vec::new()));
        }
        let logged = relock(&self.slots).get(slot).cloned();
        let logged = logged.ok_or(io::ErrorKind::NotFound)?;
        match verb.as_str() {
            "lease" => logged.lease(&self.sessions).map(|leased| (leased, Vec::new())),
            "return" => logged.give_back().map(|()| (false, Vec::new())),
            "write" => logged.write_at(*offset, bytes),
            "append" => logged.append(bytes),
            "read" => logged.read_at(*offset, *len),
            "size" => logged.size(),
            "sync" => logged.sync(*offset % 2 == 0),
            _ => logged.past(verb, *offset, *len, bytes),
        }
    }
}

/// Does what it is asked for, by its threads, until the other side ends.
fn serve(mut wire: Wire, shared: &Shared) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let threads: Vec<Sender<Asked>> = (0..THREADS)
            .map(|_| {
                let (send, asked) = channel::<Asked>();
                let tell = tell.clone();
                scope.spawn(move || {
                    for asked in asked {
                        let _ = tell.send(shared.carry_out(&asked));
                    }
                });
                send
            })
            .collect();
        while let Some((words, bytes)) = wire.receive()? {
            let (thread, asked) = Asked::of(&words, bytes)?;
            let _ = threads[(thread % THREADS) as usize].send(asked);
            match told.recv().map_err(io::Error::other)? {
                Ok((leased, bytes)) => wire.send(&["0", if leased { "1" } else { "0" }], &bytes)?,
                Err(e) => wire.send(&[&e.raw_os_error().unwrap_or(-1).to_string(), "0"], &[])?,
            }
        }
        Ok(())
    })
}

/// A program that does what it is asked for at `socket`. It opens `file`, leases it, and forks: its
/// child has what it has, and asks for more of its own.
///
/// # Errors
/// What does not go on.
pub fn work_for(socket: &Path, file: &Path) -> io::Result<()> {
    let shared = Shared::default();
    let (first, leased, child) = fork_leased(file, &shared.sessions)?;
    relock(&shared.slots).insert(0, Arc::new(first));
    let said = if child == 0 { "child" } else { "parent" };
    let mut wire = Wire::connect(socket)?;
    wire.send(&[said, if leased { "1" } else { "0" }], &[])?;
    let served = serve(wire, &shared);
    if child == 0 {
        return served;
    }
    served?;
    drop(shared);
    await_child(child)
}

/// Opens `file`, leases it, and forks; 0 for the child, which has what the program has, but has to
/// enter by itself. The caller is the process's only thread.
///
/// # Errors
/// The kernel's.
pub fn fork_leased(file: &Path, sessions: &Sessions) -> io::Result<(Logged, bool, i32)> {
    let mut options = File::options();
    let first = Logged::new(options.read(true).write(true).create(true).open(file)?);
    let leased = first.lease(sessions)?;
    // SAFETY: the process has one thread.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(io::Error::last_os_error()),
        0 => relock(&sessions.0).clear(),
        _ => {}
    }
    Ok((first, leased, child))
}

/// Waits for the child of a fork.
///
/// # Errors
/// It failed.
pub fn await_child(child: i32) -> io::Result<()> {
    let status = waitpid(Pid::from_raw(child), WaitOptions::empty())?;
    match status.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        _ => Err(io::Error::other("the child failed")),
    }
}
