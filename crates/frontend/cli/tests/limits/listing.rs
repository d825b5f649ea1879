//! A tree as programs see it, on the mount and under the kernel's ext4.

use crate::support::{Setup, run, siftfs};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, fstat, openat, seek, statat,
};
use rustix::io::{Errno, pread};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Every file by the hash of its path, which may be longer than the kernel takes.
pub type Listing = BTreeMap<Vec<u8>, String>;

/// Opens below a directory, and follows no link.
pub fn open_below(dir: BorrowedFd<'_>, name: &CString, flags: OFlags) -> OwnedFd {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name.as_c_str(), flags, Mode::empty()).unwrap_or_else(|e| panic!("{name:?}: {e}"))
}

/// Kind, mode, links, size, blocks, times, content of everything below `root`, `lost+found` aside.
pub fn listing(root: &Path) -> Listing {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags, Mode::empty()).unwrap();
    let mut all = Listing::new();
    walk(root.as_fd(), &mut Vec::new(), &mut all);
    all
}

fn walk(dir: BorrowedFd<'_>, path: &mut Vec<u8>, all: &mut Listing) {
    let len = path.len();
    for entry in Dir::read_from(dir).unwrap() {
        let name = entry.unwrap().file_name().to_owned();
        let plain = [&b"."[..], b"..", b"lost+found"];
        if plain.contains(&name.as_bytes()) {
            continue;
        }
        path.push(b'/');
        path.extend_from_slice(name.as_bytes());
        let s = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let mut seen = format!(
            "{:o} links {} size {} blocks {} mtime {}.{:09}",
            s.st_mode, s.st_nlink, s.st_size, s.st_blocks, s.st_mtime, s.st_mtime_nsec
        );
        match FileType::from_raw_mode(s.st_mode) {
            FileType::RegularFile => {
                seen.push_str(&content(&open_below(dir, &name, OFlags::RDONLY)));
            }
            FileType::Directory => {
                let below = open_below(dir, &name, OFlags::RDONLY | OFlags::DIRECTORY);
                walk(below.as_fd(), path, all);
            }
            other => panic!("{other:?} {name:?}"),
        }
        all.insert(path.clone(), seen);
        path.truncate(len);
    }
}

/// Where a file has data, and a hash of it.
pub fn content(file: &OwnedFd) -> String {
    let size = u64::try_from(fstat(file).unwrap().st_size).unwrap();
    let (mut text, mut buf) = (String::new(), vec![0; 1 << 20]);
    // All of the map first: where the kernel has read preallocated blocks, it calls them data.
    let pieces = std::iter::successors(data_after(file, 0), |last| data_after(file, last.1));
    for (start, end) in pieces.collect::<Vec<_>>() {
        let (mut at, end, mut hash) = (start, end.min(size), 0xcbf2_9ce4_8422_2325);
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(buf.len()).min(buf.len());
            let n = pread(file, &mut buf[..len], at).unwrap();
            assert!(n > 0, "nothing at {at} of {size}");
            hash = buf[..n]
                .iter()
                .fold(hash, |h: u64, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
            at += n as u64;
        }
        text.push_str(&format!(" [{start},{end}) {hash:x}"));
    }
    text
}

/// The first piece of data at or after `at`, as SEEK_DATA and SEEK_HOLE tell it.
pub fn data_after(file: &OwnedFd, at: u64) -> Option<(u64, u64)> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Some((start, seek(file, SeekFrom::Hole(start)).unwrap())),
        Err(Errno::NXIO) => None,
        Err(e) => panic!("SEEK_DATA at {at}: {e}"),
    }
}

/// Unmounts; the volume is plain ext4, and the kernel reads it as the mount showed it.
#[track_caller]
pub fn assert_kernel_agrees(s: &Setup) {
    // Blocks are counted when they are given.
    siftfs(&["sync", s.dir()]).ok();
    let ours = listing(Path::new(s.dir()));
    s.umount();
    s.assert_plain_ext4();
    assert_kernel_shows(s.volume(), &ours);
}

/// The kernel's ext4 shows just this in the unmounted volume.
#[track_caller]
pub fn assert_kernel_shows(volume: &str, ours: &Listing) {
    let kernel = Kernel::mount(volume);
    let theirs = listing(kernel.0.path());
    let (mut said, mut count) = (String::new(), 0);
    for path in ours.keys().chain(theirs.keys()) {
        let (a, b) = (ours.get(path), theirs.get(path));
        if a != b && count < 10 {
            count += 1;
            let path = String::from_utf8_lossy(path);
            said.push_str(&format!("{path}\n  siftfs: {a:.500?}\n  ext4:   {b:.500?}\n"));
        }
    }
    assert!(said.is_empty(), "{said}");
}

/// A volume under the kernel's ext4, read-only.
struct Kernel(tempfile::TempDir);

impl Kernel {
    fn mount(volume: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let is_file = fs::metadata(volume).unwrap().is_file();
        let options = if is_file { "loop,ro" } else { "ro" };
        let dir_name = dir.path().to_str().unwrap();
        run("mount", &["-t", "ext4", "-o", options, volume, dir_name]).ok();
        Self(dir)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        run("umount", &[self.0.path().to_str().unwrap()]);
    }
}
