//! 4 KiB written and made durable: by a served volume's program over shared memory, to a program
//! that has the volume itself; and over TCP on loopback with keys, to without.

use crate::stage::{Served, Stage, Way};
use crate::{Plan, sleeps};
use siftfs::{Claim, File, Rights, TransportOptions, Volume};
use siftfs_base::Rng;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a write.
const BYTES: usize = 4096;
/// Blocks of the file.
const BLOCKS: u64 = 4096;
/// How long both ends spin that have a processor each and share memory: longer than the storage
/// takes, so that none of them sleeps.
const SPIN: Duration = Duration::from_millis(1);
/// The user that a program over TCP is, with keys and without.
const USER: u32 = 1000;

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// A compound of one step, durable when it is answered.
    Compound,
    /// A write, and fdatasync.
    Two,
}

/// A volume as a program has it.
struct Program {
    name: &'static str,
    volume: Volume,
    file: File,
    rng: Rng,
    /// The server's process, if there is one.
    server: Option<u32>,
}

/// Of one program in one way, a number for each round.
#[derive(Default)]
struct Times {
    /// The median time, in microseconds.
    p50: Vec<f64>,
    /// What 99 of 100 took at most, in microseconds.
    p99: Vec<f64>,
    /// How often a thread of this process went to sleep, by operation.
    sleeps: Vec<f64>,
    /// The same of the server's.
    server_sleeps: Vec<f64>,
}

fn said(e: impl std::fmt::Display) -> Failed {
    Failed(e.to_string())
}

impl Program {
    fn new(name: &'static str, volume: Volume, server: Option<u32>) -> Result<Self> {
        let file = volume.open_file("/file").map_err(said)?;
        Ok(Self { name, volume, file, rng: Rng::new(1), server })
    }

    /// How often threads have slept: of this process, and of the server.
    fn slept(&self) -> Result<(u64, u64)> {
        let own = sleeps::of(std::process::id())?;
        Ok((own, self.server.map_or(Ok(0), sleeps::of)?))
    }

    fn once(&mut self, how: How, data: &[u8]) -> siftfs::Result<()> {
        let at = self.rng.below(BLOCKS) * BYTES as u64;
        match how {
            How::Compound => {
                let mut steps = self.volume.compound();
                steps.write(&self.file, at, data);
                steps.durable().map(drop).map_err(siftfs::Error::from)
            }
            How::Two => {
                self.file.write_at(at, data)?;
                self.file.sync_data()
            }
        }
    }

    fn run(&mut self, how: How, time: Duration, times: &mut Times) -> Result<()> {
        let before = self.slept()?;
        let (mut all, mut data, start) = (Vec::new(), vec![0; BYTES], Instant::now());
        let mut now = start;
        while now - start < time {
            self.once(how, refresh(&mut data))
                .map_err(|e| Failed(format!("{}: {e}", self.name)))?;
            let then = Instant::now();
            all.push((then - now).as_secs_f64() * 1e6);
            now = then;
        }
        let after = self.slept()?;
        let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / all.len() as f64;
        times.sleeps.push(each(before.0, after.0));
        times.server_sleeps.push(each(before.1, after.1));
        all.sort_by(f64::total_cmp);
        let at = |part: usize| all.get(all.len() * part / 100).copied().unwrap_or_default();
        times.p50.push(at(50));
        times.p99.push(at(99));
        Ok(())
    }
}

/// A file that every user may write, with all its blocks.
fn fill(image: &Path) -> Result<()> {
    let fill = || {
        let volume = Volume::open(image)?;
        let file = volume.create("/file", 0o666)?;
        let mut piece = vec![0; 1 << 20];
        for at in (0..BLOCKS * BYTES as u64).step_by(piece.len()) {
            file.write_at(at, refresh(&mut piece))?;
        }
        file.sync_all()?;
        drop(file);
        volume.close()
    };
    fill().map_err(said)
}

fn connect(stage: &Stage<'_>, served: &Served, plan: &Plan<'_>) -> Result<Program> {
    let spins = plan.pin.0.is_some() && served.way == Way::Unix;
    let spin = if spins { SPIN } else { Duration::ZERO };
    let options = TransportOptions { spin, ..siftfs::transport() };
    let claim = match served.way {
        Way::Unix => Claim::Owner,
        _ => Claim::User { uid: USER, gid: USER, rights: Rights::default() },
    };
    let address = served.address()?.parse().map_err(said)?;
    let secured = stage.reach(served, &options)?;
    let volume = Volume::connect_with(&address, (&options, secured.as_ref()), "", claim);
    Program::new(served.way.name(), volume.map_err(said)?, Some(served.pid()?))
}

const HOWS: [How; 2] = [How::Compound, How::Two];

