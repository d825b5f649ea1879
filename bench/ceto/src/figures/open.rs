//! What a queue costs: an open with one, to an open without (the paper's section 7), and requests
//! beside 65,536 open queues, to requests beside none.

use crate::Plan;
use crate::stage::{Stage, said};
use siftfs::{Direct, Volume};
use siftfs_base::Rng;
use siftfs_device_target::{Lines, Queue, RequestOrder, Target};
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::Result;
use siftfs_rig::table::{Compared, Row, Side, Target as Goal, show};
use siftfs_wire::GrantRun;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a volume.
const VOLUME: u64 = 512 << 20;
/// Bytes of the host's page cache.
const CACHE: u64 = 64 << 20;
/// Bytes of a block, and of a file that is opened.
const BLOCK: usize = 4096;
const FILE: usize = 16 * BLOCK;
/// Files that are opened in turn, and the same with little work.
const FILES: [usize; 2] = [64, 8];
/// Queues, and the same with little work.
const QUEUES: [u64; 2] = [65_536, 256];
/// The first block of the area that is granted.
const FIRST: u64 = 16_384;

/// How a file is opened, before its first block is read.
#[derive(Clone, Copy)]
enum How {
    /// By the host.
    Host,
    /// To write it, with a queue.
    Queue,
    /// To read it, with a queue.
    Readers,
    /// As programs do, whose files get a queue when their calls are worth one.
    Patient,
}

const HOWS: [(How, &str); 4] = [
    (How::Host, "without a queue, by the host"),
    (How::Queue, "with a queue, to read and write"),
    (How::Readers, "with a queue, to read"),
    (How::Patient, "a direct file before it has a queue"),
];

/// Programs that open files.
struct Programs {
    volume: Volume,
    direct: Direct,
    files: usize,
}

/// A target with queues of one program.
struct Opened {
    stage: Stage,
    target: Arc<Target>,
    queues: Vec<Queue>,
}

fn name(at: usize) -> String {
    format!("/file-{at}")
}

impl Programs {
    fn new(plan: &Plan<'_>, stage: &Stage) -> Result<Self> {
        let files = FILES[usize::from(plan.quick)];
        let (volume, direct) = (stage.volume()?, stage.direct()?);
        for at in 0..files {
            let file = volume.create(&name(at), 0o600).map_err(said)?;
            file.write_at(0, &[7; FILE]).map_err(said)?;
        }
        volume.sync().map_err(said)?;
        volume.checkpoint().map_err(said)?;
        Ok(Self { volume, direct, files })
    }

    /// The median time of an open with its first read, that of a second read, both in
    /// microseconds, and the share of the files that were read at the target.
    fn round(&self, how: How) -> Result<[f64; 3]> {
        let (mut opens, mut reads, mut direct) = (Vec::new(), Vec::new(), 0);
        for at in 0..self.files {
            let (path, begun) = (name(at), Instant::now());
            let block = 2 * BLOCK as u64;
            let took = |begun: Instant| begun.elapsed().as_secs_f64() * 1e6;
            if let How::Host = how {
                let file = self.volume.open_file(&path).map_err(said)?;
                file.read_at(block, BLOCK).map_err(said)?;
                opens.push(took(begun));
                let begun = Instant::now();
                file.read_at(block, BLOCK).map_err(said)?;
                reads.push(took(begun));
                continue;
            }
            let file = match how {
                How::Readers => self.direct.open_to_read(&path),
                _ => self.direct.open_file(&path),
            };
            let file = file.map_err(said)?;
            if !matches!(how, How::Patient) {
                // Asks for the queue, and has it.
                direct += usize::from(file.is_direct());
            }
            file.read_at(block, BLOCK).map_err(said)?;
            opens.push(took(begun));
            let begun = Instant::now();
            file.read_at(block, BLOCK).map_err(said)?;
            reads.push(took(begun));
        }
        let share = direct as f64 / self.files as f64;
        Ok([Spread::of(&opens).median, Spread::of(&reads).median, share])
    }
}

impl Opened {
    fn new(plan: &Plan<'_>, name: &str, count: u64) -> Result<Self> {
        let stage = Stage::target(plan, name, VOLUME)?;
        let target = Target::open(stage.place()?, true).map_err(said)?;
        let mut lines: Option<Arc<Lines>> = None;
        let mut queues = Vec::new();
        for at in 0..count {
            let run = GrantRun { block: FIRST + at, len: 1, first: 0, fresh: false };
            let granted = target.grant((at + 1, at + 1), true, vec![run]).map_err(said)?;
            let lines = lines.get_or_insert_with(|| Lines::new(granted.place.clone())).clone();
            queues.push(Queue::open(lines, granted.token, RequestOrder::Merging).map_err(said)?);
        }
        Ok(Self { stage, target, queues })
    }

