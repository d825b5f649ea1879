//! One job of one program: reads or writes of one length, as fast as they go, by plain calls. It
//! is a process of its own, which knows nothing of private logs: `siftfs accel` starts it, or not.

use clap::{Args, ValueEnum};
use siftfs_base::Rng;
use siftfs_device::LogMemory;
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result, failed};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes of the file that is read or written.
pub const FILE: u64 = 64 << 20;
/// Writes with an fsync before the time begins: a library has a lease then, if it takes one.
const WARM: u64 = 16;

/// Bytes that are made before the time begins.
const POOL: usize = 1 << 20;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Op {
    /// Writes behind each other.
    SeqWrite,
    /// Writes anywhere.
    RandWrite,
    /// Reads behind each other.
    SeqRead,
    /// Reads anywhere.
    RandRead,
}

impl Op {
    /// All of them, as the paper's figures have them.
    pub const ALL: [Self; 4] = [Self::SeqWrite, Self::RandWrite, Self::SeqRead, Self::RandRead];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SeqWrite => "Seq. W.",
            Self::RandWrite => "Rand. W.",
            Self::SeqRead => "Seq. R.",
            Self::RandRead => "Rand. R.",
        }
    }

    /// Does it write?
    pub fn writes(self) -> bool {
        matches!(self, Self::SeqWrite | Self::RandWrite)
    }

    fn is_random(self) -> bool {
        matches!(self, Self::RandWrite | Self::RandRead)
    }
}

/// A job.
#[derive(Clone, Debug, Args)]
pub struct Job {
    /// The file, which has its bytes.
    pub file: PathBuf,
    /// What is done
    #[arg(long, value_enum)]
    pub op: Op,
    /// Bytes of each read or write
    #[arg(long)]
    pub bytes: usize,
    /// Each write is followed by fdatasync(2)
    #[arg(long)]
    pub sync: bool,
    /// Writes are stores to the mapped file, and the write-back of their cache lines
    #[arg(long)]
    pub raw: bool,
    /// For how long, in milliseconds
    #[arg(long)]
    pub time: u64,
}

/// What a job did.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Reads or writes in a second.
    pub rate: f64,
    /// The median time of one, in microseconds.
    pub p50: f64,
}

impl Job {
    /// The command that has `worker` do it, behind `before` if that is not empty.
    pub fn command(&self, before: &[String], worker: &Path) -> Command {
        let mut command = match before.split_first() {
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(worker);
                command
            }
            None => Command::new(worker),
        };
        let op = self.op.to_possible_value().expect("every operation has a name");
        command.arg("work").arg(&self.file).args(["--op", op.get_name()]);
        command.args(["--bytes", &self.bytes.to_string(), "--time", &self.time.to_string()]);
        command.args(self.sync.then_some("--sync")).args(self.raw.then_some("--raw"));
        command.env("SIFTFS_ACCEL", "eager");
        command
    }

    /// Reads what a command of [`Job::command`] printed.
    pub fn done(text: &str) -> Result<Done> {
        let odd = || Failed(format!("a job printed \"{text}\""));
        let (rate, p50) = text.trim().split_once(' ').ok_or_else(odd)?;
        let number = |text: &str| text.parse().map_err(|_| odd());
        Ok(Done { rate: number(rate)?, p50: number(p50)? })
    }

    /// Does it, and prints how fast.
    pub fn work(&self) -> Result<()> {
        let about = || failed(self.file.display());
        let file = OpenOptions::new().read(true).write(true).open(&self.file).map_err(about())?;
        let Done { rate, p50 } = self.run(&file).map_err(about())?;
        println!("{rate} {p50}");
        Ok(())
    }

    fn run(&self, file: &File) -> std::io::Result<Done> {
        let places = FILE / self.bytes as u64;
        // What is written was made before: each write takes another part of it.
        let (mut fresh, mut buf) = (vec![0; POOL], vec![0; self.bytes]);
        refresh(&mut fresh);
        let mut rng = Rng::new(std::process::id().into());
        let raw = self.raw.then(|| LogMemory::volatile(file, FILE as usize));
        let raw = raw.transpose().map_err(std::io::Error::other)?;
        let mut one = |n: u64, sync: bool| {
            let place = if self.op.is_random() { rng.below(places) } else { n % places };
            let at = place * self.bytes as u64;
            match self.op.writes() {
                true => {
                    let from = rng.below((POOL - self.bytes) as u64) as usize;
                    let bytes = &fresh[from..from + self.bytes];
                    match &raw {
                        Some(memory) => return memory.persist(at as usize, bytes),
                        None => file.write_all_at(bytes, at)?,
                    }
                }
                false => file.read_exact_at(&mut buf, at)?,
            }
            if sync { file.sync_data() } else { Ok(()) }
        };
        match self.op.writes() {
            true => (0..WARM).try_for_each(|n| one(n, true))?,
            // Both kernels have the file's pages.
            false => {
                let mut piece = vec![0; 1 << 20];
                for at in (0..FILE).step_by(1 << 20) {
                    file.read_exact_at(&mut piece, at)?;
                }
            }
        }
        let (mut times, start) = (Vec::new(), Instant::now());
        let (mut n, time) = (WARM, Duration::from_millis(self.time));
        let mut now = start;
        while now - start < time {
            one(n, self.sync)?;
            let then = Instant::now();
            times.push((then - now).as_secs_f64() * 1e6);
            (now, n) = (then, n + 1);
        }
        let rate = times.len() as f64 / (now - start).as_secs_f64();
        times.sort_by(f64::total_cmp);
        Ok(Done { rate, p50: times.get(times.len() / 2).copied().unwrap_or_default() })
    }
}
