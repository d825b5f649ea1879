//! Ordinary users: each call must come back soon, succeed, and leave what it says.

use super::Stage;
use crate::watch::Calls;
use siftfs_base::Rng;
use siftfs_client::{Compound, Entry, Level, Publish, Source, publish};
use siftfs_rig::hostile::become_user;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The first ordinary user; root is the last.
const FIRST: u32 = 61_001;
/// How long a caller waits before it tries again what was refused for want of room.
const AGAIN: Duration = Duration::from_millis(20);

/// Starts the threads of ordinary users: two without rights, and root.
pub fn start(stage: &Arc<Stage>, seed: u64) -> Vec<JoinHandle<()>> {
    let users = [FIRST, FIRST + 1, 0];
    let start = |(n, user): (u64, u32)| {
        let stage = stage.clone();
        std::thread::spawn(move || {
            let calls = stage.calls(format!("user {user}"));
            let rng = Rng::new(siftfs_base::mix(seed ^ (1000 + n)));
            if let Err((what, error)) = live(&stage, &calls, user, rng) {
                stage.wrong(format!("user {user}: {what}: {error}"));
            }
        })
    };
    (0..).zip(users).map(start).collect()
}

type Done<T> = Result<T, (&'static str, io::Error)>;

fn live(stage: &Stage, calls: &Calls, user: u32, mut rng: Rng) -> Done<()> {
    let made = stage.directory(&format!("home-{user}"), user, 0o755);
    let home = made.map_err(|e| ("mkdir", e))?;
    become_user(user).map_err(|e| ("setresuid", e))?;
    let dir = File::open(&home).map_err(|e| ("open", e))?;
    while !stage.is_over() {
        let name = stage.fresh("f");
        let len = 100 + usize::try_from(rng.below(9000)).unwrap_or(0);
        let bytes = rng.bytes(len);
        match rng.below(4) {
            0 => by_compound(calls, &dir, &name, &bytes)?,
            1 => by_publish(calls, (&home, &dir), &name, &bytes)?,
            2 => by_rename(calls, &home, &name, &bytes)?,
            _ => by_write(calls, &home, &name, &bytes)?,
        }
        look(calls, &home.join(&name), &bytes)?;
        calls
            .call("unlink", || std::fs::remove_file(home.join(&name)))
            .map_err(|e| ("unlink", e))?;
    }
    Ok(())
}

/// Tries again while the answer is that there is no room for one more caller.
fn patiently(call: impl Fn() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                std::thread::sleep(AGAIN);
            }
            other => return other,
        }
    }
}

fn by_compound(calls: &Calls, dir: &File, name: &str, bytes: &[u8]) -> Done<()> {
    let run = || {
        let mut steps = Compound::on(dir);
        let file = steps.create(name, 0o644);
        steps.write(file, 0, bytes);
        steps.run(Level::Durable).map(drop).map_err(io::Error::from)
    };
    calls.call("a compound", || patiently(run)).map_err(|e| ("a compound", e))
}

fn by_publish(calls: &Calls, (home, dir): (&Path, &File), name: &str, bytes: &[u8]) -> Done<()> {
    let (before, other) = (format!("{name}.new"), home.join(format!("{name}.new")));
    calls.call("write", || std::fs::write(&other, bytes)).map_err(|e| ("write", e))?;
    let run = || {
        let source = Source::Path(before.clone().into());
        let entry = Entry { source, to: name.into(), replace: false };
        publish(dir.as_fd(), &Publish { entries: vec![entry], level: Level::Durable })
    };
    calls.call("publish", || patiently(run)).map_err(|e| ("publish", e))
}

fn by_rename(calls: &Calls, home: &Path, name: &str, bytes: &[u8]) -> Done<()> {
    let other = home.join(format!("{name}.tmp"));
    let write = || -> io::Result<()> {
        let mut file = File::create(&other)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    calls.call("open, write, fsync", write).map_err(|e| ("open, write, fsync", e))?;
    let renamed = calls.call("rename", || std::fs::rename(&other, home.join(name)));
    renamed.map_err(|e| ("rename", e))
}

fn by_write(calls: &Calls, home: &Path, name: &str, bytes: &[u8]) -> Done<()> {
    let write = || -> io::Result<()> {
        let file = File::create(home.join(name))?;
        let (half, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all_at(rest, half.len() as u64)?;
        file.write_all_at(half, 0)?;
        file.sync_data()
    };
    calls.call("open, pwrite, fdatasync", write).map_err(|e| ("open, pwrite, fdatasync", e))
}

/// Reads the file, its attributes and its directory.
fn look(calls: &Calls, path: &Path, bytes: &[u8]) -> Done<()> {
    let read = || -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        File::open(path)?.read_to_end(&mut all)?;
        Ok(all)
    };
    let found = calls.call("read", read).map_err(|e| ("read", e))?;
    let stat = calls.call("stat", || std::fs::metadata(path)).map_err(|e| ("stat", e))?;
    if found != bytes || stat.len() != bytes.len() as u64 {
        return Err(("read", io::Error::other("other bytes than were written")));
    }
    let list = || -> io::Result<Vec<PathBuf>> {
        let parent = path.parent().unwrap_or(path);
        std::fs::read_dir(parent)?.map(|e| e.map(|e| e.path())).collect()
    };
    let names = calls.call("readdir", list).map_err(|e| ("readdir", e))?;
    match names.iter().any(|name| name == path) {
        true => Ok(()),
        false => Err(("readdir", io::Error::other("a name is missing"))),
    }
}
