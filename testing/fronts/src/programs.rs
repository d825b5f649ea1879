//! Programs that work on several mounts of one volume at once.

#![allow(unsafe_code)] // mappings have no safe way

use memmap2::{MmapMut, MmapOptions};
use siftfs_base::Rng;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names in each directory.
const NAMES: u64 = 3;
/// Bytes of a file at most.
const LARGEST: u64 = 64 << 10;

/// What one program does at the moment.
#[derive(Clone, Default)]
struct Doing(Arc<Mutex<Option<(String, Instant)>>>);

impl Doing {
    fn begin(&self, what: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, Instant::now()));
    }

    fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn longer_than(&self, limit: Duration) -> Option<String> {
        let doing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        doing.as_ref().filter(|(_, since)| since.elapsed() > limit).map(|(what, _)| what.clone())
    }
}

/// One program, which may use every mount.
struct Program {
    rng: Rng,
    dirs: Vec<PathBuf>,
    doing: Doing,
    open: Vec<(String, File)>,
    maps: Vec<(String, File, MmapMut)>,
}

fn name_of(rng: &mut Rng) -> String {
    format!("d{}/f{}", rng.below(2), rng.below(NAMES))
}

impl Program {
    fn path(&mut self) -> (PathBuf, String) {
        let mount = self.rng.below(self.dirs.len() as u64) as usize;
        let name = name_of(&mut self.rng);
        (self.dirs[mount].join(&name), format!("m{}/{name}", mount + 1))
    }

    fn open_one(&mut self, create: bool) -> io::Result<()> {
        let (path, said) = self.path();
        self.doing.begin(format!("open {said} create={create}"));
        let mut options = File::options();
        options.read(true).write(true).create(create).append(self.rng.chance(33));
        let file = options.open(path)?;
        if self.open.len() > 4 {
            self.doing.begin("close".into());
            self.open.remove(0);
        }
        self.open.push((said, file));
        Ok(())
    }

    fn any_open(&mut self) -> io::Result<(String, File)> {
        if self.open.is_empty() {
            self.open_one(true)?;
        }
        let at = self.rng.below(self.open.len() as u64) as usize;
        let (said, file) = &self.open[at];
        Ok((said.clone(), file.try_clone()?))
    }

    fn step(&mut self) -> io::Result<()> {
        let offset = self.rng.below(LARGEST);
        let len = 1 + self.rng.below(9000);
        match self.rng.below(15) {
            0 => return self.open_one(true),
            1 => return self.open_one(false),
            2 | 3 => {
                let (said, file) = self.any_open()?;
                self.doing.begin(format!("write {said} {offset} {len}"));
                file.write_all_at(&vec![b'w'; len as usize], offset)?;
            }
            4 | 5 => {
                let (said, mut file) = self.any_open()?;
                self.doing.begin(format!("append {said} {len}"));
                io::Write::write_all(&mut file, &vec![b'a'; len as usize])?;
            }
            6 | 7 => {
                let (said, file) = self.any_open()?;
                self.doing.begin(format!("read {said} {offset} {len}"));
                let _ = file.read_at(&mut vec![0; len as usize], offset)?;
            }
            8 => {
                let (said, file) = self.any_open()?;
                self.doing.begin(format!("truncate {said} {offset}"));
                file.set_len(offset)?;
            }
            9 => return self.map(),
            10 => return self.store(),
            11 => {
                let (path, said) = self.path();
                self.doing.begin(format!("list {said}"));
                let parent = path.parent().unwrap_or(Path::new("/"));
                for entry in fs::read_dir(parent)? {
                    let _ = entry?.metadata();
                }
            }
            12 => {
                let (from, said) = self.path();
                let (to, target) = self.path();
                let same = self.dirs.iter().any(|d| from.starts_with(d) && to.starts_with(d));
                if same {
                    self.doing.begin(format!("rename {said} {target}"));
                    fs::rename(from, to)?;
                }
            }
            13 => {
                let (path, said) = self.path();
                self.doing.begin(format!("remove {said}"));
                fs::remove_file(path)?;
            }
            _ => {
                let (path, said) = self.path();
                self.doing.begin(format!("stat {said}"));
                fs::metadata(path)?;
                if self.rng.chance(25) {
                    let (said, file) = self.any_open()?;
                    self.doing.begin(format!("fsync {said}"));
                    file.sync_data()?;
                }
            }
        }
        Ok(())
    }

