//! The directory of a volume that a mount shows.

use crate::daemon::mounts::live::Mounts;
use siftfs_base::{Error, InodeNr};
use siftfs_proto::{Attr, Credentials, FileKind, FileService, Opening, ROOT_INO, Request, Rights};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that was found. It keeps its number as long as this lives.
pub struct Found {
    pub ino: InodeNr,
    _session: Option<Arc<dyn FileService>>,
}

/// Finds the directory `path` of the volume, from its root; `None` is the root. It is searched as
/// the daemon's user would search it: the caller is this user or root.
///
/// # Errors
/// A message that says which part of the path is not there, or no directory.
pub fn find(mounts: &Mounts, path: Option<&Path>) -> Result<Found, String> {
    let Some(path) = path else { return Ok(Found { ino: ROOT_INO, _session: None }) };
    let session = mounts.session(own()).map_err(|e| e.to_string())?;
    let (mut parent, mut so_far) = (ROOT_INO, PathBuf::from("/"));
    for name in path {
        so_far.push(name);
        let wrong = |what: &str| format!("subdir={}: {} {what}", path.display(), so_far.display());
        let lookup = Request::Lookup { parent, name: name.as_bytes().to_vec() };
        let found = session.call(&Credentials::default(), lookup).and_then(|reply| reply.attr());
        parent = match found {
            Ok(Attr { kind: FileKind::Directory, ino, .. }) => ino,
            Ok(Attr { kind: FileKind::Symlink, .. }) => {
                return Err(wrong("is a symbolic link: name the directory itself"));
            }
            Ok(_) => return Err(wrong("is not a directory")),
            Err(Error::Posix(libc::ENOENT)) => {
                return Err(wrong("is not there in the volume"));
            }
            Err(Error::Posix(libc::EACCES)) => {
                return Err(wrong("may not be looked up by the user of the mount"));
            }
            Err(e) => return Err(wrong(&format!("cannot be looked up: {e}"))),
        };
    }
    Ok(Found { ino: parent, _session: Some(session) })
}

/// A session with the rights of this process.
fn own() -> Opening {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() {
        return Opening::owner();
    }
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.into_iter().map(|group| group.as_raw()).collect();
    Opening::user(uid.as_raw(), gid.as_raw(), Rights { groups, ..Rights::default() })
}
