//! SiftFS in a program: a handle on the file protocol, without a mount.
//!
//! ```no_run
//! # fn main() -> siftfs::Result<()> {
//! let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
//! let file = volume.create("/orders/today", 0o640)?;
//! file.write_at(0, b"first")?;
//! file.sync_data()?; // one write, one flush; durable with its name when this returns
//! drop(file);
//! volume.close() // plain ext4 again
//! # }
//! ```
//!
//! A program that has other work to do than to wait for storage takes a [`Ticket`]:
//!
//! ```no_run
//! # fn main() -> siftfs::Result<()> {
//! # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
//! # let file = volume.create("/orders/today", 0o640)?;
//! file.write_at(0, b"first")?;
//! let first = file.stage()?;
//! file.write_at(5, b"second")?; // survives no crash that the first does not
//! file.stage()?.when_durable(|durable| println!("both: {durable:?}"));
//! first.wait()
//! # }
//! ```
//!
//! Paths are absolute byte strings from the volume's root; symbolic links in them are not followed.
//! Durability is that of fsync on a mount (crash model, S1 to S3). Dropping a [`Volume`] without
//! [`Volume::close`] is a crash: the next open recovers what was durable.

mod compound;
mod file;
mod publish;
mod section;
mod ticket;

pub use compound::{
    Access, BytesOperand, BytesStep, Checksum, Codec, Coming, Compound, CompoundError, FileOperand,
    FileStep, NewAttributes, NumberOperand, NumberStep, Operand, Results, Width, carry_out,
};
pub use file::File;
pub use publish::Publish;
pub use section::{Section, commit_all, commit_ordered};
pub use siftfs_base::{Error, Result};
pub use siftfs_placement::{OpenOptions, Threads};
pub use siftfs_proto::{Attr, Credentials, DirEntry, FileKind, RenameMode, SetAttr, StatFs};
pub use siftfs_status::{CheckpointReport, RuntimeStatus};
pub use ticket::Ticket;

use siftfs_base::{Clock, InodeNr, errno};
use siftfs_device::Device;
use siftfs_placement::LocalVolume;
use siftfs_proto::{FileService, ROOT_INO, Reply, Request, SessionId};
use std::path::Path;
use std::sync::Arc;

/// Session number of an embedding program's own calls.
const SESSION: SessionId = SessionId(0);
/// Bytes of names asked for in one directory request.
const DIR_BYTES: u32 = 64 << 10;

/// What every handle of one volume shares.
struct Shared {
    service: Arc<dyn FileService>,
    cred: Credentials,
}

impl Shared {
    fn call(&self, req: Request) -> Result<Reply> {
        self.service.call(SESSION, &self.cred, req)
    }

    /// As [`Shared::call`], with the answer on whatever thread has it.
    fn submit(&self, req: Request, done: impl FnOnce(Result<Reply>) + Send + 'static) {
        self.service.submit(SESSION, &self.cred, req, Box::new(done));
    }
}

/// An open volume: Runtime and Service in this process.
pub struct Volume {
    local: LocalVolume,
    shared: Arc<Shared>,
}

fn unexpected(reply: &Reply) -> Error {
    siftfs_base::corrupt("file protocol", format!("an answer to another question: {reply:?}"))
}

/// An absolute path as one relative to the root.
fn below_root(path: &str) -> Vec<u8> {
    path.trim_start_matches('/').into()
}

/// Directory and last name of a path.
fn split(path: &str) -> Result<(&str, &str)> {
    let path = path.trim_end_matches('/');
    let at = path.rfind('/').ok_or_else(|| errno(libc::EINVAL))?;
    Ok((&path[..at], &path[at + 1..]))
}

impl Volume {
    /// Opens a volume in a file or on a block device, exclusively, with the usual settings, and
    /// recovers it first if it is dirty. Calls are made as root.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// As [`Volume::open`], with settings.
    pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Self> {
        Ok(Self::from_local(LocalVolume::open(path, options, &mut |_, _, _| {})?))
    }

