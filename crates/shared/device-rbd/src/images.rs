//! The images of a pool: which there are, and making, naming and removing one.
#![allow(unsafe_code)]

use crate::cluster::{Cluster, refused, text};
use crate::functions::{FEATURES, Named};
use crate::image::Image;
use crate::notes::{About, Notes};
use crate::owner::living_owner;
use crate::{Access, RbdDevice, RbdPlace, RbdPool};
use siftfs_base::{Error, Result};
use std::ffi::CStr;
use std::sync::Arc;

/// Most images of a pool that are listed.
const MOST: usize = 1 << 16;
/// Images that a first list has room for.
const FIRST: usize = 256;
/// How often a list is asked for that has become longer in between.
const TRIES: u32 = 8;

/// The images of a pool or of a namespace, by one connection.
pub struct RbdImages {
    pool: RbdPool,
    cluster: Arc<Cluster>,
}

/// An image that is only looked at, beside those that use it.
pub struct LookedImage {
    /// Its bytes, which may change while they are read.
    pub device: RbdDevice,
    /// Does a process that lives have it, to write?
    pub used: bool,
}

impl RbdImages {
    /// Connects to the pool's cluster.
    ///
    /// # Errors
    /// Refused, saying what is wrong: the configuration, the key, the pool, or a cluster that does
    /// not answer.
    pub fn of(pool: &RbdPool) -> Result<Self> {
        let cluster = Arc::new(Cluster::connect(&pool.place)?);
        Ok(Self { pool: pool.clone(), cluster })
    }

    /// The images' names, in no order.
    ///
    /// # Errors
    /// The cluster does not say, or there are more than 65,536.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut room = FIRST;
        for _ in 0..TRIES {
            let (mut list, mut count) = (vec![Named::EMPTY; room], room);
            // SAFETY: the pool is open, and the list has room for what is said.
            let asked = unsafe {
                (self.cluster.functions.rbd_list2)(self.cluster.pool, list.as_mut_ptr(), &mut count)
            };
            if asked == -libc::ERANGE && count <= MOST {
                room = count.max(room) + FIRST;
                continue;
            }
            if asked < 0 {
                return Err(refused(&self.pool.place, "cannot list the pool's images", asked));
            }
            return Ok(self.take(&mut list, count));
        }
        Err(Error::Refused(format!("{}: more than {MOST} images are not listed", self.pool)))
    }

    /// The names of the first `count` of a list that the library has filled in, and takes back.
    fn take(&self, list: &mut [Named], count: usize) -> Vec<String> {
        let filled = list.get_mut(..count).unwrap_or_default();
        let there = filled.iter().filter(|named| !named.name.is_null());
        // SAFETY: the library has written a text that ends.
        let text =
            |named: &Named| unsafe { CStr::from_ptr(named.name) }.to_str().ok().map(str::to_owned);
        let names = there.filter_map(text).collect();
        // SAFETY: these are the texts that the library has given, and nothing refers to them.
        unsafe {
            (self.cluster.functions.rbd_image_spec_list_cleanup)(filled.as_mut_ptr(), filled.len());
        }
        names
    }

    /// Looks at an image, whether it is in use or not; `None` if no image has this name.
    ///
    /// # Errors
    /// Refused if no image can have the name, or if this client may not read it.
    pub fn look(&self, name: &str) -> Result<Option<LookedImage>> {
        let place = self.pool.image(name)?;
        let Some(image) = Image::find(self.cluster.clone(), &place, false)? else {
            return Ok(None);
        };
        let used = living_owner(&image)?.is_some();
        Ok(Some(LookedImage { device: RbdDevice::of(&place, image, None)?, used }))
    }

    /// Makes an empty image, durably, which has an exclusive lock whatever the cluster's
    /// configuration says.
    ///
    /// # Errors
    /// Refused if the name is taken or no image can have it, or the cluster does not make it.
    pub fn create(&self, name: &str, size: u64) -> Result<()> {
        let (place, mut order) = (self.pool.image(name)?, 0);
        let image = text(name)?;
        // SAFETY: the pool is open, the name lives during the call, and an order of 0 is the usual.
        let made = unsafe {
            let functions = self.cluster.functions;
            (functions.rbd_create2)(self.cluster.pool, image.as_ptr(), size, FEATURES, &mut order)
        };
        taken(&place, "cannot make the image", made)
    }

    /// Gives an image that nobody has open another name, durably.
    ///
    /// # Errors
    /// Refused if the new name is taken or no image can have it, or the cluster does not do it.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (place, old, new) = (self.pool.image(to)?, text(from)?, text(to)?);
        // SAFETY: the pool is open, and both names live during the call.
        let renamed = unsafe {
            (self.cluster.functions.rbd_rename)(self.cluster.pool, old.as_ptr(), new.as_ptr())
        };
        taken(&place, "cannot name the image", renamed)
    }

    /// Removes an image that was looked at. A dead owner is fenced first, and then `check` says
    /// whether it is what it was taken for, while nobody else can write it. Returns what that says.
    ///
    /// # Errors
    /// Refused if a process has it, if it has snapshots, if another image has its name by now, or
    /// by `check`.
    pub fn remove<T>(
        &self,
        looked: LookedImage,
        check: impl FnOnce(&RbdDevice) -> Result<T>,
    ) -> Result<T> {
        let (place, id) = (looked.device.place().clone(), looked.device.id()?);
        drop(looked);
        let owned = RbdDevice::open(&place, Access::Alone)?;
        if owned.id()? != id {
            return Err(Error::Refused(format!(
                "{place} was replaced meanwhile: nothing was removed"
            )));
        }
        let checked = check(&owned)?;
        // The library removes an image that nobody watches, and takes the lock by itself.
        drop(owned);
        self.remove_unwatched(&place)?;
        for about in [About::Owners, About::Waiting] {
            let notes = Notes::of(self.cluster.clone(), about, &id);
            if let Err(error) = notes.and_then(|notes| notes.forget()) {
                tracing::debug!(%place, %error, "the notes of a removed image stay in the pool");
            }
        }
        Ok(checked)
    }

    fn remove_unwatched(&self, place: &RbdPlace) -> Result<()> {
        let name = text(place.image.as_bytes())?;
        // SAFETY: the pool is open, and the name lives during the call.
        let removed =
            unsafe { (self.cluster.functions.rbd_remove)(self.cluster.pool, name.as_ptr()) };
        match removed {
            0.. => Ok(()),
            error if error == -libc::EBUSY => {
                Err(Error::Refused(format!("{place} is in use: nothing was removed")))
            }
            error if error == -libc::ENOTEMPTY => {
                let what = "it has snapshots (rbd snap ls): nothing was removed";
                Err(Error::Refused(format!("{place}: {what}")))
            }
            error => Err(refused(place, "cannot remove the image", error)),
        }
    }
}

/// The result of a call that gives an image its name.
fn taken(place: &RbdPlace, what: &str, result: i32) -> Result<()> {
    match result {
        0.. => Ok(()),
        error if error == -libc::EEXIST => Err(Error::Refused(format!("{place} is there already"))),
        error => Err(refused(place, what, error)),
    }
}
