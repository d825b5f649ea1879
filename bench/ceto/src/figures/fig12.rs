//! Figure 12: threads that read, overwrite and append 4 KiB (FxMark), each of its own file or all
//! of one, by direct files and by the host alone. With 1, 2 and 4 threads of this process, and
//! with 1 to 20 in virtual time.

use crate::model::{Actor, Link, Step, Whose, rate};
use crate::stage::{Stage, said};
use crate::virtual_time::Costs;
use crate::ways::Way;
use crate::{Plan, costs};
use siftfs::{Direct, Volume};
use siftfs_base::Rng;
use siftfs_device_target::{Kind, RequestOrder};
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::table::{Compared, Row, Side, show};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the volume, of each file that is read or overwritten, and of appends in one job.
const VOLUME: u64 = 1 << 30;
const SIZE: u64 = 16 << 20;
const MOST_APPENDED: u64 = 32 << 20;
/// Bytes of the host's page cache.
const CACHE: u64 = 1 << 20;
/// Bytes of a call, and between two syncs of appends.
const BLOCK: usize = 4096;
const STREAM: u64 = 1 << 20;
/// Threads that really run, and those in virtual time.
const REAL: [usize; 3] = [1, 2, 4];
const VIRTUAL: [usize; 8] = [1, 2, 4, 8, 12, 14, 16, 20];
/// The most threads that really run.
const MOST: usize = REAL[REAL.len() - 1];
/// Assumed in virtual time, as in figure 14.
const MESSAGE: u64 = 500;
const INTERVAL: u64 = 1_780;
const LINK: Link = Link { interval: 330, hosts: 4 };
const WORKERS: usize = 4;
const SPAN: u64 = 50_000_000;
/// Calls of a round in virtual time, which one call of the host's share belongs to.
const ROUND: usize = 16;

/// What FxMark calls it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    Drbl,
    Drbm,
    Drbh,
    Dwol,
    Dwom,
    Dwal,
}

const JOBS: [(Job, &str, &str); 6] = [
    (Job::Drbl, "DRBL, reads of a file of its own", "more than ext4, F2FS and uFS"),
    (Job::Drbm, "DRBM, reads of a part of one file", "more than ext4, F2FS and uFS"),
    (Job::Drbh, "DRBH, reads of one block", "all alike, 160,000 a second"),
    (Job::Dwol, "DWOL, overwrites of a file of its own", "1.72 ext4, 1.76 F2FS, 1.38 uFS"),
    (Job::Dwom, "DWOM, overwrites of a part of one file", "the only one that scales"),
    (Job::Dwal, "DWAL, appends to a file of its own", "1.61 ext4, 1.48 F2FS, 1.29 uFS"),
];

/// What one way has: for each thread its session with the host, its files, and the shared one as
/// that thread has it.
pub(super) struct Files {
    volumes: Vec<Volume>,
    own: Vec<Way>,
    grown: Vec<Way>,
    shared: Vec<Way>,
}

/// Of one job and way, a number for each round.
#[derive(Clone, Default)]
struct Found {
    rate: Vec<f64>,
    /// The host's microseconds of processor time for each call.
    host: Vec<f64>,
}

/// By way, direct first.
type Both = [Found; 2];

impl Files {
    /// By direct files of this session, or by the host.
    pub(super) fn new(stage: &Stage, direct: Option<&Direct>) -> Result<Self> {
        let volumes: Vec<Volume> = (0..MOST).map(|_| stage.volume()).collect::<Result<_>>()?;
        let way = |thread: usize, name: &str, fresh: bool| {
            let Some(direct) = direct else {
                let name = format!("/host-{name}");
                let volume = &volumes[thread];
                let file =
                    if fresh { volume.create(&name, 0o600) } else { volume.open_file(&name) };
                return file.map(Way::Host).map_err(said);
            };
            direct.create(&format!("/direct-{name}"), 0o600).map(Way::Direct).map_err(said)
        };
        let of = |name: &str| {
            let one = |thread| way(thread, &format!("{name}-{thread}"), true);
            (0..MOST).map(one).collect::<Result<Vec<_>>>()
        };
        // A direct session opens a file once for all of its threads: they share its order.
        let openings = if direct.is_some() { 1 } else { MOST };
        let shared = (0..openings).map(|thread| way(thread, "shared", thread == 0));
        let shared = shared.collect::<Result<Vec<_>>>()?;
        let (own, grown) = (of("own")?, of("grown")?);
        for (volume, file) in volumes.iter().zip(&own) {
            file.fill(volume, SIZE)?;
        }
        shared[0].fill(&volumes[0], SIZE)?;
        Ok(Self { volumes, own, grown, shared })
    }

