//! A directory of the volume as the client's root. The client calls it by the number of the
//! volume's root ([`ROOT_INO`]), and its own number means nothing there, so the volume's root has
//! no number that a client can say. What is below it is reached from it, name by name: a session of
//! a user may name only what it has looked up (rule R31).

use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::compound::{Compounded, Value};
use siftfs_proto::{
    Attr, Cache, Credentials, DirEntry, FileService, Handle, Notice, ROOT_INO, Reply, Request,
};
use std::sync::{Arc, OnceLock};

/// The part of the volume's tree below this directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part(pub InodeNr);

impl Default for Part {
    /// All of it.
    fn default() -> Self {
        Self(ROOT_INO)
    }
}

impl Part {
    /// Is it the whole tree?
    pub fn is_all(self) -> bool {
        self.0 == ROOT_INO
    }

    /// A number of the client's becomes the volume's.
    ///
    /// # Errors
    /// `ESTALE` for the directory's own number.
    pub fn enter(self, ino: &mut InodeNr) -> Result<()> {
        match *ino {
            ROOT_INO => *ino = self.0,
            own if own == self.0 => return Err(errno(libc::ESTALE)),
            _ => {}
        }
        Ok(())
    }

    /// A number of the volume's becomes the client's.
    ///
    /// # Errors
    /// `ESTALE` for the volume's root.
    fn show(self, ino: &mut InodeNr) -> Result<()> {
        match *ino {
            own if own == self.0 => *ino = ROOT_INO,
            ROOT_INO => return Err(errno(libc::ESTALE)),
            _ => {}
        }
        Ok(())
    }

    fn show_attr(self, attr: &mut Attr) -> Result<()> {
        if attr.ino == self.0 {
            // That of a root.
            attr.generation = 0;
        }
        self.show(&mut attr.ino)
    }

    /// The numbers of a reply become the client's.
    ///
    /// # Errors
    /// `ESTALE` if the volume's root is among them.
    pub fn leave(self, reply: &mut Reply) -> Result<()> {
        if self.is_all() {
            return Ok(());
        }
        match reply {
            Reply::Entry(attr) | Reply::Attr(attr) | Reply::Created { attr, .. } => {
                self.show_attr(attr)
            }
            Reply::Dir(entries) => entries.iter_mut().try_for_each(|entry| {
                self.show(&mut entry.ino)?;
                entry.attr.as_mut().map_or(Ok(()), |attr| self.show_attr(attr))
            }),
            Reply::Gone(inodes) => inodes.iter_mut().try_for_each(|ino| self.show(ino)),
            Reply::Published { names, files } => self.show_changed(names, files),
            Reply::Compounded(Compounded::Done { values, names, files, written }) => {
                for value in values {
                    match value {
                        Value::File { ino, .. } => self.show(ino)?,
                        Value::None | Value::Number { .. } | Value::Bytes(_) => {}
                    }
                }
                written.iter_mut().try_for_each(|file| self.show(&mut file.ino))?;
                self.show_changed(names, files)
            }
            Reply::Done
            | Reply::Opened { .. }
            | Reply::Data(_)
            | Reply::Blocks(_)
            | Reply::Written { .. }
            | Reply::WrittenLast { .. }
            | Reply::Located { .. }
            | Reply::Offset(_)
            | Reply::Names(_)
            | Reply::Statfs(_)
            | Reply::Flags(_)
            | Reply::Ticket(_)
            | Reply::Durable(_)
            | Reply::Section(_)
            | Reply::Leased { .. }
            | Reply::Direct(_)
            | Reply::Extended(_)
            | Reply::Lock(_)
            | Reply::Compounded(Compounded::Refused { .. })
            | Reply::Checkpoint(_)
            | Reply::Trimmed(_)
            | Reply::Status(_) => Ok(()),
        }
    }

    fn show_changed(self, names: &mut [(InodeNr, Vec<u8>)], files: &mut [InodeNr]) -> Result<()> {
        names.iter_mut().try_for_each(|(dir, _)| self.show(dir))?;
        files.iter_mut().try_for_each(|file| self.show(file))
    }

    /// The `..` of the client's root is the root itself, as of every root. A directory that others
    /// have moved to the volume's root is its own `..`, too.
    ///
    /// # Errors
    /// What the session says of the open directory `handle`.
    pub fn close_upwards(
        self,
        (session, cred): (&dyn FileService, &Credentials),
        handle: Handle,
        entries: &mut [DirEntry],
    ) -> Result<()> {
        let Some(up) = entries.iter_mut().find(|entry| entry.name == b"..") else { return Ok(()) };
        let dir = session.call(cred, Request::GetAttr { file: handle.into() })?.attr()?.ino;
        if dir == self.0 || up.ino == ROOT_INO {
            up.ino = dir;
        }
        Ok(())
    }

    /// What others changed of what the client may see.
    fn show_notice(self, notice: &mut Notice) {
        notice.attributes.retain_mut(|ino| self.show(ino).is_ok());
        notice.sizes.retain_mut(|ino| self.show(ino).is_ok());
        notice.data.retain_mut(|(ino, _, _)| self.show(ino).is_ok());
        notice.names.retain_mut(|(dir, _)| self.show(dir).is_ok());
    }
}

/// The cache of a client whose root is a directory of the volume. A session is told of changes of
/// the volume's root, too: they stop here.
pub(super) struct Below {
    cache: Arc<dyn Cache>,
    /// Set when the directory is found; the client is told nothing before that.
    part: Arc<OnceLock<Part>>,
}

impl Below {
    /// The cache that a session has in the place of `cache`.
    pub fn before(cache: Arc<dyn Cache>, part: Arc<OnceLock<Part>>) -> Arc<dyn Cache> {
        Arc::new(Self { cache, part })
    }
}

impl Cache for Below {
    fn take_back(&self, mut notice: Notice) {
        let Some(part) = self.part.get() else { return };
        part.show_notice(&mut notice);
        let Notice { attributes, sizes, data, names, .. } = &notice;
        let nothing =
            attributes.is_empty() && sizes.is_empty() && data.is_empty() && names.is_empty();
        if !nothing {
            self.cache.take_back(notice);
        }
    }

    fn shares(&self, others: bool) {
        self.cache.shares(others);
    }

    fn forget_all(&self, mut notice: Notice) {
        if let Some(part) = self.part.get() {
            part.show_notice(&mut notice);
            self.cache.forget_all(notice);
        }
    }
}

#[cfg(test)]
#[path = "subtree_tests.rs"]
mod tests;
