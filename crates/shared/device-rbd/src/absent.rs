//! What there is in a program without librbd: nothing that can be opened.

use crate::{Access, RbdPlace};
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
        Err(Error::Refused(format!(
            "{place}: this siftfs was built without RBD: build it where Ceph's headers are \
             (Debian's librbd-dev), by make build"
        )))
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
