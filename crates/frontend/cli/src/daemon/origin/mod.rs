//! The volume of a daemon: in its own process (`local`), or in one that serves it, of which this
//! one has a session (`remote`). Mounts and commands do not know which it is.

mod lenders;
mod local;
mod remote;

pub use remote::RemoteVolume;

use crate::options::parsed::Options;
use crate::options::served::Served;
use local::InThisProcess;
use siftfs_base::Result;
use siftfs_placement::{Freezer, LocalVolume, PrivateLogs, Progress, Remounter, books_of_clients};
use siftfs_proto::{Cache, FileService, Holder, Opening};
use siftfs_status::{DeviceInfo, Server, SpareInfo};
use std::path::Path;
use std::sync::Arc;

/// Where sessions of a volume come from.
pub trait Source: Send + Sync {
    /// A session that does not cache.
    ///
    /// # Errors
    /// There are too many sessions, or the server does not open one.
    fn open(&self, opening: Opening) -> Result<Arc<dyn FileService>>;

    /// A session of a front end that caches: `cache` is told of what others change.
    ///
    /// # Errors
    /// As [`Source::open`].
    fn front(&self, opening: Opening, cache: Arc<dyn Cache>) -> Result<Arc<dyn FileService>>;

    /// Is the volume's a server that checks what each caller of the front end may do?
    fn checks_callers(&self) -> bool {
        false
    }

    /// A session for a program's private log.
    ///
    /// # Errors
    /// As [`Source::open`], and `EOPNOTSUPP` where the volume has none.
    fn lender(&self, opening: Opening, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>>;

    /// The volume's registry of private logs, if it has one.
    fn registry(&self) -> Option<Arc<PrivateLogs>>;

    /// Is the volume at a path of this machine, by which other commands find it?
    fn has_path(&self) -> bool;
}

/// The volume of a daemon.
pub enum Origin {
    /// Open in this process.
    Local(Box<LocalVolume>),
    /// Served by another one.
    Remote(Arc<RemoteVolume>),
}

impl Origin {
    /// Opens the volume at `path`.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(path: &Path, options: &Options, progress: Progress<'_>) -> Result<Self> {
        let mut open = options.open.clone();
        if !options.daemon.listen.is_empty() {
            open.books = Some(books_of_clients());
        }
        LocalVolume::open(path, &open, progress).map(Box::new).map(Self::Local)
    }

    /// The volume that a server has. It is asked when the first session is opened.
    pub fn served(served: &Served, options: &Options) -> Self {
        Self::Remote(Arc::new(RemoteVolume::new(served, &options.service.trust)))
    }

    /// Where its sessions come from.
    pub fn source(&self) -> Arc<dyn Source> {
        match self {
            Self::Local(volume) => Arc::new(InThisProcess::of(volume)),
            Self::Remote(volume) => volume.clone(),
        }
    }

    /// The session that commands go by, once there is a mount.
    pub fn service(&self) -> Arc<dyn FileService> {
        match self {
            Self::Local(volume) => volume.endpoint(),
            Self::Remote(volume) => volume.clone(),
        }
    }

    /// Where its log is, if that lies elsewhere in this machine.
    pub fn log_path(&self) -> Option<&Path> {
        match self {
            Self::Local(volume) => volume.log_path(),
            Self::Remote(_) => None,
        }
    }

    /// The place of a record area that promises nothing over a power cut.
    pub fn volatile_place(&self) -> Option<String> {
        match self {
            Self::Local(volume) => volume.volatile_place(),
            Self::Remote(_) => None,
        }
    }

    /// Changes the volume's settings, where that is this process's to do.
    pub fn remounter(&self) -> Option<Arc<Remounter>> {
        match self {
            Self::Local(volume) => Some(volume.remounter()),
            Self::Remote(_) => None,
        }
    }

    /// Holds the volume for snapshots, where that is this process's to do.
    pub fn freezer(&self) -> Option<Arc<Freezer>> {
        match self {
            Self::Local(volume) => Some(volume.freezer()),
            Self::Remote(_) => None,
        }
    }

    /// About how many bytes this process still has to bring into the area.
    pub fn backlog(&self) -> Box<dyn Fn() -> u64 + Send + Sync> {
        match self {
            Self::Local(volume) => Box::new(volume.backlog()),
            Self::Remote(_) => Box::new(|| 0),
        }
    }

    /// What the volume lies on, as far as this process has it open. Does not wait for the volume.
    pub fn devices(&self) -> Box<dyn Fn() -> Vec<DeviceInfo> + Send + Sync> {
        match self {
            Self::Local(volume) => Box::new(volume.devices()),
            Self::Remote(_) => Box::new(Vec::new),
        }
    }

    /// The spare log, if this process has one. Does not wait for the volume.
    pub fn spare_log(&self) -> Box<dyn Fn() -> Option<SpareInfo> + Send + Sync> {
        match self {
            Self::Local(volume) => Box::new(volume.spare_log()),
            Self::Remote(_) => Box::new(|| None),
        }
    }

    /// The process that closing the volume waits for.
    pub fn waiting(&self) -> Box<dyn Fn() -> Option<String> + Send + Sync> {
        match self {
            Self::Local(volume) => Box::new(volume.waiting()),
            Self::Remote(_) => Box::new(|| None),
        }
    }

    /// The server, and how the connection to it is.
    pub fn server(&self) -> Box<dyn Fn() -> Option<Server> + Send + Sync> {
        match self {
            Self::Local(_) => Box::new(|| None),
            Self::Remote(volume) => {
                let volume = volume.clone();
                Box::new(move || Some(volume.server()))
            }
        }
    }

    /// Closes the volume, or ends the session of the one that is served.
    ///
    /// # Errors
    /// A message: it was not closed, or the server was lost before.
    pub fn close(self) -> std::result::Result<(), String> {
        let hint = "run `siftfs recover` on it, or mount it again";
        match self {
            Self::Local(volume) => {
                volume.close().map_err(|e| format!("{e}; the volume was not closed: {hint}"))
            }
            Self::Remote(volume) => volume.close(),
        }
    }
}