    /// Maps a file. Only what the file has is touched, and no signal handler is there: a page that
    /// another program cuts off meanwhile ends this process, so stores go through the kernel.
    fn map(&mut self) -> io::Result<()> {
        let (said, file) = self.any_open()?;
        self.doing.begin(format!("map {said}"));
        file.set_len(LARGEST)?;
        // SAFETY: what changes below the mapping is bytes that are looked at by nobody.
        let map = unsafe { MmapOptions::new().len(LARGEST as usize).map_mut(&file)? };
        if self.maps.len() > 2 {
            let (said, _, _) = &self.maps[0];
            self.doing.begin(format!("unmap {said}"));
            self.maps.remove(0);
        }
        self.maps.push((said, file, map));
        Ok(())
    }

    /// Stores to mapped pages by read(2) from another file into them: what is not there any more
    /// is EFAULT then, and no signal.
    fn store(&mut self) -> io::Result<()> {
        let Some(count) = (self.maps.len() as u64).checked_sub(1) else { return Ok(()) };
        let at = self.rng.below(count + 1) as usize;
        let (offset, sync) = (self.rng.below(LARGEST - 5000) as usize, self.rng.chance(50));
        let (said, _, map) = &mut self.maps[at];
        self.doing.begin(format!("store {said} {offset}"));
        let zeros = File::open("/dev/zero")?;
        let _ = zeros.read_at(&mut map[offset..offset + 5000], 0)?;
        if sync {
            self.doing.begin(format!("msync {said}"));
            map.flush()?;
        }
        Ok(())
    }
}

/// `count` programs on `dirs`, for so long. The first call that takes longer than `patience` is the
/// error.
///
/// # Errors
/// What got stuck.
pub fn crowd(
    dirs: &[PathBuf],
    seed: u64,
    count: u64,
    length: Duration,
    patience: Duration,
) -> Result<u64, String> {
    for dir in ["d0", "d1"] {
        fs::create_dir_all(dirs[0].join(dir)).map_err(|e| e.to_string())?;
    }
    let over = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let mut all = Vec::new();
    let mut threads = Vec::new();
    for number in 0..count {
        let doing = Doing::default();
        all.push(doing.clone());
        let (over, calls, dirs) = (over.clone(), calls.clone(), dirs.to_vec());
        threads.push(std::thread::spawn(move || {
            let rng = Rng::new(seed.wrapping_mul(1000).wrapping_add(number));
            let (open, maps) = (Vec::new(), Vec::new());
            let mut program = Program { rng, dirs, doing: doing.clone(), open, maps };
            while !over.load(Ordering::Relaxed) {
                let _ = program.step();
                doing.end();
                calls.fetch_add(1, Ordering::Relaxed);
            }
            doing.begin("end".into());
            drop(program);
            doing.end();
        }));
    }
    let end = Instant::now() + length;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(200));
        let stuck: Vec<_> = all.iter().filter_map(|d| d.longer_than(patience)).collect();
        if !stuck.is_empty() {
            let now: Vec<_> = all.iter().filter_map(|d| d.longer_than(Duration::ZERO)).collect();
            return Err(format!("stuck: {stuck:?}; all: {now:?}"));
        }
    }
    over.store(true, Ordering::Relaxed);
    let ending = Instant::now();
    while threads.iter().any(|t| !t.is_finished()) {
        std::thread::sleep(Duration::from_millis(50));
        if ending.elapsed() > patience {
            let now: Vec<_> = all.iter().filter_map(|d| d.longer_than(Duration::ZERO)).collect();
            return Err(format!("stuck at the end: {now:?}"));
        }
    }
    Ok(calls.load(Ordering::Relaxed))
}