    /// The median time of a durable write by one of the queues, in microseconds.
    fn round(&self, plan: &Plan<'_>, rng: &mut Rng) -> Result<f64> {
        let (mut times, begun, mut data) = (Vec::new(), Instant::now(), [0; BLOCK]);
        while begun.elapsed() < plan.time {
            let at = rng.below(self.queues.len() as u64);
            let place = (FIRST + at) * BLOCK as u64;
            let queue = usize::try_from(at).map_err(said)?;
            let now = Instant::now();
            self.queues[queue].write_at(place, refresh(&mut data), true).map_err(said)?;
            times.push(now.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Spread::of(&times).median)
    }

    fn end(self) -> Result<()> {
        drop(self.queues);
        self.target.close();
        drop(self.target);
        self.stage.end()
    }
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::host(plan, "open", VOLUME, CACHE)?;
    let programs = Programs::new(plan, &stage)?;
    let many = QUEUES[usize::from(plan.quick)];
    eprintln!("opening {many} queues");
    let opened = [Opened::new(plan, "one", 1)?, Opened::new(plan, "many", many)?];
    let mut rng = Rng::new(1);
    let mut opens: [[Vec<f64>; 3]; HOWS.len()] = Default::default();
    let mut writes: [Vec<f64>; 2] = Default::default();
    for round in plan.rounds() {
        for at in 0..HOWS.len() {
            let at = (at + round) % HOWS.len();
            let found = programs.round(HOWS[at].0)?;
            opens[at].iter_mut().zip(found).for_each(|(all, one)| all.push(one));
        }
        for at in 0..2 {
            let at = (at + round) % 2;
            writes[at].push(opened[at].round(plan, &mut rng)?);
        }
    }
    let Programs { volume, direct, .. } = programs;
    drop(direct);
    volume.close().map_err(said)?;
    opened.into_iter().try_for_each(Opened::end)?;
    stage.end()?;
    let rows = [opening(&opens), beside(many, writes)];
    Ok(show(
        &rows,
        &plan.below(
            "An open is timed with the first read of a block, because a queue is opened with that; a second read's \
             median is said beside. A write lease and the grant of the file's blocks belong to an open with a queue, \
             and a reader's grant to one to read. A direct file goes by the host for its first calls, and gets a \
             queue when they have cost as much as one; the rows with a queue ask for it at once. The writes are 4 KiB, durable, each by a queue drawn at random; the \
             targets with one queue and with many are two processes",
        ),
    ))
}

fn opening(opens: &[[Vec<f64>; 3]; HOWS.len()]) -> Row {
    let side = |((_, name), [opens, reads, share]): (&(How, &str), &[Vec<f64>; 3])| {
        let (read, share) = (Spread::of(reads).median, Spread::of(share).median * 100.0);
        let note = format!("a second read {read:.1} us, {share:.0} % read at the target");
        Side { name: (*name).into(), numbers: opens.clone(), note }
    };
    let [host, queue, readers, patient] = opens;
    let target = Some(Goal::AtMost(1.31));
    let paper = "5 us more, 31 % of the whole";
    Row {
        name: "an open, with its first read".into(),
        unit: "us",
        sides: HOWS.iter().zip(opens).map(side).collect(),
        compared: vec![
            Compared::ratio("with a queue to without", &queue[0], &host[0], target).beside(paper),
            Compared::ratio("to read, to without", &readers[0], &host[0], target).beside(paper),
            Compared::ratio("before it has a queue, to without", &patient[0], &host[0], None),
        ],
    }
}

fn beside(many: u64, [one, all]: [Vec<f64>; 2]) -> Row {
    let target = Some(Goal::AtMost(1.2));
    let compared = Compared::ratio("many to one", &all, &one, target)
        .beside("up to 64 K queues, none of them polled");
    Row {
        name: format!("durable writes of 4 KiB, {many} queues open"),
        unit: "us",
        sides: vec![Side::new("one queue", one), Side::new(format!("{many} queues"), all)],
        compared: vec![compared],
    }
}
