//! What happens in a round: everything that is decided, drawn from its seed alone.

pub mod served;

use served::{Death, Finish, Served};
use siftfs_model::{Profile, Rng, mix};
use std::fmt;
use std::time::Duration;

/// Rounds on one volume before another one is made.
pub const ERA: u64 = 12;
/// Threads of the load.
pub const WORKERS: usize = 4;

/// Geometry of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// MiB of the volume.
    pub size: u64,
    /// MiB of the log.
    pub log: u64,
    /// Staging lanes.
    pub lanes: u16,
    /// The log is a file of its own.
    pub apart: bool,
    /// The journal repeats staged data.
    pub copies: bool,
    /// KiB of the record area, if there is one: a file, which outlives the processes.
    pub area: Option<u64>,
}

/// Which process does the background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The host's own process.
    Local,
    /// A device process, reached over shared memory.
    Unix,
    /// A device process, reached over TCP.
    Tcp,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Which process does the background work.
    pub placement: Placement,
    /// The device process is the target, through which alone the host reaches the volume.
    pub target: bool,
    /// Seconds after which the host does it.
    pub fallback: Option<u64>,
    /// The device process's options.
    pub device: Vec<String>,
    /// Options of the mount.
    pub options: String,
    /// The volume is another process's, which serves it; placement and device process are its.
    pub served: Option<Served>,
}

/// When something happens: after this many calls, or so much time, whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Calls of the load.
    pub calls: u64,
    /// Milliseconds.
    pub ms: u64,
}

/// What becomes of the device process while the host goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// SIGKILL; another one after this many milliseconds.
    Kill(u64),
    /// SIGKILL, and again when its successor is this many milliseconds old.
    Twice(u64),
    /// SIGTERM: it hands over.
    Term(u64),
    /// SIGSTOP, and SIGKILL after this many milliseconds.
    Stop(u64),
    /// SIGKILL, and no device process is there for this many milliseconds.
    Away(u64),
    /// Something becomes of the server.
    Server(Death),
}

/// How the round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order.
    Unmount,
    /// SIGKILL of the host while the load runs.
    Host,
    /// SIGKILL of the host, and after this many milliseconds of the device process.
    HostThenDevice(u64),
    /// The other way round.
    DeviceThenHost(u64),
    /// SIGKILL of the host when a new device process is this many milliseconds old.
    Takeover(u64),
    /// SIGKILL of the host this many milliseconds into an unmount.
    HostInUnmount(u64),
    /// SIGKILL of the device process then: the unmount goes on.
    DeviceInUnmount(u64),
    /// Of a round whose volume is served.
    Served(Finish),
}

/// How a volume whose host died is brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Before it succeeds: attempts that are killed after this many milliseconds.
    pub killed: Vec<u64>,
    /// By `siftfs recover` and the kernel's ext4, not by a mount.
    pub offline: bool,
}

/// What becomes of the programs with the library loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// Milliseconds after which one is killed, on the average.
    pub killed_every: Option<u64>,
    /// They die with the host; else they find that it is gone, and may be told within the time for
    /// which its words hold that something is durable.
    pub die_with_host: bool,
}

/// A round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The round's number.
    pub round: u64,
    /// The round's seed.
    pub seed: u64,
    /// The mount on which it works.
    pub mount: Mount,
    /// Writes with O_DSYNC or O_SYNC, in percent.
    pub synchronous: u64,
    /// The operations.
    pub profile: Profile,
    /// A file changes by atomic sections beside it.
    pub sections: bool,
    /// Programs with the library loaded work beside it, on a mount with private logs.
    pub programs: Option<Programs>,
    /// In order, each when its time has come.
    pub incidents: Vec<(When, Incident)>,
    /// When the end comes.
    pub until: When,
    /// The end.
    pub end: End,
    /// After it, if the host died.
    pub recovery: Recovery,
}

const PLACEMENTS: [&str; 5] = ["local", "unix", "tcp", "fallback", "target"];
const ENDS: [&str; 7] = [
    "unmount",
    "host",
    "host-then-device",
    "device-then-host",
    "takeover",
    "host-in-unmount",
    "device-in-unmount",
];
/// Mounts with private logs, whose programs have the library loaded; mounts without; and mounts of
/// a volume that a server has.
const KINDS: [&str; 3] = ["accel", "plain", "served"];
const INCIDENTS: [&str; 5] = ["kill", "twice", "term", "stop", "away"];

