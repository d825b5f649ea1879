//! Small things beside an image: objects of its pool that have the image's number in their names.
#![allow(unsafe_code)]

use crate::RbdPlace;
use crate::cluster::{Cluster, text};
use siftfs_base::{Error, Result};
use siftfs_device::Beside;
use std::ffi::{CString, c_int};
use std::fmt;
use std::io;
use std::sync::Arc;

/// No object of RADOS is longer.
const LONGEST: u64 = 128 << 20;
/// Bytes that one call reads.
const READ: usize = 4 << 20;

/// The objects beside one image.
pub(crate) struct Objects {
    cluster: Arc<Cluster>,
    place: RbdPlace,
    /// The image's number.
    id: String,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what is kept beside {}", self.place)
    }
}

impl Objects {
    /// Those of the image with this number.
    pub fn of(cluster: Arc<Cluster>, place: &RbdPlace, id: String) -> Self {
        Self { cluster, place: place.clone(), id }
    }

    fn object(&self, name: &str) -> Result<CString> {
        text(format!("siftfs_{name}.{}", self.id))
    }

    fn done(&self, (what, name): (&str, &str), result: c_int) -> Result<()> {
        if result >= 0 {
            return Ok(());
        }
        let why = io::Error::from_raw_os_error(-result);
        Err(Error::Refused(format!("{}: cannot {what} its {name}: {why}", self.place)))
    }

    /// The length of the object in bytes; `None` if the pool has no such object.
    fn length(&self, name: &str) -> Result<Option<u64>> {
        let (object, mut size, mut time) = (self.object(name)?, 0, 0);
        // SAFETY: the pool is open, the name lives during the call, which fills in both numbers.
        let asked = unsafe {
            (self.cluster.functions.rados_stat)(
                self.cluster.pool,
                object.as_ptr(),
                &mut size,
                &mut time,
            )
        };
        match asked {
            error if error == -libc::ENOENT => Ok(None),
            asked => self.done(("ask for", name), asked).map(|()| Some(size.min(LONGEST))),
        }
    }
}

impl Beside for Objects {
    fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let Some(size) = self.length(name)? else { return Ok(None) };
        let (object, size) = (self.object(name)?, size.min(limit));
        let mut bytes = vec![0u8; usize::try_from(size).unwrap_or(usize::MAX)];
        let mut have = 0;
        while let Some(rest) = bytes.get_mut(have..).filter(|rest| !rest.is_empty()) {
            let len = rest.len().min(READ);
            // SAFETY: the pool is open, the name lives during the call, and the buffer has `len`
            // bytes.
            let read = unsafe {
                (self.cluster.functions.rados_read)(
                    self.cluster.pool,
                    object.as_ptr(),
                    rest.as_mut_ptr().cast(),
                    len,
                    have as u64,
                )
            };
            self.done(("read", name), read)?;
            match usize::try_from(read).unwrap_or_default() {
                0 => break,
                more => have += more,
            }
        }
        bytes.truncate(have);
        Ok(Some(bytes))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let object = self.object(name)?;
        // SAFETY: the pool is open, and the name and the bytes live during the call.
        let done = unsafe {
            (self.cluster.functions.rados_write_full)(
                self.cluster.pool,
                object.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
        self.done(("write", name), done)
    }

    fn append(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let object = self.object(name)?;
        // SAFETY: the pool is open, and the name and the bytes live during the call.
        let done = unsafe {
            (self.cluster.functions.rados_append)(
                self.cluster.pool,
                object.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
        self.done(("add to", name), done)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let object = self.object(name)?;
        // SAFETY: the pool is open, and the name lives during the call.
        match unsafe { (self.cluster.functions.rados_remove)(self.cluster.pool, object.as_ptr()) } {
            error if error == -libc::ENOENT => Ok(()),
            done => self.done(("remove", name), done),
        }
    }
}
