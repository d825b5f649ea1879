//! `siftfs serve DIRECTORY`, and of a pool (`rbd:POOL/`): one process that serves several volumes.
//!
//! Each volume has a Runtime, a Service, a server and a share of memory of its own, and nothing
//! else: what goes wrong with one is no other's affair.

use super::rooms::Rooms;
use crate::command::mount::LATE_FORGETS;
use crate::options::args::{Parts, Serve};
use crate::show::failure::{Failure, Outcome, USAGE};
use crate::show::output;
use siftfs_base::Result;
use siftfs_placement::{ListedVolume, OpenOptions, Shelf, books_of_clients};
use siftfs_remote::{Directory, Listener, MOST_VOLUMES, Reception, Visit};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Least memory for data, and for metadata, of a volume.
const LEAST_CACHE: u64 = 8 << 20;
/// Seconds without a user after which a volume is closed, if an option does not say.
pub const CLOSE_AFTER: u64 = 300;
/// How often it is looked for volumes that nobody uses, and whether the server ends.
const LOOK: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(100);

/// Opens every volume of the directory or the pool. One that cannot be opened is named on standard
/// error, and may be opened later, when a client asks for it.
///
/// # Errors
/// The volumes cannot be listed, or an option is for single volumes.
pub fn open(a: &Serve, place: &Path) -> std::result::Result<Arc<Rooms>, Failure> {
    let Parts { log, log_spare, record_area } = &a.parts;
    let parts = log.is_some() || log_spare.is_some() || record_area.is_some();
    if parts || a.service.is_some() {
        let what = "--log, --log-spare, --record-area and --service are for one volume, and this is a \
                    directory or a pool of volumes";
        return Err(Failure::about(place, what).with_code(USAGE));
    }
    let about = |e| Failure::about(place, e);
    let shelf = Shelf::open(place).map_err(about)?;
    let found = shelf.list().map_err(about)?;
    let rooms = Rooms::new(shelf, options(a, found.len()), a.executing.execution());
    for ListedVolume { name, .. } in found.iter().take(MOST_VOLUMES) {
        if let Err(error) = rooms.open(name) {
            let path = rooms.place_of(name);
            output::complain(format_args!("{}: not served: {error}", path.display()));
        }
    }
    Ok(Arc::new(rooms))
}

/// Serves them at all listeners until `over` returns; then closes them. One that nobody has used
/// for `close_after` is closed before, if that is not zero.
pub fn serve(
    rooms: &Arc<Rooms>,
    listeners: Vec<Listener>,
    close_after: Duration,
    over: impl FnOnce(),
) -> Outcome {
    let reception = Reception::new(Arc::new(Served(rooms.clone())));
    let mut threads = Vec::new();
    for listener in listeners {
        let desk = reception.clone();
        let serve = move || desk.serve(&listener);
        threads.push(Builder::new().name("siftfs-listen".into()).spawn(serve));
    }
    if !close_after.is_zero() {
        let looked = rooms.clone();
        let look = move || look_for_unused(&looked, close_after);
        threads.push(Builder::new().name("siftfs-unused".into()).spawn(look));
    }
    let (threads, failed): (Vec<_>, Vec<_>) = threads.into_iter().partition(|t| t.is_ok());
    let failed = failed.into_iter().find_map(std::result::Result::err).map(Failure::plain);
    if failed.is_none() {
        over();
    }
    reception.stop();
    let closed = close(rooms, threads.into_iter().flatten());
    drop(reception);
    failed.map_or(closed, Err)
}

/// Closes volumes that nobody uses, until the server ends.
fn look_for_unused(rooms: &Rooms, close_after: Duration) {
    let mut looked = Instant::now();
    while !rooms.is_ending() {
        thread::sleep(POLL);
        if looked.elapsed() >= LOOK.min(close_after) {
            rooms.close_unused(close_after);
            looked = Instant::now();
        }
    }
}

/// Ends all sessions and closes the volumes; the first error counts, and keeps no other volume from
/// being closed.
fn close(rooms: &Rooms, threads: impl Iterator<Item = JoinHandle<()>>) -> Outcome {
    rooms.stop();
    for thread in threads {
        // A failed assertion there has said what happened.
        let _ = thread.join();
    }
    let mut result = Ok(0);
    for (name, error) in rooms.close() {
        let failure = Failure::about(&rooms.place_of(&name), error);
        tracing::error!(volume = name, error = failure.message, "not closed");
        result = result.and(Err(failure));
    }
    result
}

/// The volumes, for those who take connections for them.
struct Served(Arc<Rooms>);

impl Directory for Served {
    fn find(&self, name: &str) -> Result<Visit> {
        self.0.visit(name)
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