    /// Opens a volume on any device, with any clock; [`Threads::None`] runs everything on the
    /// callers' threads.
    pub fn open_on(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        options: &OpenOptions,
        threads: Threads,
    ) -> Result<Self> {
        Ok(Self::from_local(LocalVolume::open_on(device, clock, options, threads)?))
    }

    /// A handle on a volume that is open already.
    pub fn from_local(local: LocalVolume) -> Self {
        let shared = Arc::new(Shared { service: local.endpoint(), cred: Credentials::default() });
        Self { local, shared }
    }

    /// The endpoint itself, for requests this handle has no method for.
    pub fn endpoint(&self) -> &Arc<dyn FileService> {
        &self.shared.service
    }

    /// Everything final and in the area; the volume is plain ext4 afterwards.
    pub fn close(self) -> Result<()> {
        self.done(Request::EndSession)?;
        self.local.close()
    }

    /// Stops as a crash would: nothing more is written.
    pub fn abandon(self) {
        self.local.abandon();
    }

    /// Walks a path; each directory on the way is released again.
    fn walk(&self, path: &str) -> Result<Attr> {
        let mut attr = match self.shared.call(Request::GetAttr { ino: ROOT_INO })? {
            Reply::Attr(attr) => attr,
            other => return Err(unexpected(&other)),
        };
        for name in path.split('/').filter(|n| !n.is_empty()) {
            attr = self.entry(Request::Lookup { parent: attr.ino, name: name.into() })?;
        }
        Ok(attr)
    }

