//! What servers of a volume keep for those that come after them, beside the volume where that lies
//! on a cluster, else on this machine.

use crate::volume::find::secret_of_servers;
use siftfs_base::{Error, Result};
use siftfs_device::{Beside, Device};
use siftfs_log::show_uuid;
use siftfs_remote::{BookFile, BookStore, Secret};
use std::path::Path;
use std::sync::Arc;

/// The names of these things beside an image.
const BOOK: &str = "book";
const SECRET: &str = "secret";
/// Bytes of a secret.
const SECRET_BYTES: usize = 32;

/// The book of a volume's clients, beside the volume.
#[derive(Clone, Debug)]
struct BesideImage(Arc<dyn Beside>);

impl BookStore for BesideImage {
    fn read(&self, limit: u64) -> Result<Option<Vec<u8>>> {
        self.0.read(BOOK, limit)
    }
    fn replace(&self, bytes: &[u8]) -> Result<()> {
        self.0.replace(BOOK, bytes)
    }
    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.0.append(BOOK, bytes)
    }
    fn remove(&self) -> Result<()> {
        self.0.remove(BOOK)
    }
}

/// Where the book of the volume with this UUID is, whose area is on `area`: beside it, or in the
/// folder `books` of this machine.
pub(crate) fn book_store_of(
    area: &dyn Device,
    books: &Path,
    volume: &[u8; 16],
) -> Arc<dyn BookStore> {
    match area.beside() {
        Some(beside) => Arc::new(BesideImage(beside)),
        None => Arc::new(BookFile::new(books.join(show_uuid(volume)))),
    }
}

/// The secret of a volume's servers. It is made if it is not there, by the one process that has the
/// volume.
///
/// # Errors
/// It cannot be had from the cluster.
pub(crate) fn secret_of(area: &dyn Device) -> Result<Secret> {
    let Some(beside) = area.beside() else { return Ok(Secret::File(secret_of_servers())) };
    let there = beside.read(SECRET, SECRET_BYTES as u64 + 1)?;
    if let Some(secret) = there.as_deref().and_then(|bytes| bytes.try_into().ok()) {
        return Ok(Secret::known(secret));
    }
    if there.is_some() {
        tracing::warn!(?beside, "the secret of its servers is damaged: a new one is made");
    }
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)
        .map_err(|error| Error::Refused(format!("no secret for a server: {error}")))?;
    beside.replace(SECRET, &secret)?;
    Ok(Secret::known(&secret))
}

#[cfg(test)]
#[path = "beside_tests.rs"]
mod tests;
