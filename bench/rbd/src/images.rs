//! Embedded volumes on images of a cluster, and writes to an image by Ceph's library, in turns.

use crate::Plan;
use crate::tally::{Moment, Tally};
use siftfs::{File, Volume};
use siftfs_base::Rng;
use siftfs_device::Device;
use siftfs_device_rbd::{Access, RbdDevice, RbdPlace};
use siftfs_rig::figure::Output;
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Blocks of the file that is overwritten.
const BLOCKS: u64 = 2048;
/// Bytes of a raw image that are written, in a ring.
const RING: u64 = 32 << 20;
/// Operations of a kind that are counted in a round.
const COUNTED: u64 = 32;
/// How many times a raw write of 4 KiB and its flush an fsync may take.
const TARGET: f64 = 1.15;

/// What a program makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Overwrite,
    Append,
    Create,
}

const KINDS: [Kind; 3] = [Kind::Overwrite, Kind::Append, Kind::Create];

/// A raw write.
#[derive(Clone, Copy)]
struct Write {
    bytes: usize,
    flush: bool,
    name: &'static str,
}

/// Raw writes: the target's, one of the bytes of an overwrite's record, and one that needs no
/// flush, because the cluster answers when all replicas have it.
const RAW: [Write; 3] = [
    Write { bytes: BLOCK, flush: true, name: "a raw write of 4 KiB and a flush" },
    Write { bytes: 2 * BLOCK, flush: true, name: "a raw write of 8 KiB and a flush" },
    Write { bytes: BLOCK, flush: false, name: "a raw write of 4 KiB alone" },
];

/// A volume as a program has it.
struct Program {
    name: PathBuf,
    volume: Volume,
    overwritten: File,
    appended: File,
    end: u64,
    made: u64,
    rng: Rng,
}

/// An image without a volume.
struct Raw {
    device: RbdDevice,
    next: u64,
}

fn said(e: impl std::fmt::Display) -> Failed {
    Failed(e.to_string())
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite 4 KiB, fsync",
            Self::Append => "append 512 bytes, fsync",
            Self::Create => "create, write 4 KiB, fsync",
        }
    }
}

impl Program {
    fn new(name: &Path) -> Result<Self> {
        let open = || {
            let volume = Volume::open(name)?;
            let overwritten = volume.open_or_create("/overwritten", 0o600)?;
            let mut piece = vec![0; 1 << 20];
            for at in (0..BLOCKS * BLOCK as u64).step_by(piece.len()) {
                overwritten.write_at(at, refresh(&mut piece))?;
            }
            let appended = volume.open_or_create("/appended", 0o600)?;
            let end = volume.stat("/appended")?.size;
            let made = format!("/made-{}", std::process::id());
            volume.create_dir(&made, 0o700)?;
            volume.sync()?;
            volume.checkpoint()?;
            let (name, rng) = (name.to_owned(), Rng::new(1));
            Ok(Self { name, volume, overwritten, appended, end, made: 0, rng })
        };
        open().map_err(|e: siftfs::Error| Failed(format!("{}: {e}", name.display())))
    }

    fn once(&mut self, kind: Kind, data: &mut [u8]) -> siftfs::Result<()> {
        match kind {
            Kind::Overwrite => {
                let at = self.rng.below(BLOCKS) * BLOCK as u64;
                self.overwritten.write_at(at, refresh(data))?;
                self.overwritten.sync_all()
            }
            Kind::Append => {
                let part = data.get_mut(..512).unwrap_or_default();
                self.appended.write_at(self.end, refresh(part))?;
                self.end += part.len() as u64;
                self.appended.sync_all()
            }
            Kind::Create => {
                self.made += 1;
                let path = format!("/made-{}/{}", std::process::id(), self.made);
                let file = self.volume.create(&path, 0o600)?;
                file.write_at(0, refresh(data))?;
                file.sync_all()
            }
        }
    }

    fn moment(&self, plan: &Plan) -> Result<Moment> {
        Moment::of(self.volume.status().map_err(said)?.storage, plan.osds.as_deref())
    }

    fn checkpoint(&self) -> Result<()> {
        self.volume.checkpoint().map(drop).map_err(said)
    }

