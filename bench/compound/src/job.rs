//! One job of one process: an operation, as often as it goes, by some threads with a session or a
//! descriptor each.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use siftfs::{Checksum, Claim, Codec, TransportOptions, Volume};
use siftfs_base::{Rng, crc32c};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of the files that are there before, of all threads together ...
const FILES: u64 = 16 << 20;
/// ... and of each at least.
const FILE: u64 = 1 << 20;
/// A file that is appended to begins anew at this size.
const LARGE: u64 = 64 << 20;
/// How hard zstd tries at the client: as hard as at the server.
const LEVEL: i32 = 3;

/// What a job prints when it has made its files, and goes on to do what is measured.
pub const BEGUN: &str = "begun";

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Op {
    /// Read a block, change it, write it.
    ReadModifyWrite,
    /// Append data, and its checksum behind it.
    AppendChecksum,
    /// Compress, and write.
    CompressWrite,
    /// Read, and decompress.
    ReadDecompress,
    /// Open, and read.
    OpenRead,
    /// Open, and write.
    OpenWrite,
    /// Open, write, and close.
    WriteClose,
    /// Read.
    Read,
    /// Write, and make durable.
    WriteSync,
}

/// A job.
#[derive(Clone, Debug, Args)]
pub struct Job {
    /// A served volume's address, or a directory.
    pub at: PathBuf,
    /// What is done
    #[arg(long, value_enum)]
    pub op: Op,
    /// Bytes of each operation
    #[arg(long)]
    pub bytes: usize,
    /// As one compound
    #[arg(long)]
    pub compound: bool,
    /// Threads, with a session each
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// For how long, in milliseconds
    #[arg(long)]
    pub time: u64,
    /// Microseconds that a client spins for an answer
    #[arg(long, default_value_t = 0)]
    pub spin: u64,
}

/// What a job did.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// Operations in a second.
    pub rate: f64,
    /// The median time of one, in microseconds.
    pub p50: f64,
    /// What 99 of 100 took at most, in microseconds.
    pub p99: f64,
    /// Processor time of the process by operation, in microseconds: its own, and the kernel's.
    pub user: f64,
    /// The kernel's.
    pub system: f64,
}

/// One thread's file, on either system.
enum Place {
    Served { volume: Box<Volume>, file: siftfs::File, path: String },
    Plain { file: File, path: PathBuf },
}

type Io<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct Thread<'a> {
    job: &'a Job,
    place: Place,
    rng: Rng,
    /// Of its file.
    length: u64,
    data: Vec<u8>,
    end: u64,
    packed: usize,
}

impl Job {
    /// Its arguments.
    pub fn arguments(&self) -> Vec<String> {
        let op = self.op.to_possible_value().expect("every operation has a name");
        let mut all = vec!["work".into(), self.at.display().to_string()];
        let mut add = |name: &str, value: String| all.extend([name.to_owned(), value]);
        add("--op", op.get_name().into());
        add("--bytes", self.bytes.to_string());
        add("--threads", self.threads.to_string());
        add("--time", self.time.to_string());
        add("--spin", self.spin.to_string());
        if self.compound {
            all.push("--compound".into());
        }
        all
    }

    /// Does it, and prints what it did.
    pub fn work(&self) -> Result<()> {
        let done = self.run().map_err(|e| Failed(format!("{}: {e}", self.at.display())))?;
        let text = serde_json::to_string(&done).map_err(|e| Failed(e.to_string()))?;
        println!("{text}");
        Ok(())
    }

    fn run(&self) -> Io<Done> {
        let threads: Io<Vec<Thread<'_>>> = (0..self.threads).map(|n| self.thread(n)).collect();
        println!("{BEGUN}");
        let (before, start) = (own_time(), Instant::now());
        let end = start + Duration::from_millis(self.time);
        let times: Io<Vec<Vec<f64>>> = std::thread::scope(|scope| {
            let all: Vec<_> = threads?
                .into_iter()
                .map(|mut thread| scope.spawn(move || thread.until(end)))
                .collect();
            all.into_iter().map(|one| one.join().map_err(|_| "a thread failed")?).collect()
        });
        let mut times = times?.concat();
        let (seconds, after) = (start.elapsed().as_secs_f64(), own_time());
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
        let each = |time: f64| time * 1e6 / times.len().max(1) as f64;
        Ok(Done {
            rate: times.len() as f64 / seconds,
            p50: at(50),
            p99: at(99),
            user: each(after.0 - before.0),
            system: each(after.1 - before.1),
        })
    }

