//! What one call of 4 KiB takes by each of several ways, one at a time.

use crate::Plan;
use crate::stage::{Echo, Stage, said};
use crate::storage::Modelled;
use crate::ways::Way;
use siftfs::{Direct, Volume};
use siftfs_base::{Rng, SharedBlock};
use siftfs_device::{Device, MemDevice};
use siftfs_device_target::{Lines, Queue, RequestOrder, Target};
use siftfs_rig::figure::Spread;
use siftfs_rig::fresh::{fresh, refresh};
use siftfs_rig::place::{Failed, Result};
use siftfs_transport::{CallerEnd, Received};
use siftfs_wire::{BlockProtocol, GrantRun, StorageCall, ToService};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a call.
pub const BLOCK: usize = 4096;
/// Bytes of what is read and written, of a volume, and of a host's pages.
pub const SIZE: u64 = 16 << 20;
const VOLUME: u64 = 512 << 20;
const CACHE: u64 = 1 << 20;
/// The first block of the area that is granted to the raw queue.
const FIRST: u64 = 16_384;

/// The median of these calls, in microseconds, made again and again for this time. Each gets a byte
/// to work at, drawn at random.
///
/// # Errors
/// The first that a call reports.
pub fn median(
    time: Duration,
    rng: &mut Rng,
    mut call: impl FnMut(u64) -> Result<()>,
) -> Result<f64> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < time {
        let at = rng.below(SIZE / BLOCK as u64) * BLOCK as u64;
        let now = Instant::now();
        call(at)?;
        all.push(now.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Spread::of(&all).median)
}

/// The modelled storage, in this process.
pub struct Raw {
    device: Modelled<MemDevice>,
    rng: Rng,
}

impl Raw {
    /// All of it written.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(plan: &Plan<'_>) -> Result<Self> {
        let device = Modelled::new(MemDevice::new(SIZE), plan.storage);
        for at in (0..SIZE).step_by(1 << 20) {
            device.write(at, &vec![1; 1 << 20], false).map_err(said)?;
        }
        Ok(Self { device, rng: Rng::new(1) })
    }

    /// The median of reads, or of durable writes, in microseconds.
    ///
    /// # Errors
    /// What the device reports.
    pub fn round(&mut self, plan: &Plan<'_>, writes: bool) -> Result<f64> {
        let (mut data, device) = ([0; BLOCK], &self.device);
        median(plan.time, &mut self.rng, |at| match writes {
            true => device.write(at, refresh(&mut data), true).map_err(said),
            false => device.read(at, &mut data).map_err(said),
        })
    }
}

/// The storage at a target, by a queue of raw blocks: no file system, and no host.
pub struct Queued {
    stage: Stage,
    target: Arc<Target>,
    queue: Queue,
    rng: Rng,
}

impl Queued {
    /// A target of its own, all of whose granted blocks are written.
    ///
    /// # Errors
    /// It does not start, or grants nothing.
    pub fn new(plan: &Plan<'_>) -> Result<Self> {
        let stage = Stage::target(plan, "raw", VOLUME)?;
        let target = Target::open(stage.place()?, true).map_err(said)?;
        let len = SIZE / BLOCK as u64;
        let run = GrantRun { block: FIRST, len, first: 0, fresh: false };
        let granted = target.grant((1, 1), true, vec![run]).map_err(said)?;
        let lines = Lines::new(granted.place.clone());
        let queue = Queue::open(lines, granted.token, RequestOrder::Merging).map_err(said)?;
        for at in (0..SIZE).step_by(64 << 10) {
            queue.write_at(FIRST * BLOCK as u64 + at, &[1; 64 << 10], false).map_err(said)?;
        }
        queue.flush().map_err(said)?;
        Ok(Self { stage, target, queue, rng: Rng::new(2) })
    }

    /// As [`Raw::round`].
    ///
    /// # Errors
    /// What the target reports.
    pub fn round(&mut self, plan: &Plan<'_>, writes: bool) -> Result<f64> {
        let (mut data, queue) = ([0; BLOCK], &self.queue);
        median(plan.time, &mut self.rng, |at| {
            let place = FIRST * BLOCK as u64 + at;
            match writes {
                true => queue.write_at(place, refresh(&mut data), true).map_err(said),
                false => queue.read_at(place, &mut data).map_err(said),
            }
        })
    }

    /// Ends the target.
    ///
    /// # Errors
    /// It does not end well.
    pub fn end(self) -> Result<()> {
        drop(self.queue);
        self.target.close();
        drop(self.target);
        self.stage.end()
    }
}

/// A message of a write of 4 KiB and its answer, over the transport that programs have, and nothing
/// else.
pub struct RoundTrip {
    echo: Echo,
    end: CallerEnd<BlockProtocol>,
    rng: Rng,
}

impl RoundTrip {
    /// With a process that answers.
    ///
    /// # Errors
    /// It does not start.
    pub fn new(plan: &Plan<'_>) -> Result<Self> {
        let echo = Echo::start(plan)?;
        let end = echo.connect()?;
        Ok(Self { echo, end, rng: Rng::new(3) })
    }

    /// The median in microseconds.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn round(&mut self, plan: &Plan<'_>) -> Result<f64> {
        let end = &mut self.end;
        median(plan.time, &mut self.rng, |offset| {
            let blocks = vec![SharedBlock::from(fresh::<BLOCK>())];
            let len = BLOCK as u32;
            let call = StorageCall::Write { device: 0, offset, len, durable: true, blocks };
            end.sender.send(ToService::Storage { id: offset, call }).map_err(said)?;
            match end.receiver.recv(None).map_err(said)? {
                Received::Message(_) => Ok(()),
                other => Err(Failed(format!("no answer: {other:?}"))),
            }
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// It does not end well.
    pub fn end(self) -> Result<()> {
        drop(self.end);
        self.echo.end()
    }
}

/// Files of a host with a target: a direct one, and one by the host.
pub struct Hosted {
    stage: Stage,
    volume: Volume,
    direct: Direct,
    files: [Way; 2],
    rng: Rng,
}

impl Hosted {
    /// With this name for its sockets.
    ///
    /// # Errors
    /// It does not start, or grants nothing.
    pub fn new(plan: &Plan<'_>, name: &str) -> Result<Self> {
        let stage = Stage::host(plan, name, VOLUME, CACHE)?;
        let (volume, direct) = (stage.volume()?, stage.direct()?);
        let files = [
            Way::Direct(direct.create("/direct", 0o600).map_err(said)?),
            Way::Host(volume.create("/host", 0o600).map_err(said)?),
        ];
        files.iter().try_for_each(|file| file.fill(&volume, SIZE))?;
        volume.checkpoint().map_err(said)?;
        files.iter().try_for_each(Way::settles)?;
        Ok(Self { stage, volume, direct, files, rng: Rng::new(4) })
    }

    /// As [`Raw::round`], by the direct file or by the host.
    ///
    /// # Errors
    /// What target or host report.
    pub fn round(&mut self, plan: &Plan<'_>, direct: bool, writes: bool) -> Result<f64> {
        let (mut data, file) = ([0; BLOCK], &self.files[usize::from(!direct)]);
        let volume = &self.volume;
        median(plan.time, &mut self.rng, |at| match writes {
            true => file.write(volume, (at, refresh(&mut data)), true),
            false => file.read(at, BLOCK),
        })
    }

    /// Ends all of it.
    ///
    /// # Errors
    /// A process does not end well.
    pub fn end(self) -> Result<()> {
        drop((self.files, self.direct));
        self.volume.close().map_err(said)?;
        self.stage.end()
    }
}
