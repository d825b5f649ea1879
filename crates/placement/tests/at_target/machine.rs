//! A machine with storage and the process that is its target: it dies with its power, and comes
//! back with what the disk kept.

#![allow(dead_code, reason = "each test file uses a part of it")]

use siftfs_device::{Device, FaultDevice, Part, ProcessDevice, Role, SharedDevice};
use siftfs_device_target::TargetPlace;
use siftfs_placement::{
    Address, DeviceEnd, Listener, Media, OpenStorage, Server, ServerOptions, TransportOptions,
};
use siftfs_transport::Sender;
use siftfs_wire::{Access, FromService};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What the volume is called there.
pub const NAME: &str = "disk";

/// How calls get there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// A unix socket, and memory that both share.
    SharedMemory,
    /// A unix socket alone.
    Unix,
    /// TCP without keys.
    Tcp,
}

/// A connection: what cuts it, and its thread.
type Session = (Weak<dyn Sender<FromService>>, JoinHandle<()>);

/// What is done with a connection.
type Serve = fn(&Server, DeviceEnd);

/// The machine while it runs.
pub struct Machine {
    pub disk: Arc<FaultDevice>,
    place: TargetPlace,
    /// Where the log's device begins, if it has one of its own.
    log: Option<u64>,
    /// It serves one member of a striped volume.
    member: bool,
    server: Arc<Server>,
    ending: Arc<AtomicBool>,
    accepting: Option<JoinHandle<Vec<Session>>>,
    /// Those that accept programs.
    doors: Mutex<Vec<JoinHandle<Vec<Session>>>>,
    opened: Arc<Mutex<Vec<Weak<ProcessDevice>>>>,
}

fn options(way: Way) -> TransportOptions {
    let mut options = TransportOptions::default();
    if way != Way::SharedMemory {
        options.shared_memory = 0;
    }
    options
}

fn address(way: Way, dir: &std::path::Path) -> Address {
    match way {
        Way::Tcp => Address::Tcp { host: "127.0.0.1".into(), port: 0 },
        _ => Address::Unix(dir.join("target.sock")),
    }
}

/// The devices that a disk stands for: one, or the area's and the log's.
fn parts(disk: &Arc<FaultDevice>, log: Option<u64>) -> impl Iterator<Item = Arc<dyn Device>> {
    let (disk, end) = (disk.clone(), disk.size());
    let ranges = [Some(0..log.unwrap_or(end)), log.map(|log| log..end)];
    ranges
        .into_iter()
        .flatten()
        .map(move |range| -> Arc<dyn Device> { Arc::new(Part::new(disk.clone(), range)) })
}

impl Machine {
    /// Starts on this disk, listening in `dir`.
    pub fn start(disk: FaultDevice, way: Way, dir: &std::path::Path) -> Self {
        Self::start_at(disk, (None, false), way, &address(way, dir))
    }

    /// The same of a disk that is one member of a striped volume.
    pub fn start_member(disk: FaultDevice, way: Way, dir: &std::path::Path) -> Self {
        Self::start_at(disk, (None, true), way, &address(way, dir))
    }

    /// The same of a volume whose log is a device of its own, which begins at this byte of `disk`.
    pub fn start_apart(disk: FaultDevice, log: u64, way: Way, dir: &std::path::Path) -> Self {
        Self::start_at(disk, (Some(log), false), way, &address(way, dir))
    }

