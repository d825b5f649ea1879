//! Table 3: LevelDB by the rows of its db_bench, on a mount of a target's volume, with its files
//! read and written at the target (`siftfs accel --direct`), and without.

use siftfs_rig::device::Device;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::{Failed, Place, Result, arg, failed, run};
use siftfs_rig::program::run_whole;
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use siftfs_rig::volume::Volume;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The driver, which is compiled where the bench runs.
const DRIVER: &str = include_str!("leveldb.c");
/// Debian's name of LevelDB's library.
const LIBRARY: &str = "-l:libleveldb.so.1d";
/// Of the volume, in the words of mkfs.
const SIZE: &str = "1G";
/// What one run of the driver may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// What the driver says of each row, what db_bench calls it in the paper, and the paper's numbers.
const ROWS: [(&str, &str); 8] = [
    ("fillsync", "84.38 us, uFS 92.34 (1.09), ext4 196.29"),
    ("fillseq", "2.82 us, uFS 3.09 (1.10), ext4 3.55"),
    ("fillrandom", "26.38 us, uFS 29.34 (1.11), ext4 35.98"),
    ("overwrite", "31.23 us, uFS 35.91 (1.15), ext4 45.58"),
    ("readseq", "2.31 us, uFS 2.33 (1.01), ext4 2.37"),
    ("readrandom", "3.62 us, uFS 3.89 (1.07), ext4 4.03"),
    ("readhot", "1.18 us, uFS 1.23 (1.04), ext4 1.27"),
    ("deleterandom", "2.22 us, uFS 2.39 (1.08), ext4 2.72"),
];

/// What it is measured with.
pub struct Plan<'a> {
    /// Where volume, mount and database lie.
    pub place: &'a Place,
    /// The command `siftfs`, with its library for programs.
    pub siftfs: &'a Path,
    /// How often both ways run, in turn.
    pub rounds: u32,
    /// Operations of each row but fillsync, which has a twentieth.
    pub operations: u64,
}

/// By row, a number for each round, in microseconds.
type Times = [Vec<f64>; ROWS.len()];

/// A target and a mount of its volume.
struct Town<'a> {
    plan: &'a Plan<'a>,
    driver: PathBuf,
    target: Device,
    mount: Volume,
}

impl<'a> Town<'a> {
    fn new(plan: &'a Plan<'a>) -> Result<Self> {
        let place = plan.place;
        let driver = compiled(place)?;
        let image = place.path("volume");
        run(plan.siftfs, &["mkfs", arg(&image)?, "--size", SIZE])?;
        let socket = |name: &str| format!("unix:{}", place.path(name).display());
        let (hosts, programs) = (socket("hosts.sock"), socket("programs.sock"));
        let log = place.path("target.log");
        let more = ["--programs", &programs];
        let target = Device::start(plan.siftfs, &image, &hosts, &log, &more)?;
        let name = format!("target:{}/volume", target.address());
        let dir = place.mount_point("mount")?;
        let mount = Volume { program: plan.siftfs.to_owned(), image: name.into(), dir };
        let log = place.path("mount.log");
        let options = "private_logs=daemon,write_cache=writethrough";
        mount.mount_with(&["-o", options, "--log-file", arg(&log)?])?;
        Ok(Self { plan, driver, target, mount })
    }

    /// One run of the driver: microseconds of an operation, by row.
    fn round(&self, direct: bool) -> Result<[f64; ROWS.len()]> {
        let mut command = match direct {
            false => Command::new(&self.driver),
            true => {
                let mut accel = Command::new(self.plan.siftfs);
                accel.args(["accel", "--direct", "--"]).arg(&self.driver);
                accel
            }
        };
        let dir = self.mount.dir.join(if direct { "direct" } else { "plain" });
        command.arg(&dir).arg(self.plan.operations.to_string());
        let ended = run_whole(&mut command, PATIENCE, &[0]).map_err(failed("the driver"))?;
        let found = ROWS.map(|(name, _)| number(&ended.printed, name));
        if found.iter().any(|number| !number.is_finite()) {
            return Err(Failed(format!("the driver says {}", ended.printed)));
        }
        Ok(found)
    }

