//! Ways of writing that promise the same as write(2), and what a program can see beside them.

#![allow(unsafe_code)] // mappings, and credentials of one thread

use crate::asynchronous::{Way, Writes};
use crate::calls::{Promise, Refused};
use crate::ledger::write_in_section;
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use siftfs_model::Rng;
use siftfs_proto::Reply;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// How a write is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// pwritev2(2), whose flags promise.
    #[default]
    Call,
    /// A descriptor that promises.
    Descriptor,
    /// Past the kernel's cache, submitted and completed apart, with reads of the same bytes
    /// through the cache in between.
    Direct(Way),
    /// copy_file_range(2) from a file without a name.
    Copy,
    /// sendfile(2) from one.
    Send,
    /// Through a shared mapping, which SEEK and a copy read before it is closed. Promises nothing,
    /// and does not make files longer.
    Mapping,
    /// The same without the copy, whose target has no name.
    Stores,
    /// By an atomic section, committed durably.
    Section,
}

impl How {
    /// What fits a write with this promise. What has no name is `lost` with a server that dies.
    pub fn draw(rng: &mut Rng, promise: Promise, lost: bool) -> Self {
        let direct = [Self::Direct(Way::Aio), Self::Direct(Way::Uring)];
        let mapping = if lost { Self::Stores } else { Self::Mapping };
        let fits: &[Self] = match promise {
            Promise::None => &[Self::Call, Self::Call, direct[0], direct[1], mapping],
            _ if lost => &[Self::Descriptor, direct[0], direct[1], Self::Section],
            _ => &[Self::Descriptor, direct[0], direct[1], Self::Copy, Self::Send, Self::Section],
        };
        if rng.chance(60) { Self::Call } else { rng.pick(fits).copied().unwrap_or_default() }
    }

    /// Past the kernel's cache, one way or the other.
    pub fn direct(rng: &mut Rng) -> Self {
        Self::Direct(if rng.chance(50) { Way::Aio } else { Way::Uring })
    }

    /// Does it read the file, too?
    pub fn reads(self) -> bool {
        matches!(self, Self::Direct(_) | Self::Mapping | Self::Stores)
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// The kernel's, or what a program saw that cannot be.
    pub fn write(
        self,
        path: &Path,
        offset: u64,
        data: &[u8],
        promise: Promise,
    ) -> Result<Reply, Refused> {
        let promised = match promise {
            Promise::None => OFlags::empty(),
            Promise::Data => OFlags::DSYNC,
            Promise::All => OFlags::SYNC,
        };
        let open = |flags| {
            let flags = flags | promised | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::open(path, flags, Mode::empty())
        };
        let end = offset.saturating_add(data.len() as u64);
        let longer = end > rustix::fs::fstat(open(OFlags::RDONLY)?)?.st_size.unsigned_abs();
        let len = match self {
            // In several pieces a file would have sizes in between, which the model does not know.
            Self::Direct(_) | Self::Send | Self::Mapping | Self::Stores if longer => {
                rustix::io::pwrite(open(OFlags::WRONLY)?, data, offset)?
            }
            Self::Call | Self::Descriptor => {
                rustix::io::pwrite(open(OFlags::WRONLY)?, data, offset)?
            }
            Self::Direct(way) => {
                let (cached, fd) = (open(OFlags::RDONLY)?, open(OFlags::WRONLY | OFlags::DIRECT)?);
                if takes_directly(&fd, offset, data)? {
                    direct(way, &fd, &cached, offset, data)?
                } else {
                    rustix::io::pwrite(open(OFlags::WRONLY)?, data, offset)?
                }
            }
            Self::Copy => copy(&unnamed(path, data)?, &open(OFlags::WRONLY)?, offset, data.len())?,
            Self::Send => {
                let (from, to) = (unnamed(path, data)?, open(OFlags::WRONLY)?);
                rustix::fs::seek(&to, SeekFrom::Start(offset))?;
                all(data.len(), |at| {
                    rustix::fs::sendfile(&to, &from, Some(&mut (at as u64)), data.len() - at)
                })?
            }
            Self::Section => {
                // What is durable is durable by the commit, not by the descriptor.
                let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let fd = rustix::fs::open(path, flags, Mode::empty())?;
                if write_in_section(&fd, offset, data)? {
                    data.len()
                } else {
                    rustix::io::pwrite(open(OFlags::WRONLY)?, data, offset)?
                }
            }
            Self::Mapping | Self::Stores => {
                let fd = open(OFlags::RDWR)?;
                let copied = (self == Self::Mapping).then_some(path);
                if data.is_empty() { 0 } else { mapped(copied, &fd, offset, data)? }
            }
        };
        Ok(Reply::Written { len: u32::try_from(len).map_err(|_| Errno::OVERFLOW)? })
    }
}

/// May these bytes go past the cache? A file system that takes only whole sectors says so; ours
/// takes anything, and says nothing.
fn takes_directly(fd: &OwnedFd, offset: u64, data: &[u8]) -> Result<bool, Errno> {
    let said = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    if said.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(true);
    }
    let fits = |at: u64, align: u32| align != 0 && at.is_multiple_of(align.into());
    let memory = data.as_ptr().addr() as u64;
    let sectors = [offset, data.len() as u64];
    Ok(fits(memory, said.stx_dio_mem_align)
        && sectors.iter().all(|at| fits(*at, said.stx_dio_offset_align)))
}

