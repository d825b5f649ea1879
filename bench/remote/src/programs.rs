//! Real programs on remote mounts, beside a local one: tar unpacks small files, git clones a
//! repository, SQLite commits with a write-ahead log.

use crate::stage::{Served, Stage, Way, calls, unmount};
use crate::{Beside, Plan};
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Place, Result, failed};
use siftfs_rig::program::run_whole;
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use siftfs_rig::volume::Volume;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What a program may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Files of a directory of the archive.
const PER_DIR: usize = 50;
/// Size of a volume.
const SIZE: &str = "256M";
/// Commits of the repository.
const COMMITS: usize = 5;

/// What programs work with.
struct Inputs {
    archive: PathBuf,
    repository: PathBuf,
    script: PathBuf,
    files: usize,
}

#[derive(Clone, Copy, Debug)]
enum Program {
    Untar,
    Clone,
    Sqlite,
}

const PROGRAMS: [Program; 3] = [Program::Untar, Program::Clone, Program::Sqlite];

/// Files of 1 to 8 KiB, as bytes that no coder makes shorter.
fn tree(dir: &Path, files: usize) -> io::Result<()> {
    let mut data = vec![0; 8 << 10];
    for number in 0..files {
        let below = dir.join(format!("dir-{:03}", number / PER_DIR));
        if number % PER_DIR == 0 {
            fs::create_dir_all(&below)?;
        }
        let bytes = 1024 + number * 2654 % 7168;
        fs::write(below.join(format!("file-{number:05}")), refresh(&mut data[..bytes]))?;
    }
    Ok(())
}

fn git(repository: &Path, words: &[&str]) -> io::Result<()> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).args(["-c", "user.name=bench", "-c", "user.email=b@ench"]);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", repository);
    run_whole(command.args(words), PATIENCE, &[0]).map(drop)
}

impl Inputs {
    fn new(place: &Place, files: usize) -> Result<Self> {
        let [source, archive, repository, script] =
            ["source", "archive.tar", "repository", "commits.sql"].map(|name| place.path(name));
        let make = || {
            tree(&source, files)?;
            let mut tar = Command::new("tar");
            tar.arg("-cf").arg(&archive).arg("-C").arg(&source).arg(".");
            run_whole(&mut tar, PATIENCE, &[0])?;
            fs::create_dir(&repository)?;
            git(&repository, &["init", "-q"])?;
            for commit in 0..COMMITS {
                tree(&repository.join(format!("part-{commit}")), files / COMMITS / 2)?;
                git(&repository, &["add", "."])?;
                git(&repository, &["commit", "-q", "-m", "a commit"])?;
            }
            let line = "INSERT INTO log(payload) VALUES(hex(randomblob(200)));\n";
            fs::write(&script, line.repeat(files / 4))
        };
        make().map_err(failed("what the programs work with"))?;
        Ok(Self { archive, repository, script, files })
    }
}

impl Program {
    fn name(self, inputs: &Inputs) -> String {
        let files = inputs.files;
        match self {
            Self::Untar => format!("tar -x of {files} files of 1 to 8 KiB"),
            Self::Clone => {
                format!(
                    "git clone of {COMMITS} commits with {} files",
                    files / COMMITS / 2 * COMMITS
                )
            }
            Self::Sqlite => {
                format!("SQLite, WAL, synchronous=FULL, {} transactions", files / 4)
            }
        }
    }

    /// How often it would be done in a second, in an empty directory.
    fn run(self, dir: &Path, inputs: &Inputs) -> io::Result<f64> {
        let mut command = match self {
            Self::Untar => {
                let mut tar = Command::new("tar");
                tar.arg("-xf").arg(&inputs.archive).arg("-C").arg(dir);
                tar
            }
            Self::Clone => {
                let mut git = Command::new("git");
                git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", &inputs.repository);
                git.args(["clone", "-q"]).arg(&inputs.repository).arg(dir.join("clone"));
                git
            }
            Self::Sqlite => {
                let mut create = sqlite(dir);
                create.arg("PRAGMA journal_mode=wal; CREATE TABLE log(id INTEGER PRIMARY KEY, payload TEXT);");
                run_whole(&mut create, PATIENCE, &[0])?;
                sqlite(dir)
            }
        };
        let ended = match self {
            // It reads its statements by itself.
            Self::Sqlite => {
                let command = command.stdin(File::open(&inputs.script)?);
                let ended = siftfs_rig::program::run_for(command, PATIENCE)?;
                let fine = ended.status.is_some_and(|status| status.success());
                fine.then_some(()).ok_or_else(|| io::Error::other(ended.printed))?;
                ended.time
            }
            _ => run_whole(&mut command, PATIENCE, &[0])?.time,
        };
        Ok(1.0 / ended.as_secs_f64())
    }
}