    /// A request answered by an entry, whose reference is given back: an open handle holds the
    /// inode where that matters.
    fn entry(&self, req: Request) -> Result<Attr> {
        match self.shared.call(req)? {
            Reply::Entry(attr) => {
                self.shared.call(Request::Forget { ino: attr.ino, count: 1 })?;
                Ok(attr)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn done(&self, req: Request) -> Result<()> {
        match self.shared.call(req)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(InodeNr, &'p str)> {
        let (dir, name) = split(path)?;
        Ok((self.walk(dir)?.ino, name))
    }

    /// Attributes of what a path names.
    pub fn stat(&self, path: &str) -> Result<Attr> {
        self.walk(path)
    }

    /// Creates a regular file, which must not exist, and opens it.
    pub fn create(&self, path: &str, perm: u16) -> Result<File> {
        let (parent, name) = self.parent(path)?;
        match self.shared.call(Request::Create { parent, name: name.into(), perm })? {
            Reply::Created { attr, handle } => {
                self.shared.call(Request::Forget { ino: attr.ino, count: 1 })?;
                Ok(File::new(self.shared.clone(), attr.ino, handle))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Opens a regular file for reading and writing.
    pub fn open_file(&self, path: &str) -> Result<File> {
        let ino = self.walk(path)?.ino;
        let req = Request::Open { ino, access: Access::Both, truncate: false, kill_priv: false };
        match self.shared.call(req)? {
            Reply::Opened { handle } => Ok(File::new(self.shared.clone(), ino, handle)),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a directory.
    pub fn create_dir(&self, path: &str, perm: u16) -> Result<Attr> {
        let (parent, name) = self.parent(path)?;
        self.entry(Request::MakeDir { parent, name: name.into(), perm })
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, path: &str, target: &str) -> Result<Attr> {
        let (parent, name) = self.parent(path)?;
        self.entry(Request::Symlink { parent, name: name.into(), target: target.into() })
    }

    /// Gives a file one more name.
    pub fn link(&self, existing: &str, path: &str) -> Result<Attr> {
        let ino = self.walk(existing)?.ino;
        let (parent, name) = self.parent(path)?;
        self.entry(Request::Link { ino, parent, name: name.into() })
    }

    /// Removes a name of anything but a directory.
    pub fn remove_file(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.done(Request::Unlink { parent, name: name.into() })
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.done(Request::RemoveDir { parent, name: name.into() })
    }

    /// Renames, as renameat2(2).
    pub fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<()> {
        let (parent, name) = self.parent(from)?;
        let (new_parent, new_name) = self.parent(to)?;
        let (name, new_name) = (name.into(), new_name.into());
        self.done(Request::Rename { parent, name, new_parent, new_name, mode })
    }

    /// Begins a list of names that change together.
    pub fn publish(&self) -> Publish<'_> {
        Publish::new(self)
    }

    /// Makes a regular file without a name, which [`Publish::open_file`] may give one. It inherits
    /// what a file in directory `dir` does. Dropped without a name, it is gone.
    pub fn create_unnamed(&self, dir: &str, perm: u16) -> Result<File> {
        let parent = self.walk(dir)?.ino;
        match self.shared.call(Request::TmpFile { parent, perm, exclusive: false })? {
            Reply::Created { attr, handle } => {
                self.shared.call(Request::Forget { ino: attr.ino, count: 1 })?;
                Ok(File::new(self.shared.clone(), attr.ino, handle))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// All entries of a directory but `.` and `..`, in the directory's order.
    pub fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>> {
        let ino = self.walk(path)?.ino;
        let Reply::Opened { handle } = self.shared.call(Request::OpenDir { ino })? else {
            return Err(errno(libc::EIO));
        };
        let mut all = Vec::new();
        let mut cookie = 0;
        let result = loop {
            let req = Request::ReadDir { handle, cookie, max_bytes: DIR_BYTES, plus: false };
            match self.shared.call(req) {
                Ok(Reply::Dir(entries)) if entries.is_empty() => break Ok(()),
                Ok(Reply::Dir(entries)) => {
                    cookie = entries.last().map_or(cookie, |e| e.cookie);
                    all.extend(entries.into_iter().filter(|e| e.name != b"." && e.name != b".."));
                }
                Ok(other) => break Err(unexpected(&other)),
                Err(e) => break Err(e),
            }
        };
        self.done(Request::Release { handle })?;
        result.map(|()| all)
    }

    /// Changes attributes.
    pub fn set_attr(&self, path: &str, set: SetAttr) -> Result<Attr> {
        let ino = self.walk(path)?.ino;
        match self.shared.call(Request::SetAttr { ino, set })? {
            Reply::Attr(attr) => Ok(attr),
            other => Err(unexpected(&other)),
        }
    }

    /// fsync of a directory: its entries are durable on return.
    pub fn sync_dir(&self, path: &str) -> Result<()> {
        let ino = self.walk(path)?.ino;
        self.done(Request::Fsync { ino, datasync: false })
    }

    /// A ticket of everything staged so far, by [`File::stage`], a sync or the background. What is
    /// staged later never survives a crash without it, with or without a barrier.
    ///
    /// ```no_run
    /// # fn main() -> siftfs::Result<()> {
    /// # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
    /// for name in ["/a", "/b", "/c"] {
    ///     volume.open_file(name)?.stage()?;
    /// }
    /// volume.barrier()?.wait() // all three
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EAGAIN` when 65,536 tickets are not durable.
    pub fn barrier(&self) -> Result<Ticket> {
        Ticket::drawn(&self.shared, Request::Barrier)
    }

    /// The ticket of this number, as [`Ticket::number`] said. One that this volume did not give
    /// since it was opened is `EINVAL` when it is asked.
    pub fn ticket(&self, number: u64) -> Ticket {
        Ticket::numbered(&self.shared, number)
    }

    /// Everything done before this call is durable on return.
    pub fn sync(&self) -> Result<()> {
        self.done(Request::SyncAll)
    }

    /// Journals and checkpoints everything; the answer says what the checkpoint did.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        match self.shared.call(Request::Checkpoint)? {
            Reply::Checkpoint(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Counts, latencies and fill: the part `runtime` of what `siftfs status --json` shows.
    pub fn status(&self) -> Result<RuntimeStatus> {
        match self.shared.call(Request::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Result<StatFs> {
        match self.shared.call(Request::StatFs)? {
            Reply::Statfs(s) => Ok(s),
            other => Err(unexpected(&other)),
        }
    }
}