    fn thread(&self, number: usize) -> Io<Thread<'_>> {
        let mut data = vec![0; self.bytes];
        refresh(&mut data);
        // Two of three bytes repeat.
        data.chunks_mut(3).for_each(|three| {
            let first = three[0];
            three.fill(first);
        });
        let name = format!("file-{number}");
        let place = match self.at.is_dir() {
            true => Place::plain(&self.at, &name)?,
            false => Place::served(self, &name)?,
        };
        let rng = Rng::new(number as u64 + 1);
        let length = (FILES / self.threads as u64).max(FILE);
        let mut thread = Thread { job: self, place, rng, length, data, end: 0, packed: 0 };
        thread.prepare()?;
        Ok(thread)
    }
}

/// Processor time of this process in seconds: its own, and the kernel's for it.
fn own_time() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&stat).unwrap_or_default()
}

/// From `/proc/PID/stat`, in seconds.
pub fn ticks(stat: &str) -> Option<(f64, f64)> {
    let mut behind = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || Some(behind.next()?.parse::<f64>().ok()? / 100.0);
    Some((next()?, next()?))
}

impl Place {
    fn served(job: &Job, name: &str) -> Io<Self> {
        let address = job.at.to_string_lossy().parse()?;
        let spin = Duration::from_micros(job.spin);
        let options = TransportOptions { spin, max_message: 20 << 20, ..Default::default() };
        let volume = Box::new(Volume::connect_with(&address, (&options, None), "", Claim::Owner)?);
        let path = format!("/{name}");
        let file = match volume.open_file(&path) {
            Ok(file) => file,
            Err(_) => volume.create(&path, 0o600)?,
        };
        Ok(Self::Served { volume, file, path })
    }

    fn plain(dir: &Path, name: &str) -> Io<Self> {
        let path = dir.join(name);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
        Ok(Self::Plain { file, path })
    }

    fn write(&self, at: u64, data: &[u8]) -> Io<()> {
        match self {
            Self::Served { file, .. } => Ok(file.write_at(at, data)?),
            Self::Plain { file, .. } => Ok(file.write_all_at(data, at)?),
        }
    }

    fn read(&self, at: u64, len: usize) -> Io<Vec<u8>> {
        match self {
            Self::Served { file, .. } => Ok(file.read_at(at, len)?),
            Self::Plain { file, .. } => {
                let mut data = vec![0; len];
                file.read_exact_at(&mut data, at)?;
                Ok(data)
            }
        }
    }

    fn set_len(&self, len: u64) -> Io<()> {
        match self {
            Self::Served { file, .. } => Ok(file.set_len(len)?),
            Self::Plain { file, .. } => Ok(file.set_len(len)?),
        }
    }

    fn len(&self) -> Io<u64> {
        match self {
            Self::Served { file, .. } => Ok(file.stat()?.size),
            Self::Plain { file, .. } => Ok(file.metadata()?.len()),
        }
    }

    fn sync(&self) -> Io<()> {
        match self {
            Self::Served { file, .. } => Ok(file.sync_data()?),
            Self::Plain { file, .. } => Ok(file.sync_data()?),
        }
    }
}

