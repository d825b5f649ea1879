//! A session of the embedding program that takes write leases of files and keeps bytes that nobody
//! else has seen, until it is told to give them back.

use siftfs::Volume;
use siftfs_base::{Error, InodeNr, Result, corrupt, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Credentials, FileService, Handle, Holder, LeaseId, Opening, ROOT_INO, Reply, Request,
};
use std::collections::HashMap;
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
    handle: Handle,
    pieces: Vec<(u64, Vec<u8>)>,
}

/// The bytes that nobody else has seen, by lease.
#[derive(Default)]
struct Private {
    kept: Mutex<HashMap<LeaseId, Kept>>,
    added: Condvar,
}

impl Private {
    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is kept for a lease. A recall may overtake the answer that grants it.
    fn take(&self, lease: LeaseId) -> Kept {
        let mut kept = self.lock();
        loop {
            match kept.remove(&lease) {
                Some(file) => return file,
                None => kept = self.added.wait(kept).unwrap_or_else(PoisonError::into_inner),
            }
        }
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

fn give_back(session: &Arc<dyn FileService>, lease: LeaseId, kept: Kept) -> Result<()> {
    for (offset, bytes) in kept.pieces {
        let (len, data) = (bytes.len(), bytes.into());
        let written = ask(session, Request::LeaseWrite { lease, offset, data })?.written()?;
        if written as usize != len {
            return Err(corrupt("a leased file", format!("{written} of {len} bytes")));
        }
    }
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
        give_back(session, lease, private.take(lease))?;
        recalled += 1;
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
        match ask(&self.session, Request::Lease { file: handle.into(), writers: None }) {
            Ok(leased) => {
                let lease = leased.leased()?.0;
                self.private.lock().insert(lease, Kept { handle, pieces });
                self.private.added.notify_all();
                Ok(())
            }
            Err(e) => {
                ask(&self.session, Request::Release { handle })?.done()?;
                Err(e)
            }
        }
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
        let kept = std::mem::take(&mut *self.private.lock());
        for (lease, file) in kept {
            give_back(&self.session, lease, file)?;
        }
        ask(&self.session, Request::EndSession)?.done()?;
        self.thread.join().map_err(|_| errno(libc::EIO))?
    }
}
