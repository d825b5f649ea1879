//! One round: load, deaths, and the judgement of what they left.

mod served;

use crate::beside::Beside;
use crate::calls::Place;
use crate::damage;
use crate::ledger::Ledger;
use crate::plan::served::Served;
use crate::plan::{End, Geometry, Incident, Mount, Plan, Programs, WORKERS, When};
use crate::process::LOOK;
use crate::programs::{self, PROGRAMS, Program, Start};
use crate::signals::Signals;
use crate::stage::{LIMIT, Stage, make_dirs};
use crate::tree::walk;
use crate::worker::{Load, Worker};
use rustix::process::Signal;
use siftfs_model::mix;
use siftfs_rig::place::{Failed, Result, failed, run};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Calls after which the load is seen to go on.
const GOES_ON: u64 = 10;
/// Makes the seed of a round that of its damage.
const DAMAGE: u64 = 0xda3a_6e00;
/// Makes the seed of a round that of the program beside.
const BESIDE: u64 = 0xbe51_de00;
/// Complaints that are shown.
const SHOWN: usize = 12;

/// How the load ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// Unmounted in order.
    Plain,
    /// The host died.
    Dirty,
    /// The mount of a served volume died, and its server has all that it answered.
    AtServer,
}

/// The volume from round to round.
pub struct Run<'a> {
    /// The processes.
    pub stage: Stage<'a>,
    /// The workers; none before the first round of a volume.
    pub workers: Vec<Worker>,
    /// Those with the library loaded.
    pub programs: Vec<Program>,
    ledger: Ledger,
    /// A program without a mount, while a server has the volume.
    beside: Beside,
    umask: u16,
}

impl<'a> Run<'a> {
    /// No volume yet.
    pub fn new(stage: Stage<'a>) -> Result<Self> {
        let umask = crate::umask().map_err(Failed)?;
        let (workers, programs) = (Vec::new(), Vec::new());
        let (ledger, beside) = (Ledger::default(), Beside::default());
        Ok(Self { stage, workers, programs, ledger, beside, umask })
    }

    fn place(&self, worker: usize, mount: &Path) -> Place {
        Place { mount: mount.into(), worker, siftfs: self.stage.siftfs.clone() }
    }

    /// A round. `next` is the mount of the one that follows on the same volume; without it the
    /// volume ends unmounted, and is forgotten.
    pub fn round(&mut self, plan: &Plan, geometry: &Geometry, next: Option<&Mount>) -> Result<()> {
        if self.workers.is_empty() {
            self.begin(plan, geometry)?;
        }
        let left = self.load(plan)?;
        let last = plan.mount.clone();
        let mount = next.unwrap_or(&last);
        match left {
            Left::Dirty => self.after_death(plan, mount)?,
            Left::Plain => self.after_unmount(mount)?,
            Left::AtServer => self.after_client(plan, mount)?,
        }
        if next.is_none() {
            let command = self.stage.start_unmount()?;
            self.stage.finish_unmount(command)?;
            self.judge_plain()?;
            self.stage.end_device(Signal::TERM)?;
            self.workers.clear();
        }
        self.stage.read_logs()?;
        self.count(plan);
        Ok(())
    }

    fn count(&mut self, plan: &Plan) {
        let s = &mut self.stage.summary;
        s.rounds += 1;
        let fallback = if plan.mount.fallback.is_some() { " with fallback" } else { "" };
        let target = if plan.mount.target { " as target" } else { "" };
        let placement = format!("{:?}{fallback}{target}", plan.mount.placement);
        *s.placements.entry(placement).or_default() += 1;
        let modes = ["requests=", "write_cache=", "fsyncs=", "private_logs="];
        let drawn = |o: &&str| modes.iter().any(|mode| o.starts_with(mode));
        for option in plan.mount.options.split(',').filter(drawn) {
            *s.modes.entry(option.into()).or_default() += 1;
        }
        if let Some(Served { by, tcp, .. }) = &plan.mount.served {
            let way = if *tcp { "tcp" } else { "unix" };
            *s.served.entry(format!("{by:?} by {way}")).or_default() += 1;
        }
        *s.ends.entry(plan.end.name()).or_default() += 1;
        for (_, incident) in &plan.incidents {
            *s.incidents.entry(incident.name()).or_default() += 1;
        }
    }

