//! The replay modes on the same backlogs.

use crate::backlog::{Backlog, Kind};
use crate::spread::{cpu_seconds, median, spread};
use crate::volume::{Volume, device};
use rustix::time::ClockId;
use serde_json::{Value, json};
use siftfs_base::Result;
use siftfs_device::{Device, Origin, RegionKind};
use siftfs_service::ReplayMode;
use siftfs_wire::CheckpointReport;
use std::path::Path;
use std::sync::Arc;

const MODES: [ReplayMode; 3] = [ReplayMode::Ordered, ReplayMode::Coalesce, ReplayMode::Auto];
/// In which order a round measures them. A disk pays in one measurement for what was written in
/// the one before, so each mode comes equally often after each other.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]];

/// What one checkpoint was.
#[derive(Default)]
struct Samples {
    seconds: Vec<f64>,
    /// Of all the process's threads, the kernel's for its I/O included.
    cpu_seconds: Vec<f64>,
    longest_step: Vec<f64>,
    report: CheckpointReport,
    /// Bytes written to staging, journal and area, per useful byte.
    write_amplification: f64,
    area_share: f64,
}

fn measure(
    device: &Arc<dyn Device>,
    backlog: &Backlog,
    mode: ReplayMode,
    to: &mut Samples,
) -> Result<()> {
    let (dev, sizes) = (Arc::clone(device), backlog.sizes());
    let mut volume = Volume::new(dev, &sizes, mode, backlog.inode_tables())?;
    backlog.build(&mut volume)?;
    device.flush()?;
    let (start, cpu) = (std::time::Instant::now(), cpu_seconds(ClockId::ProcessCPUTime));
    let (longest, report) = volume.checkpoint()?;
    to.seconds.push(start.elapsed().as_secs_f64());
    to.cpu_seconds.push(cpu_seconds(ClockId::ProcessCPUTime) - cpu);
    to.longest_step.push(longest as f64 / 1e9);
    let counters = volume.storage.counters();
    let written = |kind, origin| counters.get(kind, origin).write_bytes;
    let all = written(RegionKind::Staging, Origin::Foreground)
        + written(RegionKind::Journal, Origin::Background)
        + written(RegionKind::Area, Origin::Background);
    to.write_amplification = all as f64 / backlog.useful() as f64;
    to.area_share = written(RegionKind::Area, Origin::Background) as f64 / backlog.useful() as f64;
    to.report = report;
    Ok(())
}

fn reduction(raw: u64, surviving: u64) -> f64 {
    1.0 - surviving as f64 / raw.max(1) as f64
}

fn row(path: &Path, kind: Kind, rounds: u64, scale: u64) -> Result<Value> {
    let backlog = Backlog::new(kind, scale);
    let device: Arc<dyn Device> = device(path, backlog.sizes().total())?;
    let mut samples: [Samples; 3] = Default::default();
    for round in 0..rounds as usize {
        for i in ORDERS[round % ORDERS.len()] {
            measure(&device, &backlog, MODES[i], &mut samples[i])?;
        }
    }
    drop(device);
    let [ordered, together, auto] = [0, 1, 2].map(|i| &samples[i]);
    let ratio = |a: &[f64], b: &[f64]| spread(a.iter().zip(b).map(|(a, b)| a / b).collect());
    // Of the whole run: the better of two single measurements is mostly the luckier one.
    let better = |of: fn(&Samples) -> &Vec<f64>| match median(of(ordered)) < median(of(together)) {
        true => ratio(of(auto), of(ordered)),
        false => ratio(of(auto), of(together)),
    };
    let coalesce = &samples[1].report;
    let modes = MODES.iter().zip(&samples).map(|(mode, s)| {
        let value = json!({
            "seconds": spread(s.seconds.clone()),
            "cpu_seconds": spread(s.cpu_seconds.clone()),
            "longest_step_seconds": spread(s.longest_step.clone()),
            "written_per_useful_byte": s.write_amplification,
            "area_per_useful_byte": s.area_share,
            "report": s.report,
        });
        (mode.to_string(), value)
    });
    Ok(json!({
        "fsyncs_per_file": backlog.fsyncs,
        "useful_bytes": backlog.useful(),
        "ordered_to_coalesce": ratio(&ordered.seconds, &together.seconds),
        "ordered_to_coalesce_cpu": ratio(&ordered.cpu_seconds, &together.cpu_seconds),
        "auto_to_better": better(|s| &s.seconds),
        "auto_to_better_cpu": better(|s| &s.cpu_seconds),
        "block_reduction": reduction(coalesce.raw_blocks, coalesce.surviving_blocks),
        "inode_reduction": reduction(coalesce.raw_inodes, coalesce.surviving_inodes),
        "modes": modes.collect::<serde_json::Map<_, _>>(),
    }))
}

/// Measures the backlog of this name, or all.
pub fn run(dir: &Path, rounds: u64, scale: u64, only: Option<&str>) -> Result<Value> {
    let path = dir.join(format!("siftfs-replay-bench-{}", std::process::id()));
    let kinds = [
        ("high_overlap", Kind::HighOverlap),
        ("sequential", Kind::Sequential),
        ("scattered", Kind::Scattered),
        ("temporary", Kind::Temporary),
    ];
    let mut rows = serde_json::Map::new();
    for (name, kind) in kinds {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let done = row(&path, kind, rounds, scale);
        // The file is ours alone, whether it was made or not.
        let _ = std::fs::remove_file(&path);
        rows.insert(name.into(), done?);
    }
    Ok(Value::Object(rows))
}