/// Which placements, incidents, ends and kinds of mounts may be drawn. Of a class of which none is
/// named all may.
#[derive(Clone, Debug, Default)]
pub struct Only(Vec<String>);

impl Only {
    /// From words with commas between.
    ///
    /// # Errors
    /// An unknown word, with those there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words = text.split(',').filter(|w| !w.is_empty()).map(str::to_string);
        let words: Vec<String> = words.collect();
        let own = [&PLACEMENTS[..], &INCIDENTS, &ENDS, &KINDS];
        let theirs = [&served::INCIDENTS[..], &served::NAMED, &served::ENDS];
        let known = [own.concat(), theirs.concat()].concat();
        match words.iter().find(|w| !known.contains(&w.as_str())) {
            Some(word) => Err(format!("{word}: not one of {}", known.join(", "))),
            None => Ok(Self(words)),
        }
    }

    /// Is it asked for by name?
    fn names(&self, word: &str) -> bool {
        self.0.iter().any(|o| o == word)
    }

    /// The words of `class` that may be drawn.
    fn of(&self, class: &[&'static str]) -> Vec<&'static str> {
        let named = |w: &&&str| self.0.iter().any(|o| o == **w);
        let chosen: Vec<_> = class.iter().filter(named).copied().collect();
        if chosen.is_empty() { class.to_vec() } else { chosen }
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " --only {}", self.0.join(",")) }
    }
}

fn draw<T: Copy>(rng: &mut Rng, items: &[T]) -> T {
    *rng.pick(items).expect("never an empty list")
}

/// Mostly few, sometimes up to `most`.
fn skewed(rng: &mut Rng, most: u64) -> u64 {
    let bound = draw(rng, &[most / 16, most / 4, most]).max(1);
    rng.below(bound)
}

impl Geometry {
    /// The volume of the era that `round` lies in.
    pub fn of(seed: u64, round: u64) -> Self {
        let mut rng = Rng::new(mix(seed ^ 0x6765_6f6d) ^ (round / ERA));
        let lanes = draw(&mut rng, &[1, 1, 2, 4]);
        let log = draw(&mut rng, &[4, 6, 12, 32]) + u64::from(lanes) - 1;
        let (apart, copies) = (rng.chance(35), rng.chance(25));
        let area = rng.chance(50).then(|| draw(&mut rng, &[260, 1024, 16_384]));
        Self { size: 192, log, lanes, apart, copies, area }
    }
}

impl Mount {
    fn draw(rng: &mut Rng, only: &Only) -> Self {
        let modes = ["ordered", "coalesce", "auto"];
        let word = draw(rng, &only.of(&PLACEMENTS));
        let fallback = (word == "fallback").then(|| rng.below(2));
        let target = word == "target";
        let placement = match word {
            "local" => Placement::Local,
            "tcp" => Placement::Tcp,
            "fallback" | "target" if rng.chance(50) => Placement::Tcp,
            _ => Placement::Unix,
        };
        let mut device = vec![
            format!("--replay={}", draw(rng, &modes)),
            format!("--memory={}M", draw(rng, &[64, 256])),
            format!("--spin={}", draw(rng, &[0, 20])),
        ];
        if rng.chance(30) {
            device.push(format!("--cpu-quota={}", draw(rng, &[10, 50])));
        }
        let mut options = vec![
            format!("replay={}", draw(rng, &modes)),
            format!("commit={}", draw(rng, &["0.05", "0.3", "1", "5"])),
            format!("low_watermark={}", draw(rng, &[10, 50, 90])),
            format!("group_wait={}", draw(rng, &[0, 1000])),
            format!("threads={}", draw(rng, &[1, 2, 8])),
            format!("fsyncs={}", draw(rng, &["auto", "shared", "parallel"])),
            // By rings where the kernel has them; the stage switches them on.
            format!("requests={}", draw(rng, &["auto", "ring", "device"])),
            format!("write_cache={}", draw(rng, &["writethrough", "writeback"])),
            // The smallest there is: what is clean has to leave it while other things are on their
            // way.
            format!("cache={}M", draw(rng, &[8, 8, 256])),
            format!("meta_cache={}M", draw(rng, &[8, 64])),
        ];
        match placement {
            Placement::Local => {
                options.push(format!("checkpoint_memory={}M", draw(rng, &[64, 256])));
            }
            _ => {
                options.push(format!("service_memory={}", draw(rng, &["0", "1M", "16M"])));
                options.push(format!("service_spin={}", draw(rng, &[0, 20])));
            }
        }
        for flag in ["nouring", "nodirect"] {
            if rng.chance(20) {
                options.push(flag.into());
            }
        }
        let options = options.join(",");
        Self { placement, target, fallback, device, options, served: None }
    }

