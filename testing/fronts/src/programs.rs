//! Programs that work on several mounts of one volume at once.

#![allow(unsafe_code)] // mappings have no safe way

use crate::logs::program::{Logged, Sessions};
use crate::logs::records::Records;
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
    open: Vec<(String, Arc<Logged>)>,
    maps: Vec<(String, Arc<Logged>, MmapMut)>,
    /// With private logs, those that the program has.
    sessions: Option<Arc<Sessions>>,
    /// The records that it appends to a file of all.
    records: Option<Records>,
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
        let logged = Arc::new(Logged::new(file));
        self.open.push((said.clone(), logged.clone()));
        self.lease(&said, &logged)
    }

    /// Takes a file's lease, if the program has private logs. Others may use the file just now.
    fn lease(&mut self, said: &str, logged: &Logged) -> io::Result<()> {
        if let Some(sessions) = &self.sessions {
            self.doing.begin(format!("lease {said}"));
            logged.lease(sessions)?;
        }
        Ok(())
    }

    /// Appends a record to the file of all.
    fn record(&mut self) -> io::Result<()> {
        let mount = self.rng.below(self.dirs.len() as u64) as usize;
        let Some(records) = &mut self.records else { return Ok(()) };
        self.doing.begin(format!("append a record on m{}", mount + 1));
        // While many are copied into a log, a recall may come.
        let count = if self.rng.chance(20) { 1 + self.rng.below(400) } else { 1 };
        records.append(&self.dirs[mount], (self.rng.chance(2), count), self.sessions.as_deref());
        Ok(())
    }

    fn any_open(&mut self) -> io::Result<(String, Arc<Logged>)> {
        if self.open.is_empty() {
            self.open_one(true)?;
        }
        let at = self.rng.below(self.open.len() as u64) as usize;
        let (said, file) = self.open[at].clone();
        if self.rng.chance(30) {
            self.lease(&said, &file)?;
        }
        Ok((said, file))
    }

    fn step(&mut self) -> io::Result<()> {
        let offset = self.rng.below(LARGEST);
        let len = 1 + self.rng.below(9000);
        // Each record of a program without private logs ends a lease.
        if self.rng.chance(if self.sessions.is_some() { 30 } else { 1 }) {
            self.record()?;
        }
        match self.rng.below(15) {
            0 => return self.open_one(true),
            1 => return self.open_one(false),
            2 | 3 => {
                let (said, file) = self.any_open()?;
                self.doing.begin(format!("write {said} {offset} {len}"));
                file.write_at(offset, &vec![b'w'; len as usize])?;
            }
            4 | 5 => {
                let (said, file) = self.any_open()?;
                self.doing.begin(format!("append {said} {len}"));
                file.append(&vec![b'a'; len as usize])?;
            }
            6 | 7 => {
                let (said, file) = self.any_open()?;
                self.doing.begin(format!("read {said} {offset} {len}"));
                file.read_at(offset, len as usize)?;
            }
            8 => {
                let (said, file) = self.any_open()?;
                self.doing.begin(format!("truncate {said} {offset}"));
                file.file.set_len(offset)?;
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
                    file.sync(true)?;
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
        file.file.set_len(LARGEST)?;
        // SAFETY: what changes below the mapping is bytes that are looked at by nobody.
        let map = unsafe { MmapOptions::new().len(LARGEST as usize).map_mut(&file.file)? };
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

/// The programs of a process.
pub struct Crowd {
    /// How many there are.
    pub programs: u64,
    /// Of the numbers that the first one draws.
    pub seed: u64,
    /// How long they work.
    pub length: Duration,
    /// How long a call may take.
    pub patience: Duration,
    /// The number of the first one's records, if they append any.
    pub records: Option<u64>,
    /// With private logs.
    pub sessions: Option<Arc<Sessions>>,
}

/// Programs on `dirs`. The first call that takes longer than they are patient is the error. Returns
/// the number of calls, and of records by program.
///
/// # Errors
/// What got stuck, or a record that could not be appended.
pub fn crowd(dirs: &[PathBuf], wanted: &Crowd) -> Result<(u64, Vec<[u64; 3]>), String> {
    for dir in ["d0", "d1"] {
        fs::create_dir_all(dirs[0].join(dir)).map_err(|e| e.to_string())?;
    }
    let &Crowd { programs: count, seed, length, patience, .. } = wanted;
    let over = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let mut all = Vec::new();
    let mut threads = Vec::new();
    for number in 0..count {
        let doing = Doing::default();
        all.push(doing.clone());
        let (over, calls, dirs) = (over.clone(), calls.clone(), dirs.to_vec());
        let records = wanted.records.map(|first| Records::new(first + number));
        let sessions = wanted.sessions.clone();
        threads.push(std::thread::spawn(move || {
            let rng = Rng::new(seed.wrapping_mul(1000).wrapping_add(number));
            let (open, maps, doing) = (Vec::new(), Vec::new(), doing.clone());
            let mut program = Program { rng, dirs, doing, open, maps, sessions, records };
            while !over.load(Ordering::Relaxed) {
                let _ = program.step();
                program.doing.end();
                calls.fetch_add(1, Ordering::Relaxed);
            }
            let doing = program.doing.clone();
            doing.begin("end".into());
            let records = program.records.take().map(Records::end);
            drop(program);
            doing.end();
            records.transpose()
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
    let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| "a panic")?);
    let records: Result<Vec<_>, String> = ended.collect();
    Ok((calls.load(Ordering::Relaxed), records?.into_iter().flatten().collect()))
}
