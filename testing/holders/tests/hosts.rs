//! Programs of two hosts with direct leases on one served volume, whose storage a target has
//! (`docs/design/target.md`, "Programs of several hosts"). Each host reaches the server by TCP with
//! keys, and the target by TCP.

#[path = "../../../crates/frontend/direct/tests/support/mod.rs"]
mod support;

use siftfs_base::{Result, Rng};
use siftfs_crash::e2fsck_image;
use siftfs_direct::{DirectFile, Session};
use siftfs_placement::LocalVolume;
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, FileService, Handle, ROOT_INO, Reply, Request, SetAttr};
use siftfs_remote::{Claim, Client};
use siftfs_served::{Setup, Way as Reached};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use support::machine::{Machine, Way};
use support::{all, bytes, host, reach, volume_with};

/// How programs and server reach the target.
const WAY: Way = Way::Tcp;
/// Bytes of the file, at most.
const MOST: u64 = 900_000;

/// One machine: a session that may hold leases, and one that is anybody's.
struct Host {
    file: DirectFile,
    reader: DirectFile,
    plain: Arc<dyn FileService>,
    handle: Handle,
    /// Dropped behind its files.
    _direct: Session,
    setup: Setup,
}

fn ask(service: &Arc<dyn FileService>, request: Request) -> Result<Reply> {
    service.call(&Credentials::default(), request)
}

impl Host {
    fn new(volume: &LocalVolume) -> Self {
        let setup = Setup::new(volume, Reached::Secret);
        let reached = (&setup.options, setup.secured.as_ref());
        let direct = Session::open(Box::new(reach), |holder| {
            let client = Client::connect_to_hold(&setup.address, reached, "", Claim::Owner, holder);
            Ok(Arc::new(client?))
        });
        let direct = direct.unwrap();
        let plain: Arc<dyn FileService> = Arc::new(setup.client(Claim::Owner).unwrap());
        let opened = |service: &Arc<dyn FileService>, access| {
            let lookup = Request::Lookup { parent: ROOT_INO, name: "f".into() };
            let ino = ask(service, lookup).and_then(Reply::attr).unwrap().ino;
            let handle = ask(service, Request::open(ino, access)).and_then(Reply::opened);
            (handle.unwrap(), ino)
        };
        let (handle, ino) = opened(direct.service(), Access::Both);
        let file = direct.file(handle, ino);
        let (handle, ino) = opened(direct.service(), Access::Read);
        let reader = direct.file_to_read(handle, ino);
        let (handle, _) = opened(&plain, Access::Both);
        Self { file, reader, plain, handle, _direct: direct, setup }
    }

    /// The machine goes, without a word to anybody.
    fn dies(self) {
        self.setup.server.stop();
        drop(self);
    }
}

/// Its parts end in this order.
struct History {
    rng: Rng,
    hosts: Vec<Host>,
    volume: Option<LocalVolume>,
    machine: Option<Machine>,
    model: Vec<u8>,
    dir: tempfile::TempDir,
}