    /// A new volume, mounted, with the workers' directories, durable.
    fn begin(&mut self, plan: &Plan, geometry: &Geometry) -> Result<()> {
        self.stage.make(geometry)?;
        self.stage.summary.volumes += 1;
        self.beside = Beside::default();
        self.stage.mount(&plan.mount)?;
        let dir = self.stage.dir.clone();
        let mut dirs: Vec<_> = (0..WORKERS).map(|w| self.place(w, &dir).own()).collect();
        dirs.push(self.place(0, &dir).shared());
        self.programs = (0..PROGRAMS).map(Program::new).collect();
        dirs.extend(self.programs.iter().map(|program| program.dir(&dir)));
        make_dirs(&dirs)?;
        self.ledger = Ledger::make(&dir).map_err(failed("ledger"))?;
        run(&self.stage.siftfs, &["sync", siftfs_rig::place::arg(&dir)?])?;
        for worker in 0..WORKERS {
            let place = self.place(worker, &dir);
            let tree = walk(&place).map_err(Failed)?;
            self.workers.push(Worker::adopt(place, &tree, self.umask).map_err(Failed)?);
        }
        Ok(())
    }

    /// Runs the load with all that happens to it.
    fn load(&mut self, plan: &Plan) -> Result<Left> {
        let signals = Signals::default();
        let Self { stage, workers, programs, ledger, beside, .. } = self;
        let (dir, before) = (stage.dir.clone(), ledger.committed);
        let start = plan.programs.as_ref().map(|p| start(stage, plan, p)).transpose()?;
        // By the socket of the server's machine: over TCP it is the workers' mount that has a key.
        let served = plan.mount.served.as_ref().filter(|served| !served.tcp);
        let beside_at = served.map(|served| stage.served_at(served)).transpose()?;
        let happened = thread::scope(|scope| {
            if let Some(address) = &beside_at {
                let (signals, seed) = (&signals, mix(plan.seed ^ BESIDE));
                scope.spawn(move || beside.run(address, seed, signals));
            }
            for worker in workers.iter_mut() {
                let seed = mix(plan.seed ^ (worker.place.worker as u64 + 1));
                let (profile, synchronous) = (plan.profile.clone(), plan.synchronous);
                let writeback = plan.mount.writes_back();
                let keeps_answered = plan.end.keeps_answered();
                let served = plan.mount.served.is_some();
                let nameless = plan.mount.served.as_ref().is_none_or(|served| served.nameless);
                let load = Load {
                    seed,
                    profile,
                    synchronous,
                    writeback,
                    served,
                    nameless,
                    keeps_answered,
                };
                let signals = &signals;
                scope.spawn(move || worker.run(&load, signals));
            }
            if plan.sections {
                let (ledger, signals, dir) = (&mut *ledger, &signals, &dir);
                scope.spawn(move || ledger.run(dir, mix(plan.seed), signals));
            }
            for program in programs.iter_mut().filter(|_| start.is_some()) {
                let (start, signals) = (start.clone(), &signals);
                scope.spawn(move || start.map(|start| program.run(&start, signals)));
            }
            let happened = events(stage, plan, &signals);
            if happened.is_err() {
                signals.host_dies();
                let _killed = stage.kill_host();
            }
            signals.stop();
            happened
        });
        if self.stage.host.is_none() {
            self.stage.detach();
        }
        let counts = &mut self.stage.summary;
        counts.calls += signals.calls.load(Ordering::SeqCst);
        counts.sections += self.ledger.committed - before;
        counts.beside += std::mem::take(&mut self.beside.made);
        for program in &mut self.programs {
            counts.program_syncs += std::mem::take(&mut program.synced);
            counts.program_kills += std::mem::take(&mut program.killed);
        }
        counts.acknowledged += signals.acknowledged.load(Ordering::SeqCst);
        counts.uncertain += signals.uncertain.load(Ordering::SeqCst);
        if let Some(why) = signals.failure() {
            return Err(Failed(why));
        }
        happened?;
        self.end(plan)
    }

