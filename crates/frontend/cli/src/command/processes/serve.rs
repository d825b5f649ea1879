//! `siftfs serve`: a volume for programs that reach it by a socket.

use crate::command::mount::LATE_FORGETS;
use crate::command::processes::directory::{self, CLOSE_AFTER};
use crate::command::processes::rooms::Rooms;
use crate::command::processes::standby;
use crate::command::volume::{name_of, open_options_by};
use crate::daemon::allocator::one_heap;
use crate::daemon::asking::{Asking, SILENT, is_waited_for};
use crate::daemon::board::Board;
use crate::daemon::control_server::since_1970;
use crate::daemon::limits;
use crate::daemon::listening::{self, Listening};
use crate::daemon::logging::{self, Format};
use crate::daemon::memory::{self, Place};
use crate::daemon::notify;
use crate::daemon::processors;
use crate::daemon::serve::{listen, serve_metrics};
use crate::options::args::Serve;
use crate::options::keys::confirm;
use crate::options::place;
use crate::options::target;
use crate::show::failure::{Failure, Outcome, USAGE};
use crate::show::output;
use crate::show::progress::Display;
use siftfs_placement::{Address, Dial, LocalVolume, ServicePlace, Shelf, Whom, books_of_clients};
use siftfs_proto::Reply;
use siftfs_remote::{Listener, Server, TransportOptions, Trust, transport};
use siftfs_status::{RuntimeStatus, State, Status};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often it looks for a signal.
const POLL: Duration = Duration::from_millis(100);

/// `siftfs serve`. Returns 0 after SIGTERM, SIGINT or SIGHUP, when the volume is closed.
pub fn serve(a: &Serve) -> Outcome {
    standby::check(a)?;
    if a.listen.is_empty() {
        return standby::have_passed_on(a);
    }
    one_heap();
    let memory = memory::arrange(Place::Auto);
    let format = if a.json { Format::Json } else { Format::Text };
    logging::start(a.log_file.as_deref(), a.log_file.is_none(), a.log_level, format)?;
    let path = match (target::named(&a.volume)?, place::pool(&a.volume)?) {
        (Some(named), _) | (None, Some(named)) => named,
        (None, None) => place::volume(&a.volume)?,
    };
    limits::check_files([&*path].into_iter().chain(a.parts.log.as_deref()))?;
    limits::left().iter().for_each(output::complain);
    memory.log();
    memory.warning.iter().for_each(output::complain);
    if let Some(list) = &a.cpus {
        processors::pin(list)?;
    }
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        flag::register(signal, ending.clone()).map_err(Failure::plain)?;
    }
    // Addresses first: one that is in use is said before the volume is touched.
    let options = TransportOptions { spin: Duration::from_micros(a.spin), ..transport() };
    let listeners = listening::bind(&a.listen, &a.admit, &options)?;
    let board = Arc::new(Board::default());
    let watched = a.metrics.as_ref().map(listen).transpose()?;
    let is_over = || ending.load(Ordering::Acquire);
    let over = || {
        while !is_over() {
            thread::sleep(POLL);
        }
    };
    if Shelf::is_at(&path) {
        if watched.is_some() {
            let what = "--metrics: of a volume alone, and not of several";
            return Err(Failure::plain(what).with_code(USAGE));
        }
        let rooms = directory::open(a, &path)?;
        announce_all(a, &rooms, &listeners)?;
        let close_after = Duration::from_secs(a.close_after.unwrap_or(CLOSE_AFTER));
        let closed = directory::serve(&rooms, listeners, close_after, over);
        drop(memory);
        return closed;
    }
    if a.close_after.is_some() {
        let what = "--close-after is for a directory or a pool of volumes, and this is one volume";
        return Err(Failure::about(&a.volume, what).with_code(USAGE));
    }
    watched.iter().for_each(|listener| serve_metrics(listener, &board));
    let opened = match a.succession.standby {
        true => standby::wait_for_turn(a, &path, (&listeners, board.state()), &is_over)?,
        false => Some(open(a, &path, standby::whom(a))?),
    };
    let serve = |volume| serve_one(a, &path, volume, (listeners, &board), &is_over);
    let served = opened.map_or(Ok(()), serve);
    drop(memory);
    served.map(|()| 0)
}

