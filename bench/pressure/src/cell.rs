//! One cell: one configuration in one round, on the bench's one volume.

use crate::cpu::Cpu;
use crate::status::Counts;
use serde::Serialize;
use siftfs_placement::{
    Address, Dial, JournalData, OpenOptions, Replay, ReplayMode, ServicePlace, TransportOptions,
};
use siftfs_pressure::load::{Background, Load, Seen, Shape, Target};
use siftfs_pressure::steady::Steadiness;
use siftfs_rig::device::Device;
use siftfs_rig::place::{Failed, Place, Result, arg, failed};
use siftfs_rig::volume::Volume;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counters are read so long before the window opens: the process that answers may be busy.
const LOOK: Duration = Duration::from_millis(700);

/// One configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// How checkpoints replay.
    #[serde(skip)]
    pub mode: ReplayMode,
    /// Percent of a processor of the device process; `None`: the host serves itself.
    pub quota: Option<u64>,
    /// Writes between two fsyncs of a background writer.
    pub interval: u64,
    /// MiB per second that both offer together; 0: all they can.
    pub offered_mib: u64,
}

impl Case {
    /// The paper's name of the placement and the replay, and what differs from its usual point.
    pub fn name(&self) -> String {
        let mut name = match (self.quota, self.mode) {
            (None, _) => "vanilla".to_owned(),
            (Some(q), ReplayMode::Ordered) => format!("offload-{q}"),
            (Some(q), mode) => format!("{mode}-{q}"),
        };
        if self.interval != 128 {
            name += &format!("-i{}", self.interval);
        }
        if self.offered_mib != 0 {
            name += &format!("@{}", self.offered_mib);
        }
        name
    }
}

/// How the load reaches the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through a mount: the daemon is a process of its own.
    Mounted,
    /// In this process.
    Embedded,
}

/// What a cell found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Length of the window in seconds, as it came out.
    pub seconds: f64,
    pub foreground: Steadiness,
    /// Bytes that the background writers synced in the window.
    pub background_bytes: u64,
    /// Processor time in the window: of the daemon,
    pub daemon: Option<Cpu>,
    /// ... of the process with the load threads (embedded, the file system too),
    pub load: Cpu,
    /// ... of the host's threads that do the background work or hand it over, counted in those too,
    pub background: Cpu,
    /// ... and of the device process.
    pub device: Option<Cpu>,
    /// Counted from just before the window to its end.
    pub counts: Counts,
}

impl Found {
    /// Host processor seconds: the daemon's and the load's.
    pub fn host_cpu(&self) -> f64 {
        self.daemon.map_or(0.0, |d| d.total()) + self.load.total()
    }

    /// The same per foreground operation, in microseconds.
    pub fn host_us_per_op(&self) -> f64 {
        self.host_cpu() * 1e6 / self.foreground.operations.max(1) as f64
    }

    pub fn ops_per_second(&self) -> f64 {
        self.foreground.operations as f64 / self.seconds
    }

    pub fn background_mib_s(&self) -> f64 {
        self.background_bytes as f64 / self.seconds / f64::from(1 << 20)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, c) = (&self.foreground, &self.counts);
        write!(
            f,
            "{:.0} op/s, fsync p50 {:.0} p99 {:.0} max {:.0} us, gap {:.0} ms, background {:.0} MiB/s, \
             host {:.2} s ({:.0} us/op), its background {:.2} s, device {:.2} s, credit wait {:.1} ms ({}), bulk {:.0} ms ({}), \
             {:.1} laps",
            self.ops_per_second(),
            s.p50_us,
            s.p99_us,
            s.max_us,
            s.gap_ms,
            self.background_mib_s(),
            self.host_cpu(),
            self.host_us_per_op(),
            self.background.total(),
            self.device.map_or(0.0, |d| d.total()),
            c.credit_wait_max_us / 1e3,
            c.credit_waits,
            c.bulk_wait_max_us / 1e3,
            c.bulk_waits,
            c.laps(),
        )
    }
}

/// The volume, with the load's files on it.
pub struct Bench<'p> {
    place: &'p Place,
    pub shape: Shape,
    volume: Volume,
    way: Way,
    warmup: Duration,
    length: Duration,
}

/// An open volume.
enum Open<'b> {
    Mounted(&'b Volume),
    Embedded(Box<siftfs::Volume>),
}

impl<'p> Bench<'p> {
    /// Makes the volume and writes the files once, so that every write of the load is an overwrite.
    pub fn new(
        place: &'p Place,
        shape: Shape,
        journal_data: JournalData,
        way: Way,
        (warmup, length): (Duration, Duration),
    ) -> Result<Self> {
        let mib = |bytes: u64| format!("{}M", bytes >> 20);
        let log = mib(shape.log());
        let volume = Volume::make_with(
            place,
            "pressure",
            &mib(shape.volume_bytes()),
            &["--log-size", &log, "--journal-data", &journal_data.to_string()],
        )?;
        volume.mount()?;
        for (name, bytes, _) in shape.files() {
            let path = volume.dir.join(name);
            write_file(&path, bytes).map_err(failed(path.display()))?;
        }
        volume.unmount()?;
        Ok(Self { place, shape, volume, way, warmup, length })
    }

