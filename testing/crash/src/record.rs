//! One run of a sequence, in lockstep with the model.

use crate::volume::{Driver, VolumeKind, base_image_of, fault_device, media_of, mem_media, open};
use siftfs_device::{FaultDevice, History};
use siftfs_model::{Generator, Ids, Lockstep, Model, Op, Profile};
use std::sync::Arc;

/// Where operations come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A seed and a number of operations.
    Seed(u64, usize, Profile),
    /// A given sequence.
    Ops(Vec<Op>),
}

impl Source {
    /// Calls `each` with every operation; `each` returns the model's state after it.
    fn run(
        &self,
        start: &Model,
        mut each: impl FnMut(&Op) -> Result<Model, String>,
    ) -> Result<Vec<Op>, String> {
        let mut done = Vec::new();
        match self {
            Source::Ops(ops) => {
                for op in ops {
                    each(op)?;
                    done.push(op.clone());
                }
            }
            Source::Seed(seed, count, profile) => {
                let mut generator = Generator::new(*seed, profile.clone());
                let mut model = start.clone();
                for _ in 0..*count {
                    let op = generator.next(&model);
                    model = each(&op).map_err(|e| history(&done, &op, &e))?;
                    done.push(op);
                }
            }
        }
        Ok(done)
    }
}

/// A difference, with the error that stopped the mount if one did.
fn explained(driver: &Driver, error: String) -> String {
    match crate::bench::status(&*driver.volume.endpoint()).failed {
        Some(failed) => format!("{error}\nthe mount failed: {failed}"),
        None => error,
    }
}

/// The last operations before a failure, and the failure.
fn history(done: &[Op], op: &Op, error: &str) -> String {
    let from = done.len().saturating_sub(40);
    let mut text: String = done[from..].iter().map(|op| format!("  {op:?}\n")).collect();
    text.push_str(&format!("  {op:?}\n{error}"));
    text
}

/// A run on a fault device, with all that is needed to judge a cut anywhere in it.
pub struct Recording {
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// The first device operation that was not the mount's.
    pub mounted: u64,
    /// For each operation, the number of the first device operation after it.
    pub ends: Vec<u64>,
    /// Whether each operation succeeded.
    pub succeeded: Vec<bool>,
    /// What happened to the device, from before the mount on.
    pub history: History,
    /// Which inode is which.
    pub ids: Ids,
    /// The model's state at the start.
    pub start: Model,
}

/// Runs `source` on a volume of `kind` and records it. `Err` is a difference to the model: a
/// bug that needs no power cut.
pub fn record(kind: VolumeKind, source: &Source) -> Result<Recording, String> {
    let base = base_image_of(kind);
    let device = Arc::new(fault_device(base.clone(), 0));
    device.record_history();
    let driver = open(media_of(&device, &base)).map_err(|e| format!("open: {e}"))?;
    record_on(&device, driver, source, || {})
}

/// Runs `source` on `driver`, whose volume is on `device`, which has recorded all so far; then the
/// host dies, and `after` runs what outlives it.
pub fn record_on(
    device: &Arc<FaultDevice>,
    driver: Driver,
    source: &Source,
    after: impl FnOnce(),
) -> Result<Recording, String> {
    let service = driver.volume.endpoint();
    let mounted = device.ops();
    let mut pair = Lockstep::new(&*service, &driver)?;
    let start = pair.model.clone();
    let (mut ends, mut succeeded) = (Vec::new(), Vec::new());
    let ops = source.run(&start, |op| {
        let outcome = pair.step(op).map_err(|e| explained(&driver, e))?;
        ends.push(device.ops());
        succeeded.push(outcome.is_ok());
        Ok(pair.model.clone())
    })?;
    let ids = pair.ids.clone();
    drop(pair);
    drop(service);
    driver.volume.abandon();
    after();
    let history = device.take_history().ok_or("the history is gone")?;
    Ok(Recording { ops, mounted, ends, succeeded, history, ids, start })
}

/// The differential test: runs `source` on a memory device, compares every answer, the whole
/// tree every `check_every` operations and at the end, then again after unmounting, and what
/// `e2fsck` says of the result.
pub fn differential(kind: VolumeKind, source: &Source, check_every: usize) -> Result<(), String> {
    let (device, media) = mem_media(&base_image_of(kind));
    let driver = open(media).map_err(|e| format!("open: {e}"))?;
    let service = driver.volume.endpoint();
    let mut pair = Lockstep::new(&*service, &driver)?;
    let start = pair.model.clone();
    let mut count = 0;
    source.run(&start, |op| {
        let _outcome = pair.step(op).map_err(|e| explained(&driver, e))?;
        count += 1;
        if count % check_every == 0 {
            pair.check_tree().map_err(|e| format!("after {op:?}: {e}"))?;
        }
        Ok(pair.model.clone())
    })?;
    pair.check_tree().map_err(|e| format!("at the end: {e}"))?;
    let (model, ids) = (pair.model.clone(), pair.ids.clone());
    drop(pair);
    drop(service);
    driver.volume.close().map_err(|e| format!("close: {e}"))?;
    crate::ext4::e2fsck_image(&device.snapshot())?;
    let tree = crate::judge::walk_image(&device.snapshot())?;
    let number = |seen: &siftfs_model::Seen| ids.model_of(&seen.attr);
    let found = model.tree_differences(&tree, &number);
    if found.is_empty() { Ok(()) } else { Err(format!("after remounting: {}", found.join("\n"))) }
}

/// The sequence that `source` gives on a volume of `kind`, made with the model alone; `None` if
/// the volume does not open.
pub fn generate(kind: VolumeKind, source: &Source) -> Option<Vec<Op>> {
    let start = Model::adopt(&crate::judge::walk_image(&base_image_of(kind)).ok()?);
    let service = siftfs_model::ModelService::with(start.clone());
    let mut pair = Lockstep::new(&service, &siftfs_model::NoControl).ok()?;
    let made = source.run(&start, |op| {
        let _outcome = pair.step(op)?;
        Ok(pair.model.clone())
    });
    made.ok()
}
