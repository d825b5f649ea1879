//! Front ends that take turns: each call is made on a front end and on a plain file system beside
//! it, with the same result, and after it all front ends show what the plain one shows.

#![allow(unsafe_code)] // mappings have no safe way

mod logged;

use crate::logs::remote::Programs;
use crate::stage::Stage;
use crate::view::{self, Times, View};
use memmap2::{MmapMut, MmapOptions};
use rustix::fs::{AtFlags, FallocateFlags, RenameFlags, SeekFrom, Timespec, Timestamps};
use siftfs::Volume;
use siftfs_base::{Error, Rng};
use siftfs_proto::{RenameMode, SetAttr};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file at most.
const LARGEST: u64 = 40 << 10;
/// Descriptors and mappings of each kind that are kept.
const KEPT: usize = 12;

/// A file that is open on a mount, and its like on the plain file system.
struct Open {
    said: String,
    file: File,
    plain: File,
    appends: bool,
}

/// A mapping of a file on a mount, and its like.
struct Mapped {
    said: String,
    file: File,
    plain: File,
    map: MmapMut,
    like: MmapMut,
}

/// Programs with private logs, and what they have open.
struct Logs {
    programs: Programs,
    open: Vec<logged::Logged>,
    /// Mappings to be read.
    views: Vec<logged::Viewed>,
    /// The mtime of each file, by its number, as all were told last.
    times: BTreeMap<u64, (i64, i64)>,
    /// Number of the next slot.
    slots: u64,
    /// Calls after which everything is compared once, on the average.
    each: u64,
}

/// What a call gave.
type Gave = std::result::Result<Vec<u8>, i32>;

fn gave(result: io::Result<impl Into<Vec<u8>>>) -> Gave {
    result.map(Into::into).map_err(|e| e.raw_os_error().unwrap_or(-1))
}

fn done(result: io::Result<()>) -> Gave {
    gave(result.map(|()| Vec::new()))
}

/// The turns of one history.
pub struct Turns<'a> {
    rng: Rng,
    mounts: Vec<PathBuf>,
    plain: PathBuf,
    /// The program that embeds the volume, if it is in this process.
    embedded: Option<&'a Stage>,
    /// Programs with private logs, if the mounts have them.
    logs: Option<Logs>,
    open: Vec<Open>,
    maps: Vec<Mapped>,
    dirs: Vec<(String, File, File)>,
    /// Files, by their numbers on the plain file system, that a holder has made longer by itself
    /// since all were compared. A kernel looks at the size that it knows when a page of a mapping
    /// is asked for, and asks nobody.
    longer: BTreeSet<u64>,
    /// Calls so far.
    pub calls: u64,
    last: String,
}

impl<'a> Turns<'a> {
    /// A history on an empty volume.
    ///
    /// # Errors
    /// When the directories cannot be made.
    pub fn new(stage: &'a Stage, seed: u64) -> io::Result<Self> {
        Self::on(stage.dirs.clone(), stage.beside("plain"), seed, Some(stage))
    }

    fn on(
        mounts: Vec<PathBuf>,
        plain: PathBuf,
        seed: u64,
        embedded: Option<&'a Stage>,
    ) -> io::Result<Self> {
        fs::create_dir(&plain)?;
        for dir in ["d0", "d1"] {
            fs::create_dir(mounts[0].join(dir))?;
            fs::create_dir(plain.join(dir))?;
        }
        let (open, maps, dirs, longer) = (Vec::new(), Vec::new(), Vec::new(), BTreeSet::new());
        let (rng, logs, calls, last) = (Rng::new(seed), None, 0, String::new());
        Ok(Self { rng, mounts, plain, embedded, logs, open, maps, dirs, longer, calls, last })
    }

    fn name(&mut self) -> String {
        format!("d{}/f{}", self.rng.below(2), self.rng.below(4))
    }

    fn mount(&mut self) -> (usize, PathBuf) {
        let at = self.rng.below(self.mounts.len() as u64) as usize;
        (at, self.mounts[at].clone())
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.rng.below(4) {
            0 => 1 + self.rng.below(100),
            1 => 4096,
            _ => 1 + self.rng.below(9000),
        };
        let first = self.rng.bits() as u8;
        (0..len).map(|i| first.wrapping_add((i / 7) as u8)).collect()
    }

