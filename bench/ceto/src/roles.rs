//! The processes that a figure starts: a target with modelled storage, and a host of it. Each says
//! in one line where it listens, answers one line for each that it reads, and ends with its input,
//! so also with the bench.

use crate::delay::delayed;
use crate::storage::Modelled;
use crate::wire::{self, counted};
use crate::{span, wait};
use clap::Args;
use serde_json::json;
use siftfs_base::Error;
use siftfs_device::{MemDevice, Role, SharedDevice};
use siftfs_placement::{
    Address, DeviceEnd, Dial, Listener, LocalVolume, Media, MkfsOptions, OpenOptions, OpenStorage,
    Server, ServerOptions, ServicePlace, TargetPlace, TransportOptions, mkfs_on,
};
use siftfs_remote::Server as HostServer;
use siftfs_rig::place::{Failed, Result};
use siftfs_transport::Received;
use siftfs_wire::{Access, FromService, StorageAnswer, ToService};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What the volume is called at its target.
pub const NAME: &str = "bench";
/// How often a process that listens looks whether it is to end.
const POLL: Duration = Duration::from_millis(20);
/// How long a host's roles are waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// What both have.
#[derive(Args)]
pub struct Common {
    /// Folder of its sockets
    #[arg(long)]
    dir: PathBuf,
    /// Each way's time of a message with a program
    #[arg(long, value_parser = span::parse)]
    net_delay: Duration,
    /// How long a receiver spins
    #[arg(long, value_parser = span::parse)]
    spin: Duration,
}

/// A target.
#[derive(Args)]
pub struct TargetArgs {
    #[command(flatten)]
    common: Common,
    /// Time of each access to the storage
    #[arg(long, value_parser = span::parse)]
    storage: Duration,
    /// Bytes of the volume
    #[arg(long)]
    size: u64,
    /// Bytes of the volume's redo lane, if it is to have one
    #[arg(long)]
    redo_lane: Option<u64>,
    /// Count the bytes of programs' messages
    #[arg(long)]
    count: bool,
}

/// A host.
#[derive(Args)]
pub struct HostArgs {
    #[command(flatten)]
    common: Common,
    /// Where its target admits hosts
    #[arg(long)]
    target: String,
    /// Bytes of its page cache
    #[arg(long)]
    cache: u64,
}

/// What answers, and does nothing else.
#[derive(Args)]
pub struct EchoArgs {
    #[command(flatten)]
    common: Common,
}

/// Threads that take connections, until it is dropped.
struct Door {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn said(error: Error) -> Failed {
    Failed(error.to_string())
}

/// Options of the bench's connections.
pub fn options(spin: Duration) -> TransportOptions {
    TransportOptions { spin, ..siftfs::transport() }
}

impl Common {
    fn at(&self, name: &str) -> Address {
        Address::Unix(self.dir.join(name))
    }

