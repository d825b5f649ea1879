//! Opening a record area: what lies at a place, and the proof of what it promises.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{
    AtFlags, FallocateFlags, SealFlags, StatxAttributes, StatxFlags, major, minor, statx,
};
use rustix::io::Errno;
use siftfs_base::{Error, Result};

use super::lines;
use super::mapping::{Mapping, Wish};
use super::pmr::{self, Pmr};
use super::{ByteOptions, BytePlace, BytePromise, LineFlush, MIN_SIZE, RECORD_UNIT};
use crate::Role;
use crate::file::{Hold, PATIENCE, cannot_open, file_system, lock, refuse_loop};

/// How stores become persistent.
pub(super) enum Way {
    /// Their lines are written back and fenced.
    Lines(Option<LineFlush>),
    /// msync(2).
    Msync,
    /// The fence, then a read of the controller.
    ReadBack(Pmr),
}

/// A record area that was opened.
pub(super) struct Opened {
    /// Carries the roles' locks.
    pub file: File,
    /// What is locked, for messages.
    pub path: PathBuf,
    /// For people.
    pub kind: String,
    pub memory: Mapping,
    pub promise: BytePromise,
    pub way: Way,
}

/// Opens what lies there; takes no lock.
pub(super) fn open(place: &BytePlace, options: ByteOptions) -> Result<Opened> {
    let slow = !options.modelled_read_back.is_zero();
    match place {
        BytePlace::Volatile(path) => volatile(path, options),
        _ if slow => Err(Error::Refused(format!(
            "a modelled read-back is for measurements on volatile:PATH: {place} has its own cost"
        ))),
        BytePlace::Path(path) => persistent(path, options),
        BytePlace::Pmr(address) => pmr::open(*address, options),
    }
}

fn refused<T>(what: String) -> Result<T> {
    Err(Error::Refused(what))
}

/// Opens a node, and makes sure that it is the one that was looked at.
fn open_node(path: &Path, meta: &Metadata, options: ByteOptions) -> Result<File> {
    let mut how = OpenOptions::new();
    let file = how.read(true).write(!options.read_only).open(path);
    let file = file.map_err(|e| cannot_open(path, &e))?;
    let now = file.metadata().map_err(|e| cannot_open(path, &e))?;
    if (now.dev(), now.ino(), now.rdev()) != (meta.dev(), meta.ino(), meta.rdev()) {
        let path = path.display();
        return refused(format!("{path} was replaced while it was opened: try again"));
    }
    Ok(file)
}

/// The usable length of this many bytes: whole records.
fn usable(path: &Path, size: u64) -> Result<usize> {
    let len = size - size % RECORD_UNIT;
    if len < MIN_SIZE {
        let path = path.display();
        return refused(format!(
            "{path} has {size} bytes, and a record area has at least {MIN_SIZE}: make it larger"
        ));
    }
    usize::try_from(len).or_else(|_| {
        let path = path.display();
        refused(format!("{path} has {size} bytes, more than this machine can map"))
    })
}

fn volatile(path: &Path, options: ByteOptions) -> Result<Opened> {
    let meta = fs::metadata(path).map_err(|e| cannot_open(path, &e))?;
    if !meta.is_file() {
        let path = path.display();
        return refused(format!("{path} is not a regular file: volatile: takes nothing else"));
    }
    let file = open_node(path, &meta, options)?;
    let len = prepare(&file, path, options)?;
    let wish = Wish { writable: !options.read_only, sync: false, populated: true };
    let memory = Mapping::of(&file, len, wish).map_err(|e| cannot_map(path, &e))?;
    let kind = format!("mapped file on {}", file_system(&file));
    let way = Way::Lines(lines::detect());
    let promise = BytePromise::Volatile;
    Ok(Opened { file, path: path.to_owned(), kind, memory, promise, way })
}

pub(super) fn cannot_map(path: &Path, e: &io::Error) -> Error {
    Error::Refused(format!("cannot map {}: {e}", path.display()))
}

/// What a regular file needs before it is mapped: nobody else's loop device, no hole whose first
/// store could fail, and no way to shrink it where the kernel knows one. Returns the length.
fn prepare(file: &File, path: &Path, options: ByteOptions) -> Result<usize> {
    refuse_loop(file, path)?;
    let size = file.metadata().map_err(|e| cannot_open(path, &e))?.len();
    let len = usable(path, size)?;
    // A memfd takes the seal; every other file refuses it.
    let _ = rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK);
    if !options.read_only {
        reserve(file, path, size)?;
    }
    Ok(len)
}

/// Gives every byte of a file its block: a store into a hole of a full file system is a SIGBUS.
fn reserve(file: &File, path: &Path, size: u64) -> Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
        // A file system without reservation has no holes to fill, or cannot be helped.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(e) => {
            let path = path.display();
            refused(format!("cannot reserve {size} bytes for {path}: {}", io::Error::from(e)))
        }
    }
}

fn persistent(path: &Path, options: ByteOptions) -> Result<Opened> {
    let meta = fs::metadata(path).map_err(|e| cannot_open(path, &e))?;
    let shown = path.display();
    let kind = meta.file_type();
    if kind.is_file() {
        return on_dax(path, &meta, options);
    }
    if kind.is_char_device() {
        return dax_device(path, &meta, options);
    }
    if kind.is_block_device() {
        return refused(format!(
            "{shown} is a block device: a mapping of it goes through the page cache, persistent \
             memory or not. Where it is a /dev/pmem device, make a file system on it (mkfs.xfs or \
             mkfs.ext4), mount it with -o dax=always and name a file there"
        ));
    }
    refused(format!(
        "{shown} is neither a file nor a /dev/dax device: name a file on a file system that is \
         mounted with DAX"
    ))
}

