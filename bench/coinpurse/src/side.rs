//! The systems that are measured, and figure 5's operations on them.

use crate::mounts::Mounted;
use siftfs::{OpenOptions, Result, Threads, Volume};
use siftfs_base::{Error, Rng, SystemClock};
use siftfs_device::{ByteDevice, ByteOptions, BytePlace, Device, FileOptions, open_exclusive};
use siftfs_placement::{LocalVolume, Media, MkfsOptions, mkfs_on};
use siftfs_rig::fresh::fresh;
use siftfs_rig::place::Failed;
use siftfs_status::Dispatch;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one operation.
pub const BYTES: usize = 512;
/// Bytes of the file that is overwritten.
const FILE: u64 = 16 << 20;
/// Files that are made before they are removed, and most that are made, in a round.
const FILES: u64 = 2000;
/// Directories that they lie in.
const DIRS: u64 = 20;
/// Bytes of a volume.
const VOLUME: u64 = 1 << 30;
/// Bytes of a record area: the paper's.
const AREA: u64 = 64 << 20;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// The disk's own file system.
    Disk,
    /// SiftFS without a record area.
    Blocks,
    /// SiftFS with one in memory.
    Area,
    /// The same with the paper's read-back.
    ReadBack,
}

impl Side {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Disk, Self::Blocks, Self::Area, Self::ReadBack];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "the disk's",
            Self::Blocks => "blocks",
            Self::Area => "area",
            Self::ReadBack => "area, 1 us",
        }
    }

    /// For the names of files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Blocks => "blocks",
            Self::Area => "area",
            Self::ReadBack => "read-back",
        }
    }

    /// Has it a record area?
    pub fn has_area(self) -> bool {
        matches!(self, Self::Area | Self::ReadBack)
    }

    /// What each persist of its record area takes longer: the paper's read of the head pointer.
    pub fn read_back(self) -> Duration {
        Duration::from_micros(u64::from(self == Self::ReadBack))
    }
}

/// An operation of figure 5; each ends with an fsync.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Op {
    /// 512 bytes anywhere.
    RandWrite,
    /// 512 bytes behind the ones before.
    SeqWrite,
    /// 512 bytes behind the end.
    Append,
    /// An empty file.
    Create,
    /// A file goes.
    Delete,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::RandWrite, Self::SeqWrite, Self::Append, Self::Create, Self::Delete];

    /// As the paper has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RandWrite => "randwrite",
            Self::SeqWrite => "seqwrite",
            Self::Append => "append",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }
}

enum Place {
    Files { mounted: Mounted, file: Option<File> },
    Volume { volume: Box<Volume>, file: Option<siftfs::File> },
}

/// One system.
pub struct System {
    side: Side,
    place: Place,
    rng: Rng,
    end: u64,
    sequence: u64,
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |e| Error::Refused(format!("{}: {e}", path.display()))
}

/// A failure of the rig as one of the volume.
pub fn told(Failed(message): Failed) -> Error {
    Error::Refused(message)
}

/// A file of this many zeros, all of them written: no later write has to allocate below.
fn fill(path: &Path, len: u64) -> Result<()> {
    let mut file = File::create(path).map_err(io(path))?;
    for _ in 0..len >> 20 {
        file.write_all(&[0; 1 << 20]).map_err(io(path))?;
    }
    file.sync_all().map_err(io(path))
}

/// A new volume in a file, with a record area of this many bytes in memory if there is to be one.
pub fn media(disk: &Path, memory: &Path, name: &str, area: Option<u64>) -> Result<Media> {
    media_with(disk, memory, name, area, Duration::ZERO)
}

fn media_with(
    disk: &Path,
    memory: &Path,
    name: &str,
    area: Option<u64>,
    modelled_read_back: Duration,
) -> Result<Media> {
    let path = disk.join(format!("{name}.sift"));
    fill(&path, VOLUME)?;
    let device: Arc<dyn Device> = Arc::new(open_exclusive(&path, true, FileOptions::default())?);
    let make = |len| -> Result<Arc<dyn Device>> {
        let place = BytePlace::Volatile(memory.join(format!("{name}.area")));
        let options = ByteOptions { modelled_read_back, ..ByteOptions::default() };
        Ok(Arc::new(ByteDevice::create(&place, len, options)?))
    };
    let media = Media::from(device).with_bytes(area.map(make).transpose()?);
    mkfs_on(media.clone(), &MkfsOptions::default())?;
    Ok(media)
}

fn volume(side: Side, disk: &Path, memory: &Path) -> Result<Volume> {
    let area = side.has_area().then_some(AREA);
    let media = media_with(disk, memory, side.word(), area, side.read_back())?;
    let clock = Arc::new(SystemClock::default());
    let local = LocalVolume::open_on(media, clock, &OpenOptions::default(), Threads::Real)?;
    Volume::from_local(local)
}

/// A path of a volume as one below the directory.
fn below(dir: &Path, path: &str) -> PathBuf {
    dir.join(path.trim_start_matches('/'))
}

fn file_name(n: u64) -> String {
    format!("/dir{}/file{n}", n % DIRS)
}

impl System {
    /// A volume without a mount: a file below `disk`, its record area below `memory`.
    pub fn embedded(side: Side, disk: &Path, memory: &Path) -> Result<Self> {
        let volume = volume(side, disk, memory)?;
        let data = volume.create("/data", 0o644)?;
        (0..FILE >> 20).try_for_each(|i| data.write_at(i << 20, &[0; 1 << 20]))?;
        drop(data);
        volume.checkpoint()?;
        Self::with_directories(side, Place::Volume { volume: Box::new(volume), file: None })
    }

