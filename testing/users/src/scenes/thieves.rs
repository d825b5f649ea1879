//! Users who write to programs with set-id bits and execute them: no write leaves a privilege.

use super::{Scene, Stage, make_directory};
use siftfs_base::Rng;
use siftfs_client::{Access, Compound, Level};
use siftfs_rig::hostile::become_user;
use std::fs::{File, OpenOptions, Permissions, set_permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const USER: u32 = 64_001;
/// A program that prints the ids it runs with. What is written behind its end does not hurt it.
const PROGRAM: &str = "/usr/bin/id";
/// Bytes that a write adds.
const MORE: [u8; 600] = [b'x'; 600];

/// A way to change a file's bytes.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// write(2) with O_APPEND.
    Append,
    /// pwrite(2) of the first byte, which stays the same.
    First,
    /// A write past the kernel's cache.
    Direct,
    /// writev(2) with O_APPEND.
    Writev,
    /// splice(2) from a pipe.
    Splice,
    /// copy_file_range(2).
    CopyRange,
    /// fallocate(2) that makes the file longer.
    Fallocate,
    /// ftruncate(2) that makes the file longer.
    Truncate,
    /// A store through a mapping, then a write.
    Mapping,
    /// A compound that appends.
    Compound,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Append,
        Self::First,
        Self::Direct,
        Self::Writev,
        Self::Splice,
        Self::CopyRange,
        Self::Fallocate,
        Self::Truncate,
        Self::Mapping,
        Self::Compound,
    ];

    /// Changes bytes of `dir`/`name`, of which the caller may write. `other`, a file of the same
    /// length on the same mount, can be read.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn change(self, dir: &Path, name: &str, other: &Path) -> io::Result<()> {
        let path = dir.join(name);
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let end = std::fs::metadata(other)?.len();
        match self {
            Self::Append => OpenOptions::new().append(true).open(&path)?.write_all(&MORE),
            Self::First => open()?.write_all_at(&[0x7f], 0),
            Self::Direct => {
                let flags = libc::O_DIRECT;
                let file = OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
                file.write_all_at(Aligned::new().bytes(), end.next_multiple_of(4096))
            }
            Self::Writev => {
                let parts = [io::IoSlice::new(&MORE), io::IoSlice::new(&MORE)];
                OpenOptions::new().append(true).open(&path)?.write_vectored(&parts).map(drop)
            }
            Self::Splice => splice(&open()?, end),
            Self::CopyRange => {
                let (from, to) = (File::open(other)?, open()?);
                let mut at = end;
                Ok(rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut at), 512)
                    .map(drop)?)
            }
            Self::Fallocate => {
                let (file, flags) = (open()?, rustix::fs::FallocateFlags::empty());
                Ok(rustix::fs::fallocate(&file, flags, end, 4096)?)
            }
            Self::Truncate => open()?.set_len(end + 5000),
            Self::Mapping => map_and_write(&open()?),
            Self::Compound => {
                let base = File::open(dir)?;
                let mut steps = Compound::on(&base);
                let file = steps.open(name, Access::Write);
                steps.append(file, &MORE[..]);
                steps.run(Level::Visible).map(drop).map_err(io::Error::from)
            }
        }
    }
}

/// Tries again while the file is busy: threads of this process that start programs have all its
/// descriptors for a moment, those open for writing among them.
///
/// # Errors
/// Those of `work`; `ETXTBSY` if it stays busy.
pub fn not_busy<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..500 {
        match work() {
            Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
    work()
}

/// A block at an address that direct I/O takes.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

impl Aligned {
    fn new() -> Box<Self> {
        Box::new(Self([b'x'; 4096]))
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[allow(unsafe_code)] // splice(2) has no safe wrapper here
fn splice(file: &File, at: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (out, mut into) = io::pipe()?;
    into.write_all(&MORE)?;
    let mut at = i64::try_from(at).map_err(io::Error::other)?;
    // SAFETY: both descriptors are open, and the offset lives as long as the call.
    let done = unsafe {
        libc::splice(out.as_raw_fd(), std::ptr::null_mut(), file.as_raw_fd(), &raw mut at, 600, 0)
    };
    if done > 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Stores through a mapping, and a write beside it.
#[allow(unsafe_code)] // mmap(2) has no safe wrapper
fn map_and_write(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping of an open file, of its first page, which is there.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, shared, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has one page, which nobody else of this process uses.
    unsafe {
        page.cast::<u8>().write_volatile(0x7f);
        libc::munmap(page, 4096);
    }
    file.write_all_at(&[0x7f], 0)
}

/// Takes a fresh program of root's, changes it by a drawn way, and runs it, until the round is
/// over.
pub fn play(stage: &Arc<Stage>, mut rng: Rng) -> io::Result<()> {
    let dir = stage.dir.join(stage.fresh("thieves"));
    make_directory(&dir, 0, 0o755)?;
    let plain = dir.join("plain");
    std::fs::copy(PROGRAM, &plain)?;
    while !stage.is_over() {
        let way = *rng.pick(&Way::ALL).expect("there are ways");
        let mode = *rng.pick(&[0o4777, 0o2777, 0o6777]).expect("there are modes");
        let name = stage.fresh("program");
        let path = dir.join(&name);
        std::fs::copy(PROGRAM, &path)?;
        chown(&path, Some(0), Some(0))?;
        set_permissions(&path, Permissions::from_mode(mode))?;
        // The kernel knows the bits before the change, as after any exec(2) or stat(2).
        std::fs::metadata(&path)?;
        let stolen = std::thread::scope(|s| s.spawn(|| steal(&dir, (&name, &plain), way)).join());
        match stolen.expect("the thief does not panic") {
            Ok(ids) if ids == (USER, USER) => {}
            Ok(ids) => stage.find(
                Scene::Thieves,
                &format!("after {way:?} a program of mode {mode:o} runs as {ids:?}"),
            ),
            Err(error) => stage.find(Scene::Thieves, &format!("{way:?}: {error}")),
        }
        stage.has_tried(Scene::Thieves);
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

/// What the program runs as after the change.
fn steal(dir: &Path, (name, plain): (&str, &Path), way: Way) -> io::Result<(u32, u32)> {
    become_user(USER)?;
    not_busy(|| way.change(dir, name, plain))?;
    let path = dir.join(name);
    let id = |option| -> io::Result<u32> {
        let out = not_busy(|| Command::new(&path).arg(option).output())?;
        let text = String::from_utf8_lossy(&out.stdout).trim().to_string();
        text.parse().map_err(|_| io::Error::other(format!("{path:?} {option}: {out:?}")))
    };
    Ok((id("-u")?, id("-g")?))
}
