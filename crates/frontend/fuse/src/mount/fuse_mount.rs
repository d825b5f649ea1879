//! Mounting and unmounting with the kernel's own calls.
//!
//! Our own system calls instead of a helper program: the subtype and the flags are ours to
//! choose, and a bare umount(2) ends the session.

use crate::front::cache::Front;
use crate::kernel::MAX_IO;
use crate::kernel::counts::Counts;
use crate::kernel::priority::{Priority, Schedule};
use crate::kernel::session::{Session, Wanted};
use crate::kernel::transport::{RequestLoop, Requests, State};
use crate::logs::tokens::Tokens;
use crate::mount::detached::{Detached, attach};
use crate::mount::mountinfo::{MountEntry, top_mount};
use crate::mount::switch::Switch;
use crate::pages::expiry::{Expiry, Prepared, WriteBack};
use crate::pages::writers::Writers;
use crate::serve::adapter::Adapter;
use crate::serve::agreed::Agreed;
use crate::serve::scope::{self, Scope};
use crate::serve::server::Server;
use rustix::mount::{MountFlags, UnmountFlags};
use siftfs_base::InodeNr;
use siftfs_proto::{Credentials, FileService, ROOT_INO, Request};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How a volume is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What the mount table shows as the source.
    pub source: PathBuf,
    /// `Some("siftfs")` gives the type `fuse.siftfs`, `None` plain `fuse`.
    pub subtype: Option<String>,
    /// Let every user in (permissions are still checked by the kernel).
    pub allow_other: bool,
    /// Refuse every change.
    pub read_only: bool,
    /// Ignore setuid, setgid and file capabilities.
    pub nosuid: bool,
    /// Ignore device files.
    pub nodev: bool,
    /// Refuse to execute.
    pub noexec: bool,
    /// Every write as if the file were opened with O_SYNC.
    pub sync: bool,
    /// Access times are not kept.
    pub noatime: bool,
    /// Threads that stay ready to read a request; while requests take long there are more.
    pub threads: usize,
    /// How the kernel's requests shall come.
    pub requests: Requests,
    /// How soon the threads that carry requests out get a processor.
    pub priority: Priority,
    /// Where write(2) leaves data.
    pub write_cache: WriteCache,
    /// Its bind mounts may map users to others (idmapped mounts). For most requests the kernel then
    /// does not say who the caller is.
    pub idmap: bool,
    /// Other mounts of the volume may be attached while it is mounted: file locks are the volume's,
    /// and not this mount's. Not with [`WriteCache::Writeback`].
    pub shared: bool,
    /// In [`WriteCache::Writeback`], the kernel's dirty pages of open files are asked for so often.
    pub write_back_every: Duration,
    /// SiftFS's own operations are there: publish, compounds, tickets, atomic sections.
    pub operations: bool,
    /// Programs may get write leases of files that they have open to be written, and keep a log of
    /// what they write (`docs/design/private-logs.md`). Needs `operations`; not with
    /// [`WriteCache::Writeback`].
    pub private_logs: bool,
    /// The directory of the volume that is the mount's root.
    pub root: InodeNr,
}

/// Where write(2) leaves data: `docs/design/kernel-cache.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCache {
    /// With the server: each call is a request.
    #[default]
    Writethrough,
    /// In the kernel's page cache, until fsync, close, memory or age sends it on.
    Writeback,
}

/// Why a mount with the writeback cache is not shared.
const NOT_SHARED: &str = "a shared mount cannot have write_cache=writeback: other mounts would not \
                          see what the kernel holds back";

/// Why a mount with the writeback cache has no private logs.
const NO_LOGS: &str = "a mount with private_logs=on cannot have write_cache=writeback: the kernel \
                       owns sizes and times of files there";
/// Why a mount without operations has none.
const NO_GRANT: &str = "a mount with private_logs=on cannot have operations=off: programs ask for a \
                        log by one of them";

