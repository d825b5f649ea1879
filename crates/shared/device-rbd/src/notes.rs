//! Notes of processes that have asked for an image and not ended in order, and of those that wait
//! for it: attributes of objects beside the image.
//!
//! They are not the image's own metadata: librbd takes the image's lock before it changes that.
#![allow(unsafe_code)]

use crate::cluster::{Cluster, failed, text};
use siftfs_base::Result;
use std::ffi::{CStr, CString, c_int};
use std::ptr;
use std::sync::Arc;

/// What the notes of an image are about, by the name of their object.
#[derive(Clone, Copy)]
pub(crate) enum About {
    /// Addresses of processes that have asked for it, and whose they are.
    Owners,
    /// Addresses of processes that wait for it, and whose they are; and what an administrator has
    /// said to them.
    Waiting,
}

/// Notes of an image: names, and what is said of each.
pub(crate) struct Notes {
    cluster: Arc<Cluster>,
    object: CString,
}

impl Notes {
    /// Those of the image with this number.
    pub fn of(cluster: Arc<Cluster>, about: About, image: &str) -> Result<Self> {
        let about = match about {
            About::Owners => "owners",
            About::Waiting => "waiting",
        };
        Ok(Self { cluster, object: text(format!("siftfs_{about}.{image}"))? })
    }

    /// Writes a note; durable, and seen by all others, when this returns.
    pub fn add(&self, name: &str, whose: &str) -> Result<()> {
        let name = text(name)?;
        // SAFETY: the pool is open, and all of these live during the call.
        done("write down who asks for the image", unsafe {
            (self.cluster.functions.rados_setxattr)(
                self.cluster.pool,
                self.object.as_ptr(),
                name.as_ptr(),
                whose.as_ptr().cast(),
                whose.len(),
            )
        })
    }

    /// Strikes a note out, if it is there.
    pub fn remove(&self, name: &str) -> Result<()> {
        let name = text(name)?;
        // SAFETY: the pool is open, and both texts live during the call.
        let removed = unsafe {
            (self.cluster.functions.rados_rmxattr)(
                self.cluster.pool,
                self.object.as_ptr(),
                name.as_ptr(),
            )
        };
        match removed {
            error if error == -libc::ENODATA || error == -libc::ENOENT => Ok(()),
            other => done("strike out who asked for the image", other),
        }
    }

    /// Removes the notes of an image that there is no more.
    pub fn forget(&self) -> Result<()> {
        // SAFETY: the pool is open, and the name lives during the call.
        let removed = unsafe {
            (self.cluster.functions.rados_remove)(self.cluster.pool, self.object.as_ptr())
        };
        match removed {
            error if error == -libc::ENOENT => Ok(()),
            other => done("remove the notes of an image", other),
        }
    }

    /// All that are written down.
    pub fn all(&self) -> Result<Vec<(String, String)>> {
        let functions = self.cluster.functions;
        let mut list = ptr::null_mut();
        // SAFETY: the pool is open, and the call fills in the list.
        let asked = unsafe {
            (functions.rados_getxattrs)(self.cluster.pool, self.object.as_ptr(), &mut list)
        };
        if asked == -libc::ENOENT {
            return Ok(Vec::new());
        }
        done("read who asked for the image", asked)?;
        let mut found = Vec::new();
        let ended = loop {
            let (mut name, mut value, mut len) = (ptr::null(), ptr::null(), 0);
            // SAFETY: the list is open, and the call fills in the three.
            let next =
                unsafe { (functions.rados_getxattrs_next)(list, &mut name, &mut value, &mut len) };
            if next < 0 || name.is_null() {
                break next;
            }
            // SAFETY: the library has written a name that ends, and `len` bytes of the value, which
            // are there until the list is asked again.
            let (name, value) = unsafe {
                let value: &[u8] = match value.is_null() {
                    true => &[],
                    false => std::slice::from_raw_parts(value.cast(), len),
                };
                (CStr::from_ptr(name), value)
            };
            let whose = String::from_utf8_lossy(value).into_owned();
            found.push((name.to_string_lossy().into_owned(), whose));
        };
        // SAFETY: the list was opened above, and nothing refers to it any more.
        unsafe { (functions.rados_getxattrs_end)(list) };
        done("read who asked for the image", ended).map(|()| found)
    }
}

fn done(what: &str, result: c_int) -> Result<()> {
    if result < 0 { Err(failed(what, result)) } else { Ok(()) }
}