    fn offset(&mut self) -> u64 {
        match self.rng.below(3) {
            0 => self.rng.below(LARGEST / 4096) * 4096,
            _ => self.rng.below(LARGEST),
        }
    }

    /// One call and its like gave the same.
    fn same(&mut self, said: String, seen: Gave, wanted: Gave) -> Result<(), String> {
        self.calls += 1;
        self.last = said;
        if seen == wanted {
            return Ok(());
        }
        let short = |gave: &Gave| match gave {
            Ok(bytes) => format!("{} bytes", bytes.len()),
            Err(errno) => format!("errno {errno}"),
        };
        let at = match (&seen, &wanted) {
            (Ok(a), Ok(b)) => a.iter().zip(b).position(|(a, b)| a != b),
            _ => None,
        };
        let (got, want) = (short(&seen), short(&wanted));
        Err(format!("{}: {got} instead of {want}, first other byte {at:?}", self.last))
    }

    /// Makes one call, somewhere.
    ///
    /// # Errors
    /// What differs.
    pub fn step(&mut self) -> Result<(), String> {
        if self.logs.is_some() {
            return self.step_beside_logs();
        }
        match self.rng.below(100) {
            0..=9 => self.open_one(75),
            10..=37 => self.use_one(),
            38..=45 => self.map_one(),
            46..=55 => self.list(),
            56..=75 => self.change_name(),
            76..=83 => self.keep_private(),
            _ => self.embed(),
        }
    }

    /// Opens a file, which is to be read with this chance.
    fn open_one(&mut self, to_be_read: u64) -> Result<(), String> {
        let name = self.name();
        let (at, mount) = self.mount();
        let mut options = File::options();
        let appends = self.rng.chance(35);
        let reads = self.rng.chance(to_be_read);
        options.read(reads).write(!appends).append(appends).create(self.rng.chance(70));
        if !appends && self.rng.chance(10) {
            options.truncate(true);
        }
        if self.rng.chance(10) {
            options.custom_flags(libc::O_EXCL);
        }
        let said = format!("m{at}: open {name} {options:?}");
        let (file, plain) = (options.open(mount.join(&name)), options.open(self.plain.join(&name)));
        let errno = |file: &io::Result<File>| {
            file.as_ref().err().map_or(Ok(Vec::new()), |e| Err(e.raw_os_error().unwrap_or(-1)))
        };
        self.same(said, errno(&file), errno(&plain))?;
        if let (Ok(file), Ok(plain)) = (file, plain) {
            if self.open.len() == KEPT {
                let at = self.rng.below(KEPT as u64) as usize;
                self.open.swap_remove(at);
            }
            self.open.push(Open { said: format!("m{at}/{name}"), file, plain, appends });
        }
        Ok(())
    }

    fn use_one(&mut self) -> Result<(), String> {
        if self.open.is_empty() {
            return self.open_one(75);
        }
        let at = self.rng.below(self.open.len() as u64) as usize;
        let (offset, bytes) = (self.offset(), self.bytes());
        let what = self.rng.below(12);
        let Open { said, file, plain, appends } = &self.open[at];
        let (len, appends) = (bytes.len(), *appends);
        let two = |act: &dyn Fn(&File) -> Gave| (act(file), act(plain));
        let (said, (seen, wanted)) = match what {
            0..=3 if appends => {
                let append = |mut file: &File| done(file.write_all(&bytes));
                (format!("append {said} {len}"), two(&append))
            }
            0..=3 => {
                let write = |file: &File| done(file.write_all_at(&bytes, offset));
                (format!("write {said} {offset} {len}"), two(&write))
            }
            4..=6 => {
                let read = |file: &File| {
                    let mut into = vec![0; len];
                    gave(file.read_at(&mut into, offset).map(|n| into[..n].to_vec()))
                };
                (format!("read {said} {offset} {len}"), two(&read))
            }
            7 => {
                let cut = |file: &File| done(file.set_len(offset));
                (format!("truncate {said} {offset}"), two(&cut))
            }
            8 => {
                let end = |file: &File| {
                    let end = rustix::fs::seek(file, SeekFrom::End(0)).map_err(io::Error::from);
                    gave(end.map(|end| end.to_le_bytes()))
                };
                (format!("seek {said} end"), two(&end))
            }
            9 => {
                let flags = [
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    FallocateFlags::ZERO_RANGE,
                ][(offset % 4) as usize];
                let allocate = |file: &File| {
                    done(rustix::fs::fallocate(file, flags, offset, len as u64).map_err(Into::into))
                };
                (format!("fallocate {said} {flags:?} {offset} {len}"), two(&allocate))
            }
            10 => {
                let stat = |file: &File| gave(file.metadata().map(|m| m.len().to_le_bytes()));
                (format!("fstat {said}"), two(&stat))
            }
            _ => (format!("fsync {said}"), two(&|file: &File| done(file.sync_all()))),
        };
        self.same(said, seen, wanted)
    }

