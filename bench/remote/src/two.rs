//! Two mounts of a served volume that write files of their own, to one mount with two writers.

use crate::Plan;
use crate::stage::{Served, Stage, Way, unmount};
use siftfs_base::Rng;
use siftfs_rig::figure::Output;
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result, failed};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use siftfs_rig::volume::Volume;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const PIECE: usize = 64 << 10;
/// Bytes of a writer's file.
const LARGE: u64 = 16 << 20;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A block anywhere in the file, and fdatasync.
    WriteSync,
    /// Pieces in order, and one fsync at the end.
    Stream,
    /// A file made, written and made durable.
    Make,
}

const OPS: [(Op, &str); 3] = [
    (Op::WriteSync, "4 KiB at random and fdatasync, two writers together"),
    (Op::Stream, "64 KiB in order, one fsync at the end, two writers together"),
    (Op::Make, "a file made, 4 KiB written, fsync, two writers together"),
];

/// Works until the time is over; how often.
fn work(dir: &Path, op: Op, (seed, time): (u64, Duration)) -> io::Result<f64> {
    let file = OpenOptions::new().write(true).open(dir.join("large"))?;
    let made = dir.join("made");
    let (mut rng, mut data) = (Rng::new(seed), vec![0; PIECE]);
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < time {
        match op {
            Op::WriteSync => {
                let at = rng.below(LARGE / BLOCK as u64) * BLOCK as u64;
                file.write_all_at(refresh(&mut data[..BLOCK]), at)?;
                file.sync_data()?;
            }
            Op::Stream => file.write_all_at(refresh(&mut data), done * PIECE as u64 % LARGE)?,
            Op::Make => {
                let file = File::create(made.join(format!("file-{done}")))?;
                file.write_all_at(refresh(&mut data[..BLOCK]), 0)?;
                file.sync_all()?;
            }
        }
        done += 1;
    }
    file.sync_all()?;
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// Both writers at once; what they did together in a second.
fn both(dirs: &[PathBuf; 2], op: Op, plan: &Plan<'_>) -> io::Result<f64> {
    let begin = Barrier::new(dirs.len());
    let rates = thread::scope(|scope| {
        let mut writers = Vec::new();
        for (seed, dir) in (1..).zip(dirs) {
            let begin = &begin;
            writers.push(scope.spawn(move || {
                begin.wait();
                work(dir, op, (seed, plan.time))
            }));
        }
        let joined = writers.into_iter().map(|one| one.join());
        joined
            .map(|rate| rate.map_err(|_| io::Error::other("a writer failed"))?)
            .collect::<io::Result<Vec<f64>>>()
    })?;
    for dir in dirs {
        fs::remove_dir_all(dir.join("made"))?;
        fs::create_dir(dir.join("made"))?;
    }
    Ok(rates.iter().sum())
}

fn prepare(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    fs::create_dir(dir.join("made"))?;
    let file = File::create_new(dir.join("large"))?;
    let mut piece = vec![0; 1 << 20];
    for at in (0..LARGE).step_by(piece.len()) {
        file.write_all_at(refresh(&mut piece), at)?;
    }
    file.sync_all()
}

/// A served volume, its mounts, and the directories of two writers.
struct System {
    served: Served,
    mounts: Vec<Volume>,
    dirs: [PathBuf; 2],
}

impl System {
    fn new(stage: &Stage<'_>, name: &str, mounts: usize) -> Result<Self> {
        let served = stage.serve(&stage.make(name, "512M")?, Way::Unix, &[])?;
        let mount = |n: usize| stage.mount_served(&served, &format!("{name}-{n}"));
        let mounts = (0..mounts).map(mount).collect::<Result<Vec<_>>>()?;
        let [Some(first), Some(last)] = [mounts.first(), mounts.last()] else {
            return Err(Failed("nothing is mounted".into()));
        };
        let dirs = [first.dir.join("of-one"), last.dir.join("of-two")];
        dirs.iter().try_for_each(|dir| prepare(dir).map_err(failed(dir.display())))?;
        Ok(Self { served, mounts, dirs })
    }
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let systems = [System::new(&stage, "two", 2)?, System::new(&stage, "one", 1)?];
    let mut rates: [[Vec<f64>; 2]; 3] = Default::default();
    for round in plan.rounds() {
        for i in 0..OPS.len() * 2 {
            plan.place.go_on()?;
            let (op, which) = (i / 2, (i + round) % 2);
            let rate = both(&systems[which].dirs, OPS[op].0, plan).map_err(failed("a writer"))?;
            rates[op][which].push(rate);
        }
    }
    let mut rows = Vec::new();
    for ((_, name), [two, one]) in OPS.iter().zip(rates) {
        let target = Some(Target::AtLeast(0.9));
        let compared = vec![Compared::ratio("two mounts to one", &two, &one, target)];
        let sides = vec![Side::new("two mounts", two), Side::new("one mount", one)];
        rows.push(Row { name: (*name).into(), unit: "/s", sides, compared });
    }
    for System { served, mounts, .. } in systems {
        unmount(&mounts)?;
        served.end()?;
    }
    Ok(show(&rows, "by unix sockets, with memory that both ends share; one server for each side"))
}
