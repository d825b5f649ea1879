//! fsync latencies on SiftFS and on the kernel's ext4, in turns.

use crate::report::{Row, Table};
use siftfs_rig::fresh::fresh;
use siftfs_rig::place::{Place, Result, failed, step};
use siftfs_rig::volume::Volume;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const OPERATIONS: usize = 400;
/// A round ends early on a slow disk.
const ROUND_LIMIT: Duration = Duration::from_secs(1);

type Work = fn(&Path, &[File; 2], u64) -> io::Result<()>;

const WORKLOADS: [(&str, Work); 3] = [
    ("overwrite 4 KiB + fsync", |_, files, n| {
        files[0].write_all_at(&fresh::<4096>(), n % 64 * 4096)?;
        files[0].sync_all()
    }),
    ("append 512 bytes + fsync", |_, files, n| {
        files[1].write_all_at(&fresh::<512>(), n * 512)?;
        files[1].sync_all()
    }),
    ("create + write 4 KiB + fsync", |dir, _, n| {
        let file = File::create_new(dir.join(format!("new-{n}")))?;
        file.write_all_at(&fresh::<4096>(), 0)?;
        file.sync_all()
    }),
];

/// Measures both and fills the first part of the table. `ext4` is a directory to be made on the
/// kernel's ext4.
pub fn compare(place: &Place, volume: &Volume, ext4: &Path, table: &mut Table) -> Result<()> {
    for (what, work) in WORKLOADS {
        let row = step(&format!("measuring: {what}"), || {
            measure(place, volume, &volume.dir.join("bench"), ext4, (what, work))
        })?;
        table.row(row);
    }
    Ok(())
}

fn measure(
    place: &Place,
    volume: &Volume,
    ours: &Path,
    ext4: &Path,
    (what, work): (&'static str, Work),
) -> Result<Row> {
    let mut row = Row { what, ..Row::default() };
    for dir in [ours, ext4] {
        prepare(dir).map_err(failed(dir.display()))?;
    }
    volume.sync()?;
    let mut next = 0;
    for _ in 0..ROUNDS {
        place.go_on()?;
        let before = volume.io()?;
        let times = round(ours, next, work).map_err(failed(what))?;
        let after = volume.io()?;
        row.fsyncs += times.len() as u64;
        row.writes += after.writes - before.writes;
        row.flushes += after.flushes - before.flushes;
        row.ours.extend(times);
        row.ext4.extend(round(ext4, next, work).map_err(failed(what))?);
        next += OPERATIONS as u64;
    }
    for dir in [ours, ext4] {
        fs::remove_dir_all(dir).map_err(failed(dir.display()))?;
    }
    Ok(row)
}

/// A directory with a file to overwrite and one to append to, all durable.
fn prepare(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    fs::write(dir.join("full"), vec![1; 64 * 4096])?;
    File::create(dir.join("growing"))?.sync_all()?;
    File::open(dir.join("full"))?.sync_all()?;
    File::open(dir)?.sync_all()
}

fn round(dir: &Path, from: u64, work: Work) -> io::Result<Vec<Duration>> {
    let open = |name| File::options().write(true).open(dir.join(name));
    let files = [open("full")?, open("growing")?];
    let mut times = Vec::with_capacity(OPERATIONS);
    let start = Instant::now();
    for n in from..from + OPERATIONS as u64 {
        let begin = Instant::now();
        work(dir, &files, n)?;
        times.push(begin.elapsed());
        if start.elapsed() > ROUND_LIMIT {
            break;
        }
    }
    Ok(times)
}
