//! The host's processor time for small overwrites, by thread: what is asked of the caller, of
//! assembly, and of the Service, which another processor may have. Records that name their blocks
//! themselves would save a part of assembly's.

use crate::side::media;
use serde_json::{Value, json};
use siftfs::{OpenOptions, Result, Threads, Volume};
use siftfs_base::{Error, Rng, SystemClock};
use siftfs_placement::{LocalVolume, Media};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the files: all of it is overwritten often, or each block seldom.
const FILES: [u64; 2] = [4 << 20, 512 << 20];

/// Microseconds on a processor so far, by the threads' names.
fn by_thread() -> std::io::Result<BTreeMap<String, f64>> {
    let mut all = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        // A thread may end meanwhile.
        let read = |name| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        let (name, times) = (read("comm"), read("schedstat"));
        let ns: f64 = times.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
        *all.entry(name.trim().to_owned()).or_default() += ns / 1e3;
    }
    Ok(all)
}

fn open(media: Media) -> Result<Volume> {
    let clock = Arc::new(SystemClock::default());
    let local = LocalVolume::open_on(media, clock, &OpenOptions::default(), Threads::Real)?;
    Ok(Volume::from_local(local))
}

/// Each 512 bytes of the file are what they were filled with last: what was measured was real.
fn compare(volume: &Volume, filled: &[u8]) -> Result<()> {
    let file = volume.open_file("/f")?;
    for (n, wanted) in filled.chunks(256).enumerate() {
        let piece = file.read_at(n as u64 * (512 << 8), 512 << 8)?;
        if !piece.chunks(512).eq(wanted.iter().map(|fill| [*fill; 512])) {
            return Err(Error::Refused(format!("the file has other bytes in its piece {n}")));
        }
    }
    Ok(())
}

/// 512 bytes anywhere in a file, and an fsync, for so long: microseconds each, by thread.
fn overwrites(disk: &Path, memory: &Path, bytes: u64, time: Duration) -> Result<Value> {
    let media = media(disk, memory, &format!("cpu-{bytes}"), Some(64 << 20))?;
    let volume = open(media.clone())?;
    let file = volume.create("/f", 0o644)?;
    (0..bytes >> 20).try_for_each(|i| file.write_at(i << 20, &[0; 1 << 20]))?;
    file.sync_all()?;
    volume.checkpoint()?;
    let told = |e: std::io::Error| Error::Refused(format!("/proc/self/task: {e}"));
    let (mut rng, mut n) = (Rng::new(5), 0.0);
    let before = volume.status()?.runtime;
    let (threads, start) = (by_thread().map_err(told)?, Instant::now());
    // What each 512 bytes are filled with, to be compared at the end.
    let mut filled = vec![0; usize::try_from(bytes / 512).expect("a small file")];
    while start.elapsed() < time {
        let (place, fill) = (rng.below(bytes / 512), (n as u64 % 251) as u8 + 1);
        file.write_at(place * 512, &[fill; 512])?;
        file.sync_all()?;
        filled[place as usize] = fill;
        n += 1.0;
    }
    volume.checkpoint()?;
    let after = volume.status()?.runtime;
    let spent = by_thread().map_err(told)?.into_iter().map(|(name, us)| {
        let us = us - threads.get(&name).copied().unwrap_or_default();
        (name, us / n)
    });
    let spent: BTreeMap<_, _> = spent.filter(|(_, us)| *us > 0.0).collect();
    drop(file);
    volume.close()?;
    compare(&open(media)?, &filled)?;
    Ok(json!({
        "file_bytes": bytes,
        "overwrites": n,
        "us_each_by_thread": spent,
        "transactions": after.transactions - before.transactions,
        "copy_tags_each": (after.copy_tags - before.copy_tags) as f64 / n,
    }))
}

/// Of files of several sizes.
pub fn measure(disk: &Path, memory: &Path, time: Duration) -> Result<Value> {
    let each = FILES.iter().map(|bytes| overwrites(disk, memory, *bytes, time));
    each.collect::<Result<Vec<_>>>().map(Value::from)
}