impl Thread<'_> {
    /// The file has what the operation needs.
    fn prepare(&mut self) -> Io<()> {
        match self.job.op {
            Op::AppendChecksum => self.place.set_len(0)?,
            Op::ReadDecompress => {
                let packed = zstd::bulk::compress(&self.data, LEVEL)?;
                self.place.set_len(0)?;
                self.place.write(0, &packed)?;
                self.packed = packed.len();
            }
            // It was written before.
            Op::Read | Op::OpenRead if self.place.len()? == self.length => return Ok(()),
            _ => {
                let mut piece = vec![0; 1 << 20];
                for at in (0..self.length).step_by(piece.len()) {
                    self.place.write(at, refresh(&mut piece))?;
                }
            }
        }
        self.place.sync()
    }

    fn until(&mut self, end: Instant) -> Io<Vec<f64>> {
        let (mut times, mut now) = (Vec::new(), Instant::now());
        while now < end {
            match self.job.compound {
                true => self.compound()?,
                false => self.single()?,
            }
            let then = Instant::now();
            times.push((then - now).as_secs_f64() * 1e6);
            now = then;
        }
        Ok(times)
    }

    /// A place in the file, and other data.
    fn next(&mut self) -> u64 {
        self.data[0] = self.data[0].wrapping_add(1);
        self.rng.below(self.length / self.data.len() as u64) * self.data.len() as u64
    }

    /// A file that is appended to has grown. It begins anew when it is large.
    fn grown(&mut self) -> Io<()> {
        self.end += self.data.len() as u64 + 4;
        if self.end > LARGE {
            self.place.set_len(0)?;
            self.end = 0;
        }
        Ok(())
    }

    /// By the calls that the compound stands for.
    fn single(&mut self) -> Io<()> {
        let at = self.next();
        let Self { data, place, .. } = self;
        match self.job.op {
            Op::ReadModifyWrite => {
                let mut block = place.read(at, data.len())?;
                block.copy_from_slice(data);
                place.write(at, &block)
            }
            Op::AppendChecksum => {
                let sum = crc32c(data).to_le_bytes();
                match place {
                    Place::Served { file, .. } => {
                        file.append(data)?;
                        file.append(&sum)?;
                    }
                    Place::Plain { file, .. } => {
                        file.write_all_at(data, self.end)?;
                        file.write_all_at(&sum, self.end + data.len() as u64)?;
                    }
                }
                self.grown()
            }
            Op::CompressWrite => place.write(at, &zstd::bulk::compress(data, LEVEL)?),
            Op::ReadDecompress => {
                let packed = place.read(0, self.packed)?;
                zstd::bulk::decompress(&packed, data.len())?;
                Ok(())
            }
            Op::OpenRead | Op::OpenWrite | Op::WriteClose => match place {
                Place::Served { volume, path, .. } => {
                    let file = volume.open_file(path)?;
                    match self.job.op {
                        Op::OpenRead => drop(file.read_at(at, data.len())?),
                        _ => file.write_at(at, data)?,
                    }
                    Ok(())
                }
                Place::Plain { path, .. } => {
                    let file = OpenOptions::new().read(true).write(true).open(path)?;
                    match self.job.op {
                        Op::OpenRead => Ok(file.read_exact_at(data, at)?),
                        _ => Ok(file.write_all_at(data, at)?),
                    }
                }
            },
            Op::Read => place.read(at, data.len()).map(drop),
            Op::WriteSync => {
                place.write(at, data)?;
                place.sync()
            }
        }
    }

    /// As one compound, where there is one.
    fn compound(&mut self) -> Io<()> {
        let at = self.next();
        let Place::Served { volume, file, path } = &self.place else {
            return Err("ext4 has no compounds".into());
        };
        let (data, len) = (&self.data, u32::try_from(self.data.len())?);
        match self.job.op {
            Op::ReadModifyWrite => drop(volume.read_modify_write(file, at, data)?),
            Op::AppendChecksum => {
                let mut steps = volume.compound();
                // The data is sent once: what is joined is the steps' own.
                let data = steps.join(data.as_slice(), Vec::new());
                let sum = steps.checksum(Checksum::Crc32c, data);
                let both = steps.join(data, sum);
                steps.append(file, both);
                steps.visible()?;
                return self.grown();
            }
            Op::CompressWrite => drop(volume.compress_and_write(file, at, Codec::Zstd, data)?),
            Op::ReadDecompress => {
                let mut steps = volume.compound();
                let packed = steps.read(file, 0, u32::try_from(self.packed)?);
                let plain = steps.decompress(Codec::Zstd, packed, len);
                drop(steps.visible()?.bytes(plain));
            }
            Op::OpenRead => drop(volume.open_read(path, at, len)?),
            Op::OpenWrite => drop(volume.open_write(path, at, data)?),
            Op::WriteClose => volume.write_close(volume.open_file(path)?, at, data)?,
            Op::WriteSync => {
                let mut steps = volume.compound();
                steps.write(file, at, data.as_slice());
                steps.durable()?;
            }
            Op::Read => drop(file.read_at(at, data.len())?),
        }
        Ok(())
    }
}
