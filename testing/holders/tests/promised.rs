//! Histories of programs whose fsync(2) is one write of their own, beside others that use their
//! files, with power cuts at any time: whatever was promised, by whichever way, is there.

use siftfs_accel::{Leased, Session, Through};
use siftfs_base::{InodeNr, Rng};
use siftfs_device::Cut;
use siftfs_grantor::Bounds;
use siftfs_holders::promised::{Counted, Versions};
use siftfs_holders::user::User;
use siftfs_holders::world::{Setting, World};
use siftfs_lease::LogMedium;
use siftfs_proto::{ROOT_INO, Request, SetAttr};
use std::time::Duration;

/// Bytes of a file at most, of a large write and of a small one.
const LARGEST: usize = 400 << 10;
const LARGE: u64 = 200 << 10;
const SMALL: u64 = 5000;
/// Values of the directory's mode that follow each other.
const MODES: u32 = 0o70;

struct File {
    name: String,
    ino: InodeNr,
    session: usize,
    leased: Option<Leased>,
    /// The lease's log was a way since it was granted.
    logged: bool,
    versions: Versions,
}

struct History {
    rng: Rng,
    world: World,
    user: User,
    sessions: Vec<Session>,
    files: Vec<File>,
    /// A name that others change, `n0` and so on.
    name: Counted,
    /// The directory's mode, which they change as well.
    mode: Counted,
    ages: bool,
    /// Syncs by a log or its daemon, and power cuts.
    synced: u64,
    cuts: u64,
}

impl History {
    fn new(seed: u64, ages: bool, medium: LogMedium) -> Self {
        let usual = Setting::default();
        let commit = if ages { Duration::from_millis(50) } else { usual.bounds.commit };
        let bounds = Bounds { commit, ..usual.bounds };
        let world = World::new(Setting { logs: Some(medium), hasty: true, bounds, ..usual });
        let user = world.user();
        user.make("n0", b"");
        let files: Vec<File> = (0..3)
            .map(|i| {
                let name = format!("f{i}");
                let ino = user.make(&name, b"first");
                let versions = Versions::new(b"first".to_vec());
                File { name, ino, session: i / 2, leased: None, logged: false, versions }
            })
            .collect();
        let mode = SetAttr { perm: Some(0o700), ..SetAttr::default() };
        user.ask(Request::SetAttr { file: ROOT_INO.into(), set: mode, times: true }).expect("mode");
        user.ask(Request::SyncAll).expect("sync");
        let own = std::process::id();
        let enter = |at: usize| {
            let token = world.tokens.mint(files[at].ino, own, true);
            Session::enter_with(&world.socket(), &token).expect("enter")
        };
        let sessions = vec![enter(0), enter(2)];
        let (name, mode, rng) = (Counted::default(), Counted::default(), Rng::new(seed));
        let (synced, cuts) = (0, 0);
        Self { rng, world, user, sessions, files, name, mode, ages, synced, cuts }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = if self.rng.chance(6) { LARGE } else { SMALL };
        let (len, byte) = (1 + self.rng.below(most), self.rng.bits() as u8);
        (0..len).map(|i| byte.wrapping_add((i % 251) as u8)).collect()
    }

