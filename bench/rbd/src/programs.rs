//! Writes and flushes of a transaction: SQLite and RocksDB on a mounted volume on an image, and on
//! the kernel's ext4 on a loop device.

use crate::Plan;
use crate::disk::Ext4;
use crate::sqlite::{Mode, Shell};
use crate::tally::{Moment, Tally};
use siftfs_rbd_tests::stage::{Mounted, Stage};
use siftfs_rig::figure::Output;
use siftfs_rig::fillsync;
use siftfs_rig::place::{Result, arg, failed};
use siftfs_rig::status;
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use siftfs_status::RegionCounts;
use std::fs;
use std::path::Path;

/// Rounds at most: these are counts.
const ROUNDS: u32 = 3;
/// Bytes of RocksDB's values.
const VALUE: usize = 100;

/// What is run, and how many writes its transactions are to wait for.
struct Program {
    name: &'static str,
    what: What,
    most: Option<f64>,
}

#[derive(Clone, Copy)]
enum What {
    Sqlite(Mode),
    RocksDb,
}

const PROGRAMS: [Program; 4] = [
    Program { name: "SQLite, WAL", what: What::Sqlite(Mode::Wal), most: Some(1.0) },
    Program { name: "SQLite, DELETE journal", what: What::Sqlite(Mode::Delete), most: Some(3.0) },
    Program {
        name: "SQLite by sections; on ext4 with a DELETE journal",
        what: What::Sqlite(Mode::Sections),
        most: Some(1.0),
    },
    Program { name: "RocksDB fillsync", what: What::RocksDb, most: None },
];

/// The numbers of one program.
#[derive(Default)]
struct Numbers {
    ours: Tally,
    background: Vec<f64>,
    ext4_writes: Vec<f64>,
    ext4_flushes: Vec<f64>,
}

/// Does a program's work in `dir`, between two looks at counters: how many transactions, and what
/// the looks said.
fn work<T>(
    what: What,
    (dir, name): (&Path, &str),
    plan: &Plan,
    look: impl Fn() -> Result<T>,
) -> Result<(u64, T, T)> {
    match what {
        What::Sqlite(mode) => {
            let mut shell = Shell::new(mode, dir, name)?;
            let before = look()?;
            shell.transactions(plan.transactions)?;
            Ok((u64::from(plan.transactions), before, look()?))
        }
        What::RocksDb => {
            let dir = dir.join(name);
            fs::create_dir(&dir).map_err(failed(dir.display()))?;
            let before = look()?;
            let (done, _) =
                fillsync::run(&dir, VALUE, plan.time() * 3).map_err(failed("db_bench"))?;
            Ok((done, before, look()?))
        }
    }
}

fn storage(stage: &Stage<'_>, mounted: &Mounted) -> Result<RegionCounts> {
    let said = stage.run(&["status", arg(&mounted.dir)?, "--json"])?;
    Ok(status::read(&said)?.runtime.storage)
}

/// One program once on either system.
fn round(
    stage: &Stage<'_>,
    (mounted, ext4): (&Mounted, &Ext4),
    (what, name, plan): (What, &str, &Plan),
    numbers: &mut Numbers,
) -> Result<()> {
    let sockets = stage.cluster.sockets();
    let look = || {
        let storage = storage(stage, mounted)?;
        Ok((storage, Moment::of(storage, Some(&sockets))?))
    };
    let (done, before, after) = work(what, (&mounted.dir, name), plan, look)?;
    numbers.ours.count(done, &before.1, &after.1);
    let each = |number: u64, done: u64| number as f64 / done.max(1) as f64;
    let background = after.0.since(&before.0).sum(|o| o.background);
    numbers.background.push(each(background.writes, done));
    let (done, before, after) = work(what, (&ext4.dir, name), plan, || ext4.counts())?;
    numbers.ext4_writes.push(each(after.writes - before.writes, done));
    numbers.ext4_flushes.push(each(after.flushes - before.flushes, done));
    Ok(())
}

fn row(program: &Program, numbers: Numbers) -> Row {
    let Numbers { ours, background, ext4_writes, ext4_flushes } = numbers;
    let target = program.most.map(Target::AtMost);
    let counted = |what: &str, rounds: &[f64]| Compared {
        what: what.into(),
        rounds: rounds.to_vec(),
        target,
        paper: None,
    };
    let compared = vec![
        counted("writes that it waits for", &ours.waited),
        counted("times that it waits for durability", &ours.durable),
    ];
    let sides = vec![
        Side::new("SiftFS, writes waited for", ours.waited),
        Side::new("SiftFS, waits for durability", ours.durable),
        Side::new("SiftFS, KiB waited for", ours.kib),
        Side::new("SiftFS, writes of the background", background),
        Side::new("SiftFS, writes at the OSDs", ours.osds),
        Side::new("ext4, writes at its loop device", ext4_writes),
        Side::new("ext4, flushes there", ext4_flushes),
    ];
    Row { name: program.name.into(), unit: "by transaction", sides, compared }
}

/// Counts it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(stage: &Stage<'_>, plan: &Plan) -> Result<Output> {
    let volume = stage.volume("fast", "programs", 1024)?;
    let mounted = stage.mount(&volume, "programs")?;
    let ext4 = Ext4::mount(stage.place)?;
    let mut all: [Numbers; PROGRAMS.len()] = Default::default();
    for round_number in 0..plan.rounds.min(ROUNDS) {
        for (n, program) in PROGRAMS.iter().enumerate() {
            stage.place.go_on()?;
            let name = format!("{n}-{round_number}");
            round(stage, (&mounted, &ext4), (program.what, &name, plan), &mut all[n])?;
        }
    }
    stage.end(mounted, &volume)?;
    let rows: Vec<_> = PROGRAMS.iter().zip(all).map(|(of, numbers)| row(of, numbers)).collect();
    let below = "counts by transaction, of one row or one key each; medians with quartiles. Waited for: writes of the \
                 lanes that a caller's fsync made, and how often one waited for durability; each of these is one \
                 write to the cluster, and no flush. The OSDs count for themselves what all of the volume sends, \
                 the background and its checkpoints included. The kernel counts a flush without data as one more \
                 write of the loop device";
    Ok(show(&rows, below))
}
