//! Power is cut at each write and flush of histories in which programs commit atomic sections and
//! write plainly at the target, while hosts make, shorten and remove other files, die and unmount:
//! a section is there as a whole or not, what was answered is there, and nobody else's block has
//! changed (R29, R33, R45). Recoveries are cut in turn.

use super::direct::*;
use super::expected::{Expected, SECTOR, What, file_of, sector};
use super::host;
use super::machine::{Machine, Way};
use siftfs_base::{BLOCK_SIZE, Clock, ManualClock, Rng};
use siftfs_device::{Cut, Device, FaultDevice, Image, Part};
use siftfs_placement::{
    LocalVolume, Media, MkfsOptions, OpenOptions, Threads, mkfs_on, recover_on,
};
use siftfs_proto::*;
use std::process::Command;
use std::sync::Arc;

const SIZE: u64 = 24 << 20;
/// Where the log begins that is a device of its own.
const LOG: u64 = 16 << 20;
const BLOCKS: usize = 12;
const SECTORS: usize = BLOCKS * BLOCK_SIZE / SECTOR;
const STEPS: usize = 30;

fn media(disk: &Arc<FaultDevice>, apart: bool) -> Media {
    let part = |range| -> Arc<dyn Device> { Arc::new(Part::new(disk.clone(), range)) };
    match apart {
        true => Media::split(part(0..LOG), part(LOG..SIZE)),
        false => Media::from(disk.clone()),
    }
}

fn made(apart: bool) -> FaultDevice {
    let disk = Arc::new(FaultDevice::new(SIZE, 1));
    let log_size = (!apart).then_some(6 << 20);
    let opts = MkfsOptions { log_size, lanes: 1, redo_lane: Some(1 << 20), ..Default::default() };
    mkfs_on(media(&disk, apart), &opts).unwrap();
    FaultDevice::from_image(disk.contents(), 1)
}

/// A history while it happens.
struct World<'m> {
    machine: &'m Machine,
    host: Option<LocalVolume>,
    program: Option<Program>,
    lane: Option<Lane>,
    rng: Rng,
    version: u64,
    /// The last one is the file that the program has.
    files: Vec<Expected>,
    /// Sections that were committed.
    sections: u64,
}

impl<'m> World<'m> {
    fn new(machine: &'m Machine, seed: u64) -> Self {
        let (files, rng) = (Vec::new(), Rng::new(seed));
        let (host, program, lane, version, sections) = (None, None, None, 1, 0);
        let mut world = Self { machine, host, program, lane, rng, version, files, sections };
        world.mount();
        world.make("canary");
        world.begin();
        world
    }

    fn now(&self) -> u64 {
        self.machine.disk.ops()
    }

    fn session(&self) -> &Arc<dyn FileService> {
        &self.program.as_ref().unwrap().session
    }

    fn mount(&mut self) {
        let host = host(self.machine).unwrap();
        self.program = Some(program(&host));
        self.host = Some(host);
    }

    /// A file of a version of its own, durably.
    fn make(&mut self, name: &str) -> Handle {
        self.version += 1;
        let (_, handle) = make(self.session(), name, &file_of(self.version, BLOCKS));
        let sync = Request::Fsync { file: handle.into(), datasync: false };
        ask(self.session(), sync).unwrap();
        self.files.push(Expected::new(name, self.version, BLOCKS, self.now()));
        handle
    }

    /// The program gets a new file.
    fn begin(&mut self) {
        let name = format!("f{}", self.version);
        let handle = self.make(&name);
        ask(self.session(), Request::Release { handle }).unwrap();
        self.grant();
    }

    /// The program opens its file, and gets its blocks.
    fn grant(&mut self) {
        let handle = open(self.session(), &self.files.last().unwrap().name);
        let lease = lease(self.session(), handle).unwrap();
        // What is pending is brought home ten times a second at most.
        let granted = || direct(self.session(), lease, handle).unwrap();
        let all = |direct: &siftfs_proto::Direct| blocks(direct).len() == BLOCKS;
        let mut direct = granted();
        while !all(&direct) {
            std::thread::sleep(std::time::Duration::from_millis(20));
            direct = granted();
        }
        let attached = super::forger::attach(self.machine, direct.token).unwrap();
        self.lane = Some(Lane { ino: 0, handle, lease, direct, attached });
    }

    /// The grant ends: what was written is flushed.
    fn give_back(&mut self) {
        let lane = self.lane.take().unwrap();
        let begun = self.now();
        give_back(self.session(), lane.lease).unwrap();
        ask(self.session(), Request::Release { handle: lane.handle }).unwrap();
        self.flushed(begun);
    }

    fn flushed(&mut self, begun: u64) {
        let now = self.now();
        self.files.last_mut().unwrap().did((begun, now), 0, What::Flush);
    }

    /// Some sectors: a few runs of them.
    fn some(&mut self) -> Vec<usize> {
        let runs = self.rng.between(1, 5);
        let mut some: Vec<usize> = Vec::new();
        for _ in 0..runs {
            let (first, count) = (self.rng.below(SECTORS as u64), self.rng.between(1, 20));
            some.extend((first..first + count).map(|at| at as usize % SECTORS));
        }
        some.sort_unstable();
        some.dedup();
        some
    }