    /// Measures a configuration. The volume is unmounted before and after.
    pub fn measure(&self, case: &Case, round: u64) -> Result<Found> {
        let device = case.quota.map(|quota| self.device(case.mode, quota)).transpose()?;
        let open = self.open(case, device.as_ref())?;
        let result = self.load(case, round, &open, device.as_ref());
        let closed = open.close();
        let found = result?;
        closed?;
        // In order: its control group goes with it.
        device.map_or(Ok(()), Device::end)?;
        Ok(found)
    }

    fn device(&self, mode: ReplayMode, quota: u64) -> Result<Device> {
        let address = format!("unix:{}", arg(&self.place.path("device.sock"))?);
        let (mode, quota) = (mode.to_string(), quota.to_string());
        let more = ["--replay", &mode, "--cpu-quota", &quota, "--log-level", "warn"];
        self.volume.device(&address, &self.place.path("device.log"), &more)
    }

    fn open(&self, case: &Case, device: Option<&Device>) -> Result<Open<'_>> {
        let address = device.map(Device::address);
        if self.way == Way::Mounted {
            let replay = format!("replay={}", case.mode);
            let more = match address {
                Some(address) => vec!["--service", address],
                None => vec!["-o", &replay],
            };
            self.volume.mount_with(&more)?;
            return Ok(Open::Mounted(&self.volume));
        }
        let place = |address: &str| {
            let address: Address =
                address.parse().map_err(|e| Failed(format!("{address}: {e}")))?;
            let dial = Dial { address, options: TransportOptions::default(), secured: None };
            Ok(ServicePlace { connector: Arc::new(dial), fallback: None })
        };
        let options = OpenOptions {
            replay: Replay { mode: case.mode, ..Replay::default() },
            service: address.map(place).transpose()?,
            ..OpenOptions::default()
        };
        let image = &self.volume.image;
        let volume = siftfs::Volume::open_with(image, &options);
        volume
            .map(|v| Open::Embedded(Box::new(v)))
            .map_err(|e| Failed(format!("{}: {e}", image.display())))
    }

    fn load(
        &self,
        case: &Case,
        round: u64,
        open: &Open<'_>,
        device: Option<&Device>,
    ) -> Result<Found> {
        let mut targets = Vec::new();
        for (name, _, hot) in self.shape.files() {
            targets.push((open.file(name)?, hot));
        }
        let daemon = open.daemon()?;
        let own = std::process::id();
        let cpus = || -> Result<[Option<Cpu>; 4]> {
            Ok([
                daemon.map(Cpu::of).transpose()?,
                Some(Cpu::of(own)?),
                device.map(|d| Cpu::of(d.pid())).transpose()?,
                Some(Cpu::of_background(daemon.unwrap_or(own))?),
            ])
        };
        let opens = Instant::now() + self.warmup;
        let load = Load::new(opens, self.length);
        let writers = targets.len() as u64 - 1;
        let rate = (case.offered_mib > 0).then(|| (case.offered_mib << 20) / writers);
        let background = Background { interval: case.interval, rate };
        let (seen, watched) = load.run(&targets, round << 8, background, || {
            sleep_until(opens - LOOK);
            let before = open.counts()?;
            sleep_until(opens);
            let (start, cpu) = (Instant::now(), cpus()?);
            sleep_until(opens + self.length);
            let (seconds, after) = (start.elapsed().as_secs_f64(), cpus()?);
            Ok((seconds, cpu, after, open.counts()?.since(&before)))
        });
        drop(targets);
        let Seen { foreground, background_bytes } = seen.map_err(failed(case.name()))?;
        let (seconds, before, after, counts) = watched?;
        let spent = |i: usize| after[i].zip(before[i]).map(|(a, b): (Cpu, Cpu)| a - b);
        Ok(Found {
            seconds,
            foreground: foreground.sum_up(),
            background_bytes,
            daemon: spent(0),
            load: spent(1).unwrap_or_default(),
            device: spent(2),
            background: spent(3).unwrap_or_default(),
            counts,
        })
    }
}

fn sleep_until(t: Instant) {
    std::thread::sleep(t.saturating_duration_since(Instant::now()));
}

fn write_file(path: &PathBuf, bytes: u64) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    let piece = vec![3; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

impl Open<'_> {
    fn file(&self, name: &str) -> Result<Target> {
        match self {
            Self::Mounted(volume) => {
                let path = volume.dir.join(name);
                let file = File::options().read(true).write(true).open(&path);
                file.map(Target::Mounted).map_err(failed(path.display()))
            }
            Self::Embedded(volume) => {
                let file = volume.open_file(&format!("/{name}"));
                file.map(Target::Embedded).map_err(|e| Failed(format!("{name}: {e}")))
            }
        }
    }

    /// The daemon's process id; `None` for an embedded volume.
    fn daemon(&self) -> Result<Option<u32>> {
        let Self::Mounted(volume) = self else { return Ok(None) };
        volume.status().map(|status| Some(status.pid))
    }

    fn counts(&self) -> Result<Counts> {
        match self {
            Self::Mounted(volume) => Counts::of(&volume.status()?.runtime),
            Self::Embedded(volume) => {
                let status = volume.status().map_err(|e| Failed(format!("status: {e}")))?;
                Counts::of(&status)
            }
        }
    }

    fn close(self) -> Result<()> {
        match self {
            Self::Mounted(volume) => volume.siftfs(&["umount", arg(&volume.dir)?]).map(drop),
            Self::Embedded(volume) => volume.close().map_err(|e| Failed(format!("closing: {e}"))),
        }
    }
}