impl MountOptions {
    /// Why they exclude each other, if they do.
    fn excluded(&self) -> Option<&'static str> {
        let writeback = self.write_cache == WriteCache::Writeback;
        match (writeback, self.shared, self.private_logs) {
            (true, true, _) => Some(NOT_SHARED),
            (true, _, true) => Some(NO_LOGS),
            (_, _, true) if !self.operations => Some(NO_GRANT),
            _ => None,
        }
    }

    /// Does the mount have a [`Front`]?
    pub fn has_front(&self) -> bool {
        self.shared || self.private_logs
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: PathBuf::from("siftfs"),
            subtype: Some("siftfs".into()),
            allow_other: rustix::process::geteuid().is_root(),
            read_only: false,
            nosuid: false,
            nodev: false,
            noexec: false,
            sync: false,
            noatime: false,
            threads: 2,
            requests: Requests::Auto,
            priority: Priority::default(),
            write_cache: WriteCache::default(),
            idmap: false,
            shared: false,
            write_back_every: Duration::from_millis(2500),
            operations: true,
            private_logs: false,
            root: ROOT_INO,
        }
    }
}

/// A mount that is nowhere yet: the kernel has it, and kernel and server have agreed on the
/// protocol. It ends when this is dropped.
pub struct NewMount {
    detached: Detached,
    session: Session,
    server: Arc<Server>,
    options: MountOptions,
    read_only: Switch,
    front: Option<Arc<Front>>,
}

impl NewMount {
    /// Makes a mount of `service`.
    ///
    /// # Errors
    /// `InvalidInput` for options that exclude each other; what the kernel lacks or refuses; the
    /// root was removed, or is no directory.
    pub fn new(service: Arc<dyn FileService>, options: &MountOptions) -> io::Result<Self> {
        let writeback = options.write_cache == WriteCache::Writeback;
        if let Some(why) = options.excluded() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let device = open_device()?;
        let detached = Detached::new(&device, options)?;
        let read_only = Switch::new(options.read_only);
        let below = options.root != ROOT_INO;
        let service =
            Scope::before(service, options.root, read_only.clone()).map_err(scope::told)?;
        let &MountOptions { requests, idmap, shared, private_logs, .. } = options;
        let wanted = Wanted { requests, writeback, idmap, shared, below };
        let session = Session::start(device, wanted)?;
        let agreed = Agreed {
            acls: session.has_acls(),
            writeback: session.has_writeback(),
            settled: session.settles_pages(),
            no_opendir: session.has_no_opendir(),
            idmap,
            shared,
            private_logs,
        };
        let server = Server::new(service, agreed).with_sync(options.sync);
        let server = Arc::new(server.with_operations(options.operations));
        let options = options.clone();
        Ok(Self { detached, session, server, options, read_only, front: None })
    }

    /// As [`FuseMount::with_front`].
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn with_front(self, front: Arc<Front>) -> Self {
        Self { front: Some(front), ..self }
    }

    /// The descriptor that stands for it, for [`attach`].
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.detached.tree()
    }

    /// The mount, which is on a directory now; `None` if it is not to be seen in this process's
    /// mount namespace.
    ///
    /// # Errors
    /// The table of mounts cannot be read.
    pub fn attached(self) -> io::Result<Option<FuseMount>> {
        let Some(entry) = self.detached.entry()? else { return Ok(None) };
        read_ahead(&entry);
        let Self { session, server, options, read_only, front, .. } = self;
        let mount = FuseMount {
            session,
            server,
            threads: options.threads.clamp(1, 64),
            schedule: Arc::new(Schedule::new(options.priority)),
            entry,
            expiry: Prepared::new(options.write_back_every),
            front: None,
            read_only,
        };
        Ok(Some(match front {
            Some(front) => mount.with_front(front),
            None => mount,
        }))
    }
}

/// A mounted volume; nothing is answered before [`FuseMount::serve`].
pub struct FuseMount {
    session: Session,
    server: Arc<Server>,
    threads: usize,
    schedule: Arc<Schedule>,
    entry: MountEntry,
    expiry: Prepared,
    front: Option<Arc<Front>>,
    read_only: Switch,
}

impl FuseMount {
    /// Mounts `service` on `dir`, an absolute path without symbolic links. When this returns,
    /// kernel and server have agreed on the protocol; requests wait until [`FuseMount::serve`].
    ///
    /// # Errors
    /// As [`NewMount::new`] and [`attach`].
    pub fn new(
        service: Arc<dyn FileService>,
        dir: &Path,
        options: &MountOptions,
    ) -> io::Result<Self> {
        let explained = |e: io::Error| match e.raw_os_error() {
            None => e,
            Some(number) => {
                let hint = if number == libc::EPERM { " (mounting needs root)" } else { "" };
                io::Error::new(e.kind(), format!("mount on {}: {e}{hint}", dir.display()))
            }
        };
        let made = NewMount::new(service, options).map_err(explained)?;
        attach(made.tree(), dir).map_err(explained)?;
        let mount = made.attached()?;
        mount.ok_or_else(|| io::Error::other("the new mount is not visible"))
    }

