//! The daemon's socket for commands, and its names: one after the volume, and one after the device
//! number of each mount.

use crate::control::messages::{directory, socket_path, volume_socket_path};
use crate::daemon::private;
use rustix::fs::FlockOperation;
use siftfs_fuse::MountEntry;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The names of the daemon's socket.
pub struct Sockets {
    /// After the volume, if it is at a path of this machine.
    by_volume: Option<PathBuf>,
    /// The socket's inode: another daemon may have put its own in the same place.
    ino: u64,
    /// After mounts.
    names: Vec<PathBuf>,
}

impl Sockets {
    /// Makes the socket, with the names of its first mount and of the volume.
    ///
    /// # Errors
    /// The socket cannot be made there.
    pub fn listen(mount: &MountEntry, volume: Option<&Path>) -> io::Result<(UnixListener, Self)> {
        DirBuilder::new().recursive(true).mode(0o755).create(directory())?;
        let path = socket_path(mount);
        let by_volume = volume.map(volume_socket_path).transpose()?;
        let _turn = take_turn()?;
        // A device number belongs to one mount at a time, and a volume to one daemon. A socket that
        // is there belongs to a dead daemon, or to a daemon whose mount is gone.
        remove(&path)?;
        by_volume.iter().try_for_each(|name| remove(name))?;
        let listener = private::listen(&path)?;
        if let Some(name) = &by_volume
            && let Err(error) = std::fs::hard_link(&path, name)
        {
            tracing::info!(%error, "a mount of this volume will not find this daemon");
        }
        let ino = std::fs::symlink_metadata(&path)?.ino();
        Ok((listener, Self { by_volume, ino, names: vec![path] }))
    }

    /// Gives the socket the name of one more mount.
    ///
    /// # Errors
    /// It cannot have that name.
    pub fn add(&mut self, mount: &MountEntry) -> io::Result<()> {
        let path = socket_path(mount);
        let _turn = take_turn()?;
        if !self.is_ours(&path) {
            remove(&path)?;
            let names = self.by_volume.iter().chain(&self.names);
            let ours = names.into_iter().find(|name| self.is_ours(name));
            let ours = ours.ok_or_else(|| io::Error::other("the daemon's socket was removed"))?;
            std::fs::hard_link(ours, &path)?;
        }
        self.names.push(path);
        Ok(())
    }

    /// Takes the name of a mount that has gone. The kernel gives its device number out again: only
    /// our own socket goes.
    pub fn remove(&mut self, mount: &MountEntry) {
        let path = socket_path(mount);
        let Ok(_turn) = take_turn() else { return };
        self.names.retain(|name| *name != path);
        self.drop_name(&path);
    }

    /// Takes all names away.
    pub fn remove_all(&mut self) {
        let Ok(_turn) = take_turn() else { return };
        self.by_volume.iter().for_each(|name| self.drop_name(name));
        std::mem::take(&mut self.names).iter().for_each(|name| self.drop_name(name));
    }

    fn is_ours(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok_and(|m| m.ino() == self.ino)
    }

    fn drop_name(&self, path: &Path) {
        if self.is_ours(path) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Takes a lock, held while the result lives: daemons change the sockets one after the other.
///
/// # Errors
/// The directory of the sockets cannot be opened.
pub fn take_turn() -> io::Result<File> {
    let dir = File::open(directory())?;
    rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
    Ok(dir)
}