    /// What one kind causes, by counters: in the calls, and with what the background owes for them.
    fn count(&mut self, kind: Kind, plan: &Plan, tally: &mut Tally) -> Result<()> {
        let (before, mut data) = (self.moment(plan)?, vec![0; BLOCK]);
        for _ in 0..COUNTED {
            self.once(kind, &mut data).map_err(said)?;
        }
        tally.count(COUNTED, &before, &self.moment(plan)?);
        self.checkpoint()?;
        tally.end(COUNTED, &before, &self.volume.status().map_err(said)?.storage);
        Ok(())
    }

    fn close(self) -> Result<()> {
        let Self { name, volume, overwritten, appended, .. } = self;
        drop((overwritten, appended));
        volume.close().map_err(|e| Failed(format!("{}: {e}", name.display())))
    }
}

impl Raw {
    /// Opens an image, and writes what will be overwritten.
    fn new(name: &Path) -> Result<Self> {
        let place = RbdPlace::parse(name)
            .ok_or_else(|| Failed(format!("{}: not rbd:POOL/IMAGE", name.display())))?;
        let device = RbdDevice::open(&place.map_err(said)?, Access::Alone).map_err(said)?;
        if device.size() < RING {
            let least = RING >> 20;
            return Err(Failed(format!("{}: fewer than {least} MiB", name.display())));
        }
        let mut piece = vec![0; 1 << 20];
        for at in (0..RING).step_by(piece.len()) {
            device.write(at, refresh(&mut piece), false).map_err(said)?;
        }
        Ok(Self { device, next: 0 })
    }

    fn once(&mut self, flush: bool, data: &mut [u8]) -> siftfs::Result<()> {
        let len = data.len() as u64;
        if self.next + len > RING {
            self.next = 0;
        }
        self.device.write(self.next, refresh(data), false)?;
        self.next += len;
        if flush { self.device.flush() } else { Ok(()) }
    }
}

/// The numbers of each volume by kind, and of each raw image by write.
struct Numbers {
    volumes: Vec<[Tally; KINDS.len()]>,
    raws: Vec<[Tally; RAW.len()]>,
}

/// What takes turns: an operation of a volume or of a raw image, by the places of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Ours(usize, usize),
    Raw(usize, usize),
}

fn jobs(programs: usize, raws: usize) -> Vec<Job> {
    let ours = (0..programs).flat_map(|which| (0..KINDS.len()).map(move |n| Job::Ours(which, n)));
    let raw = (0..raws).flat_map(|which| (0..RAW.len()).map(move |n| Job::Raw(which, n)));
    ours.chain(raw).collect()
}

/// The numbers below `count` in an order that chance gives.
fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let other = usize::try_from(rng.below(last as u64 + 1)).unwrap_or(last);
        order.swap(last, other);
    }
    order
}