    /// Requests of programs that the target has carried out.
    fn requests(&self) -> Result<u64> {
        let status = self.mount.siftfs(&["status", arg(&self.mount.dir)?, "--json"])?;
        let status: serde_json::Value =
            serde_json::from_str(&status).map_err(|e| Failed(format!("siftfs status: {e}")))?;
        let number = &status["runtime"]["service"]["device"]["programs"]["requests"];
        number.as_u64().ok_or_else(|| Failed("siftfs status says nothing of programs".into()))
    }

    fn end(self) -> Result<()> {
        self.mount.unmount()?;
        self.target.end()
    }
}

/// What the driver says of a row; no number where it says nothing.
fn number(printed: &str, row: &str) -> f64 {
    let line = printed.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(f64::NAN)
}

fn compiled(place: &Place) -> Result<PathBuf> {
    let (source, program) = (place.path("leveldb.c"), place.path("leveldb"));
    std::fs::write(&source, DRIVER).map_err(failed(source.display()))?;
    run("cc", &["-std=gnu11", "-O2", arg(&source)?, "-o", arg(&program)?, LIBRARY])?;
    Ok(program)
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people. Among that: this is not root, or LevelDB's library or a C
/// compiler is missing.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let town = Town::new(plan)?;
    let (mut times, mut requests): ([Times; 2], [Vec<f64>; 2]) = Default::default();
    for round in 0..plan.rounds as usize {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        for way in 0..2 {
            let way = (way + round) % 2;
            let before = town.requests()?;
            let found = town.round(way == 0)?;
            requests[way].push((town.requests()? - before) as f64);
            times[way].iter_mut().zip(found).for_each(|(all, one)| all.push(one));
        }
        plan.place.go_on()?;
    }
    town.end()?;
    let rows: Vec<Row> = (0..ROWS.len()).map(|at| row(at, &times)).collect();
    Ok(show(&rows, &below(plan, &requests)))
}

fn row(at: usize, [direct, plain]: &[Times; 2]) -> Row {
    let (name, paper) = ROWS[at];
    let (direct, plain) = (direct[at].clone(), plain[at].clone());
    let target = (at == 0).then_some(Target::AtLeast(1.09));
    let ratio = Compared::ratio("time without to with it", &plain, &direct, target).beside(paper);
    Row {
        name: name.into(),
        unit: "us",
        sides: vec![
            Side::new("siftfs accel --direct", direct),
            Side::new("the same mount without", plain),
        ],
        compared: vec![ratio],
    }
}

fn below(plan: &Plan<'_>, requests: &[Vec<f64>; 2]) -> String {
    let [direct, plain] = requests.each_ref().map(|all| Spread::of(all).median);
    format!(
        "Medians of the rounds, with quartiles; {} operations a row, fillsync a twentieth, keys of 16 bytes, values of 1 \
         KiB that do not compress, a cache of 8 MiB. The driver is this project's, by the C interface of Debian's \
         LevelDB: db_bench is in no package. `siftfs device` has a volume in a file of $TMPDIR, a real disk; `siftfs \
         mount` of it has private_logs=daemon and write_cache=writethrough. No network and no storage is injected or \
         modelled. \"Without\" is the remote Runtime by a mount, with the kernel between; LevelDB's Env over the remote \
         Runtime is built by `make integrations`, and left out here. Requests of the program at the target in a run: \
         {direct:.0} with, {plain:.0} without. readhot reads 1 % of the keys. ext4 and F2FS over NVMe-oF belong to a \
         guest and are left out",
        plan.operations
    )
}

#[cfg(test)]
#[path = "table3_tests.rs"]
mod tests;
