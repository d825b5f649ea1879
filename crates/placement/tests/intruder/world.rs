//! A target with a door for programs, its host, a canary, and an honest program.

use crate::machine::{Machine, NAME, Way};
use siftfs_base::{BLOCK_SIZE, Rng};
use siftfs_device::{Device, FaultDevice};
use siftfs_device_target::{Lines, Queue, RequestOrder, TargetPlace};
use siftfs_placement::{
    Dial, LocalVolume, MkfsOptions, OpenOptions, ServicePlace, TransportOptions, mkfs_on,
};
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const SIZE: u64 = 192 << 20;
pub const BLOCK: u64 = BLOCK_SIZE as u64;
/// Blocks of the honest program's file.
const BLOCKS: u64 = 32;
/// Bytes of the canary, of which nobody else has any.
const CANARY: u8 = 0xca;

/// A holder that keeps what it has: its leases end with its session.
struct Keeps;

impl Holder for Keeps {
    fn recall(&self, _: LeaseId) {}
}

pub struct World {
    pub machine: Machine,
    /// Where programs get in.
    pub door: TargetPlace,
    pub host: LocalVolume,
    /// Where the canary lies, and all that is metadata, in bytes of the area.
    pub canary: Vec<u64>,
    answered: AtomicU64,
    dir: tempfile::TempDir,
}

pub fn ask(session: &Arc<dyn FileService>, req: Request) -> Result<Reply, i32> {
    session.call(&Credentials::default(), req).map_err(|e| e.errno())
}

/// A new file with these bytes, durably.
pub fn make(session: &Arc<dyn FileService>, name: &str, bytes: &[u8]) -> Result<Handle, i32> {
    let new = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
    let (attr, handle) = ask(session, new)?.created().unwrap();
    // The handle keeps it, and nothing else does.
    ask(session, Request::Forget { ino: attr.ino, count: 1 })?;
    for (at, bytes) in (0..).step_by(1 << 18).zip(bytes.chunks(1 << 18)) {
        ask(session, Request::write(handle, at, bytes.to_vec()))?;
    }
    ask(session, Request::Fsync { file: handle.into(), datasync: false })?;
    Ok(handle)
}

