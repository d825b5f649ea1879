//! The target that has a volume's storage, as the Runtime asks it for programs.

use siftfs_base::{InodeNr, RangeSet, Result};
use siftfs_device_target::{Settled, Target};
use siftfs_proto::{DirectRun, LeaseId};
use siftfs_runtime::{Admits, DirectPlane, Written};
use siftfs_wire::GrantRun;
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
        runs: &[DirectRun],
    ) -> Result<Admits> {
        let granted = self.0.grant((lease.0, file.into()), write, blocks(runs))?;
        Ok(Admits { token: granted.token, target: granted.place.to_string() })
    }

    fn extend(&self, lease: LeaseId, runs: &[DirectRun]) -> Result<()> {
        self.0.extend(lease.0, blocks(runs))
    }

    fn settle(&self, lease: LeaseId) -> Result<Written> {
        self.0.settle(lease.0).map(written)
    }

    fn revoke(&self, lease: LeaseId) -> Result<Written> {
        self.0.revoke(lease.0).map(written)
    }
}

fn blocks(runs: &[DirectRun]) -> Vec<GrantRun> {
    let of = |run: &DirectRun| {
        let DirectRun { first, block, count: len, fresh } = *run;
        GrantRun { block, len, first, fresh }
    };
    runs.iter().map(of).collect()
}

fn written(settled: Settled) -> Written {
    let Settled { written: some, lost, fresh: runs, end, more } = settled;
    let mut fresh = RangeSet::new();
    runs.iter().for_each(|run| fresh.insert(run.first, run.first.saturating_add(run.len)));
    Written { some, lost, fresh, end, more }
}