    fn shared(&self, thread: usize) -> &Way {
        &self.shared[thread % self.shared.len()]
    }

    /// Makes ready what this job of one thread is to work on.
    fn prepare(&self, job: Job, thread: usize) -> Result<()> {
        match job {
            Job::Drbl | Job::Dwol => self.own[thread].settles(),
            Job::Drbm | Job::Drbh | Job::Dwom => self.shared(thread).settles(),
            Job::Dwal => self.grown[thread].empty(),
        }
    }

    /// Calls of one thread.
    fn run(&self, job: Job, (thread, seed): (usize, u64), until: Instant) -> Result<u64> {
        let (mut rng, mut data, mut done, mut at) = (Rng::new(seed), [0; BLOCK], 0, 0);
        let (volume, own, len) = (&self.volumes[thread], &self.own[thread], BLOCK as u64);
        let part = SIZE / MOST as u64;
        while Instant::now() < until && at < MOST_APPENDED {
            let any = rng.below(SIZE / len) * len;
            let mine = thread as u64 * part + any % part;
            match job {
                Job::Drbl => own.read(any, BLOCK)?,
                Job::Drbm => self.shared(thread).read(mine, BLOCK)?,
                Job::Drbh => self.shared(thread).read(0, BLOCK)?,
                Job::Dwol => own.write(volume, (any, refresh(&mut data)), true)?,
                Job::Dwom => {
                    self.shared(thread).write(volume, (mine, refresh(&mut data)), true)?;
                }
                Job::Dwal => {
                    self.grown[thread].write(volume, (at, refresh(&mut data)), false)?;
                    at += len;
                    if at.is_multiple_of(STREAM) {
                        self.grown[thread].sync()?;
                    }
                }
            }
            done += 1;
        }
        if job == Job::Dwal {
            self.grown[thread].sync()?;
        }
        Ok(done)
    }

    /// Calls of this many threads, and how long they took.
    pub(super) fn all(
        &self,
        job: Job,
        threads: usize,
        (time, seed): (Duration, u64),
    ) -> Result<(u64, f64)> {
        (0..threads).try_for_each(|thread| self.prepare(job, thread))?;
        let begun = Instant::now();
        let one = |thread: usize| self.run(job, (thread, seed + thread as u64), begun + time);
        let done: Result<u64> = thread::scope(|scope| {
            let one = &one;
            let started: Vec<_> = (0..threads).map(|at| scope.spawn(move || one(at))).collect();
            started.into_iter().map(|t| t.join().expect("a thread asserts nothing")).sum()
        });
        Ok((done?, begun.elapsed().as_secs_f64()))
    }

    /// Ends its sessions.
    pub(super) fn close(self) -> Result<()> {
        drop((self.own, self.grown, self.shared));
        self.volumes.into_iter().try_for_each(|volume| volume.close().map_err(said))
    }
}

