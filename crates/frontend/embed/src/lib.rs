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

#![warn(clippy::missing_errors_doc)]

mod compound;
mod connect;
mod direct;
mod file;
mod lock;
mod publish;
mod section;
mod ticket;

pub use compound::{
    Access, BytesOperand, BytesStep, Checksum, Codec, Coming, Compound, CompoundError, FileOperand,
    FileStep, NewAttributes, NumberOperand, NumberStep, Operand, Results, Width, carry_out,
};
pub use connect::{ConnectOptions, WhenLost};
pub use direct::{AtomicSection, Direct, DirectFile};
pub use file::File;
pub use publish::Publish;
pub use section::{Section, commit_all, commit_ordered};
pub use siftfs_base::{Error, Result};
pub use siftfs_placement::{OpenOptions, TargetPlace, Threads};
pub use siftfs_proto::{
    Attr, Cache, Credentials, DirEntry, FileKind, RenameMode, Rights, SetAttr, StatFs,
};
pub use siftfs_remote::{Address, Claim, Secured, TransportOptions, Trust, transport};
pub use siftfs_status::{CheckpointReport, RuntimeStatus};
pub use ticket::Ticket;

use connect::Session;
use siftfs_base::{Clock, InodeNr, errno};
use siftfs_device::Device;
use siftfs_placement::LocalVolume;
use siftfs_proto::{FileService, Holder, Opening, ROOT_INO, Reply, Request, Target};
use siftfs_remote::{Ways, claim_at};
use std::path::Path;
use std::sync::Arc;

/// Bytes of names asked for in one directory request.
const DIR_BYTES: u32 = 64 << 10;

/// What every handle of one volume shares.
struct Shared {
    service: Arc<dyn FileService>,
    cred: Credentials,
}

impl Shared {
    fn call(&self, req: Request) -> Result<Reply> {
        self.service.call(&self.cred, req)
    }

    /// As [`Shared::call`], with the answer on whatever thread has it.
    fn submit(&self, req: Request, done: impl FnOnce(Result<Reply>) + Send + 'static) {
        self.service.submit(&self.cred, req, Box::new(done));
    }
}

/// An open volume: Runtime and Service in this process, or in one that serves it.
pub struct Volume {
    /// None of a volume that another process serves.
    local: Option<LocalVolume>,
    /// The session of such a volume.
    remote: Option<Arc<Session>>,
    shared: Arc<Shared>,
}

/// How often [`Volume::open_or_create`] tries while others make and remove the name.
pub const OPEN_TRIES: usize = 100;

/// An inode that was looked up, and whose number may be named until this is dropped.
struct Found {
    /// None for the root, which needs no lookup.
    shared: Option<Arc<Shared>>,
    attr: Attr,
}

impl Found {
    fn ino(&self) -> InodeNr {
        self.attr.ino
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            // A session that has ended has forgotten everything.
            let _ = shared.call(Request::Forget { ino: self.attr.ino, count: 1 });
        }
    }
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

/// For whom this process connects to a server, and how it reaches one.
fn usual(address: &Address) -> Result<(Claim, TransportOptions, Option<Secured>)> {
    let claim = claim_at(address);
    let options = transport();
    let secured = Trust::default().secure(address, &options, None)?;
    Ok((claim, options, secured))
}

