//! Where several volumes are.

use super::listed::ListedVolume;
use super::look::looked_at;
use super::pool;
use crate::volume::files::io;
use siftfs_base::Result;
use siftfs_device_rbd::{RbdImages, RbdPool};
use std::path::{Path, PathBuf};

/// A directory whose files are volumes, or a pool of a cluster whose images are (`rbd:POOL/`).
/// Files and images that are no volumes are passed over: logs, members of striped volumes, names
/// that begin with a dot. Nothing is locked and nothing is written, so that volumes in use are seen
/// as well.
pub struct Shelf {
    place: PathBuf,
    /// A pool's images, by one connection; `None` for a directory.
    pool: Option<(RbdPool, RbdImages)>,
}

impl Shelf {
    /// Does this name a directory that is there, or a pool?
    pub fn is_at(place: &Path) -> bool {
        RbdPool::parse(place).is_some() || place.is_dir()
    }

    /// The volumes at this place. A pool's cluster is connected to.
    ///
    /// # Errors
    /// Refused if it names no pool, or if the cluster does not let this process in.
    pub fn open(place: &Path) -> Result<Self> {
        let pool = RbdPool::parse(place).transpose()?;
        let pool = pool.map(|pool| RbdImages::of(&pool).map(|images| (pool, images)));
        Ok(Self { place: place.into(), pool: pool.transpose()? })
    }

    /// How it was named.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The volumes, by name. An image that cannot be looked at is passed over, and logged.
    ///
    /// # Errors
    /// Refused if the directory, a file in it, or the list of a pool's images cannot be read.
    pub fn list(&self) -> Result<Vec<ListedVolume>> {
        let mut found = match &self.pool {
            Some((_, images)) => pool::list(images)?,
            None => self.list_files()?,
        };
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn list_files(&self) -> Result<Vec<ListedVolume>> {
        let unread = |e: &std::io::Error| io("read", &self.place, e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.place).map_err(|e| unread(&e))? {
            let name = entry.map_err(|e| unread(&e))?.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                found.extend(looked_at(&self.place.join(&name))?);
            }
        }
        Ok(found)
    }

    /// By what the volume `name` of this place is opened. The name is not looked into: it may be
    /// anything, and is refused if it leads elsewhere.
    ///
    /// # Errors
    /// Refused if no file or image here can have the name.
    pub fn path_of(&self, name: &str) -> Result<PathBuf> {
        let refuse = || siftfs_base::Error::Refused(format!("{name:?}: no volume is called so"));
        if name.starts_with('.') {
            return Err(refuse());
        }
        match &self.pool {
            Some((pool, _)) => pool.image(name).map(|image| image.to_string().into()),
            None => match Path::new(name).file_name().is_some_and(|last| last == name) {
                true => Ok(self.place.join(name)),
                false => Err(refuse()),
            },
        }
    }

    /// The volume `name`, which a client may have said; `None` if nothing is there.
    ///
    /// # Errors
    /// As [`Shelf::path_of`], or it cannot be read.
    pub fn volume(&self, name: &str) -> Result<Option<ListedVolume>> {
        let path = self.path_of(name)?;
        match &self.pool {
            Some((_, images)) => pool::volume(images, name),
            None => looked_at(&path),
        }
    }
}

/// The volumes of the directory or pool `place`, by name: as [`Shelf::list`].
///
/// # Errors
/// As [`Shelf::open`] and [`Shelf::list`].
pub fn list_volumes(place: &Path) -> Result<Vec<ListedVolume>> {
    Shelf::open(place)?.list()
}
