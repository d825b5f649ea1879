//! Programs that gain nothing by private logs, with the library loaded and without it: what does
//! the library cost whatever it is loaded into?

use super::{opens, sources};
use crate::area::{Measured, WorkArea, io_error, per_second};
use crate::helper;
use crate::tree::{bounded, files_in};
use siftfs_rig::place::arg;
use siftfs_rig::program::run_whole;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A program that ends by itself does so in this time.
const LONGEST: Duration = Duration::from_secs(120);
/// tar(1) is stopped after this many times the time of other rows.
const TAR: u32 = 15;
/// Whether the library is loaded, in turns: what changes steadily falls on both alike.
const TURNS: [bool; 4] = [true, false, false, true];
/// How often a program that can work for any time takes all turns, within the time of other rows:
/// a virtual machine is slower for tenths of a second.
const REPEATED: u32 = 6;
/// The directory of the files that are opened, in the area.
const OPENED: &str = "opened";

/// What is started with the library and without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loaded {
    /// A program that opens files, looks at them and closes them; its start is not counted.
    Opens,
    /// tar(1) that unpacks the tree.
    Untar,
    /// cc(1) on the files of a program one by one, and on all for linking.
    Compile,
}

impl Loaded {
    /// How often all turns are taken.
    fn repeated(self) -> u32 {
        if self == Self::Opens { REPEATED } else { 1 }
    }
}

/// What the turns of one side have done together.
#[derive(Default)]
struct Side {
    seconds: f64,
    all: Measured,
}

impl Side {
    fn add(&mut self, one: Measured) {
        self.seconds += one.operations as f64 / one.rate.max(f64::MIN_POSITIVE);
        self.all.operations += one.operations;
        self.all.counts = std::mem::take(&mut self.all.counts).plus(&one.counts);
    }

    fn done(self) -> Measured {
        let counts = self.all.counts;
        Measured { counts, ..per_second(self.all.operations, self.seconds) }
    }
}

/// With the library, then without it. Each turn that writes begins in a new directory, and nothing
/// is left to be synced.
pub fn measure(what: Loaded, area: &WorkArea, time: Duration) -> io::Result<Vec<Measured>> {
    let (mut with, mut without) = (Side::default(), Side::default());
    if what == Loaded::Opens {
        let dir = area.dir.join(OPENED);
        fs::create_dir(&dir)?;
        opens::prepare(&dir)?;
        area.settle()?;
    }
    for library in (0..what.repeated()).flat_map(|_| TURNS) {
        let dir = area.dir.join("turn");
        fs::create_dir(&dir)?;
        let side = if library { &mut with } else { &mut without };
        side.add(turn(what, &dir, library, area, time / what.repeated())?);
        fs::remove_dir_all(&dir)?;
        area.settle()?;
    }
    Ok(vec![with.done(), without.done()])
}

fn turn(
    what: Loaded,
    dir: &Path,
    library: bool,
    area: &WorkArea,
    time: Duration,
) -> io::Result<Measured> {
    let as_wanted = |mut command: Command| {
        if !library {
            helper::unload(&mut command);
        }
        command
    };
    match what {
        Loaded::Opens => {
            let mut program = as_wanted(looks(&area.dir.join(OPENED), time)?);
            area.count(|| {
                let printed = run_whole(&mut program, LONGEST, &[0])?.printed;
                let counted = opens::counted(&printed);
                let (opened, seconds) = counted.ok_or_else(|| io::Error::other(printed))?;
                Ok(per_second(opened, seconds))
            })
        }
        Loaded::Untar => {
            let archive = &area.inputs.archive;
            let mut tar = as_wanted(archive.unpack(dir));
            bounded(area, &mut tar, time * TAR, || Ok(archive.files()), || files_in(dir))
        }
        Loaded::Compile => {
            sources::write(dir)?;
            area.settle()?;
            let mut shell = Command::new("sh");
            // Of each file the assembler's text lies there, too.
            shell.args(["-c", sources::BUILD]).current_dir(dir).env("TMPDIR", dir);
            let mut shell = as_wanted(shell);
            area.count(|| {
                let ended = run_whole(&mut shell, LONGEST, &[0])?;
                if ended.printed.trim() != sources::FILES.to_string() {
                    return Err(io::Error::other(ended.printed));
                }
                Ok(per_second(sources::FILES as u64, ended.time.as_secs_f64()))
            })
        }
    }
}

/// This program once more, as [`opens::process`].
fn looks(dir: &Path, time: Duration) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let seconds = time.as_secs_f64().to_string();
    command.args(["--opens", arg(dir).map_err(io_error)?, "--opens-for", &seconds]);
    Ok(command)
}

#[cfg(test)]
#[path = "loaded_tests.rs"]
mod tests;
