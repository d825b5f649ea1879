//! What a program and its daemon may do with a log, in any order, cut anywhere: whatever an fsync
//! has promised is there after a recovery, by whichever way it was promised.
//!
//! The daemon here takes its steps in the order of `docs/design/private-logs.md`, "The file log".

use super::programs::{Folder, Program, dead, recovered};
use siftfs_base::Rng;
use siftfs_crash::{Bench, Config, VolumeKind};
use siftfs_device::{Cut, Image};
use siftfs_lease::{Held, LogMedium};
use siftfs_placement::LogsPlace;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const FILES: [&str; 3] = ["a", "b", "c"];
/// Largest write.
const MOST: u64 = 60_000;
/// How far files reach at most before the last write.
const REACH: u64 = 200_000;

/// A file as programs see it.
#[derive(Clone, Default)]
struct Seen {
    /// What the newest fsync has promised.
    promised: Vec<u8>,
    /// Later writes: each byte of them may be there or not.
    later: Vec<(usize, Vec<u8>)>,
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

impl Seen {
    fn promise(&mut self) {
        for (offset, data) in std::mem::take(&mut self.later) {
            put(&mut self.promised, offset, &data);
        }
    }

    /// Why these cannot be the file's bytes after a crash.
    fn wrong(&self, found: &[u8]) -> Option<String> {
        if found.len() < self.promised.len() {
            return Some(format!("{} bytes of {}", found.len(), self.promised.len()));
        }
        let mut right = vec![false; found.len()];
        for (at, right) in right.iter_mut().enumerate() {
            *right = found[at] == self.promised.get(at).copied().unwrap_or(0);
        }
        for (offset, data) in &self.later {
            for (at, byte) in (*offset..).zip(data).take_while(|(at, _)| *at < found.len()) {
                right[at] |= found[at] == *byte;
            }
        }
        let at = right.iter().position(|right| !right)?;
        Some(format!("byte {at} is {}, promised {:?}", found[at], self.promised.get(at)))
    }
}

/// A crash in the middle: what is on the device, in the directory, and what it has to give.
struct Crash {
    image: Image,
    logs: PathBuf,
    seen: [Seen; 3],
    step: String,
}

struct Mix {
    rng: Rng,
    b: Bench,
    folder: Folder,
    program: Program,
    seen: [Seen; 3],
    /// The lease of each file, and whether the row has it.
    held: [(Held, bool); 3],
    drawn: u64,
    /// Written under a lease and not taken in.
    ring: Vec<(usize, usize, Vec<u8>)>,
    /// Written under a lease and in no batch.
    unlogged: Vec<(Held, usize, Vec<u8>)>,
    /// What was forgotten of the log.
    begin: u64,
    crashes: Vec<Crash>,
    step: String,
}

impl Mix {
    fn new(seed: u64, volatile: bool) -> Self {
        let b = Bench::new(VolumeKind::SMALL);
        for path in FILES {
            b.durable(path, b"");
        }
        let folder = Folder::new();
        let place = LogsPlace { dir: folder.logs.clone(), volatile };
        let directory = b.driver.volume.private_logs().directory(place).expect("made");
        let mut child = dead();
        let program = Program::new(&directory, child.id());
        child.kill().and_then(|()| child.wait()).expect("gone");
        let held = [1, 2, 3].map(|number| (Held { slot: number as u32, number }, false));
        Self {
            rng: Rng::new(seed),
            b,
            folder,
            program,
            seen: Default::default(),
            held,
            drawn: 3,
            ring: Vec::new(),
            unlogged: Vec::new(),
            begin: 0,
            crashes: Vec::new(),
            step: String::new(),
        }
    }

    /// The power may fail here: between two steps, or within what was written last and nobody was
    /// promised, at `torn` of the log.
    fn may_crash(&mut self, torn: Option<(u64, u64)>) {
        if self.rng.chance(6) {
            self.crash(torn);
        }
    }

    fn crash(&mut self, torn: Option<(u64, u64)>) {
        let cut = match self.rng.below(4) {
            0 => Cut::LoseAll,
            1 => Cut::KeepAll,
            _ => Cut::Random(self.rng.bits()),
        };
        let logs = self.folder.kept.with_extension(self.crashes.len().to_string());
        fs::create_dir(&logs).expect("made");
        for file in self.folder.files() {
            let to = logs.join(file.file_name().expect("one"));
            fs::copy(&file, &to).expect("copied");
            if let (Some((at, len)), true) = (torn, file.to_string_lossy().contains("/log-")) {
                let to = fs::OpenOptions::new().write(true).open(to).expect("opened");
                // What is lost at once: a sector, or words and cache lines of memory.
                let part = match self.program.row.shape().medium {
                    LogMedium::File => 512,
                    _ => *self.rng.pick(&[8, 64]).expect("two"),
                };
                for place in (at..at + len).step_by(part) {
                    if self.rng.chance(30) {
                        to.write_all_at(&vec![0; part], place).expect("torn");
                    }
                }
            }
        }
        let (image, seen, step) =
            (self.b.device.image(cut), self.seen.clone(), format!("{}, {cut:?}", self.step));
        self.crashes.push(Crash { image, logs, seen, step });
    }