    fn options(&self) -> TransportOptions {
        options(self.spin)
    }
}

impl Door {
    /// Has each connection that `accept` finds served by a thread of its own.
    fn open<End: Send + 'static>(
        accept: impl Fn() -> Option<End> + Send + 'static,
        serve: impl Fn(End) + Clone + Send + 'static,
    ) -> Self {
        let ending = Arc::new(AtomicBool::new(false));
        let ends = ending.clone();
        let thread = thread::spawn(move || {
            let mut sessions = Vec::new();
            while !ends.load(Ordering::Acquire) {
                if let Some(end) = accept() {
                    let serve = serve.clone();
                    sessions.push(thread::spawn(move || serve(end)));
                }
            }
            sessions.into_iter().for_each(|session| drop(session.join()));
        });
        Self { ending, thread: Some(thread) }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A new volume in memory, as it is opened by each that comes.
fn volume(args: &TargetArgs) -> Result<SharedDevice> {
    let device = Arc::new(MemDevice::new(args.size));
    let redo_lane = args.redo_lane;
    let made = MkfsOptions { lanes: 1, redo_lane, ..MkfsOptions::default() };
    mkfs_on(device.clone() as Arc<dyn siftfs_device::Device>, &made).map_err(said)?;
    let memory = MemDevice::from_image(device.snapshot());
    Ok(SharedDevice::new(Arc::new(Modelled::new(memory, args.storage))))
}

fn accepted(listener: &Listener) -> Option<DeviceEnd> {
    listener.accept(Some(POLL)).ok().flatten()
}

fn server(shared: &SharedDevice, programs: &Address, scratch: &Path) -> Arc<Server> {
    let (open, own) = (shared.clone(), shared.clone());
    let storage: OpenStorage = Arc::new(move |access| {
        let media = Media::from(open.open());
        if access == Access::Alone {
            for role in Role::ALL {
                media.claim(role, PATIENCE)?;
            }
        }
        Ok(media)
    });
    let options = ServerOptions {
        names: vec![NAME.into()],
        storage: Some(storage),
        programs: Some(programs.to_string()),
        scratch: scratch.to_owned(),
        ..ServerOptions::default()
    };
    Arc::new(Server::new(Box::new(move || Ok(own.open().into())), options))
}

/// Runs a target until its input ends.
///
/// # Errors
/// It cannot be started.
pub fn target(args: &TargetArgs) -> Result<()> {
    let common = &args.common;
    let bind = |name| Listener::bind(&common.at(name), &common.options()).map_err(said);
    let (hosts, programs) = (bind("hosts.sock")?, bind("programs.sock")?);
    let server = server(&volume(args)?, &programs.address(), &common.dir);
    let said = json!({"hosts": hosts.address().to_string()});
    let (one, other, delay, counts) =
        (server.clone(), server.clone(), common.net_delay, args.count);
    let serve = move |end| other.program(delayed(counted(end, counts), delay));
    let doors = [
        Door::open(move || accepted(&hosts), move |end| one.session(end)),
        Door::open(move || accepted(&programs), serve),
    ];
    tend(&said)?;
    server.stop();
    drop(doors);
    Ok(())
}

/// Answers each message of a program that asks for something, at once, until its input ends. So the
/// way of a call can be timed without what a target does for it.
///
/// # Errors
/// It cannot be started.
pub fn echo(args: &EchoArgs) -> Result<()> {
    let common = &args.common;
    let listener = Listener::bind(&common.at("echo.sock"), &common.options()).map_err(said)?;
    let (said, delay) = (json!({"echo": listener.address().to_string()}), common.net_delay);
    let door = Door::open(move || accepted(&listener), move |end| answer(delayed(end, delay)));
    tend(&said)?;
    drop(door);
    Ok(())
}

fn answer(mut end: DeviceEnd) {
    while let Ok(Received::Message(message)) = end.receiver.recv(None) {
        let (ToService::Storage { id, .. } | ToService::Queued { id, .. }) = message else {
            continue;
        };
        let done = FromService::Storage { id, answer: StorageAnswer::Done };
        if end.sender.send(done).is_err() {
            return;
        }
    }
}

/// Runs a host until its input ends. Its target has to be there until then.
///
/// # Errors
/// It cannot be started, or what it has cannot be written at its end.
pub fn host(args: &HostArgs) -> Result<()> {
    let common = &args.common;
    let address: Address = args.target.parse().map_err(said)?;
    let target = TargetPlace {
        address: address.clone(),
        volume: NAME.into(),
        options: common.options(),
        secured: None,
    };
    let dial = Dial { address, options: common.options(), secured: None };
    let service = Some(ServicePlace { connector: Arc::new(dial), fallback: None });
    let opened = OpenOptions {
        target: Some(target),
        service,
        page_cache: args.cache,
        ..OpenOptions::default()
    };
    let path = format!("target:{}/{NAME}", args.target);
    let volume = LocalVolume::open(Path::new(&path), &opened, &mut |_, _, _| {}).map_err(said)?;
    let bind = |name| siftfs_remote::Listener::bind(&common.at(name), &common.options());
    let (own, programs) = (bind("own.sock").map_err(said)?, bind("host.sock").map_err(said)?);
    let server = HostServer::new(volume.served(NAME).map_err(said)?);
    let said_so = json!({"programs": programs.address().to_string()});
    let (serving, other, delay) = (server.clone(), server.clone(), common.net_delay);
    // No client comes by this listener. Serving it starts the thread that keeps clients' calls.
    let serves = thread::spawn(move || serving.serve(&own));
    let accept = move || programs.accept(Some(POLL)).ok().flatten();
    let door = Door::open(accept, move |end| other.attend(delayed(end, delay)));
    tend(&said_so)?;
    server.stop();
    drop(door);
    drop(serves.join());
    drop(server);
    volume.close().map_err(said)
}

/// Says where it listens. Then each line of the input is answered with the processor time that was
/// used, and the bytes of messages that were counted, until the input ends.
fn tend(listening: &serde_json::Value) -> Result<()> {
    let broken = |e: io::Error| Failed(format!("its output: {e}"));
    let mut out = io::stdout().lock();
    writeln!(out, "{listening}").and_then(|()| out.flush()).map_err(broken)?;
    for line in io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (all, injected) = (micros(wait::of_process()), micros(wait::spent()));
        let used = json!({"us": all, "injected_us": injected, "wire": wire::crossed()});
        writeln!(out, "{used}").and_then(|()| out.flush()).map_err(broken)?;
    }
    Ok(())
}
