//! One device of a set.

use crate::label::{LABEL_LEN, Label};
use siftfs_base::{Error, Result, corrupt};
use siftfs_device::{Device, Medium};
use std::sync::Arc;

/// A device of a set, and what it is called.
#[derive(Clone)]
pub struct Member {
    /// As it was named.
    pub name: String,
    /// Its storage, reserved bytes included.
    pub device: Arc<dyn Device>,
}

impl Member {
    /// An error about this member.
    pub(crate) fn refused(&self, what: impl std::fmt::Display) -> Error {
        Error::Refused(format!("member {}: {what}", self.name))
    }

    /// Refuses a device that no stripe can lie on.
    pub(crate) fn check(&self) -> Result<()> {
        match self.device.medium() {
            Medium::Block => Ok(()),
            Medium::Bytes => Err(self.refused("it is memory that is addressed by bytes")),
        }
    }

    /// Reads its label; `None` if it has none.
    ///
    /// # Errors
    /// What [`Label::decode`] says, naming the member; refused for one of no set; I/O errors.
    pub(crate) fn label(&self) -> Result<Option<Label>> {
        if self.device.size() < LABEL_LEN as u64 {
            return Ok(None);
        }
        let mut bytes = [0; LABEL_LEN];
        self.device.read(0, &mut bytes)?;
        if bytes == Label::free() {
            return Err(self.refused("it is of no set yet: siftfs mkfs stripe:MEMBER,... makes one, and did not, or has not ended"));
        }
        Label::decode(&bytes).map_err(|error| match error {
            Error::Corrupt { what, detail } => corrupt(format!("{what} {}", self.name), detail),
            Error::Incompatible(what) => {
                Error::Incompatible(format!("member {}: {what}", self.name))
            }
            other => other,
        })
    }

    /// Writes these bytes as its label, durable when it returns.
    pub(crate) fn set_label(&self, bytes: &[u8; LABEL_LEN]) -> Result<()> {
        self.device.write(0, bytes, false)?;
        self.device.flush()
    }
}
