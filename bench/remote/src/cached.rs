//! What the kernel has cached of a remote mount, beside what it has of a local one: reads, stat and
//! readdir, of a mount that is the volume's only one, and of one that shares it with another.

use crate::Plan;
use crate::stage::{Stage, Way, unmount};
use siftfs_base::Rng;
use siftfs_rig::figure::Output;
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Result, failed};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use siftfs_rig::volume::Volume;
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of the file that is read.
const LARGE: u64 = 16 << 20;
/// Bytes of a read.
const BYTES: usize = 4096;
/// Files of the directory that is listed.
const NAMES: usize = 500;

/// What is done.
#[derive(Clone, Copy, Debug)]
enum Op {
    Read,
    Stat,
    List,
}

const OPS: [(Op, &str); 3] =
    [(Op::Read, "reads of 4 KiB"), (Op::Stat, "stat of 500 files"), (Op::List, "500 names listed")];

/// A mount, and another one of the same volume where it is shared.
struct Front {
    name: &'static str,
    mounts: Vec<Volume>,
    names: Vec<PathBuf>,
}

fn fill(dir: &Path) -> io::Result<()> {
    let mut piece = vec![0; 1 << 20];
    let large = File::create_new(dir.join("large"))?;
    for at in (0..LARGE).step_by(piece.len()) {
        large.write_all_at(refresh(&mut piece), at)?;
    }
    large.sync_all()?;
    fs::create_dir(dir.join("names"))?;
    (0..NAMES).try_for_each(|n| fs::write(dir.join(format!("names/file-{n:04}")), b"small"))
}

impl Front {
    fn new(name: &'static str, mounts: Vec<Volume>) -> Result<Self> {
        let dir = mounts.first().map(|mount| mount.dir.clone()).unwrap_or_default();
        fill(&dir).map_err(failed(dir.display()))?;
        let names = (0..NAMES).map(|n| dir.join(format!("names/file-{n:04}"))).collect();
        Ok(Self { name, mounts, names })
    }

    fn dir(&self) -> &Path {
        self.names.first().and_then(|name| name.ancestors().nth(2)).unwrap_or(Path::new("/"))
    }

    /// How often it goes in a second, once all of it was asked for.
    fn rate(&self, op: Op, plan: &Plan<'_>) -> io::Result<f64> {
        let large = File::open(self.dir().join("large"))?;
        let (mut rng, mut data) = (Rng::new(1), vec![0; BYTES]);
        let mut number = 0;
        let mut once = |at: u64| match op {
            Op::Read => large.read_exact_at(black_box(&mut data), at),
            Op::Stat => {
                number = (number + 1) % NAMES;
                black_box(fs::metadata(&self.names[number])).map(|_| ())
            }
            Op::List => {
                let found = fs::read_dir(self.dir().join("names"))?.count();
                (found == NAMES)
                    .then_some(())
                    .ok_or_else(|| io::Error::other(format!("{found} names")))
            }
        };
        let warm = if let Op::Read = op { LARGE / BYTES as u64 } else { NAMES as u64 };
        // Several calls for one look at the clock, which costs as much as a call.
        let (warm, batch) = if let Op::List = op { (2, 1) } else { (warm, 50) };
        (0..warm).try_for_each(|block| once(block * BYTES as u64))?;
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < plan.time {
            for _ in 0..batch {
                once(rng.below(LARGE / BYTES as u64) * BYTES as u64)?;
            }
            done += batch;
        }
        Ok(f64::from(done) / start.elapsed().as_secs_f64())
    }
}

/// Pairs of fronts that are compared: remote, and local.
fn pairs(stage: &Stage<'_>, served: &[crate::stage::Served; 2]) -> Result<[[Front; 2]; 2]> {
    let alone = stage.mount_served(&served[0], "remote")?;
    let own = stage.make("local", "256M")?;
    let local = stage.mount(&own, "local", "")?;
    let both = ["remote-one", "remote-two"].map(|name| stage.mount_served(&served[1], name));
    let shared = stage.make("shared", "256M")?;
    let first = stage.mount(&shared, "local-one", "shared")?;
    let second = stage.mount(&shared, "local-two", "")?;
    let [one, two] = both;
    Ok([
        [Front::new("remote, alone", vec![alone])?, Front::new("local, alone", vec![local])?],
        [
            Front::new("remote, with another mount", vec![one?, two?])?,
            Front::new("local, with another mount", vec![first, second])?,
        ],
    ])
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let serve = |name: &str| stage.serve(&stage.make(name, "256M")?, Way::Unix, &[]);
    let served = [serve("served")?, serve("served-shared")?];
    let pairs = pairs(&stage, &served)?;
    // By operation, pair and front, a rate for each round.
    let mut rates: [[[Vec<f64>; 2]; 2]; 3] = Default::default();
    for round in plan.rounds() {
        for i in 0..OPS.len() * 4 {
            plan.place.go_on()?;
            let (op, pair, front) = (i / 4, i / 2 % 2, (i + round) % 2);
            let measured = &pairs[pair][front];
            let rate = measured.rate(OPS[op].0, plan).map_err(failed(measured.name))?;
            rates[op][pair][front].push(rate);
        }
    }
    let mut rows = Vec::new();
    for ((_, name), rates) in OPS.iter().zip(rates) {
        for (pair, [remote, local]) in pairs.iter().zip(rates) {
            let target = Some(Target::AtLeast(0.95));
            let compared = vec![Compared::ratio("remote to local", &remote, &local, target)];
            let sides = vec![Side::new(pair[0].name, remote), Side::new(pair[1].name, local)];
            rows.push(Row { name: (*name).into(), unit: "/s", sides, compared });
        }
    }
    for Front { mounts, .. } in pairs.into_iter().flatten() {
        // The first one has the volume, where it is a local one.
        mounts.into_iter().rev().try_for_each(|mount| unmount(&[mount]))?;
    }
    served.into_iter().try_for_each(crate::stage::Served::end)?;
    Ok(show(
        &rows,
        "remote: by a unix socket, with memory that both ends share. All was asked for once before it is measured. \
         With another mount a kernel may believe in names and attributes for a term only (docs/design/front-ends.md)",
    ))
}
