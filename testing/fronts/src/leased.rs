//! A session of the embedding program that takes write leases of files and keeps bytes that nobody
//! else has seen, until it is told to give them back.

use siftfs::Volume;
use siftfs_base::{Error, InodeNr, Result, corrupt, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Credentials, FileService, Handle, Holder, LeaseId, Opening, ROOT_INO, Reply, Request,
};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Passes on what is recalled.
struct Told(Mutex<Sender<LeaseId>>);

impl Holder for Told {
    fn recall(&self, lease: LeaseId) {
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(lease);
    }
}

/// What is kept of a leased file.
struct Kept {
    path: String,
    handle: Handle,
    pieces: Vec<(u64, Vec<u8>)>,
}

/// The leases of the session.
#[derive(Default)]
struct Leases {
    kept: HashMap<LeaseId, Kept>,
    /// Given back without a recall, which may be on its way.
    given: HashSet<LeaseId>,
}

/// The bytes that nobody else has seen, by lease.
#[derive(Default)]
struct Private {
    leases: Mutex<Leases>,
    added: Condvar,
}

impl Private {
    fn lock(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a lease that is recalled: a recall may overtake the answer that grants it. Nothing
    /// if it was given back.
    fn recalled(&self, lease: LeaseId) -> Option<(MutexGuard<'_, Leases>, Kept)> {
        let mut leases = self.lock();
        while !leases.given.remove(&lease) {
            match leases.kept.remove(&lease) {
                Some(file) => return Some((leases, file)),
                None => leases = self.added.wait(leases).unwrap_or_else(PoisonError::into_inner),
            }
        }
        None
    }
}

impl Leases {
    /// The lease of a file, if it is there.
    fn of(&mut self, path: &str) -> Option<(LeaseId, &mut Kept)> {
        let mut kept = self.kept.iter_mut();
        kept.find(|(_, file)| file.path == path).map(|(lease, file)| (*lease, file))
    }
}

/// The session, and the thread that gives back what is recalled.
pub struct Leaser {
    session: Arc<dyn FileService>,
    private: Arc<Private>,
    thread: JoinHandle<Result<u64>>,
}

fn ask(session: &Arc<dyn FileService>, req: Request) -> Result<Reply> {
    session.call(&Credentials::default(), req)
}

fn write(
    session: &Arc<dyn FileService>,
    lease: LeaseId,
    pieces: Vec<(u64, Vec<u8>)>,
) -> Result<()> {
    for (offset, bytes) in pieces {
        let (len, data) = (bytes.len(), bytes.into());
        let written =
            ask(session, Request::LeaseWrite { lease, offset, data, time: None, durable: false })?
                .written()?;
        if written as usize != len {
            return Err(corrupt("a leased file", format!("{written} of {len} bytes")));
        }
    }
    Ok(())
}

fn give_back(session: &Arc<dyn FileService>, lease: LeaseId, kept: Kept) -> Result<()> {
    write(session, lease, kept.pieces)?;
    ask(session, Request::LeaseReturn { lease })?.done()?;
    ask(session, Request::Release { handle: kept.handle })?.done()
}

fn answer(
    session: &Arc<dyn FileService>,
    private: &Private,
    told: &Receiver<LeaseId>,
) -> Result<u64> {
    let mut recalled = 0;
    for lease in told {
        // The holder's own fsync waits until all is given.
        if let Some((_leases, kept)) = private.recalled(lease) {
            give_back(session, lease, kept)?;
            recalled += 1;
        }
    }
    Ok(recalled)
}

impl Leaser {
    /// Opens the session, and starts the thread. Called where the volume's descriptors are.
    ///
    /// # Errors
    /// When there are too many sessions.
    pub fn start(volume: &Volume) -> Result<Self> {
        let (tell, told) = channel();
        let session = volume.holder(Opening::owner(), Arc::new(Told(Mutex::new(tell))))?;
        let private = Arc::<Private>::default();
        let (own, bytes) = (session.clone(), private.clone());
        let thread = std::thread::spawn(move || answer(&own, &bytes, &told));
        Ok(Self { session, private, thread })
    }

