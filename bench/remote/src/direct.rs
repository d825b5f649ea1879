//! Blocks overwritten durably: by a program at the target, by the host that the target serves, and
//! on the storage without any of them.

use crate::Plan;
use crate::stage::Stage;
use rustix::fs::OFlags;
use siftfs::{Direct, DirectFile, File, Volume};
use siftfs_base::Rng;
use siftfs_rig::device::Device;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result, failed};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the file.
const SIZE: u64 = 64 << 20;
/// Bytes of a write.
const LENGTHS: [usize; 3] = [4 << 10, 16 << 10, 128 << 10];
/// How long until the file's blocks are granted.
const GRANTED: Duration = Duration::from_secs(30);

/// Memory at a multiple of a block, as writes past the cache want it.
#[repr(align(4096))]
struct Aligned([u8; LENGTHS[2]]);

/// By what a write is made durable.
enum Way {
    Raw(fs::File),
    Direct(DirectFile),
    Compound(Box<Volume>, File),
}

fn said(e: impl std::fmt::Display) -> Failed {
    Failed(e.to_string())
}

impl Way {
    fn name(&self) -> &'static str {
        match self {
            Self::Raw(_) => "pwrite, O_DIRECT and O_DSYNC, raw",
            Self::Direct(_) => "direct file",
            Self::Compound(..) => "by the host, one compound",
        }
    }

    fn once(&self, at: u64, data: &[u8]) -> Result<()> {
        match self {
            Self::Raw(file) => file.write_all_at(data, at).map_err(failed("pwrite")),
            Self::Direct(file) => file.write_durable_at(at, data).map_err(said),
            Self::Compound(volume, file) => {
                let mut steps = volume.compound();
                steps.write(file, at, data);
                steps.durable().map(drop).map_err(said)
            }
        }
    }

    /// The median time of a write, in microseconds.
    fn run(&self, len: usize, (time, rng): (Duration, &mut Rng)) -> Result<f64> {
        let mut data = Box::new(Aligned([0; LENGTHS[2]]));
        let (mut all, start) = (Vec::new(), Instant::now());
        let mut now = start;
        while now - start < time {
            let at = rng.below(SIZE / len as u64) * len as u64;
            self.once(at, refresh(&mut data.0[..len]))?;
            let then = Instant::now();
            all.push((then - now).as_secs_f64() * 1e6);
            now = then;
        }
        Ok(Spread::of(&all).median)
    }
}

/// Makes a file whose blocks were all written.
fn fill(mut write: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let mut piece = vec![0; 1 << 20];
    (0..SIZE).step_by(piece.len()).try_for_each(|at| write(at, refresh(&mut piece)))
}

fn raw(path: &Path) -> Result<Way> {
    let filled = fs::File::create(path).map_err(failed(path.display()))?;
    fill(|at, data| filled.write_all_at(data, at).map_err(failed(path.display())))?;
    filled.sync_all().map_err(failed(path.display()))?;
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed();
    let file = fs::OpenOptions::new().write(true).custom_flags(flags).open(path);
    Ok(Way::Raw(file.map_err(failed(path.display()))?))
}

fn direct(session: &Direct) -> Result<Way> {
    let file = session.create("/direct", 0o600).map_err(said)?;
    fill(|at, data| file.write_at(at, data).map_err(said))?;
    file.sync_all().map_err(said)?;
    let begun = Instant::now();
    while !file.is_direct() {
        if begun.elapsed() > GRANTED {
            return Err(Failed("the host grants nothing of the file".into()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Way::Direct(file))
}

fn compound(volume: Volume) -> Result<Way> {
    let file = volume.create("/host", 0o600).map_err(said)?;
    fill(|at, data| file.write_at(at, data).map_err(said))?;
    file.sync_all().map_err(said)?;
    volume.checkpoint().map_err(said)?;
    Ok(Way::Compound(Box::new(volume), file))
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let (stage, place) = (Stage::new(plan)?, plan.place);
    let image = stage.make("target", "512M")?;
    let at = |name: &str| format!("unix:{}", place.path(name).display());
    let log = place.path("target.log");
    let target = Device::start(plan.siftfs, &image, &at("target.sock"), &log, &[])?;
    let volume = format!("target:{}/target.sift", target.address());
    let log = place.path("host.log");
    let host = Device::serve(plan.siftfs, Path::new(&volume), &at("host.sock"), &log, &[])?;
    let session = Direct::connect(host.address(), "").map_err(said)?;
    let served = Volume::connect(host.address()).map_err(said)?;
    let ways = [raw(&place.path("raw"))?, direct(&session)?, compound(served)?];
    let mut rng = Rng::new(1);
    let mut times = vec![[const { Vec::new() }; 3]; LENGTHS.len()];
    for round in plan.rounds() {
        for i in 0..LENGTHS.len() * ways.len() {
            place.go_on()?;
            let job = (i + round) % (LENGTHS.len() * ways.len());
            let (len, way) = (job / ways.len(), job % ways.len());
            let took = ways[way].run(LENGTHS[len], (plan.time, &mut rng))?;
            times[len][way].push(took);
        }
    }
    let rows: Vec<_> =
        LENGTHS.iter().zip(&times).map(|(len, times)| row(*len, &ways, times)).collect();
    drop((ways, session));
    host.end()?;
    target.end()?;
    Ok(show(
        &rows,
        "medians of the rounds' median times, with quartiles. Target, host and program are processes on this machine, \
         which share memory two by two; nothing is pinned, nobody spins. By the host, the data and the demand cross to \
         it in one message, and from it to the target in another one",
    ))
}

fn row(len: usize, ways: &[Way; 3], times: &[Vec<f64>; 3]) -> Row {
    let [raw, direct, host] = times;
    let sides = ways.iter().zip(times).map(|(way, times)| Side::new(way.name(), times.clone()));
    Row {
        name: format!("{} KiB overwritten, durable", len >> 10),
        unit: "us",
        sides: sides.collect(),
        compared: vec![
            Compared::ratio("by the host to direct", host, direct, Some(Target::AtLeast(1.24))),
            Compared::ratio("direct to raw", direct, raw, None),
        ],
    }
}
