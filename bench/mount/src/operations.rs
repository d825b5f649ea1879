//! Single operations, each of which ends with something durable, written once for every system.

use crate::system::{BLOCK, Handle, Mode, System};
use siftfs_rig::fresh::fresh;
use std::io;

/// An operation of a row on files prepared beforehand; `n` counts from 0.
pub type Operation = fn(&Files, n: u64) -> io::Result<()>;

/// Blocks of the file that is overwritten.
pub const FULL_BLOCKS: u64 = 64;

/// The files that operations work on, in a directory of their own.
pub struct Files<'s> {
    system: &'s dyn System,
    dir: &'static str,
    full: Box<dyn Handle>,
    growing: Box<dyn Handle>,
    durable: Box<dyn Handle>,
}

impl<'s> Files<'s> {
    /// Makes the directory and the files, durably.
    pub fn prepare(system: &'s dyn System, dir: &'static str) -> io::Result<Self> {
        system.make_dir(dir)?;
        let data = vec![1; usize::try_from(FULL_BLOCKS).unwrap_or(1) * BLOCK];
        for name in ["full", "durable", "growing", "target"] {
            let file = system.open(&format!("{dir}/{name}"), Mode::Create)?;
            if name != "growing" {
                file.write_at(0, &data)?;
            }
            file.sync()?;
        }
        system.sync_dir(dir)?;
        let open = |name, mode| system.open(&format!("{dir}/{name}"), mode);
        Ok(Self {
            system,
            dir,
            full: open("full", Mode::Open)?,
            growing: open("growing", Mode::Open)?,
            durable: open("durable", Mode::Durable)?,
        })
    }
}

fn place(n: u64) -> u64 {
    n % FULL_BLOCKS * BLOCK as u64
}

/// One block of a file whose blocks are all there, then fsync.
pub fn overwrite(files: &Files, n: u64) -> io::Result<()> {
    files.full.write_at(place(n), &fresh::<BLOCK>())?;
    files.full.sync()
}

/// 512 bytes more, then fsync.
pub fn append_512(files: &Files, n: u64) -> io::Result<()> {
    files.growing.write_at(n * 512, &fresh::<BLOCK>()[..512])?;
    files.growing.sync()
}

/// One block more, then fsync.
pub fn append_4k(files: &Files, n: u64) -> io::Result<()> {
    files.growing.write_at(n * BLOCK as u64, &fresh::<BLOCK>())?;
    files.growing.sync()
}

fn new_file(files: &Files, path: &str) -> io::Result<()> {
    let file = files.system.open(path, Mode::Create)?;
    file.write_at(0, &fresh::<BLOCK>())?;
    file.sync()
}

/// A new file of one block, then its fsync.
pub fn create(files: &Files, n: u64) -> io::Result<()> {
    new_file(files, &format!("{}/new-{n}", files.dir))
}

/// [`create`], then fsync of the directory.
pub fn create_and_directory(files: &Files, n: u64) -> io::Result<()> {
    create(files, n)?;
    files.system.sync_dir(files.dir)
}

/// A new file, its fsync, rename over another, fsync of the directory.
pub fn replace(files: &Files, _: u64) -> io::Result<()> {
    let temporary = format!("{}/temporary", files.dir);
    new_file(files, &temporary)?;
    files.system.rename(&temporary, &format!("{}/target", files.dir))?;
    files.system.sync_dir(files.dir)
}

/// Files that [`publish_16`] gives their names.
const PUBLISHED: u64 = 16;

/// Sixteen new files of one block, all durable under the names of sixteen others.
pub fn publish_16(files: &Files, _: u64) -> io::Result<()> {
    let path = |name: &str, i| format!("{}/{name}-{i}", files.dir);
    let names: Vec<_> = (0..PUBLISHED).map(|i| (path("new", i), path("published", i))).collect();
    for (new, _) in &names {
        files.system.open(new, Mode::Create)?.write_at(0, &fresh::<BLOCK>())?;
    }
    files.system.publish(files.dir, &names)
}

/// One block to a file opened with O_DSYNC.
pub fn write_durable(files: &Files, n: u64) -> io::Result<()> {
    files.durable.write_at(place(n), &fresh::<BLOCK>())
}
