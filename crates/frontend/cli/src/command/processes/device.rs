//! `siftfs device`: the background work of a volume, in a process of its own.

use crate::command::volume::{name_of, open_options_by};
use crate::daemon::allocator::one_heap;
use crate::daemon::cgroup;
use crate::daemon::limits;
use crate::daemon::logging::{self, Format};
use crate::daemon::memory::{self, Place};
use crate::daemon::notify;
use crate::daemon::processors;
use crate::options::args::Device;
use crate::options::place;
use crate::options::target;
use crate::show::failure::{Failure, Outcome, USAGE};
use crate::show::output;
use siftfs_base::Error;
use siftfs_placement::{
    Access, Address, DeviceEnd, Listener, OpenOptions, OpenStorage, Replay, Server, ServerOptions,
    Standing, StripePlace, TransportOptions, WorkerOptions, open_media_for_host,
    open_media_for_service, open_member,
};
use siftfs_transport::Trust;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often a server without a connection polls for a signal.
const POLL: Duration = Duration::from_millis(100);
/// Connections at once; what a mount needs is one.
const CONNECTIONS: usize = 16;
/// Connections of programs at once, by the door for those; one more goes by its host.
const PROGRAMS: usize = 128;

/// `siftfs device`. Returns 0 after SIGTERM, SIGINT or SIGHUP.
pub fn device(a: &Device) -> Outcome {
    target::refuse(&a.volume, "the storage of a target is another process's already")?;
    one_heap();
    let memory = memory::arrange(Place::Auto);
    let format = if a.json { Format::Json } else { Format::Text };
    logging::start(a.log_file.as_deref(), a.log_file.is_none(), a.log_level, format)?;
    let about = |e: Error| Failure::about(&a.volume, e);
    let volume = place::volume(&a.volume)?;
    limits::check_files([&*volume].into_iter().chain(a.parts.log.as_deref()))?;
    limits::left().iter().for_each(output::complain);
    memory.log();
    memory.warning.iter().for_each(output::complain);
    let options = options(a, &volume)?;
    // A wrong volume is said now, and not to the first host.
    let serves = look(&volume, &options).map_err(about)?;
    serves.refuse_more(a)?;
    if let Some(list) = &a.cpus {
        processors::pin(list)?;
    }
    let quota = a.cpu_quota.map(cgroup::limit).transpose()?;
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        flag::register(signal, ending.clone()).map_err(Failure::plain)?;
    }
    let transport =
        TransportOptions { spin: Duration::from_micros(a.spin), ..TransportOptions::default() };
    let doors = doors(a, &transport)?;
    let server = Arc::new(server(a, (volume, options), &serves, doors.programs())?);
    announce(a, &serves, &doors)?;
    serve(&server, doors, &ending)?;
    tracing::info!("ended");
    drop((quota, memory));
    Ok(0)
}

/// How the volume is opened: its members at targets with the same key as hosts meet here.
fn options(a: &Device, volume: &Path) -> Result<OpenOptions, Failure> {
    let (key, insecure) = (a.admit.key.clone(), a.admit.insecure);
    open_options_by(volume, &a.parts, &Trust { key, insecure, ..Trust::default() })
}

/// What is served.
enum Serves {
    /// A volume, with its UUID.
    Volume(String),
    /// One member of a striped volume.
    Member(Standing),
}

fn look(volume: &Path, options: &OpenOptions) -> siftfs_base::Result<Serves> {
    if StripePlace::parse(volume).is_none()
        && let Some((_, standing)) = open_member(volume, options, Access::Shared)?
    {
        return Ok(Serves::Member(standing));
    }
    let view = open_media_for_service(volume, options)?.read_to_write()?;
    Ok(Serves::Volume(siftfs_log::show_uuid(&view.header.volume)))
}

impl Serves {
    /// Refuses what a member has not.
    fn refuse_more(&self, a: &Device) -> Result<(), Failure> {
        let more = [
            ("--programs", a.programs.is_some()),
            ("--log", a.parts.log.is_some()),
            ("--log-spare", a.parts.log_spare.is_some()),
            ("--record-area", a.parts.record_area.is_some()),
        ];
        match (self, more.iter().find(|(_, given)| *given)) {
            (Self::Member(_), Some((flag, _))) => Err(Failure::plain(format!(
                "{flag}: {} is one member of a striped volume: leave it out, and say it to the process that \
                 serves all of them, siftfs device stripe:...",
                a.volume.display()
            ))
            .with_code(USAGE)),
            _ => Ok(()),
        }
    }

    /// In words for people.
    fn text(&self) -> String {
        match self {
            Self::Volume(uuid) => format!("device process of volume {uuid}"),
            Self::Member(Standing::Free) => {
                "storage of a member of a striped volume, of no set yet".into()
            }
            Self::Member(Standing::Of { set, index, count }) => format!(
                "storage of member {} of {count} of the striped set {}",
                index + 1,
                siftfs_log::show_uuid(set)
            ),
        }
    }

    fn uuid(&self) -> Option<&str> {
        match self {
            Self::Volume(uuid) => Some(uuid),
            Self::Member(_) => None,
        }
    }

    /// Of which set it is which member, from 1; 0 for one of no set yet.
    fn member(&self) -> Option<serde_json::Value> {
        match self {
            Self::Volume(_) => None,
            Self::Member(Standing::Free) => Some(serde_json::json!({ "number": 0 })),
            Self::Member(Standing::Of { set, index, count }) => Some(serde_json::json!({
                "number": index + 1, "of": count, "set": siftfs_log::show_uuid(set),
            })),
        }
    }
}

