//! Sessions of a volume that is open in this process.

use super::Source;
use siftfs_base::Result;
use siftfs_placement::{LocalVolume, PrivateLogs, Sessions};
use siftfs_proto::{Cache, FileService, Holder, Opening};
use std::sync::Arc;

/// Opens sessions of a volume of this process.
pub struct InThisProcess {
    sessions: Sessions,
    registry: Arc<PrivateLogs>,
    has_path: bool,
}

impl InThisProcess {
    /// Those of `volume`, until it is closed.
    pub fn of(volume: &LocalVolume) -> Self {
        let (sessions, registry) = (volume.sessions(), volume.private_logs());
        Self { sessions, registry, has_path: volume.has_path() }
    }
}

impl Source for InThisProcess {
    fn open(&self, opening: Opening) -> Result<Arc<dyn FileService>> {
        self.sessions.open(opening)
    }

    fn front(&self, opening: Opening, cache: Arc<dyn Cache>) -> Result<Arc<dyn FileService>> {
        self.sessions.front(opening, cache)
    }

    fn lender(&self, opening: Opening, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        self.sessions.lender(opening, holder)
    }

    fn registry(&self) -> Option<Arc<PrivateLogs>> {
        Some(self.registry.clone())
    }

    fn has_path(&self) -> bool {
        self.has_path
    }
}
