//! What is staged, and where.

use crate::state::buffers::RecordBuffers;
use crate::state::lane::Lane;
use siftfs_base::Lsn;
use std::sync::Arc;

/// The lanes, and the order of what is staged in them.
pub struct Staging {
    /// Staging lanes.
    pub lanes: Vec<Lane>,
    /// Last LSN drawn.
    pub lsn: u64,
    /// The newest staged transaction of this epoch, 0 if there is none (rule R24).
    pub last_staged: Lsn,
    /// Memory that records are encoded into.
    pub record_buffers: Arc<RecordBuffers>,
}