    fn section(&mut self) {
        self.version += 1;
        let (sectors, bytes, begun) = (self.some(), sector(self.version), self.now());
        let lane = self.lane.as_ref().unwrap();
        let place = |at: &usize| (home(&lane.direct, (*at * SECTOR) as u64), &bytes[..]);
        let parts: Vec<(u64, &[u8])> = sectors.iter().map(place).collect();
        lane.attached.write_atomic(&parts, &Arc::default()).unwrap();
        let span = (begun, self.now());
        self.sections += 1;
        self.files.last_mut().unwrap().did(span, self.version, What::Section(sectors));
    }

    fn plain(&mut self, durable: bool) {
        self.version += 1;
        let first = self.rng.below(SECTORS as u64 - 8) as usize;
        let sectors: Vec<usize> = (first..first + self.rng.between(1, 8) as usize).collect();
        let (bytes, begun) = (sector(self.version), self.now());
        let lane = self.lane.as_ref().unwrap();
        for at in &sectors {
            let place = home(&lane.direct, (*at * SECTOR) as u64);
            lane.attached.write_at(place, &bytes, durable).unwrap();
        }
        let span = (begun, self.now());
        let what = What::Plain(sectors, durable);
        self.files.last_mut().unwrap().did(span, self.version, what);
    }

    fn flush(&mut self) {
        let begun = self.now();
        self.lane.as_ref().unwrap().attached.flush().unwrap();
        self.flushed(begun);
    }

    /// The program's file goes, and its blocks become another file's (R29, R45).
    fn reuse(&mut self) {
        self.give_back();
        self.remove(self.files.len() - 1);
        // The transaction that frees them is in the journal, so they may be another file's.
        self.host.as_ref().unwrap().commit(true).unwrap();
        self.host.as_ref().unwrap().checkpoint().unwrap();
        for _ in 0..2 {
            let name = format!("g{}", self.version);
            let handle = self.make(&name);
            ask(self.session(), Request::Release { handle }).unwrap();
        }
        self.begin();
    }

    fn remove(&mut self, which: usize) {
        let now = self.now();
        let file = &mut self.files[which];
        file.gone = now;
        let name = file.name.clone().into();
        ask(self.session(), Request::Unlink { parent: ROOT_INO, name }).unwrap();
    }

    /// Another file that is there: made shorter, or removed; not the canary.
    fn others(&mut self) {
        let there = |file: &Expected| file.gone == u64::MAX && file.name.starts_with('g');
        let Some(which) = self.files.iter().position(there) else {
            let own = self.files.pop().unwrap();
            let name = format!("g{}", self.version);
            let handle = self.make(&name);
            ask(self.session(), Request::Release { handle }).unwrap();
            self.files.push(own);
            return;
        };
        if self.rng.chance(50) {
            return self.remove(which);
        }
        let sectors = self.rng.below(SECTORS as u64) as usize;
        let now = self.now();
        self.files[which].shorter.push((now, sectors));
        let handle = open(self.session(), &self.files[which].name);
        let set = SetAttr { size: Some((sectors * SECTOR) as u64), ..SetAttr::default() };
        let file = handle.into();
        ask(self.session(), Request::SetAttr { file, set, times: true }).unwrap();
        ask(self.session(), Request::Release { handle }).unwrap();
    }

    /// The host unmounts, or dies; another one comes.
    fn another_host(&mut self, in_order: bool) {
        let begun = self.now();
        if in_order {
            self.give_back();
        } else {
            self.lane = None;
        }
        self.program = None;
        let host = self.host.take().unwrap();
        match in_order {
            true => host.close().unwrap(),
            false => host.abandon(),
        }
        self.mount();
        self.flushed(begun);
        self.grant();
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..9 => self.section(),
            9..13 => self.plain(false),
            13..15 => self.plain(true),
            15 => self.flush(),
            16 | 17 => self.others(),
            18 | 19 => self.reuse(),
            20 => self.another_host(false),
            21 => self.another_host(true),
            22 => self.host.as_ref().unwrap().commit(true).unwrap(),
            _ => self.host.as_ref().unwrap().checkpoint().unwrap(),
        }
    }
}

fn bytes_in(session: &Arc<dyn FileService>, name: &str) -> Result<Vec<u8>, String> {
    let found = ask(session, Request::Lookup { parent: ROOT_INO, name: name.into() });
    found.map_err(|errno| format!("{name}: errno {errno}"))?;
    let handle = open(session, name);
    let bytes = bytes_of(session, handle.into(), 0, (BLOCKS * BLOCK_SIZE) as u32);
    ask(session, Request::Release { handle }).unwrap();
    Ok(bytes)
}

