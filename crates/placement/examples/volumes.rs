//! Fsyncs in a second over 1, 2, 4 and 8 volumes of one process, and over one volume with as much
//! going on at a time: the figures of `docs/design/replicated.md`, "Many volumes".
//!
//! `volumes DIRECTORY [SECONDS]` makes the volumes in the directory, which must not hold them yet,
//! measures for so long each, and removes them. Two server processes are two of it at a time, in
//! two directories of one file system.

use siftfs_base::{Error, Result};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, create_volume, remove_volume};
use siftfs_proto::{Credentials, FileService, ROOT_INO, Reply, Request, WriteData};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a volume.
const SIZE: u64 = 256 << 20;
/// Bytes that are written before each fsync.
const BYTES: usize = 4096;
/// Blocks of a file that are written in turn.
const BLOCKS: u64 = 1024;

/// A program: it writes a block of its file, makes it durable, and begins again.
fn program(service: &dyn FileService, nr: usize, until: Instant) -> Result<u64> {
    let root = Credentials::default();
    let name = format!("f{nr}").into_bytes();
    let made = service.call(&root, Request::Create { parent: ROOT_INO, name, perm: 0o600 })?;
    let Reply::Created { attr, .. } = made else {
        return Err(Error::Refused("a file was made, and another answer came".into()));
    };
    let mut done = 0;
    while Instant::now() < until {
        let offset = done % BLOCKS * BYTES as u64;
        let data = WriteData::copy_of(offset, &[done as u8; BYTES]);
        service.call(&root, Request::write(attr.ino, offset, data))?;
        service.call(&root, Request::Fsync { file: attr.ino.into(), datasync: false })?;
        done += 1;
    }
    Ok(done)
}

/// Fsyncs in a second of `programs` programs, spread over the volumes.
fn rate(services: &[Arc<dyn FileService>], programs: usize, time: Duration) -> Result<f64> {
    let until = Instant::now() + time;
    let done: Result<Vec<u64>> = std::thread::scope(|scope| {
        let each = services.iter().cycle().enumerate().take(programs);
        let running: Vec<_> =
            each.map(|(nr, service)| scope.spawn(move || program(&**service, nr, until))).collect();
        running.into_iter().map(|thread| thread.join().expect("no assertion failed")).collect()
    });
    Ok(done?.iter().sum::<u64>() as f64 / time.as_secs_f64())
}

/// Makes and opens the volumes, measures, closes and removes them.
fn measure(dir: &Path, volumes: usize, programs: usize, time: Duration) -> Result<f64> {
    let paths: Vec<PathBuf> = (0..volumes).map(|nr| dir.join(format!("v{nr}"))).collect();
    let options = MkfsOptions { size: Some(SIZE), ..MkfsOptions::default() };
    let share = OpenOptions { page_cache: (256 << 20) / volumes as u64, ..OpenOptions::default() };
    let mut open = Vec::new();
    for path in &paths {
        create_volume(path, &options, &mut |_, _, _| {})?;
        open.push(LocalVolume::open(path, &share, &mut |_, _, _| {})?);
    }
    let services: Vec<_> = open.iter().map(LocalVolume::endpoint).collect();
    let rate = rate(&services, programs, time);
    drop(services);
    open.into_iter().try_for_each(LocalVolume::close)?;
    paths.iter().try_for_each(|path| remove_volume(path).map(drop))?;
    rate
}

fn run(dir: &Path, time: Duration) -> Result<()> {
    println!("volumes  programs  fsyncs in a second");
    for count in [1, 2, 4, 8] {
        println!("{count:7}  {count:8}  {:.0}", measure(dir, count, count, time)?);
    }
    for programs in [2, 4, 8] {
        println!("{:7}  {programs:8}  {:.0}", 1, measure(dir, 1, programs, time)?);
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut given = std::env::args_os().skip(1);
    let Some(dir) = given.next().map(PathBuf::from) else {
        eprintln!("volumes DIRECTORY [SECONDS]");
        return ExitCode::from(2);
    };
    let seconds = given.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(5);
    match run(&dir, Duration::from_secs(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
