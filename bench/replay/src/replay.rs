//! The replay modes on the same backlogs.

use crate::backlog::{Backlog, Kind};
use crate::spread::{cpu_seconds, median, spread};
use crate::volume::{Volume, device};
use rustix::time::ClockId;
use serde_json::{Value, json};
use siftfs_base::Result;
use siftfs_device::{Device, Origin, RegionKind};
use siftfs_log::JournalData;
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

/// One workload over journals of some forms, all of them interleaved; an object per form.
fn rows(
    path: &Path,
    kind: Kind,
    forms: &[JournalData],
    rounds: u64,
    scale: u64,
) -> Result<Vec<Value>> {
    let backlogs: Vec<Backlog> =
        forms.iter().map(|form| Backlog::new(kind, scale).journaled(*form)).collect();
    // A volume ends where its device ends, and forms do not differ in size.
    let size = backlogs.first().map_or(0, |b| b.sizes().total());
    assert!(backlogs.iter().all(|b| b.sizes().total() == size), "one file for all");
    let device: Arc<dyn Device> = device(path, size)?;
    let mut samples: Vec<[Samples; 3]> = Vec::new();
    samples.resize_with(forms.len(), Default::default);
    for round in 0..rounds as usize {
        for i in ORDERS[round % ORDERS.len()] {
            for (backlog, samples) in backlogs.iter().zip(&mut samples) {
                measure(&device, backlog, MODES[i], &mut samples[i])?;
            }
        }
    }
    drop(device);
    Ok(backlogs.iter().zip(&samples).map(|(backlog, samples)| row(backlog, samples)).collect())
}

fn row(backlog: &Backlog, samples: &[Samples; 3]) -> Value {
    let [ordered, together, auto] = samples;
    let ratio = |a: &[f64], b: &[f64]| spread(a.iter().zip(b).map(|(a, b)| a / b).collect());
    // Of the whole run: the better of two single measurements is mostly the luckier one.
    let better = |of: fn(&Samples) -> &Vec<f64>| match median(of(ordered)) < median(of(together)) {
        true => ratio(of(auto), of(ordered)),
        false => ratio(of(auto), of(together)),
    };
    let coalesce = &samples[1].report;
    let modes = MODES.iter().zip(samples).map(|(mode, s)| {
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
    json!({
        "fsyncs_per_file": backlog.fsyncs,
        "useful_bytes": backlog.useful(),
        "ordered_to_coalesce": ratio(&ordered.seconds, &together.seconds),
        "ordered_to_coalesce_cpu": ratio(&ordered.cpu_seconds, &together.cpu_seconds),
        "auto_to_better": better(|s| &s.seconds),
        "auto_to_better_cpu": better(|s| &s.cpu_seconds),
        "block_reduction": reduction(coalesce.raw_blocks, coalesce.surviving_blocks),
        "inode_reduction": reduction(coalesce.raw_inodes, coalesce.surviving_inodes),
        "modes": modes.collect::<serde_json::Map<_, _>>(),
    })
}

/// Backlogs by name.
pub const KINDS: [(&str, Kind); 4] = [
    ("high_overlap", Kind::HighOverlap),
    ("sequential", Kind::Sequential),
    ("scattered", Kind::Scattered),
    ("temporary", Kind::Temporary),
];

/// Measures the backlog of this name, or all.
pub fn run(dir: &Path, rounds: u64, scale: u64, only: Option<&str>) -> Result<Value> {
    let path = dir.join(format!("siftfs-replay-bench-{}", std::process::id()));
    let mut all = serde_json::Map::new();
    for (name, kind) in KINDS {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let (names, forms) = match kind {
            Kind::Sequential => (
                vec![name.to_string(), format!("{name}_copy")],
                vec![JournalData::Ref, JournalData::Copy],
            ),
            _ => (vec![name.to_string()], vec![JournalData::Ref]),
        };
        let done = rows(&path, kind, &forms, rounds, scale);
        // The file is ours alone, whether it was made or not.
        let _ = std::fs::remove_file(&path);
        all.extend(names.into_iter().zip(done?));
    }
    Ok(Value::Object(all))
}