impl Volume {
    /// Opens a volume in a file or on a block device, exclusively, with the usual settings, and
    /// recovers it first if it is dirty. Calls are made as root.
    ///
    /// # Errors
    /// Refused if another process has the volume, or it cannot be opened; `Corrupt` and
    /// `Incompatible` if it is damaged or of another version; what the storage reports.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// As [`Volume::open`], with settings.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Self> {
        Self::from_local(LocalVolume::open(path, options, &mut |_, _, _| {})?)
    }

    /// Opens a volume on any device, with any clock; [`Threads::None`] runs everything on the
    /// callers' threads.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_on(
        device: Arc<dyn Device>,
        clock: Arc<dyn Clock>,
        options: &OpenOptions,
        threads: Threads,
    ) -> Result<Self> {
        Self::from_local(LocalVolume::open_on(device, clock, options, threads)?)
    }

    /// A handle on a volume that is open already.
    ///
    /// # Errors
    /// `ENFILE` if too many sessions are open on it.
    pub fn from_local(local: LocalVolume) -> Result<Self> {
        let service = local.session(Opening::owner())?;
        let shared = Arc::new(Shared { service, cred: Credentials::default() });
        Ok(Self { local: Some(local), remote: None, shared })
    }

    /// Opens a session of a volume that `siftfs serve` serves at `address`: over `unix:PATH` for
    /// its owner, if this process is root's or of the user who made the socket, and else for this
    /// process's user; over `tcp:HOST:PORT` or `rdma:HOST:PORT` for this process's user, with the
    /// machine's key and the servers that it knows (`docs/design/keys.md`). Calls do what they do
    /// in the serving process. If that process ends, or the connection is lost, calls wait until it
    /// is there again, and go on (`docs/design/lost-server.md`): files stay open, and a sync covers
    /// what was written before. [`Volume::connect_by`] has it otherwise.
    ///
    /// Several servers may be named, at most one of which has the volume at a time: up to eight
    /// addresses with commas between them, or `HOSTS:/VOLUME` as `siftfs mount` takes it. They are
    /// tried in turn, and after a loss from the one on that answered last.
    ///
    /// # Errors
    /// `Refused` if no server listens there, its key is not known, it does not admit this
    /// machine's, or it opens no session for this process; the message says why.
    pub fn connect(address: &str) -> Result<Self> {
        Self::connect_to(address, "")
    }

    /// As [`Volume::connect`], of the volume with this name or UUID; without one, of the volume
    /// that is served there.
    ///
    /// # Errors
    /// As [`Volume::connect`], and no volume is called so.
    pub fn connect_to(address: &str, volume: &str) -> Result<Self> {
        Self::connect_by(address, volume, &ConnectOptions::default())
    }

    /// As [`Volume::connect_to`], with options: what becomes of the session when its server is
    /// lost.
    ///
    /// # Errors
    /// As [`Volume::connect_to`].
    pub fn connect_by(address: &str, volume: &str, by: &ConnectOptions) -> Result<Self> {
        let (addresses, volume) = connect::named(address, volume)?;
        let claim = claim_at(addresses.first());
        let ways = Ways::trusting(&addresses, &Trust::default());
        Self::by(ways, (&volume, claim), by.when_lost)
    }

    /// As [`Volume::connect`], of a volume with this name or UUID, for somebody whom the server has
    /// to believe in: by a unix socket of its own, anybody; over TCP, with keys or without, as far
    /// as the machine's line in its `authorized` file says.
    ///
    /// # Errors
    /// As [`Volume::connect`].
    pub fn connect_with(
        address: &Address,
        reached: (&TransportOptions, Option<&Secured>),
        volume: &str,
        claim: Claim,
    ) -> Result<Self> {
        Self::of_server(address, reached, (volume, claim), WhenLost::default())
    }

    /// As [`Volume::connect_with`], and what becomes of the session when its server is lost.
    ///
    /// # Errors
    /// As [`Volume::connect`].
    pub fn of_server(
        address: &Address,
        reached: (&TransportOptions, Option<&Secured>),
        about: (&str, Claim),
        when_lost: WhenLost,
    ) -> Result<Self> {
        Self::by(Ways::to(address, reached), about, when_lost)
    }

    fn by(ways: Ways, about: (&str, Claim), when_lost: WhenLost) -> Result<Self> {
        let remote = Session::connect(ways, about, when_lost)?;
        let (service, cred) = (remote.clone(), Credentials::default());
        let shared = Arc::new(Shared { service, cred });
        Ok(Self { local: None, remote: Some(remote), shared })
    }

    /// The volume itself, which only the process has that opened it.
    fn local(&self) -> Result<&LocalVolume> {
        self.local.as_ref().ok_or_else(|| errno(libc::EOPNOTSUPP))
    }

    /// Opens a session for another front end of the volume, which is told by `cache` of what others
    /// change. It ends when it is dropped.
    ///
    /// # Errors
    /// `ENFILE` if too many sessions are open, `EOPNOTSUPP` for a volume that another process
    /// serves.
    pub fn front(&self, opening: Opening, cache: Arc<dyn Cache>) -> Result<Arc<dyn FileService>> {
        self.local()?.front(opening, cache)
    }

    /// Opens a session that may hold write leases: `holder` is told when one is recalled. It ends
    /// when it is dropped.
    ///
    /// # Errors
    /// As [`Volume::front`].
    pub fn holder(
        &self,
        opening: Opening,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<dyn FileService>> {
        self.local()?.holder(opening, holder)
    }

    /// The endpoint itself, for requests this handle has no method for.
    pub fn endpoint(&self) -> &Arc<dyn FileService> {
        &self.shared.service
    }

    /// Writes everything into the area. The volume is plain ext4 when this returns. One that is
    /// served by another process stays open there: this session ends, and what it has written is
    /// durable if it is one that comes back.
    ///
    /// # Errors
    /// `Latched` after a failed write or flush, and what the storage reports. The volume stays
    /// marked as in use then, and the next open recovers what was durable. `Link`, if another
    /// process serves the volume, and it is lost: what was not synced may not be there any more.
    pub fn close(self) -> Result<()> {
        if let Some(remote) = &self.remote {
            return remote.close();
        }
        self.done(Request::EndSession)?;
        self.local.map_or(Ok(()), LocalVolume::close)
    }

    /// Stops as a crash of this process would: nothing more is written by it.
    pub fn abandon(self) {
        self.remote.iter().for_each(|remote| remote.abandon());
        if let Some(local) = self.local {
            local.abandon();
        }
    }

    /// Walks a path; each directory on the way is released again.
    fn walk(&self, path: &str) -> Result<Found> {
        let attr = self.shared.call(Request::GetAttr { file: ROOT_INO.into() })?.attr()?;
        let mut found = Found { shared: None, attr };
        for name in path.split('/').filter(|n| !n.is_empty()) {
            found = self.entry(Request::Lookup { parent: found.ino(), name: name.into() })?;
        }
        Ok(found)
    }

    /// A request answered by an entry.
    fn entry(&self, req: Request) -> Result<Found> {
        let attr = self.shared.call(req)?.attr()?;
        Ok(Found { shared: Some(self.shared.clone()), attr })
    }

    fn done(&self, req: Request) -> Result<()> {
        self.shared.call(req)?.done()
    }

    /// A request that makes a file. The open handle holds its inode.
    fn made(&self, req: Request) -> Result<File> {
        let (attr, handle) = self.shared.call(req)?.created()?;
        let ino = Found { shared: Some(self.shared.clone()), attr }.ino();
        Ok(File::new(self.shared.clone(), ino, handle))
    }

    /// The directory of what a path names, and the name in it.
    fn parent<'p>(&self, path: &'p str) -> Result<(Found, &'p str)> {
        let (dir, name) = split(path)?;
        Ok((self.walk(dir)?, name))
    }

    /// Does something with what a path names, by a handle.
    fn held<T>(&self, path: &str, act: impl FnOnce(Target) -> Result<T>) -> Result<T> {
        let found = self.walk(path)?;
        let handle = self.shared.call(Request::Hold { ino: found.ino() })?.opened()?;
        let result = act(handle.into());
        self.done(Request::Release { handle })?;
        result
    }

    /// Attributes of what a path names. A symbolic link at its end is not followed.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` for the path; what the storage reports.
    pub fn stat(&self, path: &str) -> Result<Attr> {
        Ok(self.walk(path)?.attr.clone())
    }

    /// Creates a regular file, which must not exist, and opens it to read and write. Its name is
    /// durable with the file's next [`File::sync_all`] or [`File::sync_data`].
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` or `ENOTDIR` for the path, `ENAMETOOLONG`, `ENOSPC`, `EROFS`; `Latched`
    /// after a failed write or flush.
    pub fn create(&self, path: &str, perm: u16) -> Result<File> {
        let (dir, name) = self.parent(path)?;
        self.made(Request::Create { parent: dir.ino(), name: name.into(), perm })
    }

    /// Opens a regular file for reading and writing.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` for the path, `EISDIR` for a directory, `EPERM` for an immutable
    /// file, `EROFS`.
    pub fn open_file(&self, path: &str) -> Result<File> {
        self.open_for(path, Access::Both)
    }

    /// Opens a regular file for reading and writing, or creates it if it is not there. Others may
    /// create it, remove it and create it again meanwhile: the file that is returned is one that
    /// had the name during the call. A name made here is durable as after [`Volume::create`].
    ///
    /// # Errors
    /// As [`Volume::open_file`] and [`Volume::create`]; `EAGAIN` if others have changed the name
    /// before each of [`OPEN_TRIES`] attempts.
    pub fn open_or_create(&self, path: &str, perm: u16) -> Result<File> {
        for _ in 0..OPEN_TRIES {
            match self.open_file(path) {
                Err(Error::Posix(libc::ENOENT)) => {}
                other => return other,
            }
            match self.create(path, perm) {
                Err(Error::Posix(libc::EEXIST)) => {}
                other => return other,
            }
        }
        Err(errno(libc::EAGAIN))
    }

    fn open_for(&self, path: &str, access: Access) -> Result<File> {
        let found = self.walk(path)?;
        let req = Request::open(found.ino(), access);
        let handle = self.shared.call(req)?.opened()?;
        Ok(File::new(self.shared.clone(), found.ino(), handle))
    }

    /// Makes a directory. It is durable with [`Volume::sync_dir`] of it or of the directory above.
    ///
    /// # Errors
    /// As [`Volume::create`], and `EMLINK` for too many directories in one.
    pub fn create_dir(&self, path: &str, perm: u16) -> Result<Attr> {
        let (dir, name) = self.parent(path)?;
        let made = self.entry(Request::MakeDir { parent: dir.ino(), name: name.into(), perm })?;
        Ok(made.attr.clone())
    }

    /// Makes a symbolic link. It is durable with [`Volume::sync_dir`] of its directory.
    ///
    /// # Errors
    /// As [`Volume::create`]; `ENOENT` for an empty target, `ENAMETOOLONG` for one of more than
    /// 4,095 bytes.
    pub fn symlink(&self, path: &str, target: &str) -> Result<Attr> {
        let (dir, name) = self.parent(path)?;
        let made = self.entry(Request::Symlink {
            parent: dir.ino(),
            name: name.into(),
            target: target.into(),
        })?;
        Ok(made.attr.clone())
    }

    /// Gives a file one more name, which is durable with the file's next sync or
    /// [`Volume::sync_dir`] of the directory.
    ///
    /// # Errors
    /// As [`Volume::create`]; `EPERM` for a directory, `EMLINK` for more than 65,000 names.
    pub fn link(&self, existing: &str, path: &str) -> Result<Attr> {
        let (file, (dir, name)) = (self.walk(existing)?, self.parent(path)?);
        let (ino, parent) = (file.ino(), dir.ino());
        Ok(self.entry(Request::Link { ino, parent, name: name.into() })?.attr.clone())
    }

    /// Removes a name of anything but a directory. That is durable with [`Volume::sync_dir`] of the
    /// directory. An open file keeps its bytes until it is closed.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` for the path, `EISDIR` for a directory, `EPERM` for an immutable or
    /// append-only file, `EROFS`; `Latched` after a failed write or flush.
    pub fn remove_file(&self, path: &str) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        self.done(Request::Unlink { parent: dir.ino(), name: name.into() })
    }

    /// Removes an empty directory. That is durable with [`Volume::sync_dir`] of the one above.
    ///
    /// # Errors
    /// As [`Volume::remove_file`]; `ENOTEMPTY`, and `ENOTDIR` for what is no directory.
    pub fn remove_dir(&self, path: &str) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        self.done(Request::RemoveDir { parent: dir.ino(), name: name.into() })
    }

    /// Renames, as renameat2(2). It is durable with the file's next sync, or with
    /// [`Volume::sync_dir`]. A file that gets another one's name keeps the bytes written before,
    /// also after a crash.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` for a path, `EEXIST`, `EISDIR`, `ENOTEMPTY` for the new name,
    /// `EINVAL` for a directory moved below itself, `EPERM`, `ENOSPC`, `EROFS`; `Latched`.
    pub fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<()> {
        let ((from, name), (to, new_name)) = (self.parent(from)?, self.parent(to)?);
        let (parent, new_parent) = (from.ino(), to.ino());
        let (name, new_name) = (name.into(), new_name.into());
        self.done(Request::Rename { parent, name, new_parent, new_name, mode })
    }

    /// Begins a list of names that change together.
    pub fn publish(&self) -> Publish<'_> {
        Publish::new(self)
    }

    /// Makes a regular file without a name, which [`Publish::open_file`] may give one. It inherits
    /// what a file in directory `dir` does. Dropped without a name, it is gone; so it is after a
    /// crash.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_unnamed(&self, dir: &str, perm: u16) -> Result<File> {
        let dir = self.walk(dir)?;
        self.made(Request::TmpFile { parent: dir.ino(), perm, exclusive: false })
    }

    /// All entries of a directory but `.` and `..`, in the directory's order. Takes memory for all
    /// of them.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` for the path; `Corrupt` for a damaged directory.
    pub fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>> {
        let dir = self.walk(path)?;
        let handle = self.shared.call(Request::OpenDir { ino: dir.ino() })?.opened()?;
        let mut all = Vec::new();
        let mut cookie = 0;
        let result = loop {
            let req = Request::ReadDir { handle, cookie, max_bytes: DIR_BYTES, plus: false };
            match self.shared.call(req).and_then(Reply::entries) {
                Ok(entries) if entries.is_empty() => break Ok(()),
                Ok(entries) => {
                    cookie = entries.last().map_or(cookie, |e| e.cookie);
                    all.extend(entries.into_iter().filter(|e| e.name != b"." && e.name != b".."));
                }
                Err(e) => break Err(e),
            }
        };
        self.done(Request::Release { handle })?;
        result.map(|()| all)
    }

    /// Changes attributes, and answers with what they are then. Durable with the file's next sync;
    /// changes of permissions go along with any sync below a directory.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` for the path, `EPERM`, `EFBIG` or `ENOSPC` for a size, `EROFS`;
    /// `Latched` after a failed write or flush.
    pub fn set_attr(&self, path: &str, set: SetAttr) -> Result<Attr> {
        self.held(path, |file| {
            self.shared.call(Request::SetAttr { file, set, times: true })?.attr()
        })
    }

    /// fsync of a directory: its entries are durable on return.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` for the path; `Latched` (`EIO`) after a failed write or flush: nothing
    /// more is promised then until the volume is opened again.
    pub fn sync_dir(&self, path: &str) -> Result<()> {
        self.held(path, |file| self.done(Request::Fsync { file, datasync: false }))
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
    ///
    /// # Errors
    /// As [`Volume::sync_dir`].
    pub fn sync(&self) -> Result<()> {
        self.done(Request::SyncAll)
    }

    /// Journals and checkpoints everything: it is durable and in the area on return. The answer
    /// says what the checkpoint did.
    ///
    /// # Errors
    /// As [`Volume::sync_dir`].
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.shared.call(Request::Checkpoint)?.checkpointed()
    }

    /// Counts, latencies and fill: the part `runtime` of what `siftfs status --json` shows, also of
    /// a volume that has stopped.
    ///
    /// # Errors
    /// The Service cannot be asked although the volume serves.
    pub fn status(&self) -> Result<RuntimeStatus> {
        self.shared.call(Request::Status)?.status()
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// None of its own.
    pub fn statfs(&self) -> Result<StatFs> {
        self.shared.call(Request::StatFs)?.space()
    }
}