    /// What of the end comes when the load has stopped.
    fn end(&mut self, plan: &Plan) -> Result<Left> {
        let stage = &mut self.stage;
        match plan.end {
            End::Unmount => {
                self.compare_mounted()?;
                let command = self.stage.start_unmount()?;
                self.stage.finish_unmount(command)?;
                Ok(Left::Plain)
            }
            End::HostInUnmount(ms) => {
                let mut command = stage.start_unmount()?;
                sleep(Duration::from_millis(ms));
                let ended = stage.host.as_mut().map_or(Ok(None), |h| h.ended())?;
                if ended.is_some() {
                    stage.finish_unmount(command)?;
                    return Ok(Left::Plain);
                }
                stage.summary.host_kills += 1;
                stage.kill_host()?;
                // It may have found the host gone, or the volume plain already.
                let _status = command.wait(LIMIT)?;
                stage.detach();
                Ok(Left::Dirty)
            }
            End::DeviceInUnmount(ms) => {
                let command = stage.start_unmount()?;
                sleep(Duration::from_millis(ms));
                stage.summary.device_kills += 1;
                stage.kill_device()?;
                if plan.mount.target {
                    // Without storage nothing goes on.
                    stage.start_device(&plan.mount)?;
                }
                stage.finish_unmount(command)?;
                Ok(Left::Plain)
            }
            End::Served(finish) => self.end_served(finish),
            _ => Ok(Left::Dirty),
        }
    }

    /// The host died: recovery, perhaps killed a few times, and the judgement.
    fn after_death(&mut self, plan: &Plan, next: &Mount) -> Result<()> {
        self.stage.watch.alive();
        if !self.stage.has_device() {
            self.stage.copy(&self.stage.place.path("before-recovery"))?;
        }
        let keep = !plan.recovery.offline && next.placement == plan.mount.placement;
        if !keep {
            let signal = if plan.seed & 1 == 0 { Signal::TERM } else { Signal::KILL };
            self.stage.end_device(signal)?;
        }
        if !self.stage.has_device() {
            damage::one_header_copy(&mut self.stage, mix(plan.seed ^ DAMAGE))?;
        }
        for ms in &plan.recovery.killed {
            self.killed_recovery(plan.recovery.offline, *ms, next)?;
        }
        if plan.recovery.offline {
            self.stage.recover()?;
            self.judge_offline()?;
            self.stage.mount(next)
        } else {
            self.stage.mount(next)?;
            let dir = self.stage.dir.clone();
            self.judge(&dir, After::Death)?;
            self.stage.summary.trees_after_deaths += WORKERS as u64;
            Ok(())
        }
    }

    /// A recovery that is killed, unless it was faster.
    fn killed_recovery(&mut self, offline: bool, ms: u64, next: &Mount) -> Result<()> {
        let stage = &mut self.stage;
        stage.watch.alive();
        let pause = Duration::from_millis(ms);
        if offline {
            let mut command = stage.start_recover()?;
            sleep(pause);
            match command.ended()? {
                Some(status) if !status.success() => {
                    return Err(Failed(format!("siftfs recover: {status}")));
                }
                Some(_) => return Ok(()),
                None => command.kill(LIMIT)?,
            };
        } else if next.served.is_some() {
            stage.killed_server(next, pause, ms % 3)?;
        } else {
            stage.start_host(next)?;
            sleep(pause);
            stage.look()?;
            if ms % 3 == 1 {
                stage.summary.device_kills += u64::from(stage.has_device());
                stage.kill_device()?;
            }
            stage.summary.host_kills += 1;
            stage.kill_host()?;
            stage.detach();
            if ms % 3 == 2 {
                stage.summary.device_kills += u64::from(stage.has_device());
                stage.kill_device()?;
            }
        }
        stage.summary.recoveries_killed += 1;
        Ok(())
    }

