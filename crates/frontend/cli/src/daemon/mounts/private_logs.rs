//! The private logs of a mount's programs (`docs/design/private-logs.md`): the socket on which they
//! show their tokens, and who answers there.

use crate::control::messages::logs_socket_path;
use crate::daemon::mounts::sockets::take_turn;
use crate::daemon::private;
use siftfs_base::{InodeNr, Result as VolumeResult};
use siftfs_fuse::{FuseMount, MountOptions, Tokens};
use siftfs_grantor::{Bounds, Counts, Grantor, Opens, Peer, Redeemed, Redeems, Token};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
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

impl PrivateLogs {
    /// Listens for the programs of a mount that is about to be served, if it is to have private
    /// logs: those of all who may use the mount. `opens` opens their sessions.
    ///
    /// # Errors
    /// The socket cannot be made, or a thread cannot be started.
    pub fn of(
        opens: Arc<dyn Opens>,
        mount: &FuseMount,
        options: &MountOptions,
        commit: Duration,
    ) -> io::Result<Option<Self>> {
        if !options.private_logs {
            return Ok(None);
        }
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
        let bounds = Bounds { commit, ..Bounds::default() };
        let grantor =
            Grantor::start(listener, opens, Arc::new(Given(tokens.clone())), None, bounds)?;
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
