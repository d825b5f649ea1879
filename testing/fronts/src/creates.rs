//! Programs on all mounts open one name at once, each with O_CREAT: one makes the file, and the
//! others open it.

use crate::stage::Stage;
use siftfs_rig::descriptors::own_table;
use siftfs_rig::place::{Failed, Result};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Barrier;

fn open_each(dir: &Path, names: u64, all: &Barrier) -> io::Result<()> {
    own_table()?;
    let mut result = Ok(());
    for number in 0..names {
        all.wait();
        let file = File::options().append(true).create(true).open(dir.join(format!("n{number}")));
        // The others wait for this thread.
        result = result.and(file.map(drop));
    }
    result
}

/// Opens new names, one after the other, through all mounts at once.
///
/// # Errors
/// An open that failed.
pub fn creates(stage: &Stage, names: u64) -> Result<()> {
    let all = Barrier::new(stage.dirs.len());
    std::thread::scope(|scope| {
        let all = &all;
        let mut threads = Vec::new();
        for dir in &stage.dirs {
            threads.push(scope.spawn(move || open_each(dir, names, all)));
        }
        let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.collect::<io::Result<()>>().map_err(|e| Failed(e.to_string()))
    })
}
