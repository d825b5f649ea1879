//! What there is in a program without librbd: nothing that can be opened.

use crate::{Access, RbdPlace, RbdPool, Standing, Words};
use siftfs_base::{Error, Result};
use siftfs_device::Device;
use std::convert::Infallible;
use std::fmt::Display;

/// An image, of which this program can open none.
#[derive(Debug)]
pub struct RbdDevice(Infallible);

impl RbdDevice {
    /// Refuses: this program was built without librbd.
    ///
    /// # Errors
    /// Always [`Error::Refused`].
    pub fn open(place: &RbdPlace, _: Access) -> Result<Self> {
        Err(absent(place))
    }

    /// There is no image that could be made longer.
    ///
    /// # Errors
    /// None.
    pub fn lengthen(self, _: u64) -> Result<Self> {
        match self.0 {}
    }
}

/// The images of a pool, of which this program sees none.
#[derive(Debug)]
pub struct RbdImages(Infallible);

/// An image that is only looked at: this program has no such thing.
#[derive(Debug)]
pub struct LookedImage {
    /// Its bytes.
    pub device: RbdDevice,
    /// Does a process that lives have it, to write?
    pub used: bool,
}

impl RbdImages {
    /// Refuses: this program was built without librbd.
    ///
    /// # Errors
    /// Always [`Error::Refused`].
    pub fn of(pool: &RbdPool) -> Result<Self> {
        Err(absent(pool))
    }

    /// There is no pool.
    ///
    /// # Errors
    /// None.
    pub fn names(&self) -> Result<Vec<String>> {
        match self.0 {}
    }

    /// There is no pool.
    ///
    /// # Errors
    /// None.
    pub fn look(&self, _: &str) -> Result<Option<LookedImage>> {
        match self.0 {}
    }

    /// There is no pool.
    ///
    /// # Errors
    /// None.
    pub fn create(&self, _: &str, _: u64) -> Result<()> {
        match self.0 {}
    }

    /// There is no pool.
    ///
    /// # Errors
    /// None.
    pub fn rename(&self, _: &str, _: &str) -> Result<()> {
        match self.0 {}
    }

    /// There is no pool.
    ///
    /// # Errors
    /// None.
    pub fn remove<T>(&self, _: LookedImage, _: impl FnOnce(&RbdDevice) -> Result<T>) -> Result<T> {
        match self.0 {}
    }
}

fn absent(place: impl Display) -> Error {
    Error::Refused(format!(
        "{place}: this siftfs was built without RBD: build it where Ceph's headers are (Debian's \
         librbd-dev), by make build"
    ))
}

impl Device for RbdDevice {
    fn size(&self) -> u64 {
        match self.0 {}
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
        match self.0 {}
    }
    fn write(&self, _: u64, _: &[u8], _: bool) -> Result<()> {
        match self.0 {}
    }
    fn flush(&self) -> Result<()> {
        match self.0 {}
    }
}

/// An image that is waited for, of which this program knows none.
#[derive(Debug)]
pub struct RbdWait(Infallible);

#[allow(missing_docs, clippy::missing_errors_doc)] // as those of a program with librbd
impl RbdWait {
    pub fn open(place: &RbdPlace) -> Result<Self> {
        Err(absent(place))
    }
    pub fn standing(&self) -> Result<Standing> {
        match self.0 {}
    }
    pub fn note(&mut self, _: &str) -> Result<()> {
        match self.0 {}
    }
    pub fn others_waiting(&self) -> Result<Vec<String>> {
        match self.0 {}
    }
    pub fn words(&self) -> Result<Words> {
        match self.0 {}
    }
    pub fn ask_to_hand_over(&self, _: &str) -> Result<()> {
        match self.0 {}
    }
    pub fn say_take_over(&self, _: &str) -> Result<()> {
        match self.0 {}
    }
    pub fn strike_out_words(&self) -> Result<()> {
        match self.0 {}
    }
    pub fn own_description() -> String {
        String::new()
    }
}
