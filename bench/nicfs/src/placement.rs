//! NICFS's placement: the Runtime in a process of its own, and 1, 2 and 4 mounts that have programs
//! with private logs. What crosses to the Runtime in messages for each byte that is written, which
//! is a count and no time.

use crate::Plan;
use crate::job::{FILE, Job, Op};
use serde_json::{Value, json};
use siftfs_rig::device::Device;
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Failed, Result, arg, failed};
use siftfs_rig::volume::Volume;
use siftfs_status::{Placement, PrivateLogs};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Numbers of mounts, each with a program.
const FRONTS: [usize; 3] = [1, 2, 4];
/// Bytes of a write: the paper's 4 KiB first, whose number is the target's.
const LENGTHS: [usize; 3] = [4 << 10, 16 << 10, 512];
/// Bytes to the Runtime for each byte that is written, 4 KiB.
const TARGET: f64 = 0.05;
const OPTIONS: &str = "private_logs=daemon";

/// A served volume and its mounts.
struct Served {
    server: Device,
    fronts: Vec<Volume>,
    accel: Vec<String>,
    worker: PathBuf,
}

/// What has crossed for a number of bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    written: u64,
    sent: u64,
    lent: u64,
    received: u64,
}

impl Served {
    fn start(plan: &Plan<'_>) -> Result<Self> {
        let place = plan.place;
        let own = std::env::current_exe().map_err(failed("own path"))?;
        // The library lets alone what is called as the mount's own side is.
        let worker = place.path("worker");
        fs::copy(&own, &worker).map_err(failed(worker.display()))?;
        let volume = Volume::make(place, "served", "1G")?;
        let address = format!("unix:{}", place.path("served.sock").display());
        let server = volume.serve(&address, &place.path("serve.log"), &[])?;
        let accel = vec![arg(&volume.program)?.to_owned(), "accel".into(), "--".into()];
        let mut fronts = Vec::new();
        for number in 0..FRONTS.into_iter().max().unwrap_or_default() {
            let dir = place.mount_point(&format!("front-{number}"))?;
            let front =
                Volume { program: volume.program.clone(), image: address.clone().into(), dir };
            let options = [OPTIONS, plan.options];
            let options: Vec<_> = options.into_iter().filter(|some| !some.is_empty()).collect();
            front.mount_with(&["-o", &options.join(",")])?;
            fill(&front.dir.join(name(number)))?;
            fronts.push(front);
        }
        Ok(Self { server, fronts, accel, worker })
    }

    fn count(&self, front: &Volume) -> Result<(PrivateLogs, Placement)> {
        let status = front.status()?;
        let logs = status.mounts.into_iter().next().and_then(|mount| mount.private_logs);
        let placement = status.server.and_then(|server| server.placement).unwrap_or_default();
        logs.map(|logs| (logs, placement)).ok_or_else(|| Failed("no private logs".into()))
    }

    /// All mounts' counts together, once no program has a session.
    fn counts(&self, plan: &Plan<'_>) -> Result<Count> {
        let mut all = Count::default();
        for front in &self.fronts {
            let (logs, placement) = loop {
                plan.place.go_on()?;
                let now = self.count(front)?;
                if now.0.sessions == 0 && now.1.connections == 0 {
                    break now;
                }
            };
            all.written += logs.bytes;
            all.sent += placement.sent;
            all.lent += placement.lent;
            all.received += placement.received;
        }
        Ok(all)
    }

    /// What crosses while some mounts' programs write.
    fn run(&self, plan: &Plan<'_>, fronts: usize, (bytes, sync): (usize, bool)) -> Result<Count> {
        let before = self.counts(plan)?;
        let time = plan.time.as_millis() as u64;
        let mut programs = Vec::new();
        for (number, front) in self.fronts.iter().enumerate().take(fronts) {
            let file = front.dir.join(name(number));
            let job = Job { file, op: Op::RandWrite, bytes, sync, raw: false, time };
            let mut command: Command = job.command(&self.accel, &self.worker);
            programs.push(command.stdout(Stdio::null()).spawn().map_err(failed("a job"))?);
        }
        for mut program in programs {
            let status = program.wait().map_err(failed("a job"))?;
            if !status.success() {
                return Err(Failed(format!("a job ended: {status}")));
            }
        }
        let after = self.counts(plan)?;
        let count = Count {
            written: after.written - before.written,
            sent: after.sent - before.sent,
            lent: after.lent - before.lent,
            received: after.received - before.received,
        };
        match count.written {
            0 => Err(Failed("no program had a private log".into())),
            _ => Ok(count),
        }
    }

    fn close(self) -> Result<()> {
        for front in &self.fronts {
            front.siftfs(&["umount", arg(&front.dir)?])?;
        }
        self.server.end()
    }
}

fn name(number: usize) -> String {
    format!("file-{number}")
}

fn fill(path: &Path) -> Result<()> {
    let write = || {
        let mut file = File::create_new(path)?;
        let piece = vec![1; 1 << 20];
        (0..FILE >> 20).try_for_each(|_| file.write_all(&piece))?;
        file.sync_all()
    };
    write().map_err(failed(path.display()))
}

/// Counts it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let served = Served::start(plan)?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    let head = ["bytes", "fsync", "fronts", "written", "to it, per byte", "lent", "back"];
    let [bytes, fsync, fronts, written, sent, lent, back] = head;
    let _ = writeln!(
        text,
        "{bytes:>6} {fsync:>6} {fronts:>7} {written:>12} {sent:>16} {lent:>8} {back:>8}"
    );
    for bytes in LENGTHS {
        for sync in [true, false] {
            for fronts in FRONTS {
                let mut count = Count::default();
                for _ in 0..plan.rounds {
                    let one = served.run(plan, fronts, (bytes, sync))?;
                    count.written += one.written;
                    count.sent += one.sent;
                    count.lent += one.lent;
                    count.received += one.received;
                }
                rows.push(row(&mut text, (bytes, sync, fronts), count));
            }
        }
    }
    served.close()?;
    let _ = writeln!(
        text,
        "target: at most {TARGET} to it at 4 KiB. Bytes of messages to the server, of data in shared memory, \
         and of messages back, for each byte that programs wrote; opening and lease of each program are among \
         them. Without fsync the agent merges what is anywhere in a batch: a header is for a piece then"
    );
    Ok(Output { text, json: json!({"rows": rows, "target": TARGET}) })
}

fn row(text: &mut String, (bytes, sync, fronts): (usize, bool, usize), count: Count) -> Value {
    let per_byte = |part: u64| part as f64 / count.written as f64;
    let [sent, lent, back] = [count.sent, count.lent, count.received].map(per_byte);
    let fsync = if sync { "each" } else { "none" };
    let _ = writeln!(
        text,
        "{bytes:>6} {fsync:>6} {fronts:>7} {:>12} {sent:>16.4} {lent:>8.3} {back:>8.4}",
        count.written
    );
    json!({
        "bytes": bytes,
        "fsync": sync,
        "fronts": fronts,
        "written": count.written,
        "sent": count.sent,
        "lent": count.lent,
        "received": count.received,
        "sent_per_byte": sent,
    })
}
