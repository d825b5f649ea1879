//! How checkpoints replay, as an administrator chooses it.

use crate::volume::marker;
use siftfs_base::{Clock, Result};
use siftfs_device::{RegionReader, Storage};
use siftfs_service::{InodeTables, ReplayMode, ServiceOptions};
use siftfs_volume::HeaderView;
use std::sync::Arc;

/// How checkpoints replay, and within which memory. Modes differ in work, never in meaning (rule
/// R22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// `docs/design/coalescing.md` compares them.
    pub mode: ReplayMode,
    /// Bytes that a checkpoint may take, at least [`crate::MIN_MEMORY`].
    pub memory: u64,
}

impl Default for Replay {
    fn default() -> Self {
        Self { mode: ReplayMode::default(), memory: 256 << 20 }
    }
}

impl Replay {
    /// A Service's settings for the volume on `storage` that `view` describes.
    ///
    /// # Errors
    /// Refused if the volume has no area.
    pub(crate) fn options(
        self,
        storage: &Storage,
        view: &HeaderView,
        clock: &Arc<dyn Clock>,
    ) -> Result<ServiceOptions> {
        let mut options = ServiceOptions::new(view.header.volume, clock.clone());
        options.mode = self.mode;
        options.memory = self.memory;
        options.journal_data = view.header.journal_data();
        options.inode_tables = inode_tables(&*storage.area_reader()?);
        Ok(options)
    }
}

/// Where the inode tables lie, for the counts of inodes in checkpoint reports. They never move. A
/// superblock or descriptors that a crash left unfit to be read are no reason not to replay what
/// will mend them: then inodes are not counted.
fn inode_tables(area: &RegionReader) -> InodeTables {
    match marker::look(area) {
        Ok(fs) => InodeTables { runs: fs.inode_tables(), inode_size: fs.layout.inode_size() },
        Err(error) => {
            tracing::warn!(%error, "checkpoint reports will not count inodes");
            InodeTables::default()
        }
    }
}