/// Repeats a call that does a part until it did everything.
fn all(len: usize, mut part: impl FnMut(usize) -> Result<usize, Errno>) -> Result<usize, Errno> {
    let mut done = 0;
    while done < len {
        match part(done) {
            Ok(0) => break,
            Ok(n) => done += n,
            // What was done counts.
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// A file without a name beside `path` that holds `data`.
fn unnamed(path: &Path, data: &[u8]) -> Result<OwnedFd, Errno> {
    let dir = path.parent().ok_or(Errno::INVAL)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600))?;
    all(data.len(), |at| rustix::io::pwrite(&fd, data.get(at..).unwrap_or_default(), at as u64))?;
    Ok(fd)
}

fn copy(from: &OwnedFd, to: &OwnedFd, offset: u64, len: usize) -> Result<usize, Errno> {
    all(len, |at| {
        let (mut source, mut target) = (at as u64, offset + at as u64);
        rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), len - at)
    })
}

fn refused(e: &std::io::Error) -> Refused {
    Refused::Errno(e.raw_os_error().unwrap_or(libc::EIO))
}

/// Writes in pieces of a page, all in flight at once, while the same bytes are read through the
/// cache; then they must be read as written.
fn direct(
    way: Way,
    fd: &OwnedFd,
    cached: &OwnedFd,
    offset: u64,
    data: &[u8],
) -> Result<usize, Refused> {
    const DEPTH: usize = 32;
    let size = data.len().div_ceil(DEPTH).next_multiple_of(4096);
    let mut writes = Writes::new(way, 64).map_err(|e| refused(&e))?;
    let mut seen = vec![0; data.len()];
    let mut len = 0;
    for (at, piece) in (0u64..).step_by(size).zip(data.chunks(size)) {
        writes.submit(fd, offset + at, piece).map_err(|e| refused(&e))?;
        rustix::io::pread(cached, &mut seen, offset)?;
    }
    for _ in data.chunks(size) {
        let (_, result) = writes.wait().map_err(|e| refused(&e))?;
        len += result.map_err(|e| refused(&e))?;
    }
    if len == data.len() {
        let got = all(len, |at| {
            rustix::io::pread(cached, seen.get_mut(at..).unwrap_or_default(), offset + at as u64)
        })?;
        if got != len || seen != data {
            return Err(Refused::Command("stale bytes after a direct write was complete".into()));
        }
    }
    Ok(len)
}

/// Stores through a mapping, and checks the file before the mapping is closed, by a copy if its
/// path is given.
fn mapped(path: Option<&Path>, fd: &OwnedFd, offset: u64, data: &[u8]) -> Result<usize, Refused> {
    let start = offset / 4096 * 4096;
    let skip = usize::try_from(offset - start).map_err(|_| Errno::OVERFLOW)?;
    let map = Map::new(fd, start, skip + data.len())?;
    map.store(skip, data);
    let found = rustix::fs::seek(fd, SeekFrom::Data(offset));
    if found != Ok(offset) {
        let said = format!("SEEK_DATA at {offset} in what a mapping stored: {found:?}");
        return Err(match found {
            // ENXIO says that there is no data; other errors are the mount's.
            Err(e) if e != Errno::NXIO => e.into(),
            _ => Refused::Command(said),
        });
    }
    let Some(path) = path else { return Ok(data.len()) };
    let target = unnamed(path, b"")?;
    let copied = all(data.len(), |at| {
        let (mut source, mut target_at) = (offset + at as u64, at as u64);
        let len = data.len() - at;
        rustix::fs::copy_file_range(fd, Some(&mut source), &target, Some(&mut target_at), len)
    })?;
    let mut seen = vec![0; data.len()];
    let got = all(copied, |at| {
        rustix::io::pread(&target, seen.get_mut(at..).unwrap_or_default(), at as u64)
    })?;
    if got == data.len() && seen != data {
        return Err(Refused::Command("a copy lacks what a mapping stored".into()));
    }
    Ok(data.len())
}

/// A shared mapping of a file's range.
struct Map {
    at: *mut libc::c_void,
    len: usize,
}

impl Map {
    fn new(fd: &OwnedFd, offset: u64, len: usize) -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let offset = i64::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
        let none = std::ptr::null_mut();
        // SAFETY: a fresh mapping chosen by the kernel aliases nothing of ours.
        let at =
            unsafe { libc::mmap(none, len, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        Ok(Self { at, len })
    }

    /// The write(2) goes to the mapping as a read(2) from a pipe would: a page that cannot be had
    /// is an error of the call, and no signal.
    fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        let Ok((reader, mut writer)) = std::io::pipe() else { return };
        for (chunk, start) in bytes.chunks(4096).zip((at..).step_by(4096)) {
            if std::io::Write::write_all(&mut writer, chunk).is_err() {
                return;
            }
            // SAFETY: inside the mapping, which lives as long as `self`; no reference to its bytes
            // exists.
            let got =
                unsafe { libc::read(reader.as_raw_fd(), self.at.byte_add(start), chunk.len()) };
            if usize::try_from(got) != Ok(chunk.len()) {
                return;
            }
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

/// A user without any right to the file changes "nothing" of it by fchown(2): its mode stays.
///
/// # Errors
/// What was taken away.
pub fn stranger(path: &Path) -> Result<(), Refused> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let before = rustix::fs::fstat(&fd)?.st_mode;
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            const NOBODY: libc::c_long = 65_534;
            // SAFETY: raw calls change the credentials of this thread only, which ends at once.
            unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>());
                libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY);
                libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY);
                libc::fchown(fd.as_raw_fd(), libc::uid_t::MAX, libc::gid_t::MAX);
            }
        });
        drop(call.join());
    });
    let after = rustix::fs::fstat(&fd)?.st_mode;
    if before != after {
        return Err(Refused::Command(format!("a stranger made {before:o} {after:o} by fchown")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "ways_tests.rs"]
mod tests;