/// The server, of which nothing is open until a host comes.
fn server(
    a: &Device,
    (volume, options): (PathBuf, OpenOptions),
    serves: &Serves,
    programs: Option<String>,
) -> Result<Server, Failure> {
    let (path, parts) = (volume.clone(), options.clone());
    let mut names = vec![name_of(&a.volume)];
    let storage: OpenStorage = match serves {
        Serves::Volume(uuid) => {
            names.push(uuid.clone());
            Arc::new(move |access| open_media_for_host(&path, &parts, access))
        }
        Serves::Member(_) => Arc::new(move |access| {
            let member = open_member(&path, &parts, access)?;
            let (media, _) =
                member.ok_or_else(|| Error::Refused("it is no member any more".into()))?;
            Ok(media)
        }),
    };
    // What is lost of a volume's members is waited for from now on.
    let waits = options.waits.clone();
    waits.begin();
    let serving = ServerOptions {
        replay: Replay { mode: a.replay, memory: a.memory },
        names,
        storage: Some(storage),
        programs,
        scratch: scratch(a)?,
        workers: workers(a),
        member: matches!(serves, Serves::Member(_)),
        waits,
        ..ServerOptions::default()
    };
    let open = move || open_media_for_host(&volume, &options, Access::Shared);
    Ok(Server::new(Box::new(open), serving))
}

/// How programs are served.
fn workers(a: &Device) -> WorkerOptions {
    let usual = WorkerOptions::default();
    let workers = a.workers.map_or(usual.workers, usize::from);
    WorkerOptions { workers, spin: Duration::from_micros(a.spin) }
}

/// Where scratch files are made.
fn scratch(a: &Device) -> Result<PathBuf, Failure> {
    let folder = a.scratch.clone().unwrap_or_else(std::env::temp_dir);
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(Failure::plain(format!("--scratch: {} is no directory", folder.display()))),
    }
}

/// Where others reach it.
struct Doors {
    hosts: Listener,
    programs: Option<Listener>,
}

impl Doors {
    fn programs(&self) -> Option<String> {
        self.programs.as_ref().map(|listener| listener.address().to_string())
    }
}

fn doors(a: &Device, transport: &TransportOptions) -> Result<Doors, Failure> {
    let hosts = a.admit.listen(&a.listen, transport).map_err(Failure::plain)?;
    let Some(address) = &a.programs else { return Ok(Doors { hosts, programs: None }) };
    let programs = a.admit.listen(address, transport).map_err(Failure::plain)?;
    if let Address::Unix(path) = address {
        // A token is what admits here, and not a user.
        let open = Permissions::from_mode(0o666);
        fs::set_permissions(path, open).map_err(|e| Failure::about(path, e))?;
    }
    Ok(Doors { hosts, programs: Some(programs) })
}

fn announce(a: &Device, serves: &Serves, doors: &Doors) -> Result<(), Failure> {
    let (address, programs) = (doors.hosts.address().to_string(), doors.programs());
    let volume = a.volume.display().to_string();
    let what = serves.text();
    tracing::info!(volume, what, address, programs, "listening");
    if a.json {
        let pid = std::process::id();
        let line = serde_json::json!({
            "listening": address, "programs": programs, "volume": volume, "uuid": serves.uuid(),
            "member": serves.member(), "pid": pid,
        });
        output::say(line)?;
    } else {
        output::say(format!("{volume}: {what}, listening at {address}"))?;
        if let Some(programs) = programs {
            output::say(format!("{volume}: programs are admitted at {programs}"))?;
        }
    }
    notify::ready();
    Ok(())
}

/// Until a signal: one thread per connection. All of them have ended when this returns.
fn serve(server: &Arc<Server>, doors: Doors, ending: &Arc<AtomicBool>) -> Result<(), Failure> {
    let programs = doors.programs.map(|listener| {
        let (server, ending) = (server.clone(), ending.clone());
        let thread = thread::Builder::new().name("siftfs-programs".into());
        thread.spawn(move || admit(&server, &listener, &ending, (PROGRAMS, Server::program)))
    });
    let programs = programs.transpose().map_err(Failure::plain)?;
    admit(server, &doors.hosts, ending, (CONNECTIONS, Server::session));
    if programs.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!("the thread that admits programs ended with a failed assertion");
    }
    Ok(())
}

/// One door: this is the most connections at once, and how each is served.
fn admit(
    server: &Arc<Server>,
    listener: &Listener,
    ending: &AtomicBool,
    (most, serve): (usize, fn(&Server, DeviceEnd)),
) {
    let mut sessions: Vec<JoinHandle<()>> = Vec::new();
    while !ending.load(Ordering::Acquire) {
        sessions.retain(|session| !session.is_finished());
        server.look();
        let end = match listener.accept(Some(POLL)) {
            Ok(Some(end)) => end,
            Ok(None) => continue,
            Err(error) => {
                server.turned_away(&error);
                continue;
            }
        };
        if sessions.len() >= most {
            let why = format!("{}: too many connections, at most {most}", end.peer);
            server.turned_away(&Error::Refused(why));
            continue;
        }
        let server = server.clone();
        let session = move || serve(&server, end);
        match thread::Builder::new().name("siftfs-session".into()).spawn(session) {
            Ok(session) => sessions.push(session),
            Err(error) => tracing::error!(%error, "no thread for a connection"),
        }
    }
    server.stop();
    for session in sessions {
        if session.join().is_err() {
            tracing::error!("a session ended with a failed assertion");
        }
    }
}
