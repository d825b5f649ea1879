//! The target that has a volume's storage, as the Runtime asks it for programs.

use siftfs_base::{BlockRun, InodeNr, Result};
use siftfs_device_target::{Settled, Target};
use siftfs_proto::LeaseId;
use siftfs_runtime::{Admits, DirectPlane, Written};
use std::sync::Arc;

struct Plane(Arc<Target>);

/// This target.
pub(super) fn plane(target: Arc<Target>) -> Arc<dyn DirectPlane> {
    Arc::new(Plane(target))
}

impl DirectPlane for Plane {
    fn grant(
        &self,
        (lease, file): (LeaseId, InodeNr),
        write: bool,
        runs: Vec<BlockRun>,
    ) -> Result<Admits> {
        let granted = self.0.grant((lease.0, file.into()), write, runs)?;
        Ok(Admits { token: granted.token, target: granted.place.to_string() })
    }

    fn settle(&self, lease: LeaseId) -> Result<Written> {
        self.0.settle(lease.0).map(written)
    }

    fn revoke(&self, lease: LeaseId) -> Result<Written> {
        self.0.revoke(lease.0).map(written)
    }
}

fn written(settled: Settled) -> Written {
    Written { some: settled.written, lost: settled.lost }
}