    /// Writes by the lease, or by the mount where that is no way.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = self.files[at].versions.now().len();
        let appends = end + bytes.len() < LARGEST && self.rng.chance(40);
        let offset = match appends {
            true => end,
            false => self.rng.below((LARGEST - bytes.len()) as u64).min(end as u64) as usize,
        };
        let file = &mut self.files[at];
        let done = file.leased.as_ref().is_some_and(|leased| match appends {
            true => leased.append(bytes) == Through::Lease(offset as u64),
            false => leased.write_at(offset as u64, bytes) != Through::Mount,
        });
        if !done {
            file.leased = None;
            self.user.write(file.ino, offset as u64, bytes).expect("write");
        }
        file.versions.write(offset, bytes);
    }

    fn sync(&mut self, at: usize) {
        let datasync = self.rng.chance(50);
        let file = &mut self.files[at];
        if let Some(leased) = &file.leased
            && leased.sync(datasync).expect("sync") == Through::Lease(())
        {
            file.logged = true;
            self.synced += 1;
            // What others ordered before is not overtaken (R38, R46).
            self.name.promise();
            self.mode.promise();
        } else {
            file.leased = None;
            self.user.ask(Request::Fsync { file: file.ino.into(), datasync }).expect("fsync");
        }
        file.versions.promise();
    }

    fn lease(&mut self, at: usize) {
        let file = &mut self.files[at];
        let lasts = file.leased.as_ref().is_some_and(|leased| leased.len() != Through::Mount);
        if lasts {
            return;
        }
        file.leased = None;
        let token = self.world.tokens.mint(file.ino, std::process::id(), true);
        // Others may use it too often.
        file.leased = self.sessions[file.session].lease_with(&token).ok();
        file.logged = false;
    }

    /// Another program uses the file, which ends the lease.
    fn beside(&mut self, at: usize) {
        let bytes = self.bytes();
        let what = self.rng.below(4);
        let file = &mut self.files[at];
        let size = file.versions.now().len();
        match what {
            0 => {
                let seen = self.user.read(file.ino);
                assert!(seen == file.versions.now(), "{} shows other bytes", file.name);
            }
            1 => {
                let offset = self.rng.below(size.min(LARGEST - bytes.len()) as u64 + 1);
                self.user.write(file.ino, offset, &bytes).expect("write");
                file.versions.write(offset as usize, &bytes);
            }
            2 => {
                let size = self.rng.below(size as u64 + 100).min(LARGEST as u64);
                self.user.truncate(file.ino, size);
                file.versions.cut(size as usize);
            }
            _ => {
                let fsync = Request::Fsync { file: file.ino.into(), datasync: false };
                self.user.ask(fsync).expect("fsync");
                file.versions.promise();
            }
        }
    }

    /// Another program does what no later fsync may overtake.
    fn order(&mut self) {
        if self.rng.chance(70) {
            let (from, to) = (format!("n{}", self.name.now), format!("n{}", self.name.now + 1));
            // The name is given to what an fsync has made durable, as git does.
            let ino = self.user.find(&from).expect("it is there");
            self.user.write(ino, 0, from.as_bytes()).expect("write");
            let fsync = Request::Fsync { file: ino.into(), datasync: false };
            self.user.ask(fsync).expect("fsync");
            self.user.rename(&from, &to);
            self.name.now += 1;
        } else if self.mode.now + 1 < MODES {
            self.mode.now += 1;
            let perm = Some(0o700 + self.mode.now as u16);
            let set = SetAttr { perm, ..SetAttr::default() };
            self.user
                .ask(Request::SetAttr { file: ROOT_INO.into(), set, times: true })
                .expect("mode");
        }
    }

    /// What `siftfs sync` does.
    fn sync_all(&mut self) {
        self.world.ingest();
        if self.rng.chance(30) {
            return;
        }
        self.user.ask(Request::SyncAll).expect("sync");
        self.files.iter_mut().for_each(|file| file.versions.promise());
        self.name.promise();
        self.mode.promise();
    }

    /// The log goes round.
    fn burst(&mut self, at: usize) {
        self.lease(at);
        for _ in 0..12 {
            let bytes = vec![self.rng.bits() as u8; LARGE as usize];
            self.write(at, &bytes);
            self.sync(at);
        }
    }

    /// Bytes that are written and never synced become durable by their age.
    fn age(&mut self, at: usize) {
        self.lease(at);
        self.sync(at);
        let bytes = self.bytes();
        self.write(at, &bytes);
        if !self.files[at].logged || self.files[at].leased.is_none() {
            return;
        }
        let ended = |_: &World| {
            let leased = self.files[at].leased.as_ref();
            leased.is_none_or(|leased| leased.len() == Through::Mount)
        };
        self.world.until("the lease ends", ended);
        self.world.until("it is given back", |world| {
            world.tokens.held().iter().all(|(ino, _)| *ino != self.files[at].ino)
        });
        self.files[at].versions.promise();
    }

    fn step(&mut self) -> &'static str {
        let at = self.rng.below(3) as usize;
        match self.rng.below(100) {
            0..=39 => {
                let bytes = self.bytes();
                self.write(at, &bytes);
                "write"
            }
            40..=64 => {
                self.sync(at);
                "sync"
            }
            65..=78 => {
                self.lease(at);
                "lease"
            }
            79..=80 => {
                let leased = self.files[at].leased.take();
                leased.map_or(Ok(()), Leased::close).expect("it is taken in");
                "return"
            }
            81..=86 => {
                self.beside(at);
                "beside"
            }
            87..=94 => {
                self.order();
                "order"
            }
            95..=96 => {
                self.sync_all();
                "sync all"
            }
            97..=98 => {
                self.burst(at);
                "burst"
            }
            _ if self.ages => {
                self.age(at);
                "age"
            }
            _ => "nothing",
        }
    }

    /// The power fails now, and all goes on.
    fn cut(&mut self) -> Result<(), String> {
        self.cuts += 1;
        let after = self.world.cut(Cut::Random(self.cuts)).recover();
        let user = after.user();
        for file in &self.files {
            let ino = user.find(&file.name).ok_or("a file is gone")?;
            file.versions.judge(&user.read(ino)).map_err(|e| format!("{}: {e}", file.name))?;
        }
        let names = (0..=self.name.now).filter(|n| user.find(&format!("n{n}")).is_some());
        let [name] = names.collect::<Vec<_>>()[..] else { return Err("not one name".into()) };
        self.name.judge(Some(name)).map_err(|e| format!("name: {e}"))?;
        let mode = u32::from(user.stat(ROOT_INO).perm).checked_sub(0o700);
        self.mode.judge(mode).map_err(|e| format!("mode: {e}"))?;
        after.close();
        Ok(())
    }

    fn end(mut self) {
        self.files.iter_mut().for_each(|file| file.leased = None);
        let rounds = self.world.logs.as_ref().expect("logs").rows();
        assert!(rounds.iter().any(|row| row.begin > 8 << 20), "no log went round: {rounds:?}");
        assert!(self.synced > 100 && self.cuts > 10, "{} syncs, {} cuts", self.synced, self.cuts);
        let counts = self.world.counts();
        assert_eq!((counts.ended, counts.lost, counts.file_logs), (0, 0, 2));
        self.sessions.clear();
        self.world.close();
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// `SIFTFS_SEED` names the first seed, and `SIFTFS_SEEDS` how many there are; `SIFTFS_LONG=1` runs
/// sixty. By every third one records age.
#[test]
fn whatever_was_promised_by_file_logs_is_there() {
    histories(LogMedium::File);
}

/// The same with logs that the programs have mapped.
#[test]
fn whatever_was_promised_by_mapped_logs_is_there() {
    histories(LogMedium::Volatile);
}

fn histories(medium: LogMedium) {
    let long = if std::env::var_os("SIFTFS_LONG").is_some() { 20 } else { 1 };
    let first = number("SIFTFS_SEED", 1);
    for seed in first..first + number("SIFTFS_SEEDS", 3 * long) {
        let mut history = History::new(seed, seed % 3 == 0, medium);
        for step in 0..800 {
            let what = history.step();
            if history.rng.chance(6)
                && let Err(e) = history.cut()
            {
                panic!("seed {seed}, step {step} ({what}), cut {}: {e}", history.cuts);
            }
        }
        history.end();
    }
}