/// One operation of each job after the other, again and again, each time in another order: what
/// disturbs this machine in one moment disturbs all of them alike, and none comes always behind
/// the same other one. Microseconds of each, by job.
fn turns(
    plan: &Plan,
    (jobs, rng): (&[Job], &mut Rng),
    programs: &mut [Program],
    raws: &mut [Raw],
) -> Result<Vec<Vec<f64>>> {
    let (mut all, mut data) = (vec![Vec::new(); jobs.len()], vec![0; 2 * BLOCK]);
    let (start, time) = (Instant::now(), plan.time() * u32::try_from(jobs.len()).unwrap_or(1));
    while start.elapsed() < time {
        for at in shuffled(jobs.len(), rng) {
            let begun = Instant::now();
            match jobs[at] {
                Job::Ours(which, kind) => programs[which].once(KINDS[kind], &mut data[..BLOCK]),
                Job::Raw(which, n) => raws[which].once(RAW[n].flush, &mut data[..RAW[n].bytes]),
            }
            .map_err(|e| Failed(format!("{:?}: {e}", jobs[at])))?;
            all[at].push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(all)
}

/// In each round all jobs in turns, timed, and then each kind of each volume by itself, counted.
fn rounds(plan: &Plan, programs: &mut [Program], raws: &mut [Raw]) -> Result<Numbers> {
    let mut numbers = Numbers {
        volumes: programs.iter().map(|_| Default::default()).collect(),
        raws: raws.iter().map(|_| Default::default()).collect(),
    };
    let (jobs, mut rng) = (jobs(programs.len(), raws.len()), Rng::new(1));
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        for (job, times) in jobs.iter().zip(turns(plan, (&jobs, &mut rng), programs, raws)?) {
            match *job {
                Job::Ours(which, kind) => numbers.volumes[which][kind].time(times),
                Job::Raw(which, n) => numbers.raws[which][n].time(times),
            }
        }
        programs.iter().try_for_each(Program::checkpoint)?;
        for (program, tallies) in programs.iter_mut().zip(&mut numbers.volumes) {
            for (kind, tally) in KINDS.into_iter().zip(tallies) {
                program.count(kind, plan, tally)?;
            }
        }
    }
    Ok(numbers)
}

fn side(name: &str, tally: &Tally) -> Side {
    Side { name: name.into(), numbers: tally.p50.clone(), note: tally.note() }
}

/// An image's name, and its numbers.
type Named<'a> = (&'a Path, &'a [Tally]);

/// The row of a kind: a volume beside a raw image, and beside the first volume if it is another.
fn row(kind: usize, volume: Named<'_>, raw: Named<'_>, first: Option<Named<'_>>) -> Row {
    let ours = &volume.1[kind];
    let counted = |what: &str, rounds: &[f64], most: f64| Compared {
        what: what.into(),
        rounds: rounds.to_vec(),
        target: Some(Target::AtMost(most)),
        paper: None,
    };
    let mut compared = Vec::new();
    let mut sides = vec![side("an fsync", ours)];
    for (n, (write, tally)) in RAW.iter().zip(raw.1).enumerate() {
        let target = (n == 0).then_some(Target::AtMost(TARGET));
        compared.push(Compared::ratio(
            &format!("to {}", write.name),
            &ours.p50,
            &tally.p50,
            target,
        ));
        sides.push(side(write.name, tally));
    }
    if let Some((name, tallies)) = first {
        let what = format!("to the same on {}", name.display());
        compared.push(Compared::ratio(&what, &ours.p50, &tallies[kind].p50, None));
    }
    compared.push(counted("writes that an fsync waits for", &ours.waited, 1.0));
    if !ours.osds.is_empty() {
        // What the background writes beside, and what keeps watches alive, is in it.
        compared.push(counted("writes at the OSDs by fsync", &ours.osds, 1.1));
    }
    let name = format!("{}: {} beside {}", KINDS[kind].name(), volume.0.display(), raw.0.display());
    Row { name, unit: "us", sides, compared }
}

/// The raw image of each volume, by its place in the list of different ones, and that list.
fn different(plan: &Plan) -> Result<(Vec<usize>, Vec<PathBuf>)> {
    if plan.volume.is_empty() || plan.volume.len() != plan.raw.len() {
        return Err(Failed("images needs --volume, and --raw for each volume".into()));
    }
    let mut all: Vec<PathBuf> = Vec::new();
    let mut which = Vec::new();
    for raw in &plan.raw {
        which.push(all.iter().position(|known| known == raw).unwrap_or(all.len()));
        if which.last() == Some(&all.len()) {
            all.push(raw.clone());
        }
    }
    Ok((which, all))
}

/// Measures the plan's volumes, and its raw images.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan) -> Result<Output> {
    let (which, images) = different(plan)?;
    let mut programs: Vec<_> =
        plan.volume.iter().map(|name| Program::new(name)).collect::<Result<_>>()?;
    let mut raws: Vec<_> = images.iter().map(|name| Raw::new(name)).collect::<Result<_>>()?;
    let numbers = rounds(plan, &mut programs, &mut raws)?;
    programs.into_iter().try_for_each(Program::close)?;
    let mut rows = Vec::new();
    for (volume, raw) in which.iter().enumerate() {
        let of_volume = (&*plan.volume[volume], &numbers.volumes[volume][..]);
        let of_raw = (&*images[*raw], &numbers.raws[*raw][..]);
        let first = (volume > 0).then_some((&*plan.volume[0], &numbers.volumes[0][..]));
        rows.extend((0..KINDS.len()).map(|kind| row(kind, of_volume, of_raw, first)));
    }
    let below = "medians of the rounds' median times, with quartiles. A volume is open in this program, without a \
                 mount; a raw write is one by the same library. An fsync is one durable write and no flush: the \
                 cluster answers a write when all replicas have it. One operation of each kind follows the other, in an \
                 order that changes, so that all are disturbed alike";
    Ok(show(&rows, below))
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