/// Runs all jobs of one round on both sides in turn.
fn round(
    stage: &mut Stage,
    sides: &[Files; 2],
    (plan, round): (&Plan<'_>, usize),
    real: &mut [[Both; REAL.len()]; JOBS.len()],
) -> Result<()> {
    for i in 0..JOBS.len() * REAL.len() * 2 {
        let (job, at, way) = (i / 2 / REAL.len(), i / 2 % REAL.len(), (i + round) % 2);
        let host = stage.host.as_mut().ok_or_else(|| Failed("there is no host".into()))?;
        let before = host.used()?;
        let (done, took) = sides[way].all(JOBS[job].0, REAL[at], (plan.time, round as u64))?;
        let used = host.used()? - before;
        let found = &mut real[job][at][way];
        found.rate.push(done as f64 / took);
        found.host.push((used / done as f64).max(0.0));
    }
    Ok(())
}

/// The threads of a job in virtual time. `host` is the host's measured time for each call, in
/// nanoseconds: of the way by the host all of it, of direct files what their appends ask of it.
fn actors(job: Job, direct: bool, threads: usize, host: f64) -> Vec<Actor> {
    let len = BLOCK as u64;
    let kind =
        if matches!(job, Job::Drbl | Job::Drbm | Job::Drbh) { Kind::Read } else { Kind::Write };
    let one = |thread: usize| {
        let (file, block) = match job {
            Job::Drbl | Job::Dwol | Job::Dwal => (thread, 0),
            Job::Drbm | Job::Dwom => (0, thread as u64),
            Job::Drbh => (0, 0),
        };
        let whose = match direct {
            true => Whose::Queue(file, kind, block * len..block * len + len),
            false => Whose::Host(host as u64),
        };
        let call = Step { whose, wire: len, stored: len, later: 0, counts: true };
        let mut steps = vec![call; ROUND];
        if direct && job == Job::Dwal {
            let whose = Whose::Host((host * ROUND as f64) as u64);
            steps.push(Step { whose, wire: 0, stored: 0, later: 0, counts: false });
        }
        Actor { steps, ..Actor::default() }
    };
    (0..threads).map(one).collect()
}

/// Calls a second of this many threads in virtual time.
fn simulated(
    plan: &Plan<'_>,
    (job, direct): (Job, bool),
    (threads, host): (usize, f64),
    seed: u64,
) -> Result<f64> {
    let median = |times: Vec<f64>| Spread::of(&times).median as u64;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let costs = Costs {
        decision: median(costs::decisions(RequestOrder::Merging, threads, 20)?),
        call: MESSAGE,
        each_way: nanos(plan.net_delay),
        message: MESSAGE + median(costs::ordering(threads as u64, 20)?) / 2,
        storage: nanos(plan.storage),
        interval: INTERVAL,
        workers: WORKERS,
    };
    let span = if plan.quick { SPAN / 10 } else { SPAN };
    let actors = actors(job, direct, threads, host);
    let files = (threads, RequestOrder::Merging);
    rate(&actors, files, (&costs, LINK), (span, seed))
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let mut stage = Stage::host(plan, "fig12", VOLUME, CACHE)?;
    let direct = stage.direct()?;
    let sides = [Files::new(&stage, Some(&direct))?, Files::new(&stage, None)?];
    sides[0].volumes[0].checkpoint().map_err(said)?;
    let mut real: [[Both; REAL.len()]; JOBS.len()] = Default::default();
    for number in plan.rounds() {
        round(&mut stage, &sides, (plan, number), &mut real)?;
    }
    let [own, host] = sides;
    own.close()?;
    host.close()?;
    drop(direct);
    stage.end()?;
    let mut rows = Vec::new();
    for ((job, name, paper), found) in JOBS.iter().zip(&real) {
        for (threads, both) in REAL.iter().zip(found) {
            rows.push(row((name, paper), "threads", *threads, both));
        }
        // What the host uses for a call is what it used with one thread.
        let host = found[0].each_ref().map(|one| Spread::of(&one.host).median * 1e3);
        for threads in VIRTUAL {
            let mut both = Both::default();
            for seed in 0..u64::from(plan.rounds) {
                for (way, host) in host.into_iter().enumerate() {
                    let rate = simulated(plan, (*job, way == 0), (threads, host), seed)?;
                    both[way].rate.push(rate);
                }
            }
            rows.push(row((name, paper), "virtual time", threads, &both));
        }
    }
    Ok(show(&rows, &below(plan)))
}

fn row((name, paper): (&str, &'static str), how: &str, threads: usize, both: &Both) -> Row {
    let [direct, host] = both;
    let side = |name: &str, found: &Found| {
        let us = Spread::of(&found.host).median;
        let note =
            if found.host.is_empty() { String::new() } else { format!("host {us:.2} us each") };
        Side { name: name.into(), numbers: found.rate.clone(), note }
    };
    let ratio = Compared::ratio("direct to by the host", &direct.rate, &host.rate, None);
    Row {
        name: format!("{name}: {threads} in flight, {how}"),
        unit: "/s",
        sides: vec![side("direct files", direct), side("by the host", host)],
        compared: vec![ratio.beside(paper)],
    }
}

fn below(plan: &Plan<'_>) -> String {
    plan.below(&format!(
        "Calls of 4 KiB; overwrites are durable, by the host in one compound, and appends are durable each MiB. Reads \
         and overwrites go to blocks drawn at random in what FxMark has one block for, so that the host, which keeps 1 \
         MiB of pages, has nothing of them; DRBH's one block it has. Each thread has a session of its own with the \
         host; direct files are one program's. \"Virtual time\" has threads as state machines: a file's requests are \
         ordered by the product's code, whose measured time counts. By the host a call takes one of {} threads of the \
         host for the processor time that it was measured to use with one thread. Assumed are that number, {WORKERS} \
         workers at the target, {MESSAGE} ns of a worker or a thread for a message, storage that passes 4 KiB in \
         {INTERVAL} ns, and a network that passes them in {} ns. Appends in virtual time have their room",
        LINK.hosts, LINK.interval
    ))
}
