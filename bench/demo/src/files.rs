//! Small files: made, copied in, and compared by checksum.

use siftfs_rig::database::Job;
use siftfs_rig::place::{Failed, Place, Result, bar, failed};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files per directory.
const PER_DIRECTORY: usize = 100;

/// Files outside the mount, to be copied in.
pub struct Tree {
    root: PathBuf,
    files: Vec<(PathBuf, u32)>,
}

impl Tree {
    /// Makes `count` files of 0 to 32 KiB.
    pub fn generate(place: &Place, count: usize) -> Result<Self> {
        let root = place.path("source");
        // The same files every time.
        let mut random = siftfs_base::Rng::new(0x5eed);
        let mut files = Vec::with_capacity(count);
        for i in 0..count {
            let dir = PathBuf::from(format!("files/{:03}", i / PER_DIRECTORY));
            if i % PER_DIRECTORY == 0 {
                fs::create_dir_all(root.join(&dir)).map_err(failed("source"))?;
            }
            let mut data = Vec::new();
            let len = random.below(32 << 10) as usize;
            while data.len() < len {
                data.extend_from_slice(&random.bits().to_le_bytes());
            }
            data.truncate(len);
            let name = dir.join(format!("file-{i:05}.bin"));
            fs::write(root.join(&name), &data).map_err(failed("source"))?;
            files.push((name, siftfs_base::crc32c(&data)));
        }
        Ok(Self { root, files })
    }

    /// Copies the files of `range` that are missing or differ, each `fsync_every`th with an
    /// fsync, for at most `limit`; returns how far it came.
    pub fn copy(
        &self,
        place: &Place,
        to: &Path,
        range: Range<usize>,
        fsync_every: usize,
        limit: Duration,
        job: &Job,
    ) -> Result<usize> {
        let start = Instant::now();
        let bar = bar(range.len() as u64, "files");
        let mut done = range.start;
        for i in range {
            place.go_on()?;
            if start.elapsed() > limit {
                break;
            }
            self.copy_one(i, to, i % fsync_every == 0)?;
            done = i + 1;
            bar.inc(1);
            bar.set_message(format!("{} transactions", job.count()));
        }
        bar.finish_and_clear();
        Ok(done)
    }

    fn copy_one(&self, i: usize, to: &Path, fsync: bool) -> Result<()> {
        let Some((name, sum)) = self.files.get(i) else {
            return Err(Failed(format!("no file {i}")));
        };
        let target = to.join(name);
        if fs::read(&target).is_ok_and(|there| siftfs_base::crc32c(&there) == *sum) {
            return Ok(());
        }
        let copy = || {
            let data = fs::read(self.root.join(name))?;
            fs::create_dir_all(target.parent().unwrap_or(to))?;
            let mut file = File::create(&target)?;
            file.write_all(&data)?;
            if fsync { file.sync_all() } else { Ok(()) }
        };
        copy().map_err(failed(target.display()))
    }

    /// The chosen files are in `dir` with the right bytes.
    pub fn verify_copies(&self, dir: &Path, chosen: impl Fn(usize) -> bool) -> Result<()> {
        for (i, (name, sum)) in self.files.iter().enumerate().filter(|(i, _)| chosen(*i)) {
            let data = fs::read(dir.join(name)).map_err(failed(format!("file {i}")))?;
            if siftfs_base::crc32c(&data) != *sum {
                return Err(Failed(format!("{}: other bytes than were written", name.display())));
            }
        }
        Ok(())
    }
}

/// What must be the same under both file systems, by path.
pub type Sums = BTreeMap<PathBuf, String>;

/// Sums up everything below `root`: type, mode, owner, size, time and checksum.
pub fn sums(root: &Path) -> Result<Sums> {
    let mut out = Sums::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).map_err(failed(dir.display()))? {
            let path = entry.map_err(failed(dir.display()))?.path();
            let line = sum_of(&path).map_err(failed(path.display()))?;
            if path.is_dir() {
                stack.push(path.clone());
            }
            out.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf(), line);
        }
    }
    Ok(out)
}

fn sum_of(path: &Path) -> std::io::Result<String> {
    let m = fs::symlink_metadata(path)?;
    let (sum, size) =
        if m.is_file() { (siftfs_base::crc32c(&fs::read(path)?), m.len()) } else { (0, 0) };
    let (mode, uid, gid, links) = (m.mode(), m.uid(), m.gid(), m.nlink());
    let (sec, nsec) = (m.mtime(), m.mtime_nsec());
    Ok(format!("{mode:o} {uid}:{gid} {links} {size} {sec}.{nsec:09} {sum:08x}"))
}

/// Fails with the first differences.
pub fn compare(ours: &Sums, theirs: &Sums) -> Result<()> {
    let mut wrong = Vec::new();
    for path in ours.keys().chain(theirs.keys().filter(|p| !ours.contains_key(*p))) {
        let (a, b) = (ours.get(path), theirs.get(path));
        if a != b {
            wrong.push(format!("{}: {a:?} became {b:?}", path.display()));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    wrong.truncate(10);
    Err(Failed(format!("not the same under the kernel's ext4:\n{}", wrong.join("\n"))))
}
