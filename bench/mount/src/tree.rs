//! A tree like the sources of a large program: unpacked, read, copied and removed by the usual
//! programs.

use crate::area::{Measured, WorkArea, rate};
use crate::row::{Metric, Row};
use siftfs_rig::place::{Place, Result, arg, failed, run};
use siftfs_rig::program::{Ended, run_for, run_whole};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Directories in the tree's top directory; a quick run has fewer.
pub const PARTS: usize = 37;
const DIRECTORIES: usize = 20;
const FILES: usize = 25;
/// Files of one part.
const PART_FILES: usize = DIRECTORIES * FILES;
/// The programs that only read end in this time.
const READING: Duration = Duration::from_secs(120);

const fn files_per_second(name: &'static str, what: &'static str, target: f64) -> Row {
    Row { name, what, metric: Metric::Operations, target: Some(target) }
}

/// In the order in which they are measured.
pub const ROWS: [Row; 7] = [
    files_per_second("untar", "untar of the tree, no sync", 0.5),
    files_per_second("du-cold", "du, cold", 0.7),
    files_per_second("grep-cold", "grep -r, cold", 0.7),
    files_per_second("grep-warm", "grep -r, warm", 0.5),
    files_per_second("du-warm", "du, warm", 0.5),
    files_per_second("cp-a", "cp -a of half of the tree", 0.4),
    files_per_second("rm-rf", "rm -rf of the copy", 0.4),
];

/// A tar archive of the generated tree, always the same.
pub struct Archive {
    path: PathBuf,
    parts: usize,
}

impl Archive {
    /// Writes one with this many parts.
    pub fn generate(place: &Place, parts: usize) -> Result<Self> {
        let root = place.path("tree");
        let mut random = Random(1);
        for part in 0..parts {
            for d in 0..DIRECTORIES {
                let dir = root.join(format!("part-{part:02}")).join(format!("module-{d:02}"));
                fs::create_dir_all(&dir).map_err(failed(dir.display()))?;
                for f in 0..FILES {
                    let path = dir.join(format!("file-{f:02}.c"));
                    fs::write(&path, random.text()).map_err(failed(path.display()))?;
                }
            }
        }
        let path = place.path("tree.tar");
        let same = ["--sort=name", "--mtime=@1700000000", "--owner=0", "--group=0"];
        run("tar", &[&same[..], &["-cf", arg(&path)?, "-C", arg(&root)?, "."]].concat())?;
        fs::remove_dir_all(&root).map_err(failed(root.display()))?;
        Ok(Self { path, parts })
    }

    /// tar(1) that unpacks it into a directory that is there.
    pub fn unpack(&self, into: &Path) -> Command {
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(&self.path).arg("-C").arg(into);
        tar
    }

    /// Regular files in it.
    pub fn files(&self) -> u64 {
        whole(self.parts)
    }

    /// How many parts `cp -a` copies.
    fn copied(&self) -> usize {
        (self.parts / 2).max(1)
    }
}

/// Any full-period generator will do.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// Lines of words. Most files are small: of sizes from 1 to 65 KB half are below 9 KB, and the
    /// mean is 17 KB.
    fn text(&mut self) -> String {
        let unit = self.below(1 << 20) as f64 / f64::from(1 << 20);
        let bytes = 1000.0 + 63_700.0 * unit.powi(3);
        let mut text = String::with_capacity(bytes as usize + 80);
        while (text.len() as f64) < bytes {
            let words = self.below(10) + 2;
            for _ in 0..words {
                text.push_str(
                    ["int ", "value ", "= ", "next(", "state", "); ", "if "]
                        [self.below(7) as usize],
                );
            }
            text.push('\n');
        }
        text
    }
}

/// All of [`ROWS`] in the area. What takes longer than `limit` is stopped, and counts for what it
/// has done.
pub fn measure(area: &WorkArea, limit: Duration) -> io::Result<Vec<Measured>> {
    let tree = area.dir.join("tree");
    let copy = area.dir.join("copy");
    fs::create_dir(&tree)?;
    fs::create_dir(&copy)?;
    area.settle()?;
    let archive = &area.inputs.archive;
    let mut tar = archive.unpack(&tree);
    let untar = bounded(area, &mut tar, limit, || Ok(archive.files()), || files_in(&tree))?;
    let files = untar.operations;
    let read = |command: &mut Command, fine: &[i32]| {
        area.count(|| Ok(rate(files, run_whole(command, READING, fine)?.time)))
    };
    let du = || {
        let mut du = Command::new("du");
        du.arg("-s").arg(&tree);
        du
    };
    // Finds nothing, and says so with status 1.
    let grep = || {
        let mut grep = Command::new("grep");
        grep.args(["-r", "-F", "no such word"]).arg(&tree);
        grep
    };
    cold(area, "du")?;
    let du_cold = read(&mut du(), &[0])?;
    cold(area, "grep")?;
    let grep_cold = read(&mut grep(), &[1])?;
    let (grep_warm, du_warm) = (read(&mut grep(), &[1])?, read(&mut du(), &[0])?);
    let mut cp = Command::new("cp");
    cp.arg("-a");
    cp.args(entries(&tree)?.iter().take(archive.copied())).arg(&copy);
    let copying = bounded(area, &mut cp, limit, || files_in(&copy), || files_in(&copy))?;
    let there = copying.operations;
    let mut rm = Command::new("rm");
    rm.arg("-rf").arg(&copy);
    let left = || Ok(there - if copy.exists() { files_in(&copy)? } else { 0 });
    let removing = bounded(area, &mut rm, limit, || Ok(there), left)?;
    Ok(vec![untar, du_cold, grep_cold, grep_warm, du_warm, copying, removing])
}

/// What is in a directory, by name: the same on all systems.
fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn whole(parts: usize) -> u64 {
    (parts * PART_FILES) as u64
}

/// Empties all caches, and reads the program itself again, which is not what is measured.
fn cold(area: &WorkArea, program: &str) -> io::Result<()> {
    area.settle()?;
    area.forget()?;
    run_whole(Command::new(program).arg("--version"), READING, &[0]).map(drop)
}

/// A program that must succeed, unless its time is over. How many files it has done is counted
/// afterwards.
pub fn bounded(
    area: &WorkArea,
    command: &mut Command,
    limit: Duration,
    all: impl Fn() -> io::Result<u64>,
    some: impl Fn() -> io::Result<u64>,
) -> io::Result<Measured> {
    let mut ended = None;
    let measured = area.count(|| {
        ended = Some(run_for(command.stdin(Stdio::null()), limit)?);
        Ok(Measured::default())
    })?;
    let Some(Ended { time, status, printed }) = ended else { return Ok(measured) };
    if status.is_some_and(|s| !s.success()) {
        return Err(io::Error::other(format!("{command:?}: {printed}")));
    }
    let files = if status.is_some() { all()? } else { some()? };
    Ok(Measured { counts: measured.counts, ..rate(files, time) })
}

/// Regular files in a tree.
pub fn files_in(dir: &Path) -> io::Result<u64> {
    let mut files = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        files += if kind.is_dir() { files_in(&entry.path())? } else { u64::from(kind.is_file()) };
    }
    Ok(files)
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