    fn write(&mut self, file: usize, leased: bool) {
        let (offset, len) = (self.rng.below(REACH) as usize, self.rng.between(1, MOST) as usize);
        let data = self.rng.bytes(len);
        self.seen[file].later.push((offset, data.clone()));
        if leased {
            self.ring.push((file, offset, data.clone()));
            self.unlogged.push((self.held[file].0, offset, data));
        } else {
            self.b.write(FILES[file], offset as u64, &data);
        }
        self.may_crash(None);
    }

    /// The daemon takes the ring in.
    fn take_in(&mut self) {
        for (file, offset, data) in std::mem::take(&mut self.ring) {
            self.b.write(FILES[file], offset as u64, &data);
            self.may_crash(None);
        }
    }

    /// An fsync by the log, where that can be one: false if it has to be the daemon's.
    fn fsync_by_log(&mut self, file: usize) -> bool {
        if !self.held[file].1 {
            return false;
        }
        let Some(batch) = self.program.log_all(&self.unlogged, self.begin) else { return false };
        self.unlogged.clear();
        self.may_crash(Some(batch));
        self.seen[file].promise();
        self.may_crash(None);
        true
    }

    /// An fsync by the daemon, and the rule of the way: everything in the row that was written is
    /// made durable with it, and the log forgets.
    fn fsync_by_daemon(&mut self, file: usize) {
        self.take_in();
        for (other, path) in FILES.iter().enumerate() {
            if other == file || self.held[other].1 {
                self.b.fsync(path);
                self.may_crash(None);
            }
        }
        self.begin = self.program.batches.position();
        self.program.row.begin(self.begin).expect("durable");
        self.unlogged.clear();
        self.may_crash(None);
        if !self.held[file].1 {
            self.program.register(&self.b, FILES[file], self.held[file].0);
            self.held[file].1 = true;
            self.may_crash(None);
        }
        self.seen[file].promise();
        self.may_crash(None);
    }

    /// The lease ends: another program's write comes after it. Then there is a new one.
    fn end(&mut self, file: usize) {
        self.take_in();
        self.b.fsync(FILES[file]);
        self.may_crash(None);
        self.program.row.end(&[self.held[file].0.number]).expect("durable");
        self.may_crash(None);
        self.write(file, false);
        if self.rng.chance(50) {
            self.b.fsync(FILES[file]);
            self.seen[file].promise();
            // Until the log forgets next, old records of this file may lie in it.
            self.crash(None);
        }
        self.drawn += 1;
        self.held[file] = (Held { slot: self.held[file].0.slot, number: self.drawn }, false);
    }

    fn run(mut self, ops: usize) -> (Folder, Vec<Crash>) {
        for op in 0..ops {
            let file = self.rng.below(3) as usize;
            let what = self.rng.below(100);
            self.step = format!("operation {op}, {what} of {}", FILES[file]);
            match what {
                0..35 => self.write(file, true),
                35..70 => {
                    if !self.fsync_by_log(file) {
                        self.fsync_by_daemon(file);
                    }
                }
                70..78 => self.fsync_by_daemon(file),
                78..86 => self.end(file),
                86..92 => self.take_in(),
                92..96 => self.b.commit(true),
                _ => self.b.settle(),
            }
        }
        let Self { b, folder, crashes, .. } = self;
        b.stop();
        (folder, crashes)
    }
}

/// What was promised is there, whichever way it was promised, and wherever the power fails.
///
/// Seen to fail when an fsync by the daemon does not have the log forget, when a lease's end leaves
/// it in the row, and when records of a batch are written in another order.
#[test]
fn r36_whatever_an_fsync_promised_is_there() {
    histories(false);
}

/// The same by a log in mapped memory, which loses words and cache lines.
#[test]
fn r43_whatever_an_fsync_promised_is_in_memory() {
    histories(true);
}

fn histories(volatile: bool) {
    let config = Config::from_env(16, 60);
    let mut crashes = 0;
    for seed in config.first..config.first + config.seeds {
        let (folder, all) = Mix::new(seed, volatile).run(config.ops);
        crashes += all.len();
        for Crash { image, logs, seen, step } in all {
            folder.bring(&logs);
            let (image, report) = recovered(&image);
            assert!(report.lost.is_empty(), "seed {seed}, {step}: {:?}", report.lost);
            let b = Bench::on(image);
            for (path, seen) in FILES.iter().zip(&seen) {
                if let Some(why) = seen.wrong(&b.read(path)) {
                    panic!("seed {seed}, {step}: {path}: {why}");
                }
            }
            b.close();
        }
    }
    assert!(config.seeds < 10 || crashes > 50, "{crashes} crashes");
}