    /// The mount of the round with this seed. Of which kind it is, is drawn apart.
    fn of(seed: u64, rng: &mut Rng, only: &Only) -> (Self, Option<Programs>) {
        let mut mount = Self::draw(rng, only);
        let mut rng = Rng::new(mix(seed ^ 0x6c6f_6773));
        match draw(&mut rng, &only.of(&KINDS)) {
            "plain" => return (mount, None),
            "served" => {
                mount.served = Some(Served::draw(&mut rng, &mut mount, only));
                return (mount, None);
            }
            _ => {}
        }
        // They exclude each other.
        mount.options = mount.options.replace("=writeback", "=writethrough");
        let medium = draw(&mut rng, &["on", "on", "on", "daemon"]);
        // Logs in files lie beside the volume, which is elsewhere.
        let medium = if mount.target { "daemon" } else { medium };
        mount.options.push_str(&format!(",private_logs={medium}"));
        let killed_every = rng.chance(60).then(|| draw(&mut rng, &[100, 400, 1500]));
        let programs = Programs { killed_every, die_with_host: rng.chance(50) };
        (mount, Some(programs))
    }

    /// Does the kernel keep written pages back?
    pub fn writes_back(&self) -> bool {
        self.options.contains("write_cache=writeback")
    }

    /// Is there a device process?
    pub fn has_device(&self) -> bool {
        self.placement != Placement::Local
    }
}

impl Incident {
    fn draw(rng: &mut Rng, only: &Only, mount: &Mount) -> Self {
        let mut words = if mount.has_device() { only.of(&INCIDENTS) } else { Vec::new() };
        if mount.served.is_some() {
            words.extend(Death::words(only, mount.has_device()));
        }
        let ms = skewed(rng, 400);
        match draw(rng, &words) {
            word if served::INCIDENTS.contains(&word) || served::NAMED.contains(&word) => {
                Self::Server(Death::draw(rng, word))
            }
            "twice" => Self::Twice(skewed(rng, 120)),
            "term" => Self::Term(ms),
            "stop" => Self::Stop(ms),
            "away" => {
                let most = draw(rng, &[3000, 8000]);
                Self::Away(rng.between(500, most))
            }
            _ => Self::Kill(ms),
        }
    }

    /// The incident's word on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill(_) => "kill",
            Self::Twice(_) => "twice",
            Self::Term(_) => "term",
            Self::Stop(_) => "stop",
            Self::Away(_) => "away",
            Self::Server(death) => death.name(),
        }
    }
}

impl End {
    fn draw(rng: &mut Rng, only: &Only, mount: &Mount) -> Self {
        if mount.served.is_some() {
            return Finish::draw(rng, only).map_or(Self::Unmount, Self::Served);
        }
        let needs_device = |w: &&str| w.contains("device") || *w == "takeover";
        let mut words = only.of(&ENDS);
        if !mount.has_device() {
            words.retain(|w| !needs_device(w));
        }
        let ms = skewed(rng, 200);
        match rng.pick(&words).copied().unwrap_or("host") {
            "unmount" => Self::Unmount,
            "host-then-device" => Self::HostThenDevice(skewed(rng, 100)),
            "device-then-host" => Self::DeviceThenHost(skewed(rng, 100)),
            "takeover" => Self::Takeover(ms),
            "host-in-unmount" => Self::HostInUnmount(ms),
            "device-in-unmount" => Self::DeviceInUnmount(ms),
            _ => Self::Host,
        }
    }

