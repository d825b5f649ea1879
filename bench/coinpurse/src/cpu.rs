//! The host's processor time for small overwrites, by thread: what is asked of the caller, of
//! assembly, and of the Service, which another processor may have. Physical ranges, which name
//! their blocks themselves, save a part of assembly's.

use crate::output::{Output, spread};
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

fn open(media: Media, physical: bool) -> Result<Volume> {
    let clock = Arc::new(SystemClock::default());
    let mut options = OpenOptions::default();
    options.record_area.physical = physical;
    let local = LocalVolume::open_on(media, clock, &options, Threads::Real)?;
    Volume::from_local(local)
}

/// Each 512 bytes of the file are what they were filled with last: what was measured was real.
fn compare(volume: Volume, filled: &[u8]) -> Result<()> {
    let file = volume.open_file("/f")?;
    for (n, wanted) in filled.chunks(256).enumerate() {
        let piece = file.read_at(n as u64 * (512 << 8), 512 << 8)?;
        if !piece.chunks(512).eq(wanted.iter().map(|fill| [*fill; 512])) {
            return Err(Error::Refused(format!("the file has other bytes in its piece {n}")));
        }
    }
    drop(file);
    volume.close()
}

/// What one run came to.
struct Run {
    /// Overwrites with their fsyncs.
    overwrites: f64,
    /// Microseconds on a processor of each, by thread.
    us: BTreeMap<String, f64>,
    /// Transactions in all.
    transactions: u64,
    /// Tags, and physical ranges, for each.
    tags: f64,
    physical: f64,
}

/// 512 bytes anywhere in a file, and an fsync, for so long.
fn overwrites(
    (disk, memory): (&Path, &Path),
    bytes: u64,
    physical: bool,
    time: Duration,
) -> Result<Run> {
    let media = media(disk, memory, &format!("cpu-{bytes}"), Some(64 << 20))?;
    let volume = open(media.clone(), physical)?;
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
    let us: BTreeMap<_, _> = spent.filter(|(_, us)| *us > 0.0).collect();
    drop(file);
    volume.close()?;
    compare(open(media, physical)?, &filled)?;
    Ok(Run {
        overwrites: n,
        us,
        transactions: after.transactions - before.transactions,
        tags: (after.copy_tags - before.copy_tags) as f64 / n,
        physical: (after.dispatch.physical - before.dispatch.physical) as f64 / n,
    })
}

impl Run {
    /// Processor time that the host needs wherever the Service runs: the caller's thread, and
    /// assembly's.
    fn host(&self) -> f64 {
        self.all() - self.of("siftfs-service")
    }

    /// Microseconds of the thread of this name.
    fn of(&self, name: &str) -> f64 {
        self.us.get(name).copied().unwrap_or_default()
    }

    /// ... of all threads.
    fn all(&self) -> f64 {
        self.us.values().sum()
    }
}

/// The middle of what runs have, with the least and the most, as text and as a document.
fn middle(runs: &[Run], of: impl Fn(&Run) -> f64) -> (f64, f64, f64) {
    spread(&runs.iter().map(of).collect::<Vec<_>>())
}

/// One line of the table, and its row.
fn row(bytes: u64, name: &str, runs: &[Run]) -> (String, Value) {
    let assembly = middle(runs, |r| r.of("siftfs-commit")).0;
    let service = middle(runs, |r| r.of("siftfs-service")).0;
    let (host, least, most) = middle(runs, Run::host);
    let (all, tags) = (middle(runs, Run::all).0, middle(runs, |r| r.tags).0);
    let transactions = middle(runs, |r| r.transactions as f64).0;
    let physical = middle(runs, |r| r.physical).0;
    let text = format!(
        "{:>5} MiB {name:9} {host:8.2} ({least:.2} to {most:.2}) {assembly:9.2} {service:8.2} {all:8.2} \
         {transactions:12.0} {tags:6.2} {physical:8.2}",
        bytes >> 20
    );
    let us: Vec<&BTreeMap<String, f64>> = runs.iter().map(|r| &r.us).collect();
    let json = json!({
        "file_bytes": bytes, "how": name, "us_each_by_thread": us, "transactions": transactions,
        "copy_tags_each": tags, "physical_each": physical,
        "overwrites": runs.iter().map(|r| r.overwrites).sum::<f64>(),
    });
    (text, json)
}

/// Of files of several sizes, with tags and with physical ranges in turn, in this many rounds.
pub fn measure(disk: &Path, memory: &Path, rounds: u32, time: Duration) -> Result<Output> {
    let mut text = String::from(
        "us each  how       caller and assembly      assembly  Service      all transactions   tags physical\n",
    );
    let mut rows = Vec::new();
    for bytes in FILES {
        let (mut tags, mut physical) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            tags.push(overwrites((disk, memory), bytes, false, time)?);
            physical.push(overwrites((disk, memory), bytes, true, time)?);
        }
        for (name, runs) in [("tags", &tags), ("physical", &physical)] {
            let (line, row) = row(bytes, name, runs);
            text += &format!("{line}\n");
            rows.push(row);
        }
        let ratio = |of: fn(&Run) -> f64| {
            let ratios: Vec<f64> = tags.iter().zip(&physical).map(|(t, p)| of(p) / of(t)).collect();
            spread(&ratios)
        };
        let ((host, l, m), (all, al, am)) = (ratio(Run::host), ratio(Run::all));
        text += &format!(
            "          physical to tags: caller and assembly {host:.3} ({l:.3} to {m:.3}), all {all:.3} \
             ({al:.3} to {am:.3})\n"
        );
        rows.push(json!({"file_bytes": bytes, "host": [host, l, m], "all": [all, al, am]}));
    }
    Ok(Output { text, json: rows.into() })
}