/// The lease of a file, and what is granted by it, once all of its blocks are.
pub fn granted(
    session: &Arc<dyn FileService>,
    handle: Handle,
    blocks: u64,
    room: u32,
) -> Result<(LeaseId, Direct), i32> {
    let asked = Request::Lease { file: handle.into(), writers: None, direct: None };
    let lease = ask(session, asked)?.leased().unwrap().0;
    loop {
        let asked = Request::LeaseDirect { lease, file: handle.into(), room: room.into() };
        let direct = ask(session, asked)?.direct().unwrap();
        let home = direct.runs.iter().filter(|run| run.first < blocks);
        if home.map(|run| run.count.min(blocks - run.first)).sum::<u64>() == blocks {
            return Ok((lease, direct));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Where a block of the file lies, in bytes of the area.
pub fn home(direct: &Direct, block: u64) -> u64 {
    let run = direct.runs.iter().find(|run| (run.first..run.first + run.count).contains(&block));
    let run = run.expect("a granted block");
    (run.block + block - run.first) * BLOCK
}

fn host(machine: &Machine) -> LocalVolume {
    let (target, options) = (machine.place(), TransportOptions::default());
    let dial = Dial { address: target.address.clone(), options, secured: None };
    let service = Some(ServicePlace { connector: Arc::new(dial), fallback: None });
    let opts = OpenOptions { target: Some(target), service, ..OpenOptions::default() };
    LocalVolume::open(Path::new(&format!("target:{NAME}")), &opts, &mut |_, _, _| {}).unwrap()
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultDevice::new(SIZE, 1));
        let any: Arc<dyn Device> = disk.clone();
        let (log_size, redo_lane) = (Some(32 << 20), Some(2 << 20));
        let opts = MkfsOptions { log_size, lanes: 1, redo_lane, ..MkfsOptions::default() };
        mkfs_on(any, &opts).unwrap();
        let disk = FaultDevice::from_image(disk.contents(), 1);
        let machine = Machine::start(disk, Way::SharedMemory, dir.path());
        let door = machine.admit_programs(dir.path().join("programs.sock"));
        let host = host(&machine);
        let session = session(&host);
        let handle = make(&session, "canary", &[CANARY; 16 * BLOCK_SIZE]).unwrap();
        // Where it lies is told to a holder, which gives the lease back.
        let (_, direct) = granted(&session, handle, 16, 0).unwrap();
        let canary = (0..16).map(|block| home(&direct, block)).collect();
        ask(&session, Request::EndSession).unwrap();
        let world = Self { machine, door, host, canary, answered: AtomicU64::new(0), dir };
        world.judge_canary();
        world
    }

    /// A call of a hostile program has been answered.
    pub fn count(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    pub fn session(&self) -> Arc<dyn FileService> {
        session(&self.host)
    }

    /// On the disk, where it has been all the time.
    pub fn judge_canary(&self) {
        let now = self.machine.disk.contents();
        for at in &self.canary {
            assert!(now.bytes(*at, BLOCK_SIZE) == [CANARY; BLOCK_SIZE], "the canary at {at}");
        }
    }

    /// What the target has refused.
    pub fn refusals(&self) -> u64 {
        let status = self.host.endpoint().call(&Credentials::default(), Request::Status);
        let Ok(Reply::Status(status)) = status else { panic!("no status") };
        status.service.device.expect("a target").refusals
    }

    /// In order: the volume is plain ext4.
    pub fn end(self) {
        self.judge_canary();
        let left = {
            self.host.close().unwrap();
            self.machine.disk.contents()
        };
        let file = self.dir.path().join("image");
        left.save(&file).unwrap();
        let fsck = siftfs_fsck::check(&*self.machine.disk);
        let errors = fsck.iter().filter(|f| f.severity == siftfs_fsck::Severity::Error);
        assert_eq!(errors.count(), 0, "{fsck:?}");
        let checked = Command::new("e2fsck").arg("-fn").arg(&file).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

fn session(host: &LocalVolume) -> Arc<dyn FileService> {
    host.holder(Opening::user(0, 0, Rights::all()), Arc::new(Keeps)).unwrap()
}

/// Memories that this process shares with anybody, by the numbers of their inodes.
pub fn shared_memories() -> BTreeSet<u64> {
    memories().into_iter().map(|(inode, _)| inode).collect()
}

/// The same, with the name of each mapping.
pub fn memories() -> Vec<(u64, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, _, _, _, inode, name, ..] = words[..] else { return None };
        let is_one = name.contains("siftfs-link");
        is_one.then_some((inode.parse().ok()?, range.to_string()))
    };
    maps.lines().filter_map(memory).collect()
}

/// A program that does what it may, and has a model of its file.
pub struct Honest {
    session: Arc<dyn FileService>,
    handle: Handle,
    direct: Direct,
    queue: Queue,
    model: Vec<u8>,
    rng: Rng,
    others: u64,
}

impl Honest {
    pub fn new(world: &World, rng: Rng) -> Self {
        let session = world.session();
        let model = vec![100; BLOCKS as usize];
        let bytes = vec![100; BLOCKS as usize * BLOCK_SIZE];
        let handle = make(&session, "honest", &bytes).unwrap();
        let (lease, direct) = granted(&session, handle, BLOCKS, 0).unwrap();
        let lines = Lines::new(world.door.clone());
        let queue = Queue::open(lines, direct.token, RequestOrder::default()).unwrap();
        let own = session.clone();
        // A term is short, and a busy machine slow.
        std::thread::spawn(move || {
            while ask(&own, Request::LeaseKeep { lease }).is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self { session, handle, direct, queue, model, rng, others: 0 }
    }

    /// One call at the target: what it reads is what it wrote.
    pub fn call(&mut self) {
        let block = self.rng.below(BLOCKS);
        let at = home(&self.direct, block);
        let byte = 100 + self.rng.below(50) as u8;
        match self.rng.below(8) {
            0..3 => {
                let durable = self.rng.chance(30);
                self.queue.write_at(at, &[byte; BLOCK_SIZE], durable).unwrap();
                self.model[block as usize] = byte;
            }
            3 => {
                self.queue.write_atomic(&[(at, &[byte; BLOCK_SIZE])], &Arc::default()).unwrap();
                self.model[block as usize] = byte;
            }
            4 => self.queue.flush().unwrap(),
            _ => {
                let mut found = [0; BLOCK_SIZE];
                self.queue.read_at(at, &mut found).unwrap();
                assert!(found == [self.model[block as usize]; BLOCK_SIZE], "block {block}");
            }
        }
    }

    /// A file is made, read and removed: blocks go from one to the other.
    pub fn work_by_the_host(&mut self) {
        self.others += 1;
        let name = format!("other{}", self.others % 4);
        let old = Request::Lookup { parent: ROOT_INO, name: name.clone().into() };
        if let Ok(found) = ask(&self.session, old) {
            let ino = found.attr().unwrap().ino;
            let opened = ask(&self.session, Request::open(ino, Access::Both)).unwrap();
            let handle = opened.opened().unwrap();
            ask(&self.session, Request::Forget { ino, count: 1 }).unwrap();
            let len = 20 * BLOCK as u32;
            let read = Request::Read { file: handle.into(), offset: 0, len };
            let bytes = ask(&self.session, read).unwrap().data().unwrap();
            assert!(bytes == [0x5a; 20 * BLOCK_SIZE], "{name} is another one");
            ask(&self.session, Request::Release { handle }).unwrap();
            let name = name.clone().into();
            ask(&self.session, Request::Unlink { parent: ROOT_INO, name }).unwrap();
        }
        let handle = make(&self.session, &name, &[0x5a; 20 * BLOCK_SIZE]).unwrap();
        ask(&self.session, Request::Release { handle }).unwrap();
    }

    /// The file is as the program left it, for everybody.
    pub fn end(self) {
        drop(self.queue);
        for (block, byte) in (0..).zip(&self.model) {
            let (file, len) = (self.handle.into(), BLOCK as u32);
            let read = Request::Read { file, offset: block * BLOCK, len };
            let bytes = ask(&self.session, read).unwrap().data().unwrap();
            assert!(bytes == [*byte; BLOCK_SIZE], "block {block}");
        }
        ask(&self.session, Request::EndSession).unwrap();
    }
}
