//! The secret by which a server knows again what it has granted.

use siftfs_base::{Error, Result};
use siftfs_keys::{SECRET_BYTES, Seals};
use std::path::PathBuf;

/// The secret by which a server knows again what it, or one before it, has granted to clients whose
/// callers are checked.
#[derive(Clone, Debug)]
pub enum Secret {
    /// In a file of this machine, which is made if it is not there.
    File(PathBuf),
    /// Known already.
    Known(Seals),
}

impl Secret {
    /// These bytes, which nobody but servers of the volume may know.
    pub fn known(secret: &[u8; SECRET_BYTES]) -> Self {
        Self::Known(Seals::of(secret))
    }
}

/// By the given secret; without one, or if it cannot be had, by one that ends with this server.
pub(super) fn seals(secret: Option<&Secret>) -> Result<Seals> {
    match secret {
        Some(Secret::Known(seals)) => return Ok(seals.clone()),
        Some(Secret::File(path)) => match Seals::of_file(path) {
            Ok(seals) => return Ok(seals),
            Err(error) => tracing::warn!(
                path = %path.display(), %error,
                "mounts whose callers are checked will find their files gone after this server"
            ),
        },
        None => {}
    }
    Seals::new().map_err(|error| Error::Refused(format!("no secret for a server: {error}")))
}