    /// Unmounted in order: all that was done is there, for the kernel's ext4 too.
    fn after_unmount(&mut self, next: &Mount) -> Result<()> {
        self.judge_plain()?;
        // Whose address another mount may not use.
        self.stage.end_device(Signal::TERM)?;
        self.stage.mount(next)
    }

    /// The tree as the mount shows it is the model's.
    fn compare_mounted(&mut self) -> Result<()> {
        let dir = self.stage.dir.clone();
        self.stage.summary.trees_compared += WORKERS as u64;
        self.judge(&dir, After::Unmount)
    }

    fn judge_plain(&mut self) -> Result<()> {
        self.stage.fsck()?;
        self.stage.summary.trees_compared += WORKERS as u64;
        self.judge_by_kernel(After::Unmount)
    }

    fn judge_offline(&mut self) -> Result<()> {
        self.stage.fsck()?;
        self.stage.summary.trees_after_deaths += WORKERS as u64;
        self.judge_by_kernel(After::Death)
    }

    fn judge_by_kernel(&mut self, after: After) -> Result<()> {
        let Self { stage, workers, programs, ledger, umask, .. } = self;
        stage.with_kernel(|dir| judge(workers, (programs, ledger), dir, after, *umask))
    }

    fn judge(&mut self, dir: &Path, after: After) -> Result<()> {
        let Self { workers, programs, ledger, umask, .. } = self;
        judge(workers, (programs, ledger), dir, after, *umask)
    }
}

/// What the programs of a round are started with.
fn start(stage: &Stage<'_>, plan: &Plan, programs: &Programs) -> Result<Start> {
    Ok(Start {
        library: programs::library(&stage.siftfs)?,
        mount: stage.dir.clone(),
        seed: plan.seed,
        killed_every: programs.killed_every.map(Duration::from_millis),
        dies_with_host: programs.die_with_host,
    })
}

/// By what a tree is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// By the oracle: what was acknowledged is there.
    Death,
    /// By the model: everything is.
    Unmount,
}

/// The ledger, every program's files and every worker's tree in `dir` are good; what is there is
/// what the next round starts from.
fn judge(
    workers: &mut [Worker],
    (programs, ledger): (&mut [Program], &mut Ledger),
    dir: &Path,
    after: After,
    umask: u16,
) -> Result<()> {
    let mut complaints = ledger.judge(dir, after == After::Death);
    complaints.extend(programs.iter_mut().flat_map(|p| p.judge(dir, after == After::Death)));
    let verdict = match after {
        After::Death => Worker::violations,
        After::Unmount => Worker::differences,
    };
    for worker in workers {
        let home = worker.place.clone();
        let tree = walk(&Place { mount: dir.into(), ..home.clone() }).map_err(Failed)?;
        let found = verdict(worker, &tree);
        if found.is_empty() {
            *worker = Worker::adopt(home.clone(), &tree, umask).map_err(Failed)?;
        }
        complaints.extend(found.iter().map(|c| format!("worker {}: {c}", home.worker)));
    }
    if complaints.is_empty() {
        return Ok(());
    }
    let count = complaints.len();
    complaints.truncate(SHOWN);
    Err(Failed(format!("{count} complaints:\n  {}", complaints.join("\n  "))))
}