fn on_dax(path: &Path, meta: &Metadata, options: ByteOptions) -> Result<Opened> {
    let file = open_node(path, meta, options)?;
    let kind = format!("file on {} with DAX", file_system(&file));
    if !is_dax(&file) {
        return Err(not_dax(&file, path));
    }
    let len = prepare(&file, path, options)?;
    let (memory, promise, way) = map_dax(&file, path, len, !options.read_only)?;
    Ok(Opened { file, path: path.to_owned(), kind, memory, promise, way })
}

/// Maps a file on a file system with DAX, and says which promise holds.
pub(super) fn map_dax(
    file: &File,
    path: &Path,
    len: usize,
    writable: bool,
) -> Result<(Mapping, BytePromise, Way)> {
    let sync = Wish { writable, sync: true, populated: true };
    match Mapping::of(file, len, sync) {
        Ok(memory) => {
            let line = line_flush(path)?;
            Ok((memory, BytePromise::MapSync(line), Way::Lines(Some(line))))
        }
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let wish = Wish { writable, sync: false, populated: true };
            let memory = Mapping::of(file, len, wish).map_err(|e| cannot_map(path, &e))?;
            Ok((memory, BytePromise::Msync, Way::Msync))
        }
        Err(e) => Err(cannot_map(path, &e)),
    }
}

fn not_dax(file: &File, path: &Path) -> Error {
    let shown = path.display();
    Error::Refused(format!(
        "{shown} is not DAX: it lies on {}, whose page cache is between. Name a file on a file \
         system on persistent memory that is mounted with -o dax=always; volatile:{shown} uses it \
         for tests and measurements, and promises nothing over a power cut",
        file_system(file)
    ))
}

/// Does the kernel say that the file's pages are the medium itself?
pub(super) fn is_dax(file: &File) -> bool {
    let said = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    said.is_ok_and(|x| x.stx_attributes.contains(StatxAttributes::DAX))
}

fn line_flush(path: &Path) -> Result<LineFlush> {
    lines::detect().ok_or_else(|| {
        Error::Refused(format!(
            "{} needs an instruction that writes cache lines back to persistent memory, and this \
             processor has none that SiftFS knows (clwb, clflushopt or clflush of x86-64)",
            path.display()
        ))
    })
}

fn dax_device(path: &Path, meta: &Metadata, options: ByteOptions) -> Result<Opened> {
    let rdev = meta.rdev();
    let sys = PathBuf::from(format!("/sys/dev/char/{}:{}", major(rdev), minor(rdev)));
    let size = dax_size(&sys, path)?;
    let len = usable(path, size)?;
    let line = line_flush(path)?;
    // Locks lie on the node's inode: two nodes of one device must not mean two locks.
    let named = sys.canonicalize().ok().and_then(|p| Some(Path::new("/dev").join(p.file_name()?)));
    let usual = named.filter(|node| fs::metadata(node).is_ok_and(|m| m.rdev() == rdev));
    let node = usual.as_deref().unwrap_or(path);
    let meta = fs::metadata(node).map_err(|e| cannot_open(path, &e))?;
    let file = open_node(node, &meta, options)?;
    let wish = Wish { writable: !options.read_only, sync: true, populated: false };
    let memory = Mapping::of(&file, len, wish).map_err(|e| cannot_map(path, &e))?;
    let promise = BytePromise::DaxDevice(line);
    let (kind, way) = ("DAX device".into(), Way::Lines(Some(line)));
    Ok(Opened { file, path: path.to_owned(), kind, memory, promise, way })
}

/// The size of the character device that `sys` describes, if it is a DAX device over an NVDIMM:
/// memory that was merely set aside has DAX devices too.
fn dax_size(sys: &Path, path: &Path) -> Result<u64> {
    let shown = path.display();
    let subsystem = fs::canonicalize(sys.join("subsystem"));
    if !subsystem.is_ok_and(|s| s.file_name().is_some_and(|name| name == "dax")) {
        return refused(format!("{shown} is a character device, but no DAX device"));
    }
    let whole = sys.canonicalize().map_err(|e| cannot_open(path, &e))?;
    let below = |c: std::path::Component<'_>| c.as_os_str().to_string_lossy().starts_with("ndbus");
    if !whole.components().any(below) {
        return refused(format!(
            "{shown} is a DAX device over memory that is not known as persistent (no NVDIMM bus \
             in {}): a power cut would empty it",
            whole.display()
        ));
    }
    let size = fs::read_to_string(sys.join("size")).map_err(|e| cannot_open(path, &e))?;
    size.trim().parse().or_else(|_| refused(format!("{shown} has no size in {}", sys.display())))
}

/// Makes the regular file at `path`, or takes the one that is there, and gives it exactly this size
/// with all of its blocks. The file and its name are durable when it returns.
pub(super) fn make_file(path: &Path, size: u64, dax: bool) -> Result<()> {
    usable(path, size)?;
    let mut how = OpenOptions::new();
    how.read(true).write(true).mode(0o600);
    let made = how.clone().create_new(true).open(path);
    let new = made.is_ok();
    let file = made.or_else(|_| how.open(path)).map_err(|e| cannot_open(path, &e))?;
    if dax && !is_dax(&file) {
        if new {
            let _ = fs::remove_file(path);
        }
        return Err(not_dax(&file, path));
    }
    // Nobody has it mapped who could lose its end.
    let until = Instant::now() + PATIENCE;
    Role::ALL.into_iter().try_for_each(|role| lock(&file, path, role, Hold::Alone, until))?;
    let failed = |e: io::Error| {
        Error::Refused(format!("cannot give {} its {size} bytes: {e}", path.display()))
    };
    file.set_len(size).map_err(failed)?;
    reserve(&file, path, size)?;
    file.sync_all().map_err(failed)?;
    let parent = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)
}
