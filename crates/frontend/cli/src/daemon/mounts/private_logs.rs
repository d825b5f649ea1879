//! The private logs of a mount's programs (`docs/design/private-logs.md`): the socket on which they
//! show their tokens, and who answers there.

use crate::control::messages::logs_socket_path;
use crate::daemon::mounts::sockets::take_turn;
use crate::daemon::private;
use crate::options::parsed::FileLogs;
use siftfs_base::{InodeNr, Result as VolumeResult};
use siftfs_fuse::{FuseMount, MountOptions, Tokens};
use siftfs_grantor::{
    Bounds, Counts, Grantor, How, LogFile, Logs, Opens, Peer, Program, Redeemed, Redeems, Token,
};
use siftfs_placement::{LogsPlace, PrivateLogs as Registry};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the end of a mount waits for what its programs have published.
const PATIENCE: Duration = Duration::from_secs(30);

/// The grantor of a mount, and its socket.
pub struct PrivateLogs {
    grantor: Grantor,
    socket: PathBuf,
    /// The socket's inode: another daemon may have put its own in the same place.
    ino: u64,
}

/// The tokens that the mount has given to programs.
struct Given(Arc<Tokens>);

impl Redeems for Given {
    fn redeem(&self, token: &Token, peer: Peer) -> VolumeResult<Redeemed> {
        let Peer { pid, uid } = peer;
        let shown = self.0.redeem(*token, siftfs_fuse::Peer { pid, uid })?;
        let (ino, process, reads) = (shown.ino, shown.process, shown.reads);
        let credentials = shown.credentials.clone();
        let writers = Box::new(move || shown.writers());
        Ok(Redeemed { ino, process, credentials, reads, writers })
    }

    fn leased(&self, ino: InodeNr, process: u32) {
        self.0.holds(process, ino);
    }

    fn returned(&self, ino: InodeNr, process: u32) {
        self.0.returns(process, ino);
    }
}

/// Where file logs are made.
struct Directory {
    registry: Arc<Registry>,
    place: LogsPlace,
}

impl Logs for Directory {
    fn create(&self, process: u32) -> VolumeResult<Box<dyn LogFile>> {
        let log = self.registry.directory(self.place.clone())?.new_log(process)?;
        Ok(Box::new(log))
    }
}

/// The logs of a volume's programs: where they lie, and who knows of them.
pub struct LogPlace<'a> {
    /// Makes the volume's registry, if it is this process that has the volume.
    pub registry: Option<Arc<Registry>>,
    /// As the mount's options say.
    pub wanted: &'a FileLogs,
    /// What has the volume, or its log where that is a file of its own.
    pub beside: &'a Path,
}

impl LogPlace<'_> {
    /// Where file logs are made, if there are to be any. The directory is there afterwards.
    fn logs(self, read_only: bool) -> io::Result<Option<Arc<dyn Logs>>> {
        let place = match self.wanted {
            FileLogs::None => return Ok(None),
            FileLogs::In(place) => place.clone(),
            FileLogs::Beside => LogsPlace::from(&beside(self.beside)?),
        };
        let Some(registry) = self.registry else {
            return Err(io::Error::other(
                "private_logs: a served volume's programs have no logs of files",
            ));
        };
        // On a read-only mount no program writes.
        if !read_only {
            if place.volatile {
                let dir = place.dir.display();
                tracing::warn!(%dir, "a power cut loses what programs sync: their logs are volatile");
            }
            let made = registry.directory(place.clone());
            made.map_err(|e| io::Error::other(format!("private_logs: {e}")))?;
        }
        Ok(Some(Arc::new(Directory { registry, place })))
    }
}

/// The directory for logs beside a file.
fn beside(file: &Path) -> io::Result<PathBuf> {
    let file = file.canonicalize()?;
    if !std::fs::metadata(&file)?.is_file() {
        let what = format!(
            "private_logs=on: {} is no file that logs could lie beside; name a directory for them \
             (private_logs=/DIR), or have the daemon make files durable (private_logs=daemon)",
            file.display()
        );
        return Err(io::Error::other(what));
    }
    let mut name = file.into_os_string();
    name.push(".logs");
    Ok(name.into())
}

impl PrivateLogs {
    /// Listens for the programs of a mount that is about to be served, if it is to have private
    /// logs: those of all who may use the mount. `opens` opens their sessions.
    ///
    /// # Errors
    /// Logs cannot lie where they are to, the socket cannot be made, or a thread cannot be started.
    pub fn of(
        opens: Arc<dyn Opens>,
        mount: &FuseMount,
        (options, place): (&MountOptions, LogPlace<'_>),
        (commit, ingest): (Duration, How),
    ) -> io::Result<Option<Self>> {
        if !options.private_logs {
            return Ok(None);
        }
        let logs = place.logs(options.read_only)?;
        let socket = logs_socket_path(mount.entry());
        let listener = {
            let _turn = take_turn()?;
            // The mount is new, so what is there belongs to a daemon that is dead.
            match std::fs::remove_file(&socket) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            private::listen_to_packets(&socket, options.allow_other)?
        };
        let ino = std::fs::symlink_metadata(&socket)?.ino();
        let tokens = mount.tokens();
        let bounds = Bounds { commit, ingest, ..Bounds::default() };
        let grantor =
            Grantor::start(listener, opens, Arc::new(Given(tokens.clone())), logs, bounds)?;
        tokens.listen_at(&socket)?;
        Ok(Some(Self { grantor, socket, ino }))
    }

    /// Takes in what programs have published so far.
    pub fn ingest(&self) {
        self.grantor.ingest();
    }

    /// What there is, and was.
    pub fn counts(&self) -> Counts {
        self.grantor.counts()
    }

    /// The programs that have sessions.
    pub fn programs(&self) -> Vec<Program> {
        self.grantor.programs()
    }

    /// The mount is gone: takes in what programs have published, and ends their sessions.
    pub fn end(&self) {
        if !self.grantor.stop(PATIENCE) {
            tracing::error!("what programs have in their private logs is still being taken in");
        }
        let Ok(_turn) = take_turn() else { return };
        if std::fs::symlink_metadata(&self.socket).is_ok_and(|m| m.ino() == self.ino) {
            let _ = std::fs::remove_file(&self.socket);
        }
    }
}

impl Drop for PrivateLogs {
    fn drop(&mut self) {
        self.end();
    }
}
