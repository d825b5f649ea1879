//! Commands on a mounted volume.

use crate::control::client::{Reached, has_died, reach};
use crate::control::messages::Op;
use crate::options::args::{self, Dir, DirJson};
use crate::options::place::{self, resolve};
use crate::options::size::show_size;
use crate::show::failure::{Failure, Outcome};
use crate::show::output::print_json;
use crate::show::output::{print, say};
use crate::show::status_text;
use rustix::fs::{Mode, OFlags};
use serde::Deserialize;
use serde_json::Value;
use siftfs_fuse::{MountEntry, containing, flush, top_mount};
use siftfs_status::{Status, Trimmed};
use std::io;
use std::path::Path;

/// Asks the daemon of the mount that `dir` lies on.
fn ask(dir: &Path, op: Op) -> Result<Value, Failure> {
    let mount = mount_of(dir)?;
    match reach(dir, &mount, &op)? {
        Reached::Answers(_, value) => Ok(value),
        Reached::Dead => Err(has_died(dir, &mount)),
    }
}

/// The mount that `dir` lies on.
pub fn mount_of(dir: &Path) -> Result<MountEntry, Failure> {
    let about = |e: &dyn std::fmt::Display| Failure::about(dir, e);
    let path = resolve(dir).map_err(|e| about(&e))?;
    let mount = containing(&path).map_err(|e| about(&e))?.filter(MountEntry::is_fuse);
    mount.ok_or_else(|| about(&"not on a SiftFS mount"))
}

/// Sends what the kernel holds back (pages dirtied through shared mappings) of every mount of the
/// volume that `dir` is on, and waits until the daemon has it. The value is what the kernel says of
/// pages that could not be written. That may be old, or another program's: the caller does its own
/// work first and tells it then.
pub fn sync_kernel(dir: &Path) -> Result<Option<io::Error>, Failure> {
    let mut lost = sync_mount(dir)?;
    let now = status_of(dir)?;
    for other in now.mounts.iter().filter(|other| other.dir != now.dir) {
        let place = Path::new(&other.dir);
        // One that was moved is not where it was made, and one that has gone holds nothing back.
        let is_there = || {
            let top = top_mount(place).ok().flatten();
            top.is_some_and(|m| format!("{}:{}", m.major, m.minor) == other.device)
        };
        match if is_there() { sync_mount(place) } else { Ok(None) } {
            Ok(told) => lost = lost.or(told),
            Err(failure) if is_there() => return Err(failure),
            Err(_) => {}
        }
    }
    Ok(lost)
}

/// The same for the mount that `dir` is on.
fn sync_mount(dir: &Path) -> Result<Option<io::Error>, Failure> {
    let about = |e: &dyn std::fmt::Display| Failure::about(dir, e);
    // Where no daemon answers, the kernel's calls would wait for it.
    ask(dir, Op::Writers)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| about(&e))?;
    // Starts it for all files at once; the kernel does not wait for a FUSE file's pages here.
    let mut lost = rustix::fs::syncfs(&root).err().map(io::Error::from);
    let writers = serde_json::from_value(ask(dir, Op::Writers)?);
    let writers: Vec<(u64, u32)> = writers.map_err(|e| about(&e))?;
    for (node, generation) in writers {
        let flushed = flush(&root, node, generation);
        lost = lost.or(flushed.err());
    }
    let told = serde_json::from_value(ask(dir, Op::Lost)?);
    let told: Option<i32> = told.map_err(|e| about(&e))?;
    Ok(lost.or(told.map(io::Error::from_raw_os_error)))
}

/// Tells of pages that could not be written, after what was asked for has been done.
pub fn tell_lost(dir: &Path, lost: Option<io::Error>) -> Outcome {
    match lost {
        None => Ok(0),
        Some(e) => Err(Failure::about(
            dir,
            format!(
                "some of what programs had written there could not be written, and is lost ({e}); everything \
                 else is durable"
            ),
        )),
    }
}