    /// Maps a file, or reads and stores through a mapping that is there. A store is followed by
    /// msync(2), because before that nobody else has to see it.
    fn map_one(&mut self) -> Result<(), String> {
        if self.maps.is_empty() || self.rng.chance(30) {
            let name = self.name();
            let (at, mount) = self.mount();
            let open = |path: PathBuf| File::options().read(true).write(true).open(path);
            let (file, plain) = (open(mount.join(&name)), open(self.plain.join(&name)));
            let (Ok(file), Ok(plain)) = (file, plain) else { return Ok(()) };
            // SAFETY: only pages that the file has are touched, and nobody else cuts them off.
            let map =
                |file: &File| unsafe { MmapOptions::new().len(LARGEST as usize).map_mut(file) };
            let (map, like) = (map(&file), map(&plain));
            let (Ok(map), Ok(like)) = (map, like) else {
                return Err(format!("m{at}: {name} cannot be mapped"));
            };
            if self.maps.len() == KEPT / 3 {
                self.maps.remove(0);
            }
            self.maps.push(Mapped { said: format!("m{at}/{name}"), file, plain, map, like });
            return Ok(());
        }
        let at = self.rng.below(self.maps.len() as u64) as usize;
        let mut bytes = self.bytes();
        let offset = self.offset() as usize;
        let stores = self.rng.chance(50);
        let Mapped { said, file, plain, map, like } = &mut self.maps[at];
        let meta = plain.metadata().map_err(|e| e.to_string())?;
        let size = meta.len().min(LARGEST) as usize;
        if self.longer.contains(&meta.ino()) {
            file.metadata().map_err(|e| e.to_string())?;
        }
        if offset >= size {
            return Ok(());
        }
        bytes.truncate(size - offset);
        let (said, end) = (said.clone(), offset + bytes.len());
        if stores {
            map[offset..end].copy_from_slice(&bytes);
            like[offset..end].copy_from_slice(&bytes);
            let (seen, wanted) = (done(map.flush()), done(like.flush()));
            let _ = file;
            return self.same(format!("store {said} {offset} {}", bytes.len()), seen, wanted);
        }
        let (seen, wanted) = (map[offset..end].to_vec(), like[offset..end].to_vec());
        self.same(format!("load {said} {offset} {}", bytes.len()), Ok(seen), Ok(wanted))
    }