/// All that happens while the load runs.
fn events(stage: &mut Stage<'_>, plan: &Plan, signals: &Signals) -> Result<()> {
    for (when, incident) in &plan.incidents {
        pass(stage, *when, signals)?;
        happen(stage, plan, *incident, signals)?;
        goes_on(stage, signals)?;
    }
    pass(stage, plan.until, signals)?;
    stage.note_status()?;
    let pause = |ms| sleep(Duration::from_millis(ms));
    let kill_host = |stage: &mut Stage<'_>| {
        signals.host_dies();
        stage.summary.host_kills += 1;
        stage.kill_host()
    };
    let kill_device = |stage: &mut Stage<'_>| {
        stage.summary.device_kills += 1;
        stage.kill_device()
    };
    match plan.end {
        End::Unmount | End::HostInUnmount(_) | End::DeviceInUnmount(_) => Ok(()),
        End::Served(finish) => served::finish(stage, finish, signals),
        End::Host => kill_host(stage),
        End::HostThenDevice(ms) => {
            kill_host(stage)?;
            pause(ms);
            kill_device(stage)
        }
        End::DeviceThenHost(ms) => {
            kill_device(stage)?;
            pause(ms);
            kill_host(stage)
        }
        End::Takeover(ms) => {
            kill_device(stage)?;
            stage.start_device(&plan.mount)?;
            pause(ms);
            kill_host(stage)
        }
    }
}

fn happen(stage: &mut Stage<'_>, plan: &Plan, incident: Incident, signals: &Signals) -> Result<()> {
    let mount = &plan.mount;
    let kill = |stage: &mut Stage<'_>| {
        stage.summary.device_kills += 1;
        stage.kill_device()
    };
    let wait = |stage: &mut Stage<'_>, ms| wait(stage, Duration::from_millis(ms), signals);
    match incident {
        Incident::Kill(ms) | Incident::Away(ms) => {
            kill(stage)?;
            wait(stage, ms)?;
        }
        Incident::Twice(ms) => {
            kill(stage)?;
            stage.start_device(mount)?;
            wait(stage, ms)?;
            kill(stage)?;
        }
        Incident::Term(ms) => {
            stage.end_device(Signal::TERM)?;
            wait(stage, ms)?;
        }
        Incident::Stop(ms) => {
            stage.stop_device()?;
            wait(stage, ms)?;
            kill(stage)?;
        }
        Incident::Server(death) => return served::happen(stage, mount, death, signals),
    }
    stage.start_device(mount)
}

/// Waits, and checks all processes meanwhile.
fn wait(stage: &mut Stage<'_>, time: Duration, signals: &Signals) -> Result<()> {
    pass(stage, When { calls: u64::MAX, ms: time.as_millis() as u64 }, signals)
}

/// Waits until it is time.
fn pass(stage: &mut Stage<'_>, when: When, signals: &Signals) -> Result<()> {
    let (start, calls) = (Instant::now(), signals.calls.load(Ordering::SeqCst));
    stage.watch.alive();
    loop {
        check(stage, signals)?;
        let done = signals.calls.load(Ordering::SeqCst) - calls;
        if start.elapsed() >= when.time() || done >= when.calls {
            return Ok(());
        }
        sleep(LOOK);
    }
}

/// With both sides there the load makes progress.
fn goes_on(stage: &mut Stage<'_>, signals: &Signals) -> Result<()> {
    let (start, calls) = (Instant::now(), signals.calls.load(Ordering::SeqCst));
    while signals.calls.load(Ordering::SeqCst) < calls + GOES_ON {
        check(stage, signals)?;
        if start.elapsed() > LIMIT {
            return Err(Failed(format!(
                "the load does not go on within {LIMIT:?} after a process took over"
            )));
        }
        sleep(LOOK);
    }
    Ok(())
}

fn check(stage: &mut Stage<'_>, signals: &Signals) -> Result<()> {
    stage.look()?;
    signals.failure().map_or(Ok(()), |why| Err(Failed(why)))
}