/// `siftfs sync`.
pub fn sync(a: &Dir) -> Outcome {
    let lost = sync_kernel(&a.dir)?;
    ask(&a.dir, Op::Sync)?;
    tell_lost(&a.dir, lost)
}

/// `siftfs status`.
pub fn status(a: &args::Status) -> Outcome {
    let value = ask(&a.dir, Op::Status)?;
    check_log(&a.dir, &value, a.log.as_deref())?;
    if a.json {
        // As it came, with what a daemon of another version knows beyond these types.
        print_json(&value)?;
    } else {
        print(&status_text::text(&read_status(&a.dir, &value)?))?;
    }
    Ok(0)
}

/// The log of the mount that `status` is about is where the caller thinks it is.
fn check_log(dir: &Path, status: &Value, wanted: Option<&Path>) -> Result<(), Failure> {
    let Some(wanted) = wanted else { return Ok(()) };
    let full = place::device(wanted)?;
    match read_status(dir, status)?.log.as_deref() {
        Some(log) if place::device(Path::new(log)).is_ok_and(|l| l == full) => Ok(()),
        Some(log) => Err(Failure::about(dir, format!("its log is {log}, not {}", full.display()))),
        None => Err(Failure::about(dir, "its log is with the volume, not elsewhere")),
    }
}

/// The log of the mount that `dir` lies on is where the caller thinks it is.
pub fn check_log_of(dir: &Path, wanted: Option<&Path>) -> Result<(), Failure> {
    check_log(dir, &ask(dir, Op::Status)?, wanted)
}

/// The status of the mount that `dir` lies on.
pub fn status_of(dir: &Path) -> Result<Status, Failure> {
    read_status(dir, &ask(dir, Op::Status)?)
}

fn read_status(dir: &Path, value: &Value) -> Result<Status, Failure> {
    let what = "the daemon's answer makes no sense to this version";
    Status::deserialize(value).map_err(|e| Failure::about(dir, format!("{what}: {e}")))
}

/// `siftfs checkpoint`.
pub fn checkpoint(a: &DirJson) -> Outcome {
    let lost = sync_kernel(&a.dir)?;
    show(&ask(&a.dir, Op::Checkpoint)?, a.json)?;
    tell_lost(&a.dir, lost)
}

/// `siftfs trim`.
pub fn trim(a: &DirJson) -> Outcome {
    let value = ask(&a.dir, Op::Trim)?;
    if a.json {
        print_json(&value)?;
        return Ok(0);
    }
    let what = "the daemon's answer makes no sense to this version";
    let done = Trimmed::deserialize(&value);
    let done = done.map_err(|e| Failure::about(&a.dir, format!("{what}: {e}")))?;
    let mut line = format!("{}: {} given back", a.dir.display(), show_size(done.bytes));
    if done.incomplete {
        line.push_str(", and not all, because space is short");
    }
    if done.failed > 0 {
        line.push_str(&format!(", and {} runs of free blocks FAILED", done.failed));
    }
    say(line)?;
    Ok(0)
}

fn show(value: &Value, json: bool) -> Outcome {
    if json {
        print_json(value)?;
    } else {
        let mut lines = Vec::new();
        flatten("", value, &mut lines);
        let width = lines.iter().map(|(k, _)| k.len()).max().unwrap_or(0);
        for (key, value) in lines {
            if !print(&format!("{key:width$}  {value}\n"))? {
                break;
            }
        }
    }
    Ok(0)
}

fn flatten(prefix: &str, value: &Value, out: &mut Vec<(String, String)>) {
    let name = |part: &str| {
        if prefix.is_empty() { part.to_string() } else { format!("{prefix}.{part}") }
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&name(k), v, out)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, v)| flatten(&name(&i.to_string()), v, out));
        }
        Value::String(s) => out.push((prefix.to_string(), s.clone())),
        other => out.push((prefix.to_string(), other.to_string())),
    }
}
