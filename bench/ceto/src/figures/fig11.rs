//! Figure 11: overwrites, appends and reads of one thread, 4 to 128 KiB, by a direct file and by
//! the host alone, with what the host's process uses of the processors for each.

use crate::Plan;
use crate::stage::{Process, Stage, said};
use crate::ways::Way;
use siftfs::{Direct, Volume};
use siftfs_base::Rng;
use siftfs_rig::figure::Output;
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use std::time::{Duration, Instant};

/// Bytes of the volume, of the files that are overwritten and read, and of appends in one job.
const VOLUME: u64 = 1 << 30;
const SIZE: u64 = 32 << 20;
const MOST_APPENDED: u64 = 48 << 20;
/// Bytes of the host's page cache: nothing of the files stays there.
const CACHE: u64 = 1 << 20;
/// Bytes of a call.
const LENGTHS: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 128 << 10];
/// Bytes between two syncs of a stream.
const STREAM: u64 = 1 << 20;

/// What is done again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    /// At random, each durable.
    Overwrite,
    /// At random, nothing cached.
    Read,
    /// Each durable.
    Append,
    /// Made durable each MiB.
    Stream,
}

const OPS: [(Op, &str, f64, &str); 4] = [
    (Op::Overwrite, "overwrites, each durable", 1.24, "1.24 times uFS"),
    (Op::Read, "reads, nothing cached", 1.16, "1.16 times uFS"),
    (Op::Append, "appends, each durable", 1.12, "1.12 times uFS, without a sync"),
    (Op::Stream, "appends, durable each MiB", 1.12, "1.12 times uFS, without a sync"),
];

/// One way's files: what is written, what is read, and what grows.
struct Files {
    written: Way,
    read: Way,
    grown: Way,
}

/// Of one job and way, a number for each round: calls a second, and the host's microseconds of
/// processor time for each.
#[derive(Default)]
struct Found {
    rate: Vec<f64>,
    cpu: Vec<f64>,
}

impl Files {
    fn new(volume: &Volume, make: impl Fn(&str) -> Result<Way>) -> Result<Self> {
        let side = Self { written: make("written")?, read: make("read")?, grown: make("grown")? };
        side.written.fill(volume, SIZE)?;
        side.read.fill(volume, SIZE)?;
        Ok(side)
    }

    /// Calls that were made, and how long they took.
    fn run(&self, op: Op, len: usize, job: &mut Job<'_>) -> Result<(f64, Duration)> {
        match op {
            Op::Overwrite => self.written.settles()?,
            Op::Read => self.read.settles()?,
            Op::Append | Op::Stream => self.grown.empty()?,
        }
        let mut data = vec![0; len];
        let (mut at, mut done, bytes) = (0, 0u32, len as u64);
        let begun = Instant::now();
        while begun.elapsed() < job.time && at < MOST_APPENDED {
            let block = job.rng.below(SIZE / bytes) * bytes;
            match op {
                Op::Overwrite => {
                    self.written.write(job.volume, (block, refresh(&mut data)), true)?
                }
                Op::Read => self.read.read(block, len)?,
                Op::Append | Op::Stream => {
                    let durable = op == Op::Append;
                    self.grown.write(job.volume, (at, refresh(&mut data)), durable)?;
                    at += bytes;
                    if !durable && at.is_multiple_of(STREAM) {
                        self.grown.sync()?;
                    }
                }
            }
            done += 1;
        }
        if op == Op::Stream {
            self.grown.sync()?;
        }
        Ok((f64::from(done), begun.elapsed()))
    }
}

/// What jobs share.
struct Job<'a> {
    volume: &'a Volume,
    rng: &'a mut Rng,
    time: Duration,
}

impl Found {
    fn add(&mut self, (done, took): (f64, Duration), used: f64) {
        self.rate.push(done / took.as_secs_f64());
        self.cpu.push((used / done).max(0.001));
    }
}

