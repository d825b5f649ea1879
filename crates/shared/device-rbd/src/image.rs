//! An open image, by librbd.
#![allow(unsafe_code)]

use crate::RbdPlace;
use crate::cluster::{Cluster, failed, refused, text};
use crate::completion::{Job, run};
use crate::functions::{EXCLUSIVE, FEATURE_EXCLUSIVE_LOCK, Info, RawImage, Watcher};
use siftfs_base::{Error, Result};
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Arc;

/// Watchers that are looked at.
const MAX_WATCHERS: usize = 64;
/// Bytes of what is said of a lock: its tag, its owner's name and address.
const MAX_LOCK_TEXT: usize = 4096;

/// An open image.
pub(crate) struct Image {
    pub cluster: Arc<Cluster>,
    raw: RawImage,
}

// SAFETY: librbd's handles may be used from any thread, and from several at once.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Opens the image, to write or only to read. No lock is taken.
    ///
    /// # Errors
    /// Refused: there is no such image, or one that this client may not open, or one without the
    /// feature `exclusive-lock` that is opened to be written.
    pub fn open(cluster: Arc<Cluster>, place: &RbdPlace, rw: bool) -> Result<Self> {
        Self::find(cluster, place, rw)?.ok_or_else(|| {
            let what = format!("the pool has no image {}: rbd create makes one", place.image);
            Error::Refused(format!("{place}: {what}"))
        })
    }

    /// As [`Image::open`]; `None` if there is no such image.
    ///
    /// # Errors
    /// As there.
    pub fn find(cluster: Arc<Cluster>, place: &RbdPlace, rw: bool) -> Result<Option<Self>> {
        let name = text(place.image.as_bytes())?;
        let functions = cluster.functions;
        let open = if rw { functions.rbd_open } else { functions.rbd_open_read_only };
        let mut raw = ptr::null_mut();
        // SAFETY: the pool is open, and the call fills in the image's handle.
        match unsafe { open(cluster.pool, name.as_ptr(), &mut raw, ptr::null()) } {
            0.. => {}
            error if error == -libc::ENOENT => return Ok(None),
            error => return Err(refused(place, "cannot open the image", error)),
        }
        let image = Self { cluster, raw };
        if rw && image.features()? & FEATURE_EXCLUSIVE_LOCK == 0 {
            let what = "the image has no exclusive lock, by which it has one writer: \
                        rbd feature enable POOL/IMAGE exclusive-lock";
            return Err(Error::Refused(format!("{place}: {what}")));
        }
        Ok(Some(image))
    }

    fn features(&self) -> Result<u64> {
        let mut features = 0;
        // SAFETY: the image is open.
        let asked = unsafe { (self.cluster.functions.rbd_get_features)(self.raw, &mut features) };
        done("ask for the image's features", asked).map(|()| features)
    }

    /// Bytes of the image now.
    pub fn size(&self) -> Result<u64> {
        let mut size = 0;
        // SAFETY: the image is open.
        let asked = unsafe { (self.cluster.functions.rbd_get_size)(self.raw, &mut size) };
        done("ask for the image's size", asked).map(|()| size)
    }

    /// Makes the image `size` bytes long; the cluster knows it durably when this returns. The
    /// caller has the exclusive lock, and the image is not longer than that.
    pub fn resize(&self, size: u64) -> Result<()> {
        // SAFETY: the image is open.
        let resized = unsafe { (self.cluster.functions.rbd_resize)(self.raw, size) };
        done(&format!("give the image {size} bytes"), resized)
    }

    /// Bytes of an object.
    pub fn object_size(&self) -> Result<u64> {
        let mut info = Info::EMPTY;
        let len = size_of::<Info>();
        // SAFETY: the image is open, and `info` has `len` bytes.
        let asked = unsafe { (self.cluster.functions.rbd_stat)(self.raw, &mut info, len) };
        done("ask for the image's objects", asked)?;
        match info.object_size {
            size if size.is_power_of_two() && size >= 4096 => Ok(size),
            size => Err(Error::Refused(format!("objects of {size} bytes are not supported"))),
        }
    }

    /// The image's number in its pool, which no other image ever has.
    pub fn id(&self) -> Result<String> {
        let mut buf = [0u8; 128];
        // SAFETY: the image is open, and the buffer has the bytes that are said.
        let asked = unsafe {
            (self.cluster.functions.rbd_get_id)(self.raw, buf.as_mut_ptr().cast(), buf.len() - 1)
        };
        done("ask for the image's number", asked)?;
        Ok(until_zero(&buf))
    }

    /// Carries accesses out.
    ///
    /// # Errors
    /// The first errno.
    pub fn run<'a>(&self, jobs: impl IntoIterator<Item = Job<'a>>) -> std::result::Result<(), i32> {
        run(self.cluster.functions, self.raw, jobs)
    }

    /// The address of the client that has the exclusive lock, of an image that is open to be
    /// written. The cluster is asked.
    pub fn owner(&self) -> Result<Option<String>> {
        let functions = self.cluster.functions;
        let (mut mode, mut owners, mut count) = (EXCLUSIVE, [ptr::null_mut::<c_char>(); 1], 1);
        // SAFETY: the image is open, and the list has room for what is said.
        let asked = unsafe {
            (functions.rbd_lock_get_owners)(self.raw, &mut mode, owners.as_mut_ptr(), &mut count)
        };
        if asked == -libc::ENOENT {
            return Ok(None);
        }
        done("ask for the lock's owner", asked)?;
        let [owner] = owners;
        if count == 0 || owner.is_null() {
            return Ok(None);
        }
        // SAFETY: the library has written a text that ends, and takes it back.
        let address = unsafe {
            let address = CStr::from_ptr(owner).to_string_lossy().into_owned();
            (functions.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count);
            address
        };
        Ok(Some(address))
    }

    /// As [`Image::owner`], of an image that is open only to be read: as it was when it was opened.
    pub fn owner_when_opened(&self) -> Result<Option<String>> {
        let mut exclusive = 0;
        let mut texts = [[0u8; MAX_LOCK_TEXT]; 4];
        let mut lens = [MAX_LOCK_TEXT; 4];
        let [tag, client, cookie, address] = &mut texts;
        let [tag_len, client_len, cookie_len, address_len] = &mut lens;
        // SAFETY: the image is open, and each buffer has the bytes that are said.
        let count = unsafe {
            (self.cluster.functions.rbd_list_lockers)(
                self.raw,
                &mut exclusive,
                tag.as_mut_ptr().cast(),
                tag_len,
                client.as_mut_ptr().cast(),
                client_len,
                cookie.as_mut_ptr().cast(),
                cookie_len,
                address.as_mut_ptr().cast(),
                address_len,
            )
        };
        match count {
            0 => Ok(None),
            1.. => Ok(Some(until_zero(address))),
            error => Err(failed(
                "ask for the lock's owner",
                c_int::try_from(error).unwrap_or(-libc::EIO),
            )),
        }
    }

    /// The addresses of the clients that have the image open, as the cluster sees it: of one that
    /// has died or is cut off, for 30 seconds more.
    pub fn watchers(&self) -> Result<Vec<String>> {
        let functions = self.cluster.functions;
        let mut list = [Watcher::EMPTY; MAX_WATCHERS];
        let mut count = list.len();
        // SAFETY: the image is open, and the list has room for what is said.
        let asked =
            unsafe { (functions.rbd_watchers_list)(self.raw, list.as_mut_ptr(), &mut count) };
        done("ask for the image's watchers", asked)?;
        let there = list.get(..count).unwrap_or(&list);
        let found = there.iter().filter(|watcher| !watcher.address.is_null()).map(|watcher| {
            // SAFETY: the library has written a text that ends.
            unsafe { CStr::from_ptr(watcher.address) }.to_string_lossy().into_owned()
        });
        let found = found.collect();
        // SAFETY: the library takes back what it has written.
        unsafe { (functions.rbd_watchers_list_cleanup)(list.as_mut_ptr(), count) };
        Ok(found)
    }

    /// Takes the exclusive lock, and passes it on to nobody.
    ///
    /// # Errors
    /// The errno.
    pub fn acquire(&self) -> std::result::Result<(), i32> {
        // SAFETY: the image is open.
        match unsafe { (self.cluster.functions.rbd_lock_acquire)(self.raw, EXCLUSIVE) } {
            0.. => Ok(()),
            error => Err(-error),
        }
    }

    /// Gives the exclusive lock back.
    pub fn release(&self) -> Result<()> {
        // SAFETY: the image is open.
        done("release the lock", unsafe { (self.cluster.functions.rbd_lock_release)(self.raw) })
    }

    /// Breaks the lock of the client at `owner`, which was fenced.
    pub fn break_lock(&self, owner: &str) -> Result<()> {
        let owner = text(owner)?;
        // SAFETY: the image is open, and the address lives during the call.
        let broken =
            unsafe { (self.cluster.functions.rbd_lock_break)(self.raw, EXCLUSIVE, owner.as_ptr()) };
        // Another has broken it, or it was released.
        if broken == -libc::ENOENT || broken == -libc::EBUSY {
            return Ok(());
        }
        done("break the lock", broken)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: nothing uses the image any more. Each call waits for its own accesses.
        unsafe { (self.cluster.functions.rbd_close)(self.raw) };
    }
}

fn done(what: &str, result: c_int) -> Result<()> {
    if result < 0 { Err(failed(what, result)) } else { Ok(()) }
}

fn until_zero(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