/// Serves an open volume until `is_over`, or until it is another process's, and closes it.
fn serve_one(
    a: &Serve,
    path: &Path,
    volume: LocalVolume,
    (listeners, board): (Vec<Listener>, &Board),
    is_over: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let about = |e| Failure::about(&a.volume, e);
    let execution = a.executing.execution();
    let served = volume.served(&name_of(&a.volume)).map_err(about)?;
    let before = served.before();
    let server = Server::after(served, execution.clone(), before).map_err(Failure::plain)?;
    tracing::info!(?execution, "calls are carried out");
    announce(a, &volume, &listeners)?;
    let listening = Listening::start(listeners, server)?;
    board.show(status(a, &volume));
    board.state().set(State::Serving);
    let hand_over = standby::hear(path);
    while !is_over() && volume.lost().is_none() && !hand_over.load(Ordering::Acquire) {
        thread::sleep(POLL);
    }
    match volume.lost() {
        Some(why) => {
            board.state().set(State::Fenced);
            tracing::error!(why, "the volume is another process's");
        }
        // What is brought home before clients are turned away does not keep them waiting.
        None => {
            if let Err(error) = volume.checkpoint() {
                tracing::warn!(%error, "not all was brought home before the end");
            }
            board.state().set(State::Closing);
        }
    }
    drop(listening);
    volume.close().map_err(about)
}

/// Opens the volume to be served; an owner that `take_over` means is fenced, also if it lives.
pub(super) fn open(
    a: &Serve,
    path: &Path,
    take_over: Option<Whom>,
) -> Result<LocalVolume, Failure> {
    let mut options = open_options_by(path, &a.parts, &trust(a))?;
    options.take_over = take_over;
    // Clients may be mounts.
    options.late_forgets = LATE_FORGETS;
    // The target does the background work of the volume that it has, unless another one is named.
    let there = options.target.as_ref().map(|target| target.address.clone());
    let address = a.service.clone().or(there);
    options.service = address.map(|address| service(a, address)).transpose()?;
    options.books = Some(books_of_clients());
    options.page_cache = a.cache.unwrap_or(options.page_cache);
    let mut display = Display::new();
    let progress = &mut |what: &str, done, total| display.update(what, done, total);
    let opened = LocalVolume::open(path, &options, progress);
    drop(display);
    opened.map_err(|e| Failure::about(&a.volume, e))
}

/// What there is to say of the volume to those who watch this process.
fn status(
    a: &Serve,
    volume: &LocalVolume,
) -> impl Fn() -> Result<Status, String> + Send + Sync + use<> {
    let (service, devices, asking) = (volume.endpoint(), volume.devices(), Asking::default());
    let begun = Instant::now();
    let of = Status {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").into(),
        volume: a.volume.display().to_string(),
        log: volume.log_path().map(|log| log.display().to_string()),
        ..Status::default()
    };
    move || {
        let asked = asking.status(&service, || is_waited_for(&devices()));
        let warnings = asked.is_none().then(|| SILENT.to_owned()).into_iter().collect();
        let runtime = match asked {
            None => RuntimeStatus { devices: devices(), ..RuntimeStatus::default() },
            Some(said) => said.and_then(Reply::status).map_err(|error| error.to_string())?,
        };
        let (state, uptime_s) = (Some(State::of(&runtime)), begun.elapsed().as_secs_f64());
        let time_s = since_1970();
        Ok(Status { state, uptime_s, time_s, warnings, runtime, ..of.clone() })
    }
}

/// What is known of the process that does the background work, and of the volume's targets.
fn trust(a: &Serve) -> Trust {
    Trust {
        key: a.admit.key.clone(),
        known_servers: a.known.known_servers.clone(),
        fingerprint: a.known.fingerprint,
        insecure: a.admit.insecure,
    }
}

/// The process that does the background work.
fn service(a: &Serve, address: Address) -> Result<ServicePlace, Failure> {
    let options = TransportOptions::default();
    let secured = trust(a).secure(&address, &options, confirm()).map_err(Failure::plain)?;
    let connector = Arc::new(Dial { address, options, secured });
    Ok(ServicePlace { connector, fallback: None })
}

fn announce(a: &Serve, volume: &LocalVolume, listeners: &[Listener]) -> Result<(), Failure> {
    let uuid = siftfs_log::show_uuid(&volume.uuid());
    say_where(a, &a.volume.display().to_string(), &uuid, listeners)?;
    notify::ready();
    Ok(())
}

/// The same of a directory's or a pool's volumes, which clients call by their names.
fn announce_all(a: &Serve, rooms: &Rooms, listeners: &[Listener]) -> Result<(), Failure> {
    let names = rooms.names();
    names.iter().try_for_each(|(name, uuid)| say_where(a, name, uuid, listeners))?;
    if names.is_empty() {
        output::complain(format_args!("{}: no volume is open yet", a.volume.display()));
    }
    notify::ready();
    Ok(())
}

/// A line for each listener.
fn say_where(a: &Serve, name: &str, uuid: &str, listeners: &[Listener]) -> Result<(), Failure> {
    for listener in listeners {
        let address = listener.address().to_string();
        tracing::info!(volume = name, uuid, address, "listening");
        if a.json {
            let pid = std::process::id();
            output::say(serde_json::json!({
                "listening": address, "volume": name, "uuid": uuid, "pid": pid,
                "executors": a.executing.execution().executors,
                "schedule": a.executing.schedule.word(),
            }))?;
        } else {
            output::say(format!("{name}: volume {uuid} is served at {address}"))?;
        }
    }
    Ok(())
}
