//! Programs with logs of their own, and the directory that these lie in, for the tests.

use siftfs_crash::{Bench, deterministic, mem_media};
use siftfs_device::Image;
use siftfs_lease::{Batches, Held, Logged};
use siftfs_placement::{LogsReport, recover_on};
use siftfs_registry::{Directory, LogRow, RegisteredLease};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory on a disk, and what was in it once.
pub struct Folder {
    _top: TempDir,
    pub logs: PathBuf,
    pub kept: PathBuf,
}

impl Folder {
    pub fn new() -> Self {
        let program = std::env::current_exe().expect("this program");
        let top = tempfile::tempdir_in(program.parent().expect("its folder")).expect("made");
        let (logs, kept) = (top.path().join("logs"), top.path().join("kept"));
        Self { _top: top, logs, kept }
    }

    pub fn files(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(&self.logs).expect("it is there");
        all.map(|entry| entry.expect("read").path()).collect()
    }

    /// Keeps what is there: recovery removes files, and changes none.
    pub fn keep(&self) {
        fs::create_dir(&self.kept).expect("made");
        for file in self.files() {
            fs::hard_link(&file, self.kept.join(file.file_name().expect("one"))).expect("linked");
        }
    }

    pub fn clear(&self) {
        self.files().iter().for_each(|file| fs::remove_file(file).expect("removed"));
    }

    pub fn bring_back(&self) {
        self.bring(&self.kept);
    }

    /// What lies in `from` is what is there.
    pub fn bring(&self, from: &Path) {
        self.clear();
        for file in fs::read_dir(from).expect("kept").map(|entry| entry.expect("read")) {
            fs::hard_link(file.path(), self.logs.join(file.file_name())).expect("linked");
        }
    }
}

/// A program with a log: what its library does.
pub struct Program {
    pub row: LogRow,
    pub batches: Batches,
}

impl Program {
    pub fn new(directory: &Directory, process: u32) -> Self {
        let row = directory.new_log(process).expect("a log");
        let batches = Batches::new(row.shape()).expect("it fits");
        Self { row, batches }
    }

    /// A lease whose records count from now on.
    pub fn lease(&mut self, b: &Bench, path: &str, number: u64) -> Held {
        let held = Held { slot: number as u32, number };
        self.register(b, path, held);
        held
    }

    /// The records of this lease count from now on.
    pub fn register(&mut self, b: &Bench, path: &str, held: Held) {
        let (attr, Held { slot, number }) = (b.attr(path), held);
        let lease = RegisteredLease { slot, number, ino: attr.ino, generation: attr.generation };
        assert_eq!(self.row.register(lease), Ok(true));
    }

    /// One batch of all of these, durable: its place in the file and its length. None if it has no
    /// room, or would be longer than one.
    pub fn log_all(
        &mut self,
        records: &[(Held, usize, Vec<u8>)],
        begin: u64,
    ) -> Option<(u64, u64)> {
        if records.is_empty() {
            return Some((0, 0));
        }
        for (held, offset, data) in records {
            let time = 1_600_000_000_000_000_000;
            let record = Logged { held: *held, offset: *offset as u64, time };
            if !self.batches.push(&record, data.len(), |to| to.copy_from_slice(data)) {
                self.batches.clear();
                return None;
            }
        }
        let Some(batch) = self.batches.seal(begin) else {
            self.batches.clear();
            return None;
        };
        let written = rustix::io::pwrite(self.row.descriptor(), batch.bytes, batch.place);
        assert_eq!(written, Ok(batch.bytes.len()));
        Some((batch.place, batch.bytes.len() as u64))
    }

    pub fn log(&mut self, held: Held, offset: u64, data: &[u8]) {
        self.log_at(held, offset, data, 1_600_000_000_000_000_000);
    }

    /// One batch with one record.
    pub fn log_at(&mut self, held: Held, offset: u64, data: &[u8], time: i64) {
        let record = Logged { held, offset, time };
        assert!(self.batches.push(&record, data.len(), |to| to.copy_from_slice(data)));
        let batch = self.batches.seal(0).expect("there is room");
        let written = rustix::io::pwrite(self.row.descriptor(), batch.bytes, batch.place);
        assert_eq!(written, Ok(batch.bytes.len()));
    }
}

/// The number of a process that has ended.
pub fn dead() -> std::process::Child {
    std::process::Command::new("sleep").arg("1000").spawn().expect("it starts")
}

/// Recovers `image`: what is left, and what was in the logs.
pub fn recovered(image: &Image) -> (Image, LogsReport) {
    let (device, media) = mem_media(image);
    let report = recover_on(media, &deterministic()).unwrap_or_else(|e| panic!("{e}"));
    (device.snapshot(), report.private_logs)
}
