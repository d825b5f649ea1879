//! What there is in a program without librbd: nothing that can be opened.

use crate::{Access, RbdPlace, Standing, Words};
use siftfs_base::{Error, Result};
use siftfs_device::Device;
use std::convert::Infallible;

/// An image, of which this program can open none.
#[derive(Debug)]
pub struct RbdDevice(Infallible);

impl RbdDevice {
    /// Refuses: this program was built without librbd.
    ///
    /// # Errors
    /// Always [`Error::Refused`].
    pub fn open(place: &RbdPlace, _: Access) -> Result<Self> {
        Err(without(place))
    }
}

fn without(place: &RbdPlace) -> Error {
    Error::Refused(format!(
        "{place}: this siftfs was built without RBD: build it where Ceph's headers are (Debian's \
         librbd-dev), by make build"
    ))
}

/// An image that is waited for, of which this program knows none.
#[derive(Debug)]
pub struct RbdWait(Infallible);

#[allow(missing_docs, clippy::missing_errors_doc)] // as those of a program with librbd
impl RbdWait {
    pub fn open(place: &RbdPlace) -> Result<Self> {
        Err(without(place))
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