    fn start_at(
        disk: FaultDevice,
        (log, member): (Option<u64>, bool),
        way: Way,
        address: &Address,
    ) -> Self {
        let disk = Arc::new(disk);
        let shared: Vec<SharedDevice> = parts(&disk, log).map(SharedDevice::new).collect();
        let opened: Arc<Mutex<Vec<Weak<ProcessDevice>>>> = Arc::default();
        let open = {
            let opened = opened.clone();
            move || {
                let mut devices = shared.iter().map(|shared| {
                    let device = shared.open();
                    opened.lock().unwrap().push(Arc::downgrade(&device));
                    device as Arc<dyn Device>
                });
                let area = devices.next().expect("there is a first");
                Media { log: devices.next(), ..Media::from(area) }
            }
        };
        let open_storage = open.clone();
        let storage: OpenStorage = Arc::new(move |access| {
            let media = open_storage();
            if access == Access::Alone {
                for role in Role::ALL {
                    media.claim(role, Duration::from_millis(500))?;
                }
            }
            Ok(media)
        });
        let (names, storage) = (vec![NAME.into()], Some(storage));
        let options_of = ServerOptions { names, storage, member, ..ServerOptions::default() };
        let server = Arc::new(Server::new(Box::new(move || Ok(open())), options_of));
        let listener = Listener::bind(address, &options(way)).unwrap();
        let (address, volume) = (listener.address(), NAME.into());
        let place = TargetPlace { address, volume, options: options(way), secured: None };
        let ending = Arc::new(AtomicBool::new(false));
        let serve = Server::session;
        let accepting = Some(accept(listener, (server.clone(), serve), ending.clone()));
        let doors = Mutex::default();
        Self { disk, place, log, member, server, ending, accepting, doors, opened }
    }

    /// The volume there.
    pub fn place(&self) -> TargetPlace {
        self.place.clone()
    }

    /// A door for programs alone, listening at this socket.
    pub fn admit_programs(&self, socket: std::path::PathBuf) -> TargetPlace {
        let listener = Listener::bind(&Address::Unix(socket), &self.place.options).unwrap();
        let place = TargetPlace { address: listener.address(), ..self.place() };
        let serve = (self.server.clone(), Server::program as Serve);
        self.doors.lock().unwrap().push(accept(listener, serve, self.ending.clone()));
        place
    }

    /// The process ends, and its listener with it; calls that had begun are carried out.
    pub fn stop(&mut self) {
        self.server.stop();
        let sessions = self.stop_listening();
        sessions.into_iter().for_each(|(_, session)| session.join().unwrap());
    }

    fn stop_listening(&mut self) -> Vec<Session> {
        self.ending.store(true, Ordering::SeqCst);
        let doors = std::mem::take(&mut *self.doors.lock().unwrap());
        let accepting = self.accepting.take().into_iter().chain(doors);
        accepting.flat_map(|accepting| accepting.join().unwrap()).collect()
    }

    /// Power fails: of what was not flushed, some is kept, some torn and some lost. The machine
    /// that comes back has what is left, at the same address.
    pub fn power_fails(mut self, way: Way, seed: u64) -> Self {
        // Nothing is answered any more; then nothing is written. What the process does at its end
        // it does in vain.
        let sessions = self.stop_listening();
        sessions.iter().filter_map(|(sender, _)| sender.upgrade()).for_each(|it| it.cut());
        let opened = self.opened.lock().unwrap();
        opened.iter().filter_map(Weak::upgrade).for_each(|device| device.kill());
        drop(opened);
        self.disk.cut_now();
        self.server.stop();
        sessions.into_iter().for_each(|(_, session)| session.join().unwrap());
        let left = FaultDevice::from_image(self.disk.power_cut_image(seed), seed);
        Self::start_at(left, (self.log, self.member), way, &self.place.address)
    }
}

impl Machine {
    /// The process ends, `meanwhile` happens to the disk, and the next process serves it at the
    /// same address.
    pub fn served_again(mut self, way: Way, meanwhile: impl FnOnce(&Arc<FaultDevice>)) -> Self {
        self.stop();
        let disk = Arc::new(FaultDevice::from_image(self.disk.contents(), 1));
        meanwhile(&disk);
        let left = FaultDevice::from_image(disk.contents(), 1);
        Self::start_at(left, (self.log, self.member), way, &self.place.address)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(
    listener: Listener,
    (server, serve): (Arc<Server>, Serve),
    ending: Arc<AtomicBool>,
) -> JoinHandle<Vec<Session>> {
    thread::spawn(move || {
        let mut sessions: Vec<Session> = Vec::new();
        while !ending.load(Ordering::SeqCst) {
            if let Ok(Some(end)) = listener.accept(Some(Duration::from_millis(10))) {
                // Those that have ended, a worker's among them, take their memory with them.
                sessions
                    .retain(|(sender, thread)| sender.strong_count() > 0 || !thread.is_finished());
                let (server, sender) = (server.clone(), Arc::downgrade(&end.sender));
                sessions.push((sender, thread::spawn(move || serve(&server, end))));
            }
        }
        sessions
    })
}