    /// Lists a directory, by its path or by a descriptor that has listed it before.
    fn list(&mut self) -> Result<(), String> {
        if self.dirs.is_empty() || self.rng.chance(20) {
            let name = format!("d{}", self.rng.below(2));
            let (at, mount) = self.mount();
            let open = |path: PathBuf| File::open(path);
            if let (Ok(dir), Ok(plain)) = (open(mount.join(&name)), open(self.plain.join(&name))) {
                if self.dirs.len() == KEPT / 2 {
                    self.dirs.remove(0);
                }
                self.dirs.push((format!("m{at}/{name}"), dir, plain));
            }
        }
        let at = self.rng.below(self.dirs.len() as u64) as usize;
        let (said, dir, plain) = &self.dirs[at];
        let names = |dir: &File| -> Gave {
            let dir = rustix::fs::Dir::read_from(dir).map_err(|e| e.raw_os_error())?;
            let mut names = Vec::new();
            for entry in dir {
                let entry = entry.map_err(|e| e.raw_os_error())?;
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            Ok(names.join("/").into_bytes())
        };
        let (seen, wanted) = (names(dir), names(plain));
        self.same(format!("list {said}"), seen, wanted)
    }

    fn change_name(&mut self) -> Result<(), String> {
        let (mut name, other) = (self.name(), self.name());
        let (at, mount) = self.mount();
        let what = self.rng.below(11);
        // A change of a directory's mode is one that no later fsync of a log may overtake. Without
        // its capabilities root could not search the directory any more.
        let checked = self.embedded.is_some_and(Stage::checks_callers);
        if what == 8 && self.rng.chance(50) && !checked {
            name.truncate(2);
        }
        let perm = 0o600 + u32::try_from(self.rng.below(0o100)).unwrap_or(0);
        let seconds = 1_000_000_000 + self.rng.below(1000);
        let act = |root: &Path| -> Gave {
            let (path, to) = (root.join(&name), root.join(&other));
            match what {
                0..=2 => done(fs::remove_file(path)),
                3..=5 => done(fs::rename(path, to)),
                6 => done(fs::hard_link(path, to)),
                7 => {
                    let cwd = rustix::fs::CWD;
                    let flags = RenameFlags::EXCHANGE;
                    done(rustix::fs::renameat_with(cwd, path, cwd, to, flags).map_err(Into::into))
                }
                8 => done(fs::set_permissions(path, fs::Permissions::from_mode(perm))),
                9 => {
                    let time = Timespec { tv_sec: seconds.cast_signed(), tv_nsec: 5 };
                    let times = Timestamps { last_access: time, last_modification: time };
                    let flags = AtFlags::empty();
                    let set = rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags);
                    done(set.map_err(Into::into))
                }
                _ => gave(fs::metadata(path).map(|m| m.len().to_le_bytes())),
            }
        };
        let (seen, wanted) = (act(&mount), act(&self.plain));
        let call = [
            "remove", "remove", "remove", "rename", "rename", "rename", "link", "exchange",
            "chmod", "utimes", "stat",
        ][what as usize];
        self.same(format!("m{at}: {call} {name} {other} ({perm:o}, {seconds})"), seen, wanted)
    }

    /// The program that embeds the volume does something.
    fn embed(&mut self) -> Result<(), String> {
        let (name, other) = (self.name(), self.name());
        let (offset, bytes) = (self.offset(), self.bytes());
        let (path, to, len) = (format!("/{name}"), format!("/{other}"), bytes.len());
        let plain = self.plain.join(&name);
        let write = |append: bool| File::options().write(!append).append(append).open(&plain);
        let what = self.rng.below(10);
        let (said, wanted) = match what {
            0 | 1 => {
                let written = write(false).and_then(|file| file.write_all_at(&bytes, offset));
                (format!("write {name} {offset} {len}"), written)
            }
            2 | 3 => {
                let appended = write(true).and_then(|mut file| file.write_all(&bytes));
                (format!("append {name} {len}"), appended)
            }
            4 => {
                (format!("truncate {name} {offset}"), write(false).and_then(|f| f.set_len(offset)))
            }
            5 => {
                let mut options = File::options();
                let made = options.write(true).create_new(true).mode(0o644).open(&plain);
                (format!("create {name}"), made.map(drop))
            }
            6 => (format!("remove {name}"), fs::remove_file(&plain)),
            7 => (format!("rename {name} {other}"), fs::rename(&plain, self.plain.join(&other))),
            8 => {
                let mode = fs::Permissions::from_mode(perm(offset).into());
                (format!("chmod {name} {:o}", perm(offset)), fs::set_permissions(&plain, mode))
            }
            _ => {
                let written = write(false).and_then(|file| file.write_all_at(&bytes, offset));
                (format!("section {name} {offset} {len}"), written)
            }
        };
        let Some(stage) = self.embedded else { return Ok(()) };
        let seen = stage.embed(move |volume| {
            of(match what {
                0 | 1 => volume.open_file(&path).and_then(|file| file.write_at(offset, &bytes)),
                2 | 3 => volume.open_file(&path).and_then(|file| file.append(&bytes)),
                4 => volume.open_file(&path).and_then(|file| file.set_len(offset)),
                5 => volume.create(&path, 0o644).map(drop),
                6 => volume.remove_file(&path),
                7 => volume.rename(&path, &to, RenameMode::Replace),
                8 => {
                    let set = SetAttr { perm: Some(perm(offset)), ..SetAttr::default() };
                    volume.set_attr(&path, set).map(drop)
                }
                _ => section(volume, &path, offset, &bytes),
            })
        });
        self.same(format!("e: {said}"), seen, done(wanted))
    }

