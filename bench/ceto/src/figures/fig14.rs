//! Figure 14: atomic writes by the redo lane, and by journals that the program keeps over direct
//! files. (a) 4 to 128 KiB by one thread; (b) 64 KiB by several, each with files of its own.

use crate::journals::{LOG, Redo, Undo, Whole};
use crate::model::{Actor, Link, Step, Whose, rate};
use crate::stage::{Made, Stage, said};
use crate::virtual_time::Costs;
use crate::{Plan, costs};
use siftfs::{Direct, DirectFile, Volume};
use siftfs_base::Rng;
use siftfs_device_target::{Kind, RequestOrder};
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the volume, of its redo lane, of a file that is written, and of the host's pages.
const VOLUME: u64 = 1 << 30;
const LANE: u64 = 64 << 20;
const SIZE: u64 = 4 << 20;
const CACHE: u64 = 1 << 20;
/// Bytes of a piece: an atomic write is made of these, as in the paper.
const PIECE: u64 = 4096;
/// Bytes of an atomic write, and those that several threads make.
const LENGTHS: [usize; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
const SHARED: usize = 64 << 10;
/// Threads that really run, and those in virtual time.
const REAL: [usize; 3] = [1, 2, 4];
const VIRTUAL: [usize; 8] = [1, 2, 4, 8, 12, 14, 16, 20];
/// How long until a file's blocks are granted.
const GRANTED: Duration = Duration::from_secs(60);
/// Atomic writes of each length whose bytes on the wire are counted.
const COUNTED: u64 = 32;
/// Assumed in virtual time: nanoseconds of a worker or a thread for a message, those between two
/// accesses of 4 KiB (2.3 GB/s) and of 4 KiB on the network (100 Gbit/s), workers of the target,
/// and nanoseconds of a run.
const MESSAGE: u64 = 500;
const INTERVAL: u64 = 1_780;
const LINK: Link = Link { interval: 330, hosts: 1 };
const WORKERS: usize = 4;
const SPAN: u64 = 50_000_000;

const WAYS: [&str; 4] =
    ["redo lane", "undo by the program", "redo by the program", "redo, by a checksum"];

/// One thread's files by one way.
enum Way {
    Lane(DirectFile),
    Undo(Undo),
    Redo(Redo),
}

/// By way, a number for each round.
type Rates = [Vec<f64>; WAYS.len()];

/// A file of this size that the target has granted, with nothing in it that is new to the host.
fn granted(volume: &Volume, direct: &Direct, (name, size): (&str, u64)) -> Result<DirectFile> {
    let made = volume.create(name, 0o600).map_err(said)?;
    let piece = vec![0; 1 << 20];
    for at in (0..size).step_by(piece.len()) {
        made.write_at(at, &piece).map_err(said)?;
    }
    made.sync_all().map_err(said)?;
    drop(made);
    volume.checkpoint().map_err(said)?;
    let file = direct.open_file(name).map_err(said)?;
    settles(&file, size)?;
    Ok(file)
}

/// Returns when the file's calls go to the target.
fn settles(file: &DirectFile, size: u64) -> Result<()> {
    let begun = Instant::now();
    loop {
        file.read_at(size - PIECE, 4096).map_err(said)?;
        if file.is_direct() {
            return Ok(());
        }
        if begun.elapsed() > GRANTED {
            return Err(Failed("the host grants nothing of the file".into()));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Way {
    fn new(volume: &Volume, direct: &Direct, (way, thread): (usize, usize)) -> Result<Self> {
        let file =
            |what: &str, size| granted(volume, direct, (&format!("/{what}-{way}-{thread}"), size));
        let data = file("data", SIZE)?;
        Ok(match way {
            0 => Self::Lane(data),
            1 => Self::Undo(Undo::new(data, file("log", LOG)?, vec![0; 4 << 20])),
            2 => Self::Redo(Redo::new(data, file("log", LOG)?, Whole::CommitBlock)),
            _ => Self::Redo(Redo::new(data, file("log", LOG)?, Whole::Checksum)),
        })
    }

    fn commit(&mut self, at: u64, data: &[u8]) -> Result<()> {
        match self {
            Self::Undo(undo) => undo.commit(at, data),
            Self::Redo(redo) => redo.commit(at, data),
            Self::Lane(file) => {
                let mut section = file.atomic_start();
                for (at, piece) in (at..).step_by(PIECE as usize).zip(data.chunks(PIECE as usize)) {
                    section.write_at(at, piece).map_err(said)?;
                }
                section.commit().map_err(said)
            }
        }
    }

    /// What is left to do for what was committed, which belongs to its time.
    fn end(&self) -> Result<()> {
        match self {
            Self::Lane(file) if !file.is_direct() => {
                Err(Failed("an atomic write went by the host".into()))
            }
            Self::Redo(redo) => redo.drain(),
            _ => Ok(()),
        }
    }

    /// Atomic writes of this length, one after the other.
    fn run(&mut self, len: usize, rng: &mut Rng, goes: impl Fn(u64) -> bool) -> Result<u64> {
        let (mut data, mut done) = (vec![0; len], 0);
        while goes(done) {
            let at = rng.below(SIZE / len as u64) * len as u64;
            self.commit(at, refresh(&mut data))?;
            done += 1;
        }
        self.end()?;
        Ok(done)
    }
}

/// Atomic writes a second of these threads together.
fn rates(ways: &mut [Way], len: usize, plan: &Plan<'_>, seed: u64) -> Result<f64> {
    let begun = Instant::now();
    let time = plan.time;
    let one = |(at, way): (usize, &mut Way)| {
        let mut rng = Rng::new(seed + at as u64);
        way.run(len, &mut rng, |_| begun.elapsed() < time)
    };
    let done: Result<u64> = thread::scope(|scope| {
        let one = &one;
        let each = |each| scope.spawn(move || one(each));
        let started: Vec<_> = ways.iter_mut().enumerate().map(each).collect();
        started.into_iter().map(|t| t.join().expect("a thread asserts nothing")).sum()
    });
    Ok(done? as f64 / begun.elapsed().as_secs_f64())
}

/// Ways by way and thread.
fn ways(volume: &Volume, direct: &Direct, threads: usize) -> Result<Vec<Vec<Way>>> {
    let of = |way| (0..threads).map(move |thread| Way::new(volume, direct, (way, thread)));
    (0..WAYS.len()).map(|way| of(way).collect()).collect()
}

/// Bytes on the wire for each byte of atomic writes, by length and way, counted apart from what is
/// timed, because counting takes time.
fn crossed(plan: &Plan<'_>) -> Result<[[f64; WAYS.len()]; LENGTHS.len()]> {
    let made = Made { redo_lane: Some(LANE), counts: true, size: VOLUME };
    let mut stage = Stage::host(plan, "fig14-wire", made, CACHE)?;
    let (direct, volume) = (stage.direct()?, stage.volume()?);
    let mut ways = ways(&volume, &direct, 1)?;
    let mut found = [[0.0; WAYS.len()]; LENGTHS.len()];
    let mut rng = Rng::new(1);
    for (len, found) in LENGTHS.iter().zip(&mut found) {
        for (way, found) in ways.iter_mut().flatten().zip(found) {
            let before = stage.crossed()?;
            let done = way.run(*len, &mut rng, |done| done < COUNTED)?;
            *found = (stage.crossed()? - before) / (done * *len as u64) as f64;
        }
    }
    drop((ways, direct));
    volume.close().map_err(said)?;
    stage.end()?;
    Ok(found)
}

/// The threads of a way in virtual time, each with files of its own: the writer, and for a redo
/// journal the thread behind it. `wire` is what was counted for a byte of the lane.
fn actors(way: usize, threads: usize, wire: f64) -> Vec<Actor> {
    let len = SHARED as u64;
    let step = |file, kind, wire, stored, later| {
        let whose = Whose::Queue(file, kind, 0..len);
        Step { whose, wire, stored, later, counts: false }
    };
    let write = |file, bytes| step(file, Kind::Write, bytes, bytes, 0);
    let mut all = Vec::new();
    for thread in 0..threads {
        let (data, log) = (2 * thread, 2 * thread + 1);
        let mut steps = match way {
            0 => {
                // The target brings it from memory to its place, and reads nothing for that.
                vec![step(data, Kind::Write, (len as f64 * wire) as u64, len + PIECE, len)]
            }
            1 => vec![write(log, len + PIECE), write(data, len)],
            2 => vec![write(log, len + PIECE), write(log, PIECE)],
            _ => vec![write(log, len + PIECE)],
        };
        // A commit is answered with the last of them.
        steps.last_mut().into_iter().for_each(|last| last.counts = true);
        let own = all.len();
        let followed = (way >= 2).then_some((own + 1, LOG / len - 4));
        all.push(Actor { steps, behind: None, followed });
        if way >= 2 {
            let back = vec![step(log, Kind::Read, len, len, 0), write(data, len)];
            all.push(Actor { steps: back, behind: Some(own), followed: None });
        }
    }
    all
}

/// Atomic writes a second of this many threads in virtual time.
fn simulated(plan: &Plan<'_>, way: usize, threads: usize, wire: (f64, u64)) -> Result<f64> {
    let median = |times: Vec<f64>| Spread::of(&times).median as u64;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let costs = Costs {
        decision: median(costs::decisions(RequestOrder::Merging, 1, 50)?),
        call: MESSAGE,
        each_way: nanos(plan.net_delay),
        message: MESSAGE + median(costs::ordering(1, 50)?) / 2,
        storage: nanos(plan.storage),
        interval: INTERVAL,
        workers: WORKERS,
    };
    let span = if plan.quick { SPAN / 10 } else { SPAN };
    let files = (2 * threads, RequestOrder::Merging);
    rate(&actors(way, threads, wire.0), files, (&costs, LINK), (span, wire.1))
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let wire = crossed(plan)?;
    let made = Made { redo_lane: Some(LANE), ..Made::from(VOLUME) };
    let stage = Stage::host(plan, "fig14", made, CACHE)?;
    let (direct, volume) = (stage.direct()?, stage.volume()?);
    let mut ways = ways(&volume, &direct, REAL[REAL.len() - 1])?;
    let mut alone: [Rates; LENGTHS.len()] = Default::default();
    let mut real: [Rates; REAL.len()] = Default::default();
    let mut virtually: [Rates; VIRTUAL.len()] = Default::default();
    let lane = wire[LENGTHS.iter().position(|len| *len == SHARED).unwrap_or_default()][0];
    for round in plan.rounds() {
        for i in 0..WAYS.len() {
            let way = (i + round) % WAYS.len();
            for (len, all) in LENGTHS.iter().zip(&mut alone) {
                all[way].push(rates(&mut ways[way][..1], *len, plan, round as u64)?);
            }
            for (threads, all) in REAL.iter().zip(&mut real) {
                all[way].push(rates(&mut ways[way][..*threads], SHARED, plan, round as u64)?);
            }
            for (threads, all) in VIRTUAL.iter().zip(&mut virtually) {
                all[way].push(simulated(plan, way, *threads, (lane, round as u64))?);
            }
        }
    }
    drop((ways, direct));
    volume.close().map_err(said)?;
    stage.end()?;
    let mut rows: Vec<Row> = LENGTHS
        .iter()
        .zip(&alone)
        .zip(wire)
        .map(|((len, all), wire)| by_length(*len, all, wire))
        .collect();
    rows.extend([mean(&alone), crossing(&wire)]);
    let several = |how, counts: &[usize], all: Vec<Rates>| {
        let row = |(threads, rates): (&usize, Rates)| several(how, *threads, rates);
        counts.iter().zip(all).map(row).collect::<Vec<_>>()
    };
    rows.extend(several("threads", &REAL, real.into()));
    rows.extend(several("virtual time", &VIRTUAL, virtually.into()));
    Ok(show(&rows, &below(plan)))
}

/// The lane's rates to those of the other ways.
fn ratios(rates: &Rates) -> [Vec<f64>; 3] {
    [1, 2, 3].map(|way| rates[0].iter().zip(&rates[way]).map(|(lane, to)| lane / to).collect())
}

const COMPARED: [&str; 3] = ["lane to undo", "lane to redo", "lane to redo by a checksum"];

fn sides(rates: &Rates, note: impl Fn(usize) -> String) -> Vec<Side> {
    let side = |(way, numbers): (usize, &Vec<f64>)| Side {
        name: WAYS[way].into(),
        numbers: numbers.clone(),
        note: note(way),
    };
    rates.iter().enumerate().map(side).collect()
}

fn compared(rounds: [Vec<f64>; 3], targets: [Option<Target>; 3]) -> Vec<Compared> {
    let one = |((what, rounds), target): ((&str, Vec<f64>), Option<Target>)| {
        let what = what.into();
        Compared { what, rounds, target, paper: None }
    };
    COMPARED.into_iter().zip(rounds).zip(targets).map(one).collect()
}

fn by_length(len: usize, rates: &Rates, wire: [f64; WAYS.len()]) -> Row {
    Row {
        name: format!("{} KiB atomic, one thread", len >> 10),
        unit: "/s",
        sides: sides(rates, |way| format!("{:.3} bytes on the wire for each", wire[way])),
        compared: compared(ratios(rates), [None; 3]),
    }
}

fn mean(alone: &[Rates; LENGTHS.len()]) -> Row {
    let all = alone.each_ref().map(ratios);
    let of = |way: usize| {
        let rounds = all[0][way].len();
        let sum = |round: usize| all.iter().map(|one| one[way][round]).sum::<f64>();
        (0..rounds).map(|round| sum(round) / LENGTHS.len() as f64).collect::<Vec<_>>()
    };
    let targets = [Some(Target::AtLeast(1.8)), Some(Target::AtLeast(1.4)), None];
    let mut compared = compared([0, 1, 2].map(of), targets);
    for (one, paper) in compared.iter_mut().zip(["1.8 times", "1.58 times"]) {
        one.paper = Some(paper);
    }
    Row { name: "mean of all lengths".into(), unit: "/s", sides: Vec::new(), compared }
}

fn crossing(wire: &[[f64; WAYS.len()]; LENGTHS.len()]) -> Row {
    let of = |way: usize| wire.iter().map(|one| one[way]).sum::<f64>() / LENGTHS.len() as f64;
    let one = |way: usize| Compared {
        what: format!("{}, mean of all lengths", WAYS[way]),
        rounds: vec![of(way)],
        target: (way == 0).then_some(Target::AtMost(1.1)),
        paper: None,
    };
    let compared = (0..WAYS.len()).map(one).collect();
    let name = "bytes on the wire for each byte of an atomic write".into();
    Row { name, unit: "/s", sides: Vec::new(), compared }
}

fn several(how: &str, threads: usize, rates: Rates) -> Row {
    Row {
        name: format!("64 KiB atomic, {threads} in flight, {how}"),
        unit: "/s",
        sides: sides(&rates, |_| String::new()),
        compared: compared(ratios(&rates), [None; 3]),
    }
}

fn below(plan: &Plan<'_>) -> String {
    plan.below(&format!(
        "An atomic write is made of pieces of 4 KiB that lie side by side. The journals are the program's, over \
         direct files of the same target: a data file and a log file of 4 MiB each, preallocated and granted. They \
         put the pieces of one atomic write into one call. Undo: the program has the old bytes in memory, logs them \
         durably, then writes in place durably; checksums in its record stand for a commit mark. Redo: descriptor \
         and data are one durable write, the commit block another behind it; a thread reads the log back and writes \
         it to the file, and its last part counts in the time. Redo by a checksum has no commit block: one durable \
         write, less than the paper's has to do. Bytes on the wire are the sizes of all messages with the target, \
         both ways, of {COUNTED} atomic writes of each length that are not timed. \"Virtual time\" has threads as \
         state machines, each with files of its own, whose order is decided by the product's code; assumed are \
         {WORKERS} workers at the target, {MESSAGE} ns of a worker or a thread for a message, storage that passes 4 \
         KiB in {INTERVAL} ns (2.3 GB/s), a network that passes them in {} ns (100 Gbit/s), and that the target \
         writes each byte of the lane once more when it brings it to its place",
        LINK.interval
    ))
}