impl History {
    fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume_with(64 << 20, Some(4 << 20)), WAY, dir.path());
        let volume = host(&machine);
        let made = support::user(&volume);
        let new = Request::Create { parent: ROOT_INO, name: "f".into(), perm: 0o644 };
        let (_, handle) = ask(&made, new).and_then(Reply::created).unwrap();
        ask(&made, Request::Release { handle }).unwrap();
        let hosts = (0..2).map(|_| Host::new(&volume)).collect();
        let (machine, volume) = (Some(machine), Some(volume));
        let rng = Rng::new(seed);
        Self { rng, machine, volume, hosts, model: Vec::new(), dir }
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let (at, end) = (at as usize, at as usize + data.len());
        self.model.resize(self.model.len().max(end), 0);
        self.model[at..end].copy_from_slice(data);
    }

    /// What the file has there, as one of the hosts reads it by any of its ways.
    fn reads(&mut self, who: usize) {
        let (at, len) =
            (self.rng.below(self.model.len() as u64 + 5000), 1 + self.rng.below(70_000));
        let host = &self.hosts[who];
        let found = match self.rng.below(3) {
            0 => host.file.read_at(at, len as usize).unwrap(),
            1 => host.reader.read_at(at, len as usize).unwrap(),
            _ => {
                let file = host.handle.into();
                let read = Request::Read { file, offset: at, len: len as u32 };
                ask(&host.plain, read).and_then(Reply::data).unwrap()
            }
        };
        let end = self.model.len().min((at + len) as usize);
        let wanted = self.model.get(at as usize..end).unwrap_or(&[]);
        assert_eq!(found.len(), wanted.len(), "at {at}");
        assert!(found == wanted, "at {at}");
    }

    /// A write by a direct file, of which others have heard nothing.
    fn writes(&mut self, who: usize) {
        let len = [1, 700, 4096, 20_000][self.rng.below(4) as usize];
        let data = bytes(&mut self.rng, len);
        let end = self.model.len() as u64;
        let appends = end < MOST && self.rng.below(3) == 0;
        let at = if appends { end } else { self.rng.below(end.min(MOST) + 1) };
        let file = &self.hosts[who].file;
        match self.rng.below(3) {
            0 => file.write_durable_at(at, &data).unwrap(),
            _ => file.write_at(at, &data).unwrap(),
        }
        self.put(at, &data);
    }

    fn section(&mut self, who: usize) {
        let count = 1 + self.rng.below(3);
        let one = |rng: &mut Rng, end: u64| {
            let len = 1 + rng.below(9000) as usize;
            (rng.below(end + 1), bytes(rng, len))
        };
        let end = self.model.len().saturating_sub(9001) as u64;
        let writes: Vec<_> = (0..count).map(|_| one(&mut self.rng, end)).collect();
        let mut section = self.hosts[who].file.atomic_start();
        for (at, data) in &writes {
            section.write_at(*at, data).unwrap();
        }
        section.commit().unwrap();
        writes.iter().for_each(|(at, data)| self.put(*at, data));
    }

    /// A change by a session that holds nothing.
    fn changes(&mut self, who: usize) {
        let host = &self.hosts[who];
        let end = (self.model.len() as u64).min(MOST);
        if self.rng.below(4) == 0 {
            let size = self.rng.below(end + 20_000);
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            ask(&host.plain, Request::SetAttr { file: host.handle.into(), set, times: true })
                .unwrap();
            self.model.resize(size as usize, 0);
            return;
        }
        let (at, len) = (self.rng.below(end + 9000), 1 + self.rng.below(20_000) as usize);
        let data = bytes(&mut self.rng, len);
        ask(&host.plain, Request::write(host.handle, at, data.clone())).unwrap();
        self.put(at, &data);
    }

    /// Uses the file until blocks of it are granted, or for a while.
    fn settles(&mut self, who: usize, most: Duration) {
        let begun = Instant::now();
        while !self.hosts[who].file.is_direct() && begun.elapsed() < most {
            self.writes(who);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// One host has the file alone for a while, and then others want it.
    fn has_it_alone(&mut self, who: usize) {
        self.settles(who, Duration::from_secs(4));
        for _ in 0..12 {
            match self.rng.below(4) {
                0 => self.section(who),
                1 => self.syncs(who),
                _ => self.writes(who),
            }
        }
        // What it has written nobody has heard of.
        self.reads(1 - who);
    }

    fn syncs(&mut self, who: usize) {
        let file = &self.hosts[who].file;
        match self.rng.below(2) {
            0 => file.sync_data().unwrap(),
            _ => file.sync_all().unwrap(),
        }
    }

    fn all_sync(&mut self) {
        (0..2).for_each(|who| self.hosts[who].file.sync_all().unwrap());
    }

    /// The target loses its power, and comes back.
    fn target_dies(&mut self) {
        let machine = self.machine.take().unwrap();
        self.machine = Some(machine.power_fails(WAY, self.rng.below(u64::MAX)));
        // What was written there lies with its programs until they have repeated it.
        self.all_sync();
    }

    /// One of the machines dies: what it was answered is there.
    fn host_dies(&mut self, who: usize) {
        self.hosts.remove(who).dies();
        let new = Host::new(self.volume.as_ref().unwrap());
        self.hosts.insert(who, new);
    }

    /// The server dies, and with it all sessions: what was synced is there.
    fn server_dies(&mut self) {
        self.all_sync();
        let left = &self.hosts[0];
        let sync = Request::Fsync { file: left.handle.into(), datasync: false };
        ask(&left.plain, sync).unwrap();
        let volume = self.volume.take().unwrap();
        // Its sessions end with it.
        self.hosts.drain(..).for_each(Host::dies);
        volume.abandon();
        let volume = host(self.machine.as_ref().unwrap());
        self.hosts = (0..2).map(|_| Host::new(&volume)).collect();
        self.volume = Some(volume);
    }

    fn step(&mut self) -> String {
        let (who, what) = (self.rng.below(2) as usize, self.rng.below(100));
        match what {
            0..30 => self.writes(who),
            30..55 => self.reads(who),
            55..63 => self.section(who),
            63..75 => self.changes(who),
            75..88 => self.has_it_alone(who),
            88..95 => self.syncs(who),
            95..97 => self.target_dies(),
            97..99 => self.host_dies(who),
            _ => self.server_dies(),
        }
        format!("host {who}, {what}")
    }

    fn end(mut self, seed: u64) {
        for who in 0..2 {
            self.settles(who, Duration::from_secs(20));
            assert!(self.hosts[who].file.is_direct(), "seed {seed}: host {who} gets no blocks");
            self.writes(who);
            self.section(who);
        }
        self.all_sync();
        let volume = self.volume.take().unwrap();
        let user = support::user(&volume);
        let handle = support::open(&user, "f");
        assert!(all(&user, handle) == self.model, "seed {seed}: at the end");
        drop(user);
        self.hosts.clear();
        volume.close().unwrap();
        let machine = self.machine.take().unwrap();
        e2fsck_image(&machine.disk.contents()).unwrap();
        drop(machine);
        drop(self.dir);
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// Random calls of two hosts on one file, each by a direct file, by one that reads, and by a
/// session that holds nothing, answer what one file would; target, hosts and server die in between,
/// and what is left at the end is a file system.
///
/// `SIFTFS_SEED` names the first seed, and `SIFTFS_SEEDS` how many there are; `SIFTFS_LONG=1` runs
/// twenty.
#[test]
fn a_history_of_two_hosts() {
    let long = if std::env::var_os("SIFTFS_LONG").is_some() { 20 } else { 1 };
    let first = number("SIFTFS_SEED", 1);
    for seed in first..first + number("SIFTFS_SEEDS", long) {
        let mut history = History::new(seed);
        for step in 0..60 {
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history.step()));
            if let Err(panic) = told {
                eprintln!("seed {seed}, step {step}");
                std::panic::resume_unwind(panic);
            }
        }
        history.end(seed);
    }
}

/// Threads of both hosts write their own pieces of one file, each with its lease as long as that
/// lasts: no piece is lost, and nobody waits for ever.
#[test]
fn hosts_take_turns() {
    let mut history = History::new(7);
    let (piece, pieces) = (6000, 40);
    let model = bytes(&mut history.rng, 2 * piece * pieces);
    thread::scope(|scope| {
        for (who, host) in history.hosts.iter().enumerate() {
            let model = &model;
            scope.spawn(move || {
                for turn in 0..pieces {
                    let at = (2 * turn + who) * piece;
                    host.file.write_at(at as u64, &model[at..at + piece]).unwrap();
                    if turn % 8 == 7 {
                        host.file.sync_data().unwrap();
                        // Long enough for the other one to have the file alone.
                        thread::sleep(Duration::from_millis(40));
                    }
                    let found = host.file.read_at(at as u64, piece).unwrap();
                    assert!(found == model[at..at + piece], "host {who}, piece {turn}");
                }
            });
        }
    });
    history.model = model;
    history.end(7);
}