    /// Others may take back what the mount's kernel knows: its service is a session that `front`
    /// was opened with. Its options say that it is shared, or has private logs.
    ///
    /// # Panics
    /// If they do not.
    #[must_use]
    pub fn with_front(self, front: Arc<Front>) -> Self {
        assert!(self.server.shares.has_front(), "the options say that it has a front");
        Self { front: Some(front), ..self }
    }

    /// The mount as the kernel lists it; its device number identifies it.
    pub fn entry(&self) -> &MountEntry {
        &self.entry
    }

    /// The files open for writing, also while the mount is served.
    pub fn writers(&self) -> Writers {
        Writers::new(self.server.clone())
    }

    /// Changes [`MountOptions::write_back_every`], also while the mount is served.
    pub fn write_back(&self) -> WriteBack {
        self.expiry.handle()
    }

    /// Changes [`MountOptions::operations`], also while the mount is served.
    pub fn operations(&self) -> Switch {
        self.server.operations.clone()
    }

    /// The tokens by which programs show what they have open, also while the mount is served.
    pub fn tokens(&self) -> Arc<Tokens> {
        self.server.tokens.clone()
    }

    /// Whether every change through this mount is refused, also while the mount is served. The
    /// kernel refuses them by flags of its own ([`remount`]); this is about what does not come as a
    /// call that it checks.
    pub fn read_only(&self) -> Switch {
        self.read_only.clone()
    }

    /// What the kernel agreed to.
    pub fn write_cache(&self) -> WriteCache {
        match self.server.agreed.writeback {
            true => WriteCache::Writeback,
            false => WriteCache::Writethrough,
        }
    }

    /// How many requests the kernel sends, also while the mount is served.
    pub fn traffic(&self) -> Traffic {
        Traffic { counts: self.session.counts(), transport: self.session.transport() }
    }

    /// To be set when this process gets SIGXCPU: its realtime threads computed for too long.
    pub fn overtime(&self) -> Arc<AtomicBool> {
        self.schedule.overtime()
    }

    /// Answers requests until the mount is gone (umount(2), or an aborted connection).
    ///
    /// # Errors
    /// When the kernel connection fails for another reason.
    pub fn serve(self) -> io::Result<()> {
        self.server.start_invalidator(self.session.notifier(), &self.entry)?;
        if let Some(front) = &self.front {
            front.start(&self.server, self.session.notifier(), &self.entry)?;
            assert!(self.server.shares.front.set(front.clone()).is_ok(), "a mount is served once");
        }
        let expiry = self
            .server
            .agreed
            .writeback
            .then(|| Expiry::start(self.entry.clone(), self.server.clone(), self.expiry));
        let server = self.server.clone();
        let adapter = Adapter::new(self.server, self.entry.clone());
        let place = &self.entry.mount_point;
        let served = self.session.run((self.threads, self.schedule), place, &Arc::new(adapter));
        drop(expiry);
        // The mount's tickets go with it.
        if let Err(error) = server.done(&Credentials::default(), Request::EndSession) {
            tracing::warn!(%error, "the session could not be ended");
        }
        served
    }
}

/// The requests that the kernel sends to a mount.
#[derive(Clone)]
pub struct Traffic {
    counts: Arc<Counts>,
    transport: Arc<State>,
}

impl Traffic {
    /// Requests since the mount by the name of their kind (`lookup`, `write`), those being carried
    /// out among them; a kind that never came is not in it.
    pub fn by_name(&self) -> BTreeMap<&'static str, u64> {
        self.counts.by_name()
    }

    /// How they come.
    pub fn request_loop(&self) -> RequestLoop {
        self.transport.report()
    }
}

/// Lets the kernel read ahead as much as one request carries: its default of 128 KiB makes a cold
/// stream wait for each round trip. Without the right to set it, the default stays.
fn read_ahead(entry: &MountEntry) {
    let path = format!("/sys/class/bdi/{}:{}/read_ahead_kb", entry.major, entry.minor);
    if let Err(error) = std::fs::write(&path, (MAX_IO / 1024).to_string()) {
        tracing::info!(%error, path, "read-ahead stays at the kernel's default");
    }
}

