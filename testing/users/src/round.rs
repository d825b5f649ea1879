//! One round: mount, scenes, and what must hold after them.

use crate::plan::{Loop, Plan};
use crate::scenes::Stage;
use crate::watch::Watch;
use crate::{Options, Summary, scenes};
use siftfs_base::{Rng, mix};
use siftfs_rig::connection;
use siftfs_rig::place::{Failed, Place, Result, arg, failed};
use siftfs_rig::rings::{Offer, has_rings};
use siftfs_rig::volume::Volume;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the parent looks at the watch.
const LOOK: Duration = Duration::from_millis(50);
/// How long threads may take to end once nothing keeps them.
const END: Duration = Duration::from_secs(60);

/// The volume of a campaign.
pub struct Grounds<'p> {
    place: &'p Place,
    volume: Volume,
}

impl<'p> Grounds<'p> {
    /// Makes the volume.
    pub fn new(place: &'p Place, options: &Options) -> Result<Self> {
        let dir = place.mount_point("mount")?;
        // Users reach the mount through directories that are the harness's.
        for path in [place.path(""), dir.clone()] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
                .map_err(failed(path.display()))?;
        }
        let (program, image) = (options.siftfs.clone(), place.path("volume"));
        let volume = Volume { program, image, dir };
        volume.siftfs(&["mkfs", arg(&volume.image)?, "--size", "512M"])?;
        Ok(Self { place, volume })
    }

    /// Runs a round, and judges what it left.
    pub fn round(&self, options: &Options, plan: &Plan, summary: &mut Summary) -> Result<()> {
        let volume = &self.volume;
        let offered = match plan.requests {
            Loop::Ring if has_rings() => Some(Offer::new()?),
            _ => None,
        };
        let asked = match (plan.requests, &offered) {
            (Loop::Ring, None) => plan.options().replace("ring", "device"),
            _ => plan.options(),
        };
        let all = [asked.as_str(), &options.mount].join(",");
        volume.siftfs(&[
            "mount",
            "-o",
            all.trim_end_matches(','),
            arg(&volume.image)?,
            arg(&volume.dir)?,
        ])?;
        drop(offered);
        let before = free(&volume.dir)?;
        let watch = Arc::new(Watch::default());
        let stage = Stage::new(&volume.dir, &self.place.path("own"), &watch, options.crowd);
        let stage = stage.map_err(failed("the round's directories"))?;
        let threads = self.start(plan, &stage);
        let stuck = wait(options, &watch);
        watch.judged();
        let mut findings = watch.findings();
        findings.extend(stuck.iter().cloned());
        let memory = scenes::hogs::resident(volume.status().ok().map(|s| s.pid));
        findings.extend(scenes::hogs::judge(memory));
        if !stuck.is_empty() {
            connection::at(&volume.dir).into_iter().try_for_each(connection::abort)?;
        }
        join(threads, &volume.dir)?;
        findings.extend(
            watch.findings().into_iter().filter(|f| !findings.contains(f)).collect::<Vec<_>>(),
        );
        summary.calls += watch.count();
        let longest = u64::try_from(watch.longest().as_millis()).unwrap_or(u64::MAX);
        summary.longest_ms = summary.longest_ms.max(longest);
        for (scene, times) in stage.tried() {
            *summary.tried.entry(scene).or_default() += times;
        }
        if !findings.is_empty() {
            return Err(Failed(findings.join("\n")));
        }
        drop(stage);
        clear(&volume.dir).map_err(failed("removing what the users left"))?;
        volume.siftfs(&["checkpoint", arg(&volume.dir)?])?;
        let after = free(&volume.dir)?;
        volume.siftfs(&["umount", arg(&volume.dir)?])?;
        volume.siftfs(&["fsck", arg(&volume.image)?])?;
        if after + SPARE < before {
            return Err(Failed(format!("of {before} free bytes only {after} came back")));
        }
        self.check()
    }

    fn start(&self, plan: &Plan, stage: &Arc<Stage>) -> Vec<JoinHandle<()>> {
        let mut threads = scenes::ordinary::start(stage, plan.seed);
        for (n, scene) in (1..).zip(&plan.scenes) {
            let (stage, scene, seed) = (stage.clone(), *scene, mix(plan.seed ^ n));
            threads.push(std::thread::spawn(move || {
                if let Err(error) = scene.play(&stage, Rng::new(seed)) {
                    stage.find(scene, &format!("could not play: {error}"));
                }
            }));
        }
        threads
    }

    fn check(&self) -> Result<()> {
        let out = siftfs_rig::place::output("e2fsck", &["-fn", arg(&self.volume.image)?])?;
        if out.status.code() == Some(0) {
            return Ok(());
        }
        Err(Failed(format!("e2fsck:\n{}", String::from_utf8_lossy(&out.stdout))))
    }
}

/// Bytes that a round may leave taken: directories that have grown.
const SPARE: u64 = 1 << 20;

/// Free bytes of the mount.
fn free(dir: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(dir).map_err(|e| Failed(format!("statfs: {e}")))?;
    Ok(space.f_bfree * space.f_frsize)
}

/// Removes everything but what mkfs made.
fn clear(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == "lost+found" {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Waits for the round's end or for a finding; says which calls are stuck.
fn wait(options: &Options, watch: &Arc<Watch>) -> Vec<String> {
    let begun = Instant::now();
    while begun.elapsed() < options.round && watch.findings().is_empty() {
        std::thread::sleep(LOOK);
        let stuck = watch.stuck(options.patience);
        if !stuck.is_empty() {
            watch.end();
            return stuck;
        }
    }
    watch.end();
    // What is under way now has its patience, too, with the hostile scenes still there: they keep
    // what they hold until ordinary users have come back.
    let begun = Instant::now();
    while begun.elapsed() < options.patience && !watch.stuck(Duration::ZERO).is_empty() {
        std::thread::sleep(LOOK);
    }
    watch.stuck(options.patience)
}

/// All threads have ended.
fn join(threads: Vec<JoinHandle<()>>, dir: &Path) -> Result<()> {
    let begun = Instant::now();
    while threads.iter().any(|t| !t.is_finished()) {
        if begun.elapsed() > END {
            connection::at(dir).into_iter().try_for_each(connection::abort)?;
            return Err(Failed("a user's thread does not end".into()));
        }
        std::thread::sleep(LOOK);
    }
    for thread in threads {
        thread.join().map_err(|_| Failed("a user's thread panicked".into()))?;
    }
    Ok(())
}