fn sqlite(dir: &Path) -> Command {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail", "-cmd", "PRAGMA synchronous=FULL;"]).arg(dir.join("database"));
    command
}

/// What programs work on, and what was measured of it: rates of each program, and calls to the
/// server of a mount that has one.
struct System {
    name: String,
    dir: PathBuf,
    mount: Option<Volume>,
    /// What a remote mount's rate is to be, to this one's; none of a remote mount.
    target: Option<Option<Target>>,
    rates: [Vec<f64>; 3],
    calls: [Vec<f64>; 3],
}

impl System {
    fn of_mount(name: &str, mount: Volume, target: Option<Option<Target>>) -> Self {
        let (dir, mount, name) = (mount.dir.clone(), Some(mount), name.into());
        Self { name, dir, mount, target, rates: Default::default(), calls: Default::default() }
    }

    fn of_beside(beside: &Beside) -> Self {
        let (name, dir) = (beside.name.clone(), beside.dir.clone());
        let target = Some(beside.target.map(Target::AtLeast));
        let (rates, calls) = Default::default();
        Self { name, dir, mount: None, target, rates, calls }
    }

    /// Calls to the server so far.
    fn calls(&self) -> Result<Option<u64>> {
        self.mount.as_ref().map_or(Ok(None), calls)
    }

    /// Nothing is left to be made durable.
    fn settle(&self) -> Result<()> {
        let synced = || rustix::fs::syncfs(File::open(&self.dir)?).map_err(io::Error::from);
        match &self.mount {
            Some(mount) => mount.sync(),
            None => synced().map_err(failed(self.dir.display())),
        }
    }

    fn round(&mut self, which: usize, inputs: &Inputs) -> Result<()> {
        let dir = self.dir.join("work");
        fs::create_dir(&dir).map_err(failed(dir.display()))?;
        self.settle()?;
        let before = self.calls()?;
        let rate = PROGRAMS[which].run(&dir, inputs).map_err(failed(&self.name))?;
        self.rates[which].push(rate);
        if let (Some(before), Some(after)) = (before, self.calls()?) {
            self.calls[which].push((after - before) as f64);
        }
        fs::remove_dir_all(&dir).map_err(failed(dir.display()))?;
        self.settle()
    }

    fn side(&self, which: usize) -> Side {
        let milliseconds = self.rates[which].iter().map(|rate| 1000.0 / rate);
        let mut side = Side::new(&self.name, milliseconds.collect());
        if !self.calls[which].is_empty() {
            side.note = format!("{:.0} calls to the server", Spread::of(&self.calls[which]).median);
        }
        side
    }
}

/// Every remote mount's rates, to those of each other system.
fn compared(systems: &[System], which: usize) -> Vec<Compared> {
    let mut all = Vec::new();
    for other in systems {
        let Some(target) = other.target else { continue };
        for remote in systems.iter().filter(|system| system.target.is_none()) {
            let what = format!("rate by {}, to {}", remote.name, other.name);
            all.push(Compared::ratio(&what, &remote.rates[which], &other.rates[which], target));
        }
    }
    all
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let inputs = Inputs::new(plan.place, plan.files)?;
    let (mut systems, mut servers) = (Vec::new(), Vec::new());
    for (name, way) in [("by-unix", Way::Unix), ("by-keys", Way::Keys)] {
        let served = stage.serve(&stage.make(name, SIZE)?, way, &[])?;
        let mount = stage.mount_served(&served, &format!("{name}-mount"))?;
        systems.push(System::of_mount(way.name(), mount, None));
        servers.push(served);
    }
    let local = stage.mount(&stage.make("local", SIZE)?, "local", "")?;
    systems.push(System::of_mount("local", local, Some(Some(Target::AtLeast(0.4)))));
    systems.extend(plan.beside.iter().map(System::of_beside));
    for round in plan.rounds() {
        for which in 0..PROGRAMS.len() {
            for i in 0..systems.len() {
                plan.place.go_on()?;
                let system = (i + round) % systems.len();
                systems[system].round(which, &inputs)?;
            }
        }
    }
    let rows = PROGRAMS.iter().enumerate().map(|(which, program)| {
        let sides = systems.iter().map(|system| system.side(which)).collect();
        let compared = compared(&systems, which);
        Row { name: program.name(&inputs), unit: "ms", sides, compared }
    });
    let rows: Vec<Row> = rows.collect();
    let mounts: Vec<Volume> = systems.into_iter().filter_map(|system| system.mount).collect();
    unmount(&mounts)?;
    servers.into_iter().try_for_each(Served::end)?;
    Ok(show(
        &rows,
        "each mount is its volume's only one; every program begins with an empty directory and nothing to be made \
         durable. Archive and repository lie on the disk beside the volumes",
    ))
}