fn open_device() -> io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    file.map(OwnedFd::from).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            io::Error::new(e.kind(), "no /dev/fuse: load the kernel's fuse module (modprobe fuse)")
        }
        _ => io::Error::new(e.kind(), format!("cannot open /dev/fuse: {e}")),
    })
}

/// The mount's own flags. Access times are the Runtime's, not the kernel's: here they are to be
/// seen in the table of mounts.
fn kernel_flags(o: &MountOptions) -> MountFlags {
    // Access times of directories are not kept.
    let mut flags = MountFlags::NODIRATIME;
    flags.set(MountFlags::RDONLY, o.read_only);
    flags.set(MountFlags::NOSUID, o.nosuid);
    flags.set(MountFlags::NODEV, o.nodev);
    flags.set(MountFlags::NOEXEC, o.noexec);
    flags.set(MountFlags::SYNCHRONOUS, o.sync);
    flags.set(MountFlags::NOATIME, o.noatime);
    flags.set(MountFlags::RELATIME, !o.noatime);
    flags
}

/// Gives the mount on `dir` the flags that `o` says; nothing else of `o` is used. A file system
/// that becomes read-only becomes so for all its mounts.
///
/// # Errors
/// `EBUSY` while a file is open for writing and `o` says read-only, or a removed file is still
/// open.
pub fn remount(dir: &Path, o: &MountOptions) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(dir, kernel_flags(o), "")?)
}

/// umount(2) of exactly this directory.
///
/// # Errors
/// `EBUSY` while a process has a file open or its working directory in the mount.
pub fn unmount(dir: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW)?)
}

/// Takes the mount out of the tree at once; it ends when the last open file is closed.
pub fn detach(dir: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?)
}

/// How long a file system may take to say that it is there.
const STATFS_PATIENCE: Duration = Duration::from_secs(5);

/// Does this error say that a mount's server has died? A request that was on its way at that moment
/// ends with `ECONNABORTED`, or in a ring with `ECANCELED`, and every later one with `ENOTCONN`.
pub fn says_dead(e: &io::Error) -> bool {
    let errors = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED];
    e.raw_os_error().is_some_and(|n| errors.contains(&n))
}

/// Is the server of the mount on `dir` dead (the kernel answers `ENOTCONN`)? Asks with statfs(2),
/// which, unlike stat(2), never comes from a cache. While the kernel still takes the connection of
/// a killed server apart, it takes the question first and answers later (see [`says_dead`]). A
/// server that does not answer is not dead.
pub fn is_dead(dir: &Path) -> bool {
    statfs(dir).is_some_and(|asked| asked.is_err_and(|e| says_dead(&e)))
}

/// Does the mount on `dir` give no answer at all?
pub fn is_silent(dir: &Path) -> bool {
    statfs(dir).is_none()
}

/// What statfs(2) says; `None` if it says nothing. A ring that goes with its daemon ends the
/// request that it was given, which says nothing of the connection: then it is asked again.
fn statfs(dir: &Path) -> Option<io::Result<()>> {
    let until = Instant::now() + STATFS_PATIENCE;
    loop {
        let answer = statfs_within(dir, until.saturating_duration_since(Instant::now()));
        let of_a_ring = |e: &io::Error| e.raw_os_error() == Some(libc::ECANCELED);
        match answer {
            Some(Err(e)) if of_a_ring(&e) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

fn statfs_within(dir: &Path, patience: Duration) -> Option<io::Result<()>> {
    let (told, heard) = mpsc::channel();
    let dir = dir.to_path_buf();
    // Not waited for: a server that is stopped lets its callers wait as long as they live.
    std::thread::spawn(move || {
        let _ = told.send(rustix::fs::statfs(&dir).map(drop).map_err(io::Error::from));
    });
    heard.recv_timeout(patience).ok()
}

/// Detaches FUSE mounts on `dir` whose server is dead. Returns how many there were.
pub fn detach_dead(dir: &Path) -> io::Result<usize> {
    let mut found = 0;
    while top_mount(dir)?.is_some_and(|m| m.is_fuse()) && is_dead(dir) {
        detach(dir)?;
        found += 1;
    }
    Ok(found)
}
