//! A file that changes by atomic sections alone, as a database without a journal does, with a
//! ledger of what was committed.
//!
//! What section number `n` writes follows from `n`, and so does the whole file behind it. Its first
//! page has the number, in every section. After a death the file is what it was behind the last
//! commit that returned, or behind the one that was under way: all of it, or nothing.

#![allow(unsafe_code)] // ioctl(2) of sections

use crate::signals::{Signals, is_gone};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use siftfs_model::{Rng, mix};
use siftfs_rig::descriptors::own_table;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

const START: libc::Ioctl = 0xf501;
const COMMIT: libc::Ioctl = 0xf502;
const ABORT: libc::Ioctl = 0xf505;

const PAGE: usize = 4096;
const PAGES: u64 = 24;
/// Pages that a section writes at most, besides the first.
const WRITTEN: u64 = 6;

/// A section's call on an open file.
fn section(fd: &OwnedFd, call: libc::Ioctl) -> Result<(), Errno> {
    // SAFETY: none of these calls has an argument.
    match unsafe { libc::ioctl(fd.as_raw_fd(), call, 0) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Writes `data` at `offset`. The kernel sends what crosses a page in parts: where one is refused
/// behind another, the write ends there, and only the next one is told why.
fn write_all(fd: &OwnedFd, data: &[u8], offset: u64) -> Result<(), Errno> {
    let mut written = 0;
    while let Some(rest @ [_, ..]) = data.get(written..) {
        match rustix::io::pwrite(fd, rest, offset + written as u64)? {
            0 => return Err(Errno::NOSPC),
            len => written += len,
        }
    }
    Ok(())
}

/// Writes `data` at `offset` by a section of its own, in pieces of a page. True if it was
/// committed; false if it is more than a section takes, or there are none here (the load's tests
/// run on any file system, and the ledger tells if the mount has none): nothing was written then.
///
/// # Errors
/// The kernel's.
pub(crate) fn write_in_section(fd: &OwnedFd, offset: u64, data: &[u8]) -> Result<bool, Errno> {
    loop {
        match section(fd, START) {
            Err(Errno::NOTTY | Errno::OPNOTSUPP) => return Ok(false),
            other => other?,
        }
        let mut at = offset;
        let written = data.chunks(PAGE).try_for_each(|piece| {
            write_all(fd, piece, at)?;
            at += piece.len() as u64;
            Ok(())
        });
        match written.and_then(|()| section(fd, COMMIT)) {
            Ok(()) => return Ok(true),
            Err(e) => {
                section(fd, ABORT)?;
                match e {
                    // It may be tried again.
                    Errno::AGAIN => {}
                    Errno::FBIG => return Ok(false),
                    e => return Err(e),
                }
            }
        }
    }
}

/// The pages that section `n` writes.
fn pages_of(n: u64) -> Vec<u64> {
    let mut rng = Rng::new(mix(n ^ 0x1ed6));
    let others = (0..rng.below(WRITTEN + 1)).map(|_| rng.between(1, PAGES - 1));
    std::iter::once(0).chain(others).collect()
}

/// What it writes to one of them.
fn page(n: u64, index: u64) -> Vec<u8> {
    if n == 0 {
        return vec![0; PAGE];
    }
    let word = |at: u64| if at == 0 { n } else { mix(n ^ (index << 32) ^ at) };
    (0..PAGE as u64 / 8).flat_map(|at| word(at).to_le_bytes()).collect()
}

/// Of each page the last section up to `n` that wrote it.
fn writers(n: u64) -> Vec<u64> {
    let last = |index: u64| (1..=n).rev().find(|k| pages_of(*k).contains(&index)).unwrap_or(0);
    (0..PAGES).map(last).collect()
}

/// The ledger of one volume.
#[derive(Default)]
pub struct Ledger {
    /// Sections whose commit returned.
    pub committed: u64,
}

fn path(mount: &Path) -> PathBuf {
    mount.join("ledger")
}

impl Ledger {
    /// Makes the file on a new volume. It is durable with the next sync.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make(mount: &Path) -> std::io::Result<Self> {
        let file = File::create(path(mount))?;
        (0..PAGES).try_for_each(|i| file.write_all_at(&page(0, i), i * PAGE as u64))?;
        Ok(Self::default())
    }

    /// Works until it is told to stop, the host is gone, or something is wrong, as
    /// [`crate::worker::Worker::run`].
    pub fn run(&mut self, mount: &Path, seed: u64, signals: &Signals) {
        let done = own_table().map_err(|e| format!("own descriptors: {e}"));
        let done = done.and_then(|()| {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            let mut rng = Rng::new(seed);
            loop {
                let then = signals.server_now();
                let opened = rustix::fs::open(path(mount), flags, Mode::empty());
                match opened.and_then(|fd| self.work(&fd, &mut rng, then, signals)) {
                    Err(e) if signals.is_dying() && is_gone(e) => return Ok(()),
                    // A section is gone with its server, and of a commit nobody can say whether it
                    // was carried out.
                    Err(Errno::IO) if signals.server_was_lost(then) => {
                        signals.uncertain.fetch_add(1, Ordering::SeqCst);
                        self.settle(mount, signals)?;
                    }
                    Err(e) => return Err(e.to_string()),
                    Ok(done) if signals.stopped() => return done,
                    Ok(done) => done?,
                }
            }
        });
        if let Err(why) = done {
            signals.fail(format!("ledger of sections: after {}: {why}", self.committed));
        }
    }

    /// The server died: the file is as the last commit left it, or the one that was under way.
    fn settle(&mut self, mount: &Path, signals: &Signals) -> Result<(), String> {
        match self.judge(mount, true).into_iter().next() {
            Some(_) if signals.is_dying() => Ok(()),
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Works as long as the server is as it was `then`.
    fn work(
        &mut self,
        fd: &OwnedFd,
        rng: &mut Rng,
        then: u64,
        signals: &Signals,
    ) -> Result<Result<(), String>, Errno> {
        while !signals.stopped() && signals.server_now() == then {
            let n = self.committed + 1;
            section(fd, START)?;
            for index in pages_of(n) {
                rustix::io::pwrite(fd, &page(n, index), index * PAGE as u64)?;
            }
            if rng.chance(10) {
                section(fd, ABORT)?;
                let mut first = vec![0; PAGE];
                rustix::io::pread(fd, &mut first, 0)?;
                if first != page(self.committed, 0) {
                    return Ok(Err("an aborted section is read".into()));
                }
                continue;
            }
            match section(fd, COMMIT) {
                Ok(()) => {
                    self.committed = n;
                    signals.returned(true);
                }
                Err(Errno::AGAIN) => section(fd, ABORT)?,
                Err(e) => return Err(e),
            }
            sleep(Duration::from_micros(rng.below(4000)));
        }
        Ok(Ok(()))
    }

    /// What is wrong with the file below `mount`. After a death (`cut`) one more section may be
    /// there than was acknowledged. What is there is what the next round starts from.
    pub fn judge(&mut self, mount: &Path, cut: bool) -> Vec<String> {
        let found = match std::fs::read(path(mount)) {
            Ok(found) => found,
            Err(e) => return vec![format!("ledger of sections: {e}")],
        };
        let number = found.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let most = self.committed + u64::from(cut);
        if !(self.committed..=most).contains(&number) || found.len() as u64 != PAGES * PAGE as u64 {
            return vec![format!(
                "ledger of sections: {} acknowledged, number {number} found in {} bytes",
                self.committed,
                found.len()
            )];
        }
        let wrong = |(index, (bytes, writer)): (u64, (&[u8], u64))| {
            let text = format!("ledger of sections: page {index} is not section {writer}'s");
            (bytes != page(writer, index)).then(|| format!("{text} of {number}"))
        };
        let pages = (0..).zip(found.chunks(PAGE).zip(writers(number)));
        let complaints: Vec<String> = pages.filter_map(wrong).collect();
        self.committed = number;
        complaints
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
