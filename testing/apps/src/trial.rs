//! One application's trial: work, SIGKILL of the daemon, recovery, check, more work, check, plain
//! ext4, check. Where the volume is served, the server is killed first, in the middle of the work,
//! which waits and goes on; then the mount's daemon, whose server lives.

use crate::accel::{self, Taken};
use crate::served::Served;
use crate::target::Target;
use crate::work::{App, Site};
use siftfs_rig::place::{Failed, Place, Result, failed};
use siftfs_rig::volume::Volume;
use std::path::Path;
use std::time::{Duration, Instant};

/// Size of each application's volume.
const VOLUME_SIZE: &str = "2G";
/// Programs that saw the crash have so long to end by themselves.
const GRACE: Duration = Duration::from_secs(5);
/// An application that has acknowledged nothing in its time gets so much more: a crash before its
/// first acknowledgement shows nothing.
const MORE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 120 });
/// After their kill.
const END: Duration = Duration::from_secs(30);

/// How long.
#[derive(Clone, Copy)]
pub struct Times {
    /// Work before each crash.
    pub before: Duration,
    /// Crashes, each with its recovery and check.
    pub crashes: u32,
    /// Work after the last one.
    pub after: Duration,
}

/// How far a trial came.
pub struct Outcome {
    /// The application.
    pub name: &'static str,
    /// Acknowledged before the last crash, in words.
    pub first: String,
    /// Acknowledged in all.
    pub all: String,
    /// What the daemons said of private logs, if the programs had the library loaded.
    pub taken: Option<Taken>,
    /// The last step begun.
    pub step: &'static str,
    /// What went wrong in it.
    pub error: Option<String>,
    /// How long it took.
    pub took: Duration,
}

/// On which volume, and with what.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// It has a record area.
    pub area: bool,
    /// Programs have the library loaded, and the mount has private logs.
    pub accelerated: bool,
    /// Programs reach their blocks at the volume's target by themselves.
    pub direct: bool,
    /// Programs work through the mount of a volume that a server has.
    pub served: bool,
    /// Where the volume of a failed trial goes.
    pub keep: Option<&'a Path>,
}

/// Runs a trial; a failure is in the outcome.
pub fn run(place: &Place, app: &mut dyn App, times: Times, setting: Setting<'_>) -> Outcome {
    let start = Instant::now();
    let mut outcome = Outcome {
        name: app.name(),
        first: String::new(),
        all: String::new(),
        taken: setting
            .accelerated
            .then(|| Taken { at_target: setting.direct.then_some(0), ..Taken::default() }),
        step: "making the volume",
        error: None,
        took: Duration::ZERO,
    };
    println!("{}", app.name());
    let Setting { area, keep, served, direct, .. } = setting;
    let area = area.then(|| place.path(&format!("{}.sift.area", app.name())));
    let volume = make(place, app.name(), (area.as_deref(), direct));
    let result = volume.and_then(|volume| {
        let result = steps(place, app, &volume, (times, served), &mut outcome);
        let tidied = tidy(&volume, area.as_deref(), result.is_err(), keep);
        result.and(tidied)
    });
    outcome.all = app.acknowledged();
    if let Err(Failed(message)) = result {
        println!("  FAILED while {}: {message}", outcome.step);
        outcome.error = Some(message);
    }
    outcome.took = start.elapsed();
    outcome
}

/// A volume, with its record area in the file `area` if there is to be one, and with a redo lane
/// for the sections of direct programs.
fn make(place: &Place, name: &str, (area, direct): (Option<&Path>, bool)) -> Result<Volume> {
    if direct {
        return Volume::make_with(place, name, VOLUME_SIZE, &["--redo-lane", "16M"]);
    }
    let Some(area) = area else { return Volume::make(place, name, VOLUME_SIZE) };
    let at = format!("volatile:{}", area.display());
    Volume::make_with(place, name, VOLUME_SIZE, &["--record-area", &at])
}

/// Where the programs' mount comes from.
struct Mounting<'a> {
    volume: &'a Volume,
    accelerated: bool,
    served: Option<Served>,
    target: Option<Target>,
}

impl Mounting<'_> {
    fn mount(&self) -> Result<()> {
        match (&self.served, &self.target) {
            (Some(served), _) => served.mount(self.volume),
            (None, Some(target)) => target.mount(self.volume),
            (None, None) => accel::mount(self.volume, self.accelerated),
        }
    }

    /// In order: the volume is plain ext4 afterwards.
    fn unmount(&mut self) -> Result<()> {
        self.volume.siftfs(&["umount", &self.volume.dir.to_string_lossy()])?;
        self.served.take().map_or(Ok(()), Served::end)?;
        self.target.take().map_or(Ok(()), Target::end)
    }
}

