//! Programs on all mounts, and the one that embeds the volume, append records to one file at once:
//! each record is in it in the end, whole and once (rule R50).

use crate::stage::Stage;
use siftfs_rig::descriptors::own_table;
use siftfs_rig::place::{Failed, Result};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a record.
const RECORD: usize = 64;

/// The record of this number of a program.
pub(crate) fn record(program: u64, number: u64) -> Vec<u8> {
    let mut text = format!("program {program} record {number} ").into_bytes();
    text.resize(RECORD - 1, b'.');
    text.push(b'\n');
    text
}

/// Appends `count` records by a descriptor of whatever kind. Between two of them another descriptor
/// may look at the file's size.
fn append(path: &Path, program: u64, count: u64) -> io::Result<()> {
    let reads = program.is_multiple_of(2);
    let mut file = match program % 3 {
        // This one goes through the kernel's cache.
        0 => {
            let file = File::options().write(true).read(reads).open(path)?;
            rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
            file
        }
        _ => File::options().append(true).read(reads).open(path)?,
    };
    for number in 0..count {
        file.write_all(&record(program, number))?;
        if number % 7 == program % 7 {
            fs::metadata(path)?;
        }
    }
    Ok(())
}

/// `each` programs on every mount append `count` records.
///
/// # Errors
/// A record that is missing, torn or twice.
pub fn together(stage: &Stage, each: u64, count: u64) -> Result<u64> {
    let said = |e: io::Error| Failed(e.to_string());
    let path = stage.dirs[0].join("log");
    std::thread::scope(|scope| {
        let make = || own_table().and_then(|()| File::create(&path)).map(drop);
        scope.spawn(make).join().expect("no panic")
    })
    .map_err(said)?;
    let over = AtomicBool::new(false);
    let embedded = std::thread::scope(|scope| {
        let mut all = Vec::new();
        for (at, dir) in stage.dirs.iter().enumerate() {
            for one in 0..each {
                let (path, program) = (dir.join("log"), at as u64 * each + one);
                let work = move || own_table().and_then(|()| append(&path, program, count));
                all.push(scope.spawn(work));
            }
        }
        let embedded = scope.spawn(|| {
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                let bytes = record(1_000_000, number);
                stage.embed(move |volume| volume.open_file("/log")?.append(&bytes))?;
                number += 1;
            }
            Ok::<u64, siftfs_base::Error>(number)
        });
        let done: io::Result<Vec<()>> =
            all.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        over.store(true, Ordering::Relaxed);
        let embedded = embedded.join().expect("no panic").map_err(|e| Failed(e.to_string()))?;
        done.map_err(said)?;
        Ok::<u64, Failed>(embedded)
    })?;
    let mut wanted = BTreeSet::new();
    for program in 0..each * stage.dirs.len() as u64 {
        wanted.extend((0..count).map(|number| record(program, number)));
    }
    wanted.extend((0..embedded).map(|number| record(1_000_000, number)));
    let total = wanted.len() as u64;
    let all = stage.embed(|volume| {
        let file = volume.open_file("/log")?;
        let mut bytes = Vec::new();
        loop {
            let more = file.read_at(bytes.len() as u64, 1 << 20)?;
            if more.is_empty() {
                return Ok(bytes);
            }
            bytes.extend(more);
        }
    });
    let all: Vec<u8> = all.map_err(|e: siftfs_base::Error| Failed(e.to_string()))?;
    check(&all, wanted.clone()).map_err(|e| Failed(format!("the volume: {}", e.0)))?;
    for dir in &stage.dirs {
        let path = dir.join("log");
        let read = std::thread::scope(|scope| {
            let read = || own_table().and_then(|()| fs::read(&path));
            scope.spawn(read).join().expect("no panic")
        });
        let read = read.map_err(said)?;
        check(&read, wanted.clone()).map_err(|e| Failed(format!("{}: {}", dir.display(), e.0)))?;
    }
    Ok(total)
}

/// All that are wanted are there, once, and nothing else.
pub(crate) fn check(bytes: &[u8], mut wanted: BTreeSet<Vec<u8>>) -> Result<()> {
    for (at, piece) in bytes.chunks(RECORD).enumerate() {
        if !wanted.remove(piece) {
            let text = String::from_utf8_lossy(piece);
            return Err(Failed(format!("record {at} is torn, or there twice: {text}")));
        }
    }
    match wanted.first() {
        None => Ok(()),
        Some(first) => {
            let text = String::from_utf8_lossy(first);
            let text = text.trim_end_matches(['.', '\n']);
            Err(Failed(format!("{} records are lost, such as {text}", wanted.len())))
        }
    }
}