    /// The program that embeds the volume takes the lease of a file, and keeps bytes for it that
    /// nobody else has seen: the next one who looks has them given back.
    fn keep_private(&mut self) -> Result<(), String> {
        let (name, offset, bytes) = (self.name(), self.offset(), self.bytes());
        let said = format!("l: keep {name} {offset} {}", bytes.len());
        let (path, pieces) = (name.clone(), vec![(offset, bytes.clone())]);
        let Some(stage) = self.embedded else { return Ok(()) };
        let kept = of(stage.lease(move |leaser| leaser.keep(&path, pieces)));
        // Others use the file just now, or did so again and again.
        if kept == Err(libc::EAGAIN) || kept == Err(libc::EBUSY) {
            return Ok(());
        }
        let plain = File::options().write(true).open(self.plain.join(&name));
        let like = plain.and_then(|file| {
            let meta = file.metadata()?;
            if offset + bytes.len() as u64 > meta.len() {
                self.longer.insert(meta.ino());
            }
            file.write_all_at(&bytes, offset)
        });
        self.same(said, kept, done(like))
    }

    /// All front ends show what the plain file system shows.
    ///
    /// # Errors
    /// What differs.
    pub fn compare(&mut self) -> Result<(), String> {
        self.longer.clear();
        if self.embedded.is_some_and(Stage::may_break) {
            self.compare_open()?;
        }
        let (wanted, _) = view::of_directory(&self.plain).map_err(|e| e.to_string())?;
        let mut first: Option<Times> = None;
        let mut check = |who: String, view: View, times: Times| {
            if let Some(other) = view::difference(&wanted, &view) {
                return Err(format!("after {}, {who}: {other}", self.last));
            }
            match &first {
                None => first = Some(times),
                Some(wanted) if *wanted != times => {
                    let other = wanted.iter().find(|(path, t)| times.get(*path) != Some(*t));
                    let seen = other.and_then(|(path, _)| times.get(path));
                    return Err(format!("after {}, {who}: times {other:?}, {seen:?}", self.last));
                }
                Some(_) => {}
            }
            Ok(())
        };
        // The first look has leases recalled, so each front end is the first one at times.
        let mounts = self.mounts.len();
        for turn in 0..=mounts {
            match (turn + self.calls as usize) % (mounts + 1) {
                0 => {
                    let Some(stage) = self.embedded else { continue };
                    let view = stage.embed(view::of_volume).map_err(|e| e.to_string())?;
                    check("embedded".into(), view.0, view.1)?;
                }
                mount => {
                    let view = view::of_directory(&self.mounts[mount - 1]);
                    let (view, times) = view.map_err(|e| e.to_string())?;
                    check(format!("m{}", mount - 1), view, times)?;
                }
            }
        }
        Ok(())
    }
}

impl Turns<'_> {
    /// What is open shows what its like shows: a kernel asks nobody for pages that it has, so this
    /// comes before any path is walked, for which a mount whose way is broken waits.
    fn compare_open(&self) -> Result<(), String> {
        let read = |file: &File| {
            let mut bytes = vec![0; LARGEST as usize + (64 << 10)];
            let len = file.read_at(&mut bytes, 0)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        for Open { said, file, plain, .. } in &self.open {
            let (seen, wanted) = (gave(read(file)), gave(read(plain)));
            if seen != wanted {
                return Err(format!("after {}, {said} shows other bytes", self.last));
            }
        }
        Ok(())
    }
}

fn of(result: siftfs_base::Result<()>) -> Gave {
    match result {
        Ok(()) => Ok(Vec::new()),
        Err(Error::Posix(errno)) => Err(errno),
        Err(other) => {
            eprintln!("{other}");
            Err(-2)
        }
    }
}

/// Permission bits by some number.
fn perm(number: u64) -> u16 {
    0o600 + (number % 0o100) as u16
}

fn section(volume: &Volume, path: &str, offset: u64, bytes: &[u8]) -> siftfs_base::Result<()> {
    let file = volume.open_file(path)?;
    let section = file.section()?;
    section.write_at(offset, bytes)?;
    section.commit()
}
