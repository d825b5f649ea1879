//! `siftfs serve DIRECTORY`: one process that serves the volumes of a directory.
//!
//! Each volume has a Runtime, a Service, a server and a share of memory of its own, and nothing
//! else: what goes wrong with one is no other's affair.

use crate::command::mount::LATE_FORGETS;
use crate::options::args::{Parts, Serve};
use crate::show::failure::{Failure, Outcome, USAGE};
use crate::show::output;
use siftfs_base::{Error, Result};
use siftfs_log::show_uuid;
use siftfs_placement::{
    ListedVolume, LocalVolume, OpenOptions, books_of_clients, list_volumes, volume_at,
};
use siftfs_remote::{Directory, Execution, Listener, Reception, Server};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Most volumes that one process has open.
const MOST_VOLUMES: usize = 64;
/// Least memory for data, and for metadata, of a volume.
const LEAST_CACHE: u64 = 8 << 20;

/// A volume that is open, and its server.
struct Room {
    volume: LocalVolume,
    server: Arc<Server>,
}

/// The volumes of a directory that are open.
pub struct Rooms {
    dir: PathBuf,
    options: OpenOptions,
    execution: Execution,
    open: Mutex<BTreeMap<String, Room>>,
    /// Held while a volume is opened, so that none is opened twice.
    opening: Mutex<()>,
    ending: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rooms {
    /// Opens every volume of the directory. One that cannot be opened is named on standard error,
    /// and may be opened later, when a client asks for it.
    ///
    /// # Errors
    /// The directory cannot be read, or an option is for single volumes.
    pub fn open(a: &Serve, dir: &Path) -> std::result::Result<Arc<Self>, Failure> {
        let Parts { log, log_spare, record_area } = &a.parts;
        let parts = log.is_some() || log_spare.is_some() || record_area.is_some();
        if parts || a.service.is_some() {
            let what = "--log, --log-spare, --record-area and --service are for one volume, and this is a \
                        directory of volumes";
            return Err(Failure::about(dir, what).with_code(USAGE));
        }
        let found = list_volumes(dir).map_err(|e| Failure::about(dir, e))?;
        let (open, opening, ending) = Default::default();
        let (options, execution) = (options(a, found.len()), a.executing.execution());
        let rooms = Self { dir: dir.into(), options, execution, open, opening, ending };
        for ListedVolume { name, .. } in found.iter().take(MOST_VOLUMES) {
            if let Err(error) = rooms.add(name) {
                output::complain(format_args!("{}: not served: {error}", dir.join(name).display()));
            }
        }
        Ok(Arc::new(rooms))
    }

    /// The volumes that are open: name and UUID.
    pub fn names(&self) -> Vec<(String, String)> {
        let open = lock(&self.open);
        open.iter().map(|(name, room)| (name.clone(), show_uuid(&room.volume.uuid()))).collect()
    }

    /// Serves them at all listeners until `over` returns; then closes them.
    pub fn serve(self: Arc<Self>, listeners: Vec<Listener>, over: impl FnOnce()) -> Outcome {
        let reception = Reception::new(self.clone());
        let mut threads = Vec::new();
        for listener in listeners {
            let desk = reception.clone();
            let serve = move || desk.serve(&listener);
            threads.push(Builder::new().name("siftfs-listen".into()).spawn(serve));
        }
        let (threads, failed): (Vec<_>, Vec<_>) = threads.into_iter().partition(|t| t.is_ok());
        let failed = failed.into_iter().find_map(std::result::Result::err).map(Failure::plain);
        if failed.is_none() {
            over();
        }
        reception.stop();
        let closed = self.close(threads.into_iter().flatten());
        drop(reception);
        failed.map_or(closed, Err)
    }

    /// Ends all sessions and closes the volumes; the first error counts, and keeps no other volume
    /// from being closed.
    fn close(&self, listening: impl Iterator<Item = JoinHandle<()>>) -> Outcome {
        self.ending.store(true, Ordering::Release);
        // One that is being opened is open afterwards, and no other is opened.
        drop(lock(&self.opening));
        lock(&self.open).values().for_each(|room| room.server.stop());
        for thread in listening {
            // A failed assertion there has said what happened.
            let _ = thread.join();
        }
        let mut result = Ok(0);
        for (name, Room { volume, server }) in std::mem::take(&mut *lock(&self.open)) {
            server.end_serving();
            drop(server);
            if let Err(error) = volume.close() {
                let failure = Failure::about(&self.dir.join(&name), error);
                tracing::error!(volume = name, error = failure.message, "not closed");
                result = result.and(Err(failure));
            }
        }
        result
    }

    /// Opens a volume and serves it, under the lock of `opening` or before anybody else knows of
    /// these volumes.
    fn add(&self, name: &str) -> Result<Arc<Server>> {
        let path = self.dir.join(name);
        let volume = LocalVolume::open(&path, &self.options, &mut |_, _, _| {})?;
        let served = volume.served(name);
        let before = served.before();
        let server = match Server::after(served, self.execution.clone(), before) {
            Ok(server) => server,
            Err(error) => {
                volume.close()?;
                return Err(error);
            }
        };
        server.begin_serving();
        tracing::info!(volume = name, uuid = show_uuid(&volume.uuid()), "served");
        lock(&self.open).insert(name.into(), Room { volume, server: server.clone() });
        Ok(server)
    }

    /// The server of an open volume, by its name or UUID, or by no name if it is the only one.
    fn opened(&self, name: &str) -> Option<Arc<Server>> {
        let open = lock(&self.open);
        let called = |(own, room): &(&String, &Room)| {
            *own == name || show_uuid(&room.volume.uuid()) == name || name.is_empty()
        };
        let found = open.iter().find(called).filter(|_| !name.is_empty() || open.len() == 1);
        found.map(|(_, room)| room.server.clone())
    }
}

impl Directory for Rooms {
    fn find(&self, name: &str) -> Result<Arc<Server>> {
        let refuse = |why: String| Err(Error::Refused(why));
        if let Some(server) = self.opened(name) {
            return Ok(server);
        }
        if name.is_empty() {
            return refuse("volumes are served here by their names: say which".into());
        }
        let nowhere = || refuse(format!("no volume is called {name:?} here"));
        let plain = Path::new(name).file_name().is_some_and(|last| last == name);
        if !plain || name.starts_with('.') {
            return nowhere();
        }
        let _one_at_a_time = lock(&self.opening);
        if let Some(server) = self.opened(name) {
            return Ok(server);
        }
        if self.ending.load(Ordering::Acquire) {
            return refuse("the server ends".into());
        }
        if !volume_at(&self.dir.join(name)).is_ok_and(|found| found.is_some()) {
            return nowhere();
        }
        if lock(&self.open).len() >= MOST_VOLUMES {
            return refuse(format!("{MOST_VOLUMES} volumes are open here, and no more can be"));
        }
        self.add(name).or_else(|error| {
            tracing::error!(volume = name, %error, "not served");
            refuse(format!("the volume {name:?} cannot be opened: the server's messages say why"))
        })
    }
}

/// How each of `volumes` volumes is opened.
fn options(a: &Serve, volumes: usize) -> OpenOptions {
    let usual = OpenOptions::default();
    let share = |all: u64| (all / volumes.max(1) as u64).max(LEAST_CACHE);
    OpenOptions {
        page_cache: a.cache.unwrap_or(share(usual.page_cache)),
        meta_cache: share(usual.meta_cache),
        late_forgets: LATE_FORGETS,
        books: Some(books_of_clients()),
        ..usual
    }
}
