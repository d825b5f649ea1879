//! The load: one foreground thread that syncs each write, two background writers that sync every
//! i-th.

use crate::steady::Steady;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one write.
pub const BLOCK: u64 = 4096;
/// Background writers.
pub const WRITERS: usize = 2;

/// Sizes in bytes: the paper's (Table 4), divided.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Shape {
    /// What the paper's sizes are divided by.
    pub scale: u64,
    /// Bytes of the foreground's file.
    pub foreground_file: u64,
    /// ... of the part of it that is written.
    pub foreground_hot: u64,
    /// Of each background writer.
    pub background_file: u64,
    /// ... of the part of it that is written.
    pub background_hot: u64,
    /// Of the ext4 area.
    pub file_system: u64,
    /// Of the staging area.
    pub staging: u64,
}

impl Shape {
    /// The paper's, divided by `scale`.
    pub fn of_paper(scale: u64) -> Self {
        let mib = |n: u64| (n << 20) / scale;
        Self {
            scale,
            foreground_file: mib(64),
            foreground_hot: mib(8),
            background_file: mib(512),
            background_hot: mib(64),
            file_system: mib(8192),
            staging: mib(2048),
        }
    }

    /// Journal and staging: mkfs gives staging three quarters of it. The paper's journal is as long
    /// as its staging; here it holds references and no data.
    pub fn log(&self) -> u64 {
        self.staging / 3 * 4
    }

    /// Area and log together.
    pub fn volume_bytes(&self) -> u64 {
        self.file_system + self.log()
    }

    /// Name, bytes and hot bytes of each thread's file; the foreground's first.
    pub fn files(&self) -> [(&'static str, u64, u64); 1 + WRITERS] {
        let background = (self.background_file, self.background_hot);
        [
            ("foreground", self.foreground_file, self.foreground_hot),
            ("background-1", background.0, background.1),
            ("background-2", background.0, background.1),
        ]
    }
}

/// A file on a mount, or of the library.
pub enum Target {
    /// On a mount.
    Mounted(std::fs::File),
    /// Of the library.
    Embedded(siftfs::File),
}

impl Target {
    /// Writes all of it.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Mounted(f) => f.write_all_at(data, offset),
            Self::Embedded(f) => f.write_at(offset, data).map(drop).map_err(other),
        }
    }

    /// fsync.
    pub fn sync(&self) -> io::Result<()> {
        match self {
            Self::Mounted(f) => f.sync_all(),
            Self::Embedded(f) => f.sync_all().map_err(other),
        }
    }
}

fn other(e: siftfs::Error) -> io::Error {
    io::Error::other(e.to_string())
}

/// How the background writers write.
#[derive(Clone, Copy)]
pub struct Background {
    /// Writes between two fsyncs.
    pub interval: u64,
    /// Bytes per second that one writer offers; `None`: all that it can.
    pub rate: Option<u64>,
}

/// What the threads share. The window opens at `opens` and is `length` long.
pub struct Load {
    opens: Instant,
    length: Duration,
    stop: AtomicBool,
    /// Bytes that the background writers synced inside the window.
    background: AtomicU64,
}

/// What the load saw.
pub struct Seen {
    /// Of the foreground.
    pub foreground: Steady,
    /// Bytes of both background writers.
    pub background_bytes: u64,
}

impl Load {
    /// For a window of this length.
    pub fn new(opens: Instant, length: Duration) -> Self {
        Self { opens, length, stop: AtomicBool::new(false), background: AtomicU64::new(0) }
    }

    /// Runs all threads until the window has closed; meanwhile `watch` runs on the calling one.
    pub fn run<T>(
        &self,
        targets: &[(Target, u64)],
        seed: u64,
        background: Background,
        watch: impl FnOnce() -> T,
    ) -> (io::Result<Seen>, T) {
        let [front, writers @ ..] = targets else { panic!("the first target is the foreground's") };
        std::thread::scope(|scope| {
            let foreground = scope.spawn(|| self.end_on_error(self.foreground(front, seed)));
            let writers: Vec<_> = writers
                .iter()
                .zip(seed + 1..)
                .map(|(to, seed)| {
                    scope.spawn(move || self.end_on_error(self.background(to, seed, background)))
                })
                .collect();
            let watched = watch();
            self.stop.store(true, Ordering::Relaxed);
            let panicked = |_| Err(io::Error::other("a load thread panicked"));
            let mut done = Ok(());
            for writer in writers {
                done = done.and(
                    writer
                        .join()
                        .unwrap_or_else(|_| Err(io::Error::other("a load thread panicked"))),
                );
            }
            let foreground = foreground.join().unwrap_or_else(panicked);
            let background_bytes = self.background.load(Ordering::Relaxed);
            let seen = done.and(foreground).map(|foreground| Seen { foreground, background_bytes });
            (seen, watched)
        })
    }

    /// A thread that cannot go on ends the others too.
    fn end_on_error<T>(&self, done: io::Result<T>) -> io::Result<T> {
        if done.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        done
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Is the window open at `t`?
    fn holds(&self, t: Instant) -> bool {
        t >= self.opens && t < self.opens + self.length
    }

    /// 4 KiB anywhere in the hot region, then fsync.
    fn foreground(&self, (file, hot): &(Target, u64), seed: u64) -> io::Result<Steady> {
        let mut steady = Steady::new(self.opens, self.length);
        let (mut random, mut data) = (Random(seed), [1; BLOCK as usize]);
        while self.goes_on() {
            file.write_at(random.block(*hot), stamp(&mut data))?;
            let begin = Instant::now();
            file.sync()?;
            steady.note(begin, Instant::now());
        }
        Ok(steady)
    }

    fn background(
        &self,
        (file, hot): &(Target, u64),
        seed: u64,
        how: Background,
    ) -> io::Result<()> {
        let (mut random, mut data) = (Random(seed), [2; BLOCK as usize]);
        let (start, mut sent) = (Instant::now(), 0);
        while self.goes_on() {
            for _ in 0..how.interval {
                file.write_at(random.block(*hot), stamp(&mut data))?;
            }
            file.sync()?;
            let bytes = how.interval * BLOCK;
            if self.holds(Instant::now()) {
                self.background.fetch_add(bytes, Ordering::Relaxed);
            }
            sent += bytes;
            if let Some(rate) = how.rate {
                let due = start + Duration::from_secs_f64(sent as f64 / rate as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    }
}

/// No two writes are the same.
fn stamp(data: &mut [u8; BLOCK as usize]) -> &[u8] {
    let (number, _) = data.split_first_chunk_mut::<8>().expect("a block is longer");
    *number = u64::from_le_bytes(*number).wrapping_add(1).to_le_bytes();
    data
}

/// Any full-period generator will do: blocks come in no order.
struct Random(u64);

impl Random {
    /// The offset of a block below `bytes`.
    fn block(&mut self, bytes: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % (bytes / BLOCK) * BLOCK
    }
}