    /// The end's word on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unmount => "unmount",
            Self::Host => "host",
            Self::HostThenDevice(_) => "host-then-device",
            Self::DeviceThenHost(_) => "device-then-host",
            Self::Takeover(_) => "takeover",
            Self::HostInUnmount(_) => "host-in-unmount",
            Self::DeviceInUnmount(_) => "device-in-unmount",
            Self::Served(finish) => finish.name(),
        }
    }
}

impl End {
    /// What was answered is there afterwards, durable or not.
    pub fn keeps_answered(self) -> bool {
        matches!(self, Self::Served(finish) if finish.keeps_answered())
    }
}

impl When {
    fn draw(rng: &mut Rng) -> Self {
        let (most, ms) = draw(rng, &[(300, 2500), (1500, 2500), (6000, 2500), (20_000, 8000)]);
        Self { calls: rng.below(most), ms: rng.between(50, ms) }
    }

    /// The time.
    pub fn time(self) -> Duration {
        Duration::from_millis(self.ms)
    }
}

impl Plan {
    /// Round `round` of the run with `seed`.
    pub fn new(seed: u64, round: u64, only: &Only) -> Self {
        let seed = mix(mix(seed).wrapping_add(round));
        let mut rng = Rng::new(seed);
        let (mount, programs) = Mount::of(seed, &mut rng, only);
        let others_die = mount.has_device() || mount.served.is_some();
        let incidents = if others_die { rng.below(4) } else { 0 };
        let incidents = (0..incidents)
            .map(|_| (When::draw(&mut rng), Incident::draw(&mut rng, only, &mount)))
            .collect();
        let killed = draw(&mut rng, &[0, 0, 1, 3]);
        let killed = (0..killed).map(|_| skewed(&mut rng, 150)).collect();
        let large = draw(&mut rng, &[1, 1, 6, 24]);
        // Scattered: the files of all threads together may be more than the smallest cache holds.
        let scattered = draw(&mut rng, &[1, 1, 8]);
        // Quiet: durable is what a write itself promises. Each fsync and each `siftfs sync` would
        // make up for what others were promised and did not get.
        let quiet = rng.chance(25);
        let loud = |weight| if quiet { 0 } else { weight };
        let profile = Profile {
            background: loud(3),
            scripts: loud(Profile::default().scripts),
            reads: draw(&mut rng, &[8, 30]),
            sync: loud(draw(&mut rng, &[2, 8, 22, 40])),
            write_max: 9000 * large,
            offset_max: 24_000 * large.min(6) * scattered,
            ..Profile::default()
        };
        let synchronous = if quiet { 60 } else { draw(&mut rng, &[0, 10, 40]) };
        let (until, end) = (When::draw(&mut rng), End::draw(&mut rng, only, &mount));
        let recovery = Recovery { killed, offline: rng.chance(25) };
        let profile = Profile { publish: loud(draw(&mut rng, &[0, 5, 15])), ..profile };
        let sections = rng.chance(60);
        Self {
            round,
            seed,
            mount,
            synchronous,
            profile,
            sections,
            programs,
            incidents,
            until,
            end,
            recovery,
        }
    }

    /// Is this the last round on its volume?
    pub fn ends_era(&self) -> bool {
        (self.round + 1).is_multiple_of(ERA)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.mount;
        write!(f, "round {} (seed {:#018x}): {:?}", self.round, self.seed, m.placement)?;
        if m.target {
            write!(f, " target")?;
        }
        if let Some(seconds) = m.fallback {
            write!(f, " fallback={seconds}")?;
        }
        if self.sections {
            write!(f, " sections")?;
        }
        if let Some(programs) = &self.programs {
            write!(f, " {programs:?}")?;
        }
        if let Some(served) = &m.served {
            write!(f, " {served:?}")?;
        }
        write!(f, " device {} -o {}", m.device.join(" "), m.options)?;
        for (when, incident) in &self.incidents {
            write!(f, "; {incident:?} at {} calls or {} ms", when.calls, when.ms)?;
        }
        let (end, until) = (self.end, self.until);
        write!(f, "; {end:?} at {} calls or {} ms", until.calls, until.ms)?;
        let r = &self.recovery;
        write!(f, "; recovery killed at {:?} ms, offline {}", r.killed, r.offline)
    }
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
