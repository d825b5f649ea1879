//! A volume all of whose sessions are bounded by one line of `authorized`.

use siftfs_base::Result;
use siftfs_keys::{AuthorizedLine, KeyPair};
use siftfs_placement::LocalVolume;
use siftfs_proto::{Cache, FileService, Identity, Opening};
use siftfs_remote::{Served, bounded, bounded_machine};
use std::sync::Arc;

/// A volume whose clients all have the key of one line. What they claim is believed as the channel
/// bears it out.
pub struct BoundedVolume {
    volume: Arc<dyn Served>,
    line: AuthorizedLine,
}

impl BoundedVolume {
    /// `volume` for clients with a key of this line.
    pub fn new(volume: &LocalVolume, line: AuthorizedLine) -> Arc<Self> {
        Arc::new(Self { volume: volume.served("volume").unwrap(), line })
    }
}

impl Served for BoundedVolume {
    fn uuid(&self) -> [u8; 16] {
        self.volume.uuid()
    }

    fn is_called(&self, name: &str) -> bool {
        self.volume.is_called(name)
    }

    fn open(
        &self,
        opening: Opening,
        cache: Option<Arc<dyn Cache>>,
    ) -> Result<Arc<dyn FileService>> {
        let machine = opening.identity == Identity::Machine;
        let open = |cache| self.volume.open(opening, cache);
        match machine {
            true => bounded_machine(&self.line, cache, open),
            false => bounded(&self.line, cache, open),
        }
    }
}

/// The line of a new client's key with these options.
///
/// # Panics
/// If they are no options.
pub fn line(options: &str) -> AuthorizedLine {
    let key = KeyPair::generate("client").expect("randomness");
    let line = format!("role=client {options} {}", key.line());
    line.parse().unwrap_or_else(|why| panic!("{options}: {why}"))
}