/// All programs, each in both ways; rounds begin with another one each.
fn rounds(plan: &Plan<'_>, programs: &mut [Program]) -> Result<Vec<[Times; 2]>> {
    let mut all: Vec<[Times; 2]> = programs.iter().map(|_| Default::default()).collect();
    for round in plan.rounds() {
        for i in 0..programs.len() * HOWS.len() {
            plan.place.go_on()?;
            let job = (i + round) % (programs.len() * HOWS.len());
            let (which, how) = (job / HOWS.len(), job % HOWS.len());
            programs[which].run(HOWS[how], plan.time, &mut all[which][how])?;
        }
    }
    Ok(all)
}

fn side(name: &str, times: &Times) -> Side {
    let [p99, own, server] =
        [&times.p99, &times.sleeps, &times.server_sleeps].map(|numbers| Spread::of(numbers).median);
    let note = format!("p99 {p99:.1} us, sleeps by operation {own:.1}, server {server:.1}");
    Side { name: name.into(), numbers: times.p50.clone(), note }
}

fn served_row(how: usize, shared: &[Times; 2], embedded: &[Times; 2]) -> Row {
    let (name, most) = match HOWS[how] {
        How::Compound => ("4 KiB written and made durable as one compound", 1.3),
        How::Two => ("4 KiB written and made durable as two calls", 2.2),
    };
    let (of, same) = (&shared[how].p50, &embedded[how].p50);
    let other = &embedded[1 - how].p50;
    let faster: Vec<f64> = same.iter().zip(other).map(|(one, two)| one.min(*two)).collect();
    let sides = vec![
        side(Way::Unix.name(), &shared[how]),
        side("embedded, in the same way", &embedded[how]),
        side("embedded, in the other way", &embedded[1 - how]),
    ];
    let compared = vec![
        Compared::ratio("to embedded in the same way", of, same, None),
        Compared::ratio(
            "to embedded in the faster way of the round",
            of,
            &faster,
            Some(Target::AtMost(most)),
        ),
    ];
    Row { name: name.into(), unit: "us", sides, compared }
}

fn keys_row(how: usize, keys: &[Times; 2], without: &[Times; 2]) -> Row {
    let what = if HOWS[how] == How::Compound { "one compound" } else { "two calls" };
    let sides = vec![side(Way::Keys.name(), &keys[how]), side(Way::Insecure.name(), &without[how])];
    let (of, to) = (&keys[how].p50, &without[how].p50);
    let target = Some(Target::AtMost(1.25));
    let compared = vec![Compared::ratio("with keys to without", of, to, target)];
    Row { name: format!("the same over TCP, as {what}"), unit: "us", sides, compared }
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let own = stage.make("embedded", "512M")?;
    fill(&own)?;
    let spin = SPIN.as_micros().to_string();
    let processor = plan.pin.0.map(|(server, _)| server.to_string());
    let mut servers = Vec::new();
    for (name, way) in [("unix", Way::Unix), ("keys", Way::Keys), ("insecure", Way::Insecure)] {
        let image = stage.make(name, "512M")?;
        fill(&image)?;
        let mut more = Vec::new();
        if let Some(processor) = &processor {
            more.extend(["--cpus", processor]);
            // Who waits for a network sleeps.
            more.extend(["--spin", if way == Way::Unix { &spin } else { "0" }]);
        }
        servers.push(stage.serve(&image, way, &more)?);
    }
    // Before the calls' thread is pinned: its own threads run anywhere.
    let embedded = Program::new("embedded", Volume::open(&own).map_err(said)?, None)?;
    let work = || -> Result<Vec<[Times; 2]>> {
        plan.pin.to_client()?;
        let mut programs = vec![embedded];
        for served in &servers {
            programs.push(connect(&stage, served, plan)?);
        }
        let all = rounds(plan, &mut programs)?;
        for Program { volume, file, .. } in programs {
            drop(file);
            volume.close().map_err(said)?;
        }
        Ok(all)
    };
    let joined = thread::scope(|scope| scope.spawn(work).join());
    let all = joined.map_err(|_| Failed("the calls' thread failed".into()))??;
    servers.into_iter().try_for_each(Served::end)?;
    let [embedded, unix, keys, insecure] = &all[..] else {
        return Err(Failed("a side is missing".into()));
    };
    let mut rows: Vec<_> = (0..HOWS.len()).map(|how| served_row(how, unix, embedded)).collect();
    rows.extend((0..HOWS.len()).map(|how| keys_row(how, keys, insecure)));
    let below = format!(
        "medians of the rounds' median times, with quartiles; {}. A compound is one message to the server and one \
         back, two calls are two each way. Over TCP nobody spins. Sleeps: how often a thread of the program's process, and \
         of the server's, went to sleep; who spins does not",
        plan.pin.label()
    );
    Ok(show(&rows, &below))
}