    fn find(&self, path: &str) -> Result<InodeNr> {
        let mut ino = ROOT_INO;
        for name in path.split('/') {
            let lookup = Request::Lookup { parent: ino, name: name.into() };
            ino = ask(&self.session, lookup)?.attr()?.ino;
        }
        Ok(ino)
    }

    /// Takes the lease of a file, and keeps these bytes. Called where the volume's descriptors are.
    ///
    /// # Errors
    /// `EAGAIN` if others use the file, or did so again and again; those of an open.
    pub fn keep(&self, path: &str, pieces: Vec<(u64, Vec<u8>)>) -> Result<()> {
        let access = Access::Both;
        let ino = self.find(path)?;
        let open = Request::open(ino, access);
        let handle = ask(&self.session, open)?.opened()?;
        match ask(
            &self.session,
            Request::Lease { file: handle.into(), writers: None, direct: None },
        ) {
            Ok(leased) => {
                let lease = leased.leased()?.0;
                let path = path.into();
                self.private.lock().kept.insert(lease, Kept { path, handle, pieces });
                self.private.added.notify_all();
                Ok(())
            }
            Err(e) => {
                ask(&self.session, Request::Release { handle })?.done()?;
                Err(e)
            }
        }
    }

    /// Keeps more bytes of a file whose lease is there.
    ///
    /// # Errors
    /// `EAGAIN` if it is not, or was recalled.
    pub fn keep_more(&self, path: &str, offset: u64, bytes: Vec<u8>) -> Result<()> {
        let mut leases = self.private.lock();
        let (_, file) = leases.of(path).ok_or_else(|| errno(libc::EAGAIN))?;
        file.pieces.push((offset, bytes));
        Ok(())
    }

    /// fsync in this session: what is kept of the file is given first, and the lease stays.
    ///
    /// # Errors
    /// As of an open, a write and an fsync.
    pub fn sync(&self, path: &str) -> Result<()> {
        let sync = |handle: Handle| {
            let sync = Request::Fsync { file: handle.into(), datasync: false };
            ask(&self.session, sync)?.done()
        };
        // A recall waits until this is done, and then gives the rest.
        let mut leases = self.private.lock();
        if let Some((lease, file)) = leases.of(path) {
            write(&self.session, lease, std::mem::take(&mut file.pieces))?;
            return sync(file.handle);
        }
        drop(leases);
        let handle = ask(&self.session, Request::open(self.find(path)?, Access::Both))?.opened()?;
        let synced = sync(handle);
        ask(&self.session, Request::Release { handle })?.done()?;
        synced
    }

    /// Gives a file back that nobody asks for, if its lease is there.
    ///
    /// # Errors
    /// What could not be given back.
    pub fn give(&self, path: &str) -> Result<()> {
        let mut leases = self.private.lock();
        let lease = leases.of(path).map(|(lease, _)| lease);
        let file = lease.and_then(|lease| Some((lease, leases.kept.remove(&lease)?)));
        leases.given.extend(lease);
        file.map_or(Ok(()), |(lease, file)| give_back(&self.session, lease, file))
    }

    /// As [`Leaser::keep`], as often as others use the file just then.
    ///
    /// # Errors
    /// As there.
    pub fn keep_at_last(&self, path: &str, pieces: &[(u64, Vec<u8>)]) -> Result<()> {
        for _ in 0..1000 {
            match self.keep(path, pieces.to_vec()) {
                Err(Error::Posix(libc::EAGAIN)) => {}
                other => return other,
            }
        }
        Err(errno(libc::EAGAIN))
    }

    /// Gives everything back and ends the session. Returns how often a lease was recalled.
    ///
    /// # Errors
    /// What could not be given back.
    pub fn end(self) -> Result<u64> {
        let kept = std::mem::take(&mut self.private.lock().kept);
        for (lease, file) in kept {
            give_back(&self.session, lease, file)?;
        }
        ask(&self.session, Request::EndSession)?.done()?;
        self.thread.join().map_err(|_| errno(libc::EIO))?
    }
}