/// Recovers what a cut left, and says what is wrong with it. The disk is the one that it is
/// recovered on.
fn judge(disk: &Arc<FaultDevice>, apart: bool, files: &[Expected], cut: u64) -> Result<(), String> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(1_700_000_000));
    let opts = OpenOptions::default();
    let host = LocalVolume::open_on(media(disk, apart), clock, &opts, Threads::None)
        .map_err(|error| format!("recovery: {error}"))?;
    let session = user(&host);
    for file in files.iter().filter(|file| file.is_there(cut)) {
        let found = bytes_in(&session, &file.name)?;
        file.judge(cut, &found).map_err(|why| format!("{}: {why}", file.name))?;
    }
    drop(session);
    host.abandon();
    Ok(())
}

/// What knows nothing of this project is content with what recovery leaves.
fn is_plain_ext4(image: &Image, apart: bool) -> Result<(), String> {
    let disk = Arc::new(FaultDevice::from_image(image.clone(), 1));
    recover_on(media(&disk, apart), &OpenOptions::default()).map_err(|e| e.to_string())?;
    let file = tempfile::NamedTempFile::new().unwrap();
    disk.contents().save(file.path()).unwrap();
    if apart {
        file.as_file().set_len(LOG).unwrap();
    }
    let checked = Command::new("e2fsck").arg("-fn").arg(file.path()).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    if checked.status.success() { Ok(()) } else { Err(said) }
}

/// How much is tried: one of this number of cuts, and of those one of this number of recoveries.
struct Share {
    cuts: u64,
    recoveries: u64,
}

/// What was judged.
#[derive(Default, Debug)]
struct Judged {
    cuts: u64,
    recoveries: u64,
    sections: u64,
}

/// The images of a cut that are looked at.
fn cuts_of(apart: bool, at: u64, seed: u64) -> Vec<Cut> {
    let extreme = if at.is_multiple_of(2) { Cut::LoseAll } else { Cut::KeepAll };
    let mut all = vec![extreme, Cut::Random(seed * 100_003 + at)];
    if apart {
        all.push(if at.is_multiple_of(4) { Cut::KeepBefore(LOG) } else { Cut::KeepFrom(LOG) });
    }
    all
}

fn history(seed: u64, apart: bool, share: &Share, judged: &mut Judged) {
    let dir = tempfile::tempdir().unwrap();
    let machine = match apart {
        true => Machine::start_apart(made(true), LOG, Way::Unix, dir.path()),
        false => Machine::start(made(false), Way::Unix, dir.path()),
    };
    machine.disk.record_history();
    let mut world = World::new(&machine, seed);
    let from = world.now();
    (0..STEPS).for_each(|_| world.step());
    judged.sections += world.sections;
    let files = std::mem::take(&mut world.files);
    world.lane = None;
    world.host.take().unwrap().abandon();
    let history = machine.disk.take_history().unwrap();
    let mut failed = None;
    history.each_cut(|cut, cache| {
        if failed.is_some() || cut < from || !(cut + seed).is_multiple_of(share.cuts) {
            return;
        }
        judged.cuts += 1;
        for kind in cuts_of(apart, cut, seed) {
            let image = cache.image(kind);
            let disk = Arc::new(FaultDevice::from_image(image.clone(), cut));
            let cut_again = judged.cuts.is_multiple_of(share.recoveries);
            if cut_again {
                disk.record_history();
            }
            let mut found = judge(&disk, apart, &files, cut);
            if cut_again && found.is_ok() {
                found = recovery_is_cut(&disk, apart, &files, cut, judged);
                found = found.and_then(|()| is_plain_ext4(&image, apart));
            }
            let context = format!("seed {seed}, apart {apart}, cut at {cut}, {kind:?}");
            failed = failed.take().or(found.err().map(|why| format!("{context}: {why}")));
        }
    });
    assert_eq!(failed, None);
}

/// The recovery that this disk has recorded is cut in turn.
fn recovery_is_cut(
    disk: &Arc<FaultDevice>,
    apart: bool,
    files: &[Expected],
    cut: u64,
    judged: &mut Judged,
) -> Result<(), String> {
    let (history, mut found) = (disk.take_history().unwrap(), Ok(()));
    history.each_cut(|at, cache| {
        if found.is_ok() {
            judged.recoveries += 1;
            let kind = cuts_of(apart, at, cut)[at as usize % 2];
            let again = Arc::new(FaultDevice::from_image(cache.image(kind), at));
            let why = |why| format!("recovery cut at {at}, {kind:?}: {why}");
            found = judge(&again, apart, files, cut).map_err(why);
        }
    });
    found
}

fn campaign(apart: bool) {
    let long = std::env::var_os("SIFTFS_LONG").is_some();
    let one = std::env::var("SIFTFS_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = one.map_or(1..if long { 40 } else { 4 }, |seed: u64| seed..seed + 1);
    let share =
        if long { Share { cuts: 1, recoveries: 20 } } else { Share { cuts: 3, recoveries: 25 } };
    let mut judged = Judged::default();
    seeds.for_each(|seed| history(seed, apart, &share, &mut judged));
    println!("{judged:?}");
    assert!(judged.cuts > 20 && judged.recoveries > 5 && judged.sections > 5, "{judged:?}");
}

#[test]
fn power_is_cut_at_any_write() {
    campaign(false);
}

/// Log and lane fail apart from the area.
#[test]
fn power_is_cut_at_any_write_of_two_devices() {
    campaign(true);
}