fn sides(session: &Direct, volume: &Volume) -> Result<[Files; 2]> {
    let direct = |name: &str| {
        let file = session.create(&format!("/direct-{name}"), 0o600).map_err(said)?;
        Ok(Way::Direct(file))
    };
    let host = |name: &str| {
        let file = volume.create(&format!("/host-{name}"), 0o600).map_err(said)?;
        Ok(Way::Host(file))
    };
    let both = [Files::new(volume, direct)?, Files::new(volume, host)?];
    volume.checkpoint().map_err(said)?;
    Ok(both)
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let mut stage = Stage::host(plan, "fig11", VOLUME, CACHE)?;
    let (session, volume) = (stage.direct()?, stage.volume()?);
    let sides = sides(&session, &volume)?;
    let host = stage.host.as_mut().ok_or_else(|| Failed("there is no host".into()))?;
    let mut rng = Rng::new(1);
    let mut found: [[[Found; 2]; LENGTHS.len()]; OPS.len()] = Default::default();
    for round in plan.rounds() {
        for i in 0..OPS.len() * LENGTHS.len() * 2 {
            let (op, len, way) = (i / 2 / LENGTHS.len(), i / 2 % LENGTHS.len(), (i + round) % 2);
            let mut job = Job { volume: &volume, rng: &mut rng, time: plan.time };
            let measured = one(host, &sides[way], (OPS[op].0, LENGTHS[len]), &mut job)?;
            found[op][len][way].add(measured.0, measured.1);
        }
    }
    let rows: Vec<Row> = OPS.iter().zip(&found).flat_map(|(op, found)| rows(op, found)).collect();
    drop((sides, session));
    volume.close().map_err(said)?;
    stage.end()?;
    Ok(show(
        &rows,
        &plan.below(
            "Target, host and program are three processes. The host keeps 1 MiB of pages, so that it has nothing of the \
             files. By the host, a durable write is one compound. A job of appends begins with an empty file; an append \
             that is synced by itself goes by the host on both sides (docs/design/target.md, \"Appends\"). The host's \
             processor time is without what was injected. uFS, to which the paper compares, does not run here",
        ),
    ))
}

/// Calls that were made, how long they took, and the host's microseconds of processor time.
fn one(
    host: &mut Process,
    side: &Files,
    (op, len): (Op, usize),
    job: &mut Job<'_>,
) -> Result<((f64, Duration), f64)> {
    let before = host.used()?;
    let ran = side.run(op, len, job)?;
    Ok((ran, host.used()? - before))
}

/// A row for each length, and one for the mean of their ratios, which has the target.
fn rows(
    (_, name, least, paper): &(Op, &str, f64, &'static str),
    found: &[[Found; 2]; LENGTHS.len()],
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut means = [Vec::new(), Vec::new()];
    for (len, [direct, host]) in LENGTHS.iter().zip(found) {
        let rates = Compared::ratio("direct to by the host", &direct.rate, &host.rate, None);
        let cpu = Compared::ratio("host's processor time, likewise", &direct.cpu, &host.cpu, None);
        means[0].push(rates.rounds.clone());
        means[1].push(cpu.rounds.clone());
        let of = |name: &str, found: &Found| Side {
            name: name.into(),
            numbers: found.rate.clone(),
            note: format!("host {:.2} us each", siftfs_rig::figure::Spread::of(&found.cpu).median),
        };
        rows.push(Row {
            name: format!("{} KiB {name}", len >> 10),
            unit: "/s",
            sides: vec![of("direct file", direct), of("by the host", host)],
            compared: vec![rates, cpu],
        });
    }
    let [rates, cpu] = means.map(|all| mean(&all));
    let of = |what: &str, rounds, target| Compared {
        what: what.into(),
        rounds,
        target: Some(target),
        paper: None,
    };
    rows.push(Row {
        name: format!("{name}: mean of all lengths"),
        unit: "/s",
        sides: Vec::new(),
        compared: vec![
            of("direct to by the host", rates, Target::AtLeast(*least)).beside(paper),
            of("host's processor time, likewise", cpu, Target::AtMost(0.5)),
        ],
    });
    rows
}

/// Of each round, the mean of all lengths.
fn mean(of: &[Vec<f64>]) -> Vec<f64> {
    let rounds = of.first().map_or(0, Vec::len);
    let sum = |round: usize| of.iter().filter_map(|all| all.get(round)).sum::<f64>();
    (0..rounds).map(|round| sum(round) / of.len() as f64).collect()
}