    /// What is mounted.
    pub fn mounted(mounted: Mounted) -> Result<Self> {
        fill(&mounted.dir.join("data"), FILE)?;
        let side = mounted.side;
        Self::with_directories(side, Place::Files { mounted, file: None })
    }

    fn with_directories(side: Side, place: Place) -> Result<Self> {
        let mut system = Self { side, place, rng: Rng::new(1), end: 0, sequence: 0 };
        for n in 0..DIRS {
            system.create_dir(&format!("/dir{n}"))?;
        }
        Ok(system)
    }

    /// Which one it is.
    pub fn side(&self) -> Side {
        self.side
    }

    fn create_dir(&mut self, path: &str) -> Result<()> {
        match &self.place {
            Place::Files { mounted: Mounted { dir, .. }, .. } => {
                let path = below(dir, path);
                fs::create_dir(&path).map_err(io(&path))
            }
            Place::Volume { volume, .. } => volume.create_dir(path, 0o755).map(drop),
        }
    }

    fn open(&mut self, path: &str, new: bool) -> Result<()> {
        match &mut self.place {
            Place::Files { mounted: Mounted { dir, .. }, file } => {
                let path = below(dir, path);
                let mut options = fs::OpenOptions::new();
                options.read(true).write(true).create(new).truncate(new);
                *file = Some(options.open(&path).map_err(io(&path))?);
            }
            Place::Volume { volume, file } => {
                let opened = if new { volume.create(path, 0o644) } else { volume.open_file(path) };
                *file = Some(opened?);
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64) -> Result<()> {
        match &self.place {
            Place::Files { mounted: Mounted { dir, .. }, file: Some(file) } => {
                let written = file.write_all_at(&fresh::<BYTES>(), offset);
                written.and_then(|()| file.sync_all()).map_err(io(dir))
            }
            Place::Volume { file: Some(file), .. } => {
                file.write_at(offset, &fresh::<BYTES>())?;
                file.sync_all()
            }
            _ => Err(Error::Refused("no file is open".into())),
        }
    }

    fn create(&mut self, path: &str, sync: bool) -> Result<()> {
        self.open(path, true)?;
        match &self.place {
            Place::Files { mounted: Mounted { dir, .. }, file: Some(file) } if sync => {
                file.sync_all().map_err(io(dir))
            }
            Place::Volume { file: Some(file), .. } if sync => file.sync_all(),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, path: &str, sync: bool) -> Result<()> {
        let (parent, _) = path.rsplit_once('/').unwrap_or(("/", path));
        match &self.place {
            Place::Files { mounted: Mounted { dir, .. }, .. } => {
                let (file, parent) = (below(dir, path), below(dir, parent));
                fs::remove_file(&file).map_err(io(&file))?;
                let synced = || File::open(&parent)?.sync_all();
                if sync { synced().map_err(io(&parent)) } else { Ok(()) }
            }
            Place::Volume { volume, .. } => {
                volume.remove_file(path)?;
                if sync { volume.sync_dir(parent) } else { Ok(()) }
            }
        }
    }

    fn sync(&self) -> Result<()> {
        match &self.place {
            Place::Files { mounted, .. } => mounted.settle().map_err(told),
            Place::Volume { volume, .. } => {
                volume.sync()?;
                volume.checkpoint().map(drop)
            }
        }
    }

    /// What must be there before, and does not count.
    pub fn prepare(&mut self, op: Op) -> Result<()> {
        match op {
            Op::RandWrite | Op::SeqWrite => self.open("/data", false)?,
            Op::Append => {
                self.end = 0;
                self.open("/log", true)?;
            }
            Op::Create => {}
            Op::Delete => (0..FILES).try_for_each(|n| self.create(&file_name(n), false))?,
        }
        self.sync()
    }

    /// Are there files left to remove, or to be made?
    pub fn has_more(&self, op: Op, n: u64) -> bool {
        !matches!(op, Op::Create | Op::Delete) || n < FILES
    }

    /// The `n`th operation.
    pub fn run(&mut self, op: Op, n: u64) -> Result<()> {
        let blocks = FILE / BYTES as u64;
        match op {
            Op::RandWrite => {
                let at = self.rng.below(blocks) * BYTES as u64;
                self.write(at)
            }
            Op::SeqWrite => {
                self.sequence = (self.sequence + 1) % blocks;
                self.write(self.sequence * BYTES as u64)
            }
            Op::Append => {
                self.end += BYTES as u64;
                self.write(self.end - BYTES as u64)
            }
            Op::Create => self.create(&file_name(n), true),
            Op::Delete => self.remove(&file_name(n), true),
        }
    }

    /// Removes what the operations made.
    pub fn tidy(&mut self, op: Op) -> Result<()> {
        match &mut self.place {
            Place::Files { file, .. } => *file = None,
            Place::Volume { file, .. } => *file = None,
        }
        match op {
            Op::RandWrite | Op::SeqWrite => Ok(()),
            Op::Append => self.remove("/log", false),
            Op::Create | Op::Delete => {
                // Those that are there: all that were made, or all that were not removed.
                (0..FILES).for_each(|n| drop(self.remove(&file_name(n), false)));
                Ok(())
            }
        }?;
        self.sync()
    }

    /// Ends it; what its dispatcher did.
    pub fn close(self) -> Result<Option<Dispatch>> {
        match self.place {
            Place::Volume { volume, .. } => {
                let dispatch = volume.status()?.runtime.dispatch;
                volume.close()?;
                Ok(self.side.has_area().then_some(dispatch))
            }
            Place::Files { mounted, .. } => {
                let dispatch = mounted.dispatch().map_err(told)?;
                mounted.close().map_err(told)?;
                Ok(dispatch)
            }
        }
    }
}
