//! Turns of programs with private logs, beside others.

use super::{Gave, KEPT, LARGEST, Logs, Turns, gave};
use crate::logs::program::THREADS;
use crate::logs::remote::Programs;
use memmap2::{Mmap, MmapOptions};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file that a program with private logs has open, and its like.
pub(super) struct Logged {
    program: usize,
    slot: u64,
    said: String,
    plain: File,
    appends: bool,
    leased: bool,
}

/// A mapping to be read, and the file's like.
pub(super) struct Viewed {
    said: String,
    file: File,
    plain: File,
    map: Mmap,
}

impl Turns<'_> {
    /// A history on an empty volume that is mounted at `mounts` with private logs, beside the
    /// directory in which `plain` is made. All is compared about once in `each` calls.
    ///
    /// # Errors
    /// When directories or programs cannot be made.
    pub fn with_logs(
        mounts: Vec<PathBuf>,
        beside: &std::path::Path,
        seed: u64,
        each: u64,
    ) -> io::Result<Self> {
        let mut turns = Turns::on(mounts, beside.join("plain"), seed, None)?;
        let first = "d0/f0";
        fs::write(turns.mounts[0].join(first), "")?;
        fs::write(turns.plain.join(first), "")?;
        let programs = Programs::start(&beside.join("programs"), &turns.mounts[0].join(first));
        let programs = programs.map_err(|e| io::Error::other(e.0))?;
        let like = || File::options().read(true).write(true).open(turns.plain.join(first));
        let mut open = Vec::new();
        for (program, said) in ["a: m0/d0/f0", "b: m0/d0/f0"].into_iter().enumerate() {
            let (said, plain) = (said.into(), like()?);
            let (slot, appends, leased) = (0, false, program == 0);
            open.push(Logged { program, slot, said, plain, appends, leased });
        }
        let (views, times, slots) = (Vec::new(), BTreeMap::new(), 1);
        turns.logs = Some(Logs { programs, open, views, times, slots, each });
        Ok(turns)
    }

    /// Ends the programs. Returns how many calls they made under a lease.
    ///
    /// # Errors
    /// One of them failed.
    pub fn end_logs(self) -> Result<u64, String> {
        let Some(Logs { programs, .. }) = self.logs else { return Ok(0) };
        let leased = programs.all.iter().map(|program| program.leased).sum();
        programs.end().map_err(|e| e.0)?;
        Ok(leased)
    }

    fn logs(&mut self) -> &mut Logs {
        self.logs.as_mut().expect("there are such programs")
    }

    /// Makes one call, and has others look.
    pub(super) fn step_beside_logs(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..=2 => {
                self.open_one(90)?;
                self.ended_by_open()?;
            }
            3..=12 => self.use_one()?,
            13..=16 => self.map_one()?,
            17..=24 => self.view_one()?,
            25..=28 => self.list()?,
            29..=36 => self.change_name()?,
            37..=38 => self.copy_one()?,
            39..=43 => self.leave()?,
            44..=51 => self.open_logged()?,
            52..=56 => self.read_named()?,
            _ => self.use_logged()?,
        }
        if self.rng.chance(60) {
            self.look()?;
        }
        let each = self.logs().each;
        if self.rng.below(each) == 0 {
            self.compare()?;
        }
        Ok(())
    }

    /// Closes what keeps others from leases.
    fn leave(&mut self) -> Result<(), String> {
        while self.open.len() > KEPT / 3 || (!self.open.is_empty() && self.rng.chance(50)) {
            let at = self.rng.below(self.open.len() as u64) as usize;
            self.open.swap_remove(at);
        }
        if !self.maps.is_empty() && self.rng.chance(70) {
            self.maps.remove(0);
        }
        Ok(())
    }

    /// Asks a program, and knows what its lease is.
    fn ask(
        &mut self,
        at: usize,
        (verb, path): (&str, PathBuf),
        (offset, len): (u64, usize),
        bytes: &[u8],
    ) -> Result<(Gave, bool), String> {
        let thread = self.rng.below(THREADS);
        let logs = self.logs();
        let Logged { program, slot, .. } = logs.open[at];
        let program = &mut logs.programs.all[program];
        let answer = program.ask(thread, (verb, &path), (slot, offset, len), bytes);
        let said = &logs.open[at].said;
        let answer = answer.map_err(|e| format!("{verb} {said}: the program does not answer: {e}"));
        answer.map(|answer| (answer.gave, answer.leased))
    }

    /// A program with private logs opens a file, and mostly leases it.
    fn open_logged(&mut self) -> Result<(), String> {
        if self.logs().open.len() >= KEPT / 2 {
            self.close_logged()?;
        }
        let (name, program) = (self.name(), self.rng.below(3) as usize / 2);
        let (at, mount) = self.mount();
        let (appends, reads) = (self.rng.chance(40), self.rng.chance(85));
        let creates = self.rng.chance(70);
        let mut options = File::options();
        options.read(reads).write(!appends).append(appends).create(creates);
        let how = [
            "open-",
            if reads { "r" } else { "" },
            if appends { "a" } else { "" },
            if creates { "c" } else { "" },
        ];
        let how = how.concat();
        let said = format!("{}: m{at}/{name}", ["a", "b"][program]);
        let like = options.open(self.plain.join(&name));
        let logs = self.logs();
        let slot = logs.slots;
        logs.slots += 1;
        let path = mount.join(&name);
        let answer = logs.programs.all[program].ask(0, (&how, &path), (slot, 0, 0), &[]);
        let seen = answer.map_err(|e| format!("{how} {said}: {e}"))?.gave;
        let errno = |e: &io::Error| e.raw_os_error().unwrap_or(-1);
        let wanted = like.as_ref().map(|_| Vec::new()).map_err(errno);
        if let Ok(plain) = like {
            let leased = false;
            logs.open.push(Logged { program, slot, said: said.clone(), plain, appends, leased });
        }
        self.same(format!("{how} {said}"), seen, wanted)?;
        let last = self.logs().open.len();
        if last > 0 && self.rng.chance(85) { self.lease(last - 1) } else { Ok(()) }
    }

    fn close_logged(&mut self) -> Result<(), String> {
        let open = self.logs().open.len() as u64;
        if open == 0 {
            return Ok(());
        }
        let at = self.rng.below(open) as usize;
        let (seen, _) = self.ask(at, ("close", PathBuf::from("-")), (0, 0), &[])?;
        let said = self.logs().open.swap_remove(at).said;
        self.same(format!("close {said}"), seen, Ok(Vec::new()))
    }

    fn lease(&mut self, at: usize) -> Result<(), String> {
        let (seen, leased) = self.ask(at, ("lease", PathBuf::from("-")), (0, 0), &[])?;
        let open = &mut self.logs().open[at];
        open.leased = leased;
        let said = format!("lease {}: {leased}", open.said);
        // What has no name is nobody's to lease.
        if seen == Err(libc::ENOENT) && open.plain.metadata().is_ok_and(|meta| meta.nlink() == 0) {
            return Ok(());
        }
        self.same(said, seen, Ok(Vec::new()))
    }

    /// A program with private logs uses what it has open.
    fn use_logged(&mut self) -> Result<(), String> {
        let open = self.logs().open.len() as u64;
        if open == 0 {
            return self.open_logged();
        }
        let at = self.rng.below(open) as usize;
        let (mut offset, bytes) = (self.offset(), self.bytes());
        let what = self.rng.below(100);
        let Logged { said, plain, appends, leased, .. } = &self.logs().open[at];
        let (said, len, appends, leased) = (said.clone(), bytes.len(), *appends, *leased);
        if !leased && what < 40 {
            return self.lease(at);
        }
        let plain = plain.try_clone().map_err(|e| e.to_string())?;
        let write = || match appends {
            true => (&plain).write_all(&bytes),
            false => plain.write_all_at(&bytes, offset),
        };
        let done = |result: io::Result<()>| gave(result.map(|()| Vec::new()));
        let read = |len: usize| {
            let mut into = vec![0; len];
            gave(plain.read_at(&mut into, offset).map(|n| into[..n].to_vec()))
        };
        let size = || gave(plain.metadata().map(|m| m.len().to_le_bytes()));
        let (verb, wanted) = match what {
            0..=49 if appends => ("append", done(write())),
            0..=49 => ("write", done(write())),
            50..=64 => ("read", read(len)),
            65..=70 => ("size", size()),
            71..=76 => ("sync", Ok(Vec::new())),
            77..=80 => ("return", Ok(Vec::new())),
            81..=84 => return self.close_logged(),
            85..=88 if appends => ("kernel-append", done(write())),
            85..=88 => ("kernel-write", done(write())),
            89..=91 => ("kernel-read", read(len)),
            92..=94 => ("kernel-truncate", done(plain.set_len(offset))),
            95..=96 => ("kernel-stat", size()),
            _ => {
                let flags = rustix::fs::FallocateFlags::ZERO_RANGE;
                offset = offset.min(LARGEST - 1);
                let zero = rustix::fs::fallocate(&plain, flags, offset, len as u64);
                ("kernel-zero", done(zero.map_err(Into::into)))
            }
        };
        let (seen, by_lease) = self.ask(at, (verb, PathBuf::from("-")), (offset, len), &bytes)?;
        if matches!(verb, "return" | "write" | "append" | "read" | "size" | "sync") {
            self.logs().open[at].leased = by_lease;
        }
        let way = if by_lease { "by lease" } else { "by the kernel" };
        self.same(format!("{verb} {said} {offset} {len} {way}"), seen, wanted)?;
        if by_lease && matches!(verb, "write" | "append") {
            if self.rng.chance(30) {
                self.read_beside(&plain)?;
            }
            if self.rng.chance(50) {
                let none = (0, 0);
                let (seen, _) = self.ask(at, ("sync", PathBuf::from("-")), none, &[])?;
                self.same(format!("sync {said}"), seen, Ok(Vec::new()))?;
            }
        }
        Ok(())
    }

    /// Others read what was just written, by descriptors that are there, before anybody has asked
    /// for the size.
    fn read_beside(&mut self, plain: &File) -> Result<(), String> {
        let len = 2 * LARGEST as usize;
        let whole = |file: &File| {
            let mut into = vec![0; len];
            gave(file.read_at(&mut into, 0).map(|n| into[..n].to_vec()))
        };
        let views = self.logs.iter().flat_map(|logs| &logs.views);
        let views = views.filter(|view| same_file(&view.plain, plain));
        let seen: Vec<_> = views.map(|v| (v.said.clone(), whole(&v.file))).collect();
        let wanted = whole(&self.reader(plain)?);
        for (said, seen) in seen {
            let said = format!("read all {said}, after {}", self.last);
            self.same(said, seen, wanted.clone())?;
        }
        Ok(())
    }

    /// The same file of the plain file system, open to be read.
    fn reader(&self, plain: &File) -> Result<File, String> {
        let path = format!("/proc/self/fd/{}", plain.as_raw_fd());
        File::open(path).map_err(|e| e.to_string())
    }

    /// This program has opened a file to be written: no other one has its lease.
    fn ended_by_open(&mut self) -> Result<(), String> {
        let Some(opened) = self.open.last() else { return Ok(()) };
        let plain = opened.plain.try_clone().map_err(|e| e.to_string())?;
        let said = opened.said.clone();
        let open = &self.logs().open;
        let of = |at: &usize| open[*at].leased && same_file(&open[*at].plain, &plain);
        let all: Vec<usize> = (0..open.len()).filter(of).collect();
        for at in all {
            let (_, by_lease) = self.ask(at, ("size", PathBuf::from("-")), (0, 0), &[])?;
            if by_lease {
                let other = &self.logs().open[at].said;
                return Err(format!("{other} is leased although {said} is open to be written"));
            }
            self.logs().open[at].leased = false;
        }
        Ok(())
    }

    /// Reads a file by its name, whole.
    fn read_named(&mut self) -> Result<(), String> {
        let name = self.name();
        let (at, mount) = self.mount();
        let (seen, wanted) = (fs::read(mount.join(&name)), fs::read(self.plain.join(&name)));
        self.same(format!("m{at}: read {name}"), gave(seen), gave(wanted))
    }

    /// Copies bytes between files that are open, in the kernel.
    fn copy_one(&mut self) -> Result<(), String> {
        let open = self.open.len() as u64;
        if open < 2 {
            return self.open_one(90);
        }
        let [from, to] = [(); 2].map(|()| self.rng.below(open) as usize);
        let (offset, len) = (self.offset(), self.bytes().len());
        // Of one mount, with the same file system as the other one's.
        let (from, to) = (&self.open[from], &self.open[to]);
        if from.said[..2] != to.said[..2] || from.said == to.said {
            return Ok(());
        }
        let copy = |from: &File, to: &File| -> Gave {
            if same_file(from, to) {
                return Ok(Vec::new());
            }
            let (mut off_in, mut off_out, mut copied) = (0, offset, 0);
            while copied < len {
                let left = len - copied;
                let (r, w) = (Some(&mut off_in), Some(&mut off_out));
                match rustix::fs::copy_file_range(from, r, to, w, left) {
                    Ok(0) => break,
                    Ok(n) => copied += n,
                    Err(e) => return Err(e.raw_os_error()),
                }
            }
            Ok(copied.to_le_bytes().into())
        };
        let (seen, wanted) = (copy(&from.file, &to.file), copy(&from.plain, &to.plain));
        let said = format!("copy {} {} {offset} {len}", from.said, to.said);
        self.same(said, seen, wanted)
    }

    /// Maps a file to be read, or reads by a mapping that is there. The size is asked for before,
    /// as `docs/limits.md` says.
    fn view_one(&mut self) -> Result<(), String> {
        let views = self.logs().views.len();
        if views == 0 || self.rng.chance(30) {
            let name = self.name();
            let (at, mount) = self.mount();
            let (file, plain) = (File::open(mount.join(&name)), File::open(self.plain.join(&name)));
            let (Ok(file), Ok(plain)) = (file, plain) else { return Ok(()) };
            // SAFETY: only pages that the file has are touched, and nobody else cuts them off.
            let map = unsafe { MmapOptions::new().len(LARGEST as usize).map(&file) };
            let map = map.map_err(|e| format!("m{at}: {name} cannot be mapped: {e}"))?;
            if views == KEPT / 2 {
                self.logs().views.remove(0);
            }
            self.logs().views.push(Viewed { said: format!("m{at}/{name}"), file, plain, map });
            return Ok(());
        }
        let at = self.rng.below(views as u64) as usize;
        let Viewed { said, file, plain, map } = &self.logs().views[at];
        let said = format!("load {said}");
        let size = plain.metadata().map_err(|e| e.to_string())?.len();
        let shown = file.metadata().map_err(|e| e.to_string())?.len();
        if size != shown {
            return Err(format!("{said}: size {shown} instead of {size}, after {}", self.last));
        }
        let len = size.min(LARGEST) as usize;
        let seen = map[..len].to_vec();
        let mut wanted = vec![0; len];
        plain.read_exact_at(&mut wanted, 0).map_err(|e| e.to_string())?;
        self.same(said, Ok(seen), Ok(wanted))
    }

    /// Everybody looks at sizes and times, which ends no lease, and those that have a lease read by
    /// it.
    fn look(&mut self) -> Result<(), String> {
        let calls = self.calls as usize;
        for turn in 0..self.mounts.len() {
            let at = (turn + calls) % self.mounts.len();
            self.look_at(at)?;
        }
        for at in 0..self.logs().open.len() {
            let Logged { said, plain, leased, .. } = &self.logs().open[at];
            if !*leased {
                continue;
            }
            let (said, plain) = (said.clone(), plain.try_clone().map_err(|e| e.to_string())?);
            let wanted = gave(plain.metadata().map(|m| m.len().to_le_bytes()));
            let (seen, _) = self.ask(at, ("size", PathBuf::from("-")), (0, 0), &[])?;
            let after = self.last.clone();
            self.same(format!("size {said}, after {after}"), seen, wanted)?;
            if self.rng.chance(40) {
                let mut into = vec![0; 2 * LARGEST as usize];
                let wanted = gave(plain.read_at(&mut into, 0).map(|n| into[..n].to_vec()));
                let len = into.len();
                let (seen, _) = self.ask(at, ("read", PathBuf::from("-")), (0, len), &[])?;
                self.same(format!("read all {said}, after {after}"), seen, wanted)?;
            }
        }
        Ok(())
    }

    fn look_at(&mut self, at: usize) -> Result<(), String> {
        let after = format!("m{at}, after {}", self.last);
        for name in (0..2).flat_map(|d| (0..4).map(move |f| format!("d{d}/f{f}"))) {
            let (seen, wanted) =
                (fs::metadata(self.mounts[at].join(&name)), fs::metadata(self.plain.join(&name)));
            let (seen, wanted) = match (seen, wanted) {
                (Ok(seen), Ok(wanted)) => (seen, wanted),
                (Err(_), Err(_)) => continue,
                _ => return Err(format!("{after}: {name} is there, or is not")),
            };
            let of = |meta: &fs::Metadata| (meta.len(), meta.mode(), meta.nlink());
            if of(&seen) != of(&wanted) {
                let (seen, wanted) = (of(&seen), of(&wanted));
                return Err(format!("{after}: {name} has {seen:?} instead of {wanted:?}"));
            }
            let (time, like) = ((seen.mtime(), seen.mtime_nsec()), wanted.mtime());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            if time > (now.as_secs().cast_signed(), i64::from(now.subsec_nanos())) {
                return Err(format!("{after}: {name} was changed at {time:?}, which is to come"));
            }
            // utimensat(2) sets times of long ago.
            if like < 1_100_000_000 {
                if time.0 != like {
                    return Err(format!("{after}: {name} has mtime {time:?} instead of {like}"));
                }
                self.logs().times.remove(&seen.ino());
                continue;
            }
            let before = self.logs().times.insert(seen.ino(), time);
            if let Some(before) = before.filter(|before| *before > time) {
                return Err(format!("{after}: {name} had mtime {before:?}, and now {time:?}"));
            }
            if (time.0 - like).abs() > 60 {
                return Err(format!("{after}: {name} has mtime {time:?} instead of {like}"));
            }
        }
        Ok(())
    }
}

fn same_file(one: &File, other: &File) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => one.ino() == other.ino(),
        _ => false,
    }
}
