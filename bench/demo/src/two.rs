//! The same job with the background work in a process of its own, which is killed, and then the
//! mount's.

use crate::files::{self, Tree};
use crate::work::Work;
use siftfs_rig::device::Device;
use siftfs_rig::place::{Failed, Place, Result, failed, step};
use siftfs_rig::volume::Volume;
use siftfs_status::{OriginCounts, Status};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

const VOLUME_SIZE: &str = "1G";
/// How long each part of the job goes on.
const PART: Duration = Duration::from_secs(2);
/// How long no device process serves.
const AWAY: Duration = Duration::from_secs(1);
/// How long a new device process may take to be found.
const PATIENCE: Duration = Duration::from_secs(20);
/// Files copied before each of the two kills.
const FILES: [usize; 2] = [500, 1000];

/// What host and device spent, over all of their processes.
#[derive(Default)]
pub struct Spent {
    /// Processor time by process, in microseconds: hosts, devices.
    cpu: [BTreeMap<u32, u64>; 2],
    /// Processor time of the hosts' background threads.
    pub background_cpu: Duration,
    /// Bytes written to journal and area: by hosts, by devices.
    pub background_bytes: [u64; 2],
    /// Bytes written to the lanes by hosts.
    pub staged_bytes: u64,
}

impl Spent {
    /// Processor time of hosts and devices.
    pub fn cpu(&self) -> [Duration; 2] {
        let sum = |of: &BTreeMap<u32, u64>| Duration::from_micros(of.values().sum());
        [sum(&self.cpu[0]), sum(&self.cpu[1])]
    }

    /// Adds a mount's counts; taken once for each pair of host and device process, at its end.
    fn add(&mut self, status: &Status) -> Result<()> {
        let (host, device) = (&status.runtime.storage, &status.runtime.service.device);
        let device =
            device.as_ref().ok_or_else(|| Failed("status has no device process".into()))?;
        let bytes = |o: &OriginCounts| (o.foreground + o.background).write_bytes;
        for (sum, io) in self.background_bytes.iter_mut().zip([host, &device.io]) {
            *sum += bytes(&io.journal) + bytes(&io.area);
        }
        self.staged_bytes += bytes(&host.staging);
        self.background_cpu += background_threads(status.pid)?;
        self.cpu[0].insert(status.pid, status.runtime.link.host_cpu_us);
        self.cpu[1].insert(device.pid, device.cpu_us);
        Ok(())
    }
}

/// Processor time of a mount's threads that assemble transactions and speak with the Service, or
/// are it.
fn background_threads(pid: u32) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    let tasks = format!("/proc/{pid}/task");
    for task in fs::read_dir(&tasks).map_err(failed(&tasks))? {
        let task = task.map_err(failed(&tasks))?.path();
        let read = |name| fs::read_to_string(task.join(name)).unwrap_or_default();
        let name = read("comm");
        if !["siftfs-commit", "siftfs-link", "siftfs-service"].contains(&name.trim()) {
            continue;
        }
        // The first number: nanoseconds on a processor (proc(5)).
        let first = read("schedstat").split(' ').next().and_then(|n| n.parse().ok());
        let nanos = first.ok_or_else(|| Failed(format!("{}: no schedstat", task.display())))?;
        spent += Duration::from_nanos(nanos);
    }
    match spent.is_zero() {
        true => Err(Failed(format!("process {pid} has no background thread"))),
        false => Ok(spent),
    }
}

/// A volume whose background work is done elsewhere.
struct Two<'a> {
    place: &'a Place,
    volume: &'a Volume,
    address: String,
    spent: Spent,
}

impl Two<'_> {
    fn device(&self) -> Result<Device> {
        self.volume.device(&self.address, &self.place.path("device.log"), &[])
    }

    fn mount(&self) -> Result<()> {
        self.volume.mount_with(&["--service", &self.address])
    }

    fn is_served(&self) -> Result<bool> {
        let status = self.volume.status()?;
        let link = status.runtime.link.remote;
        let link = link.ok_or_else(|| Failed("the mount has its Service in itself".into()))?;
        Ok(link.connected)
    }

    fn await_served(&self, wanted: bool) -> Result<()> {
        let start = Instant::now();
        while self.is_served()? != wanted {
            self.place.go_on()?;
            if start.elapsed() > PATIENCE {
                let what = if wanted { "does not find" } else { "does not miss" };
                return Err(Failed(format!("the mount {what} its device process")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn account(&mut self) -> Result<()> {
        let status = self.volume.status()?;
        self.spent.add(&status)
    }

    /// The job with the device process killed in its middle, another one in its place, and then
    /// the mount's process killed.
    fn until_the_kills(&mut self, work: &mut Work) -> Result<Device> {
        let device = self.device()?;
        self.mount()?;
        work.create()?;
        let job = work.job()?;
        work.copy(FILES[0], PART, &job.0)?;
        job.0.run_for(self.place, PART)?;
        self.account()?;
        device.kill()?;
        self.await_served(false)?;
        let before = job.0.count();
        job.0.run_for(self.place, AWAY)?;
        let meanwhile = job.0.count() - before;
        if meanwhile == 0 {
            return Err(Failed("no transaction was acknowledged while nobody served".into()));
        }
        println!(
            "  killed the device process with SIGKILL: the mount went on, {meanwhile} transactions \
             acknowledged in {AWAY:.0?} without one"
        );
        let start = Instant::now();
        let device = self.device()?;
        self.await_served(true)?;
        println!("  another device process took over after {:.0?}", start.elapsed());
        work.copy(FILES[1], PART, &job.0)?;
        job.0.run_for(self.place, PART)?;
        self.account()?;
        self.volume.kill_daemon()?;
        work.end(job);
        println!("  killed the mount with SIGKILL in the middle of it, after {}", work.done());
        Ok(device)
    }
}

/// Runs it, on a volume of its own; answers what host and device spent.
pub fn run(place: &Place, source: &Tree) -> Result<Spent> {
    let volume = Volume::make(place, "two", VOLUME_SIZE)?;
    let address = format!("unix:{}", place.path("device.socket").display());
    let mut work = Work::new(place, &volume, source);
    let mut two = Two { place, volume: &volume, address, spent: Spent::default() };
    let device = two.until_the_kills(&mut work)?;

    let recovery = Instant::now();
    two.mount()?;
    println!("  mounted again, recovery included, in {:.0?}", recovery.elapsed());
    work.check()?;
    let job = work.job()?;
    work.copy_all(&job.0)?;
    work.end(job);
    work.check_all()?;
    volume.checkpoint()?;
    two.account()?;
    let sums = step("summing every file", || files::sums(&volume.dir))?;
    volume.unmount()?;
    device.end()?;
    volume.e2fsck()?;
    step("comparing under the kernel's ext4", || {
        volume.with_kernel_mount(place, "loop,ro", |dir| files::compare(&sums, &files::sums(dir)?))
    })?;
    let [host, device] = two.spent.background_bytes;
    if host != 0 || device == 0 {
        return Err(Failed(format!(
            "of the background work the host wrote {host} bytes and the device {device}"
        )));
    }
    Ok(two.spent)
}