fn steps(
    place: &Place,
    app: &mut dyn App,
    volume: &Volume,
    (times, served): (Times, bool),
    outcome: &mut Outcome,
) -> Result<()> {
    let scratch = place.path(&format!("{}.scratch", app.name()));
    std::fs::create_dir(&scratch).map_err(failed(scratch.display()))?;
    let start = Instant::now();
    let mut step = |name| {
        outcome.step = name;
        println!("  {:5.1} s  {name}", start.elapsed().as_secs_f64());
        place.go_on()
    };
    step("preparing")?;
    let accelerated = outcome.taken.is_some();
    let served = if served { Some(Served::start(volume, &scratch)?) } else { None };
    let direct = outcome.taken.is_some_and(|taken| taken.at_target.is_some());
    let target = if direct { Some(Target::start(volume, &scratch)?) } else { None };
    let mut mounting = Mounting { volume, accelerated, served, target };
    mounting.mount()?;
    app.prepare(&Site::mounted(volume, &scratch))?;
    let mut first = String::new();
    for _ in 0..times.crashes {
        if let Some(served) = &mut mounting.served {
            step("working, killing the server in the middle")?;
            work_on(place, app, &Site::mounted(volume, &scratch), times.before, served)?;
            println!("          acknowledged: {}", app.acknowledged());
            step("checking what was written through both servers")?;
            app.check(&Site::mounted(volume, &scratch))?;
        }
        step("working, killing the daemon in the middle")?;
        let end = End { volume, taken: outcome.taken.as_mut(), kill: true };
        work(place, app, &Site::mounted(volume, &scratch), times.before, Some(end))?;
        first = app.acknowledged();
        println!("          acknowledged: {first}");
        step("recovering")?;
        mounting.mount()?;
        step("checking what was recovered")?;
        app.check(&Site::mounted(volume, &scratch))?;
    }
    step("working on")?;
    let end = End { volume, taken: outcome.taken.as_mut(), kill: false };
    work(place, app, &Site::mounted(volume, &scratch), times.after, Some(end))?;
    step("checking")?;
    app.check(&Site::mounted(volume, &scratch))?;
    step("unmounting")?;
    mounting.unmount()?;
    step("siftfs fsck and e2fsck")?;
    volume.siftfs(&["fsck", &volume.image.to_string_lossy()])?;
    volume.e2fsck()?;
    step("checking under the kernel's ext4")?;
    volume.with_kernel_mount(place, "loop", |dir| app.check(&Site::kernel(dir, &scratch)))?;
    volume.e2fsck()?;
    outcome.first = first;
    outcome.taken.map_or(Ok(()), |taken| taken.verdict(app.needs()))
}

/// What comes when an application has worked for its time.
struct End<'a> {
    volume: &'a Volume,
    /// Gets what the daemon says of private logs just before.
    taken: Option<&'a mut Taken>,
    /// The daemon is killed.
    kill: bool,
}

impl End<'_> {
    fn come(self) -> Result<()> {
        if let Some(taken) = self.taken {
            taken.add(self.volume)?;
        }
        if self.kill { self.volume.kill_daemon() } else { Ok(()) }
    }
}

/// Lets the application work while its server dies and comes back. None of its calls may fail, but
/// for those that nobody can repeat ([`App::is_told_of_a_lost_server`]).
fn work_on(
    place: &Place,
    app: &dyn App,
    site: &Site,
    time: Duration,
    served: &mut Served,
) -> Result<()> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| app.work(site));
        let wait = |time: Duration| {
            let start = Instant::now();
            while start.elapsed() < time && !worker.is_finished() && place.go_on().is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait(time / 2);
        let early = worker.is_finished();
        let killed = served.kill();
        wait(time / 2);
        let told = worker.is_finished();
        site.stop();
        wait(GRACE + END);
        let hangs = !worker.is_finished();
        while !worker.is_finished() {
            site.kill();
            std::thread::sleep(Duration::from_millis(10));
        }
        let panicked = |_| Err(Failed("its driver panicked".into()));
        let result = worker.join().unwrap_or_else(panicked);
        place.go_on()?;
        killed?;
        match result {
            _ if hangs => Err(Failed("it does not go on with another server".into())),
            Ok(()) if early || told => Err(Failed("it ended before its time".into())),
            Err(_) if !early && app.is_told_of_a_lost_server() => Ok(()),
            result => result,
        }
    })
}

/// Lets the application work until its end comes, in the middle of the work.
fn work(
    place: &Place,
    app: &dyn App,
    site: &Site,
    time: Duration,
    end: Option<End<'_>>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let before = app.acknowledged();
        let worker = scope.spawn(|| app.work(site));
        let start = Instant::now();
        let works = || !worker.is_finished() && place.go_on().is_ok();
        while start.elapsed() < time && works() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let nothing = || app.acknowledged() == before;
        while start.elapsed() < time + MORE && works() && nothing() {
            std::thread::sleep(Duration::from_millis(100));
        }
        let idle = nothing();
        let early = worker.is_finished();
        let kills = end.as_ref().is_some_and(|end| end.kill);
        let came = if early { Ok(()) } else { end.map_or(Ok(()), End::come) };
        site.stop();
        let told = Instant::now();
        while !worker.is_finished() && told.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(10));
        }
        while !worker.is_finished() && told.elapsed() < GRACE + END {
            site.kill();
            std::thread::sleep(Duration::from_millis(10));
        }
        let panicked = |_| Err(Failed("its driver panicked".into()));
        let result = worker.join().unwrap_or_else(panicked);
        place.go_on()?;
        came?;
        match (early, kills) {
            (true, _) => result.and(Err(Failed("it ended before its time".into()))),
            _ if idle => Err(Failed("it has acknowledged nothing".into())),
            // What it reports of the crash is its own affair; what it left is checked.
            (false, true) => Ok(()),
            (false, false) => result,
        }
    })
}

/// Leaves no mount; keeps image and record area of a failed trial where that is wished, else gives
/// their space back for the next application.
fn tidy(volume: &Volume, area: Option<&Path>, bad: bool, keep: Option<&Path>) -> Result<()> {
    if bad {
        let _ = volume.siftfs(&["umount", "--lazy", &volume.dir.to_string_lossy()]);
    }
    if let (true, Some(dir)) = (bad, keep) {
        let dir = dir.to_string_lossy();
        for file in [Some(volume.image.as_path()), area].into_iter().flatten() {
            let file = file.to_string_lossy();
            siftfs_rig::place::run("cp", &["--sparse=always", &file, &dir])?;
        }
    }
    let mut files = [Some(volume.image.as_path()), area].into_iter().flatten();
    files.try_for_each(|file| std::fs::remove_file(file).map_err(failed(file.display())))
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
