//! RocksDB's own benchmark with synchronous writes of ascending keys: what it reports as finished
//! must be found again.

use crate::program::{Output, guarded};
use crate::work::{App, Needs, Site};
use siftfs_rig::place::{Failed, Result, arg};
use std::io::{BufRead, BufReader};
use std::sync::{Mutex, PoisonError};

/// The application: each time it works in a new database, of which it knows what was reported
/// finished.
#[derive(Default)]
pub struct RocksDb {
    acks: Mutex<Vec<u64>>,
}

fn database(at: &Site, name: &str) -> Result<String> {
    Ok(arg(&at.dir.join(name))?.to_string())
}

/// Total of a progress line such as `... thread 0: (100,2300) ops and (...) ops/second in ...`.
pub fn finished(line: &str) -> Option<u64> {
    let rest = &line[line.find("thread ")?..];
    let inside = rest.get(rest.find('(')? + 1..rest.find(") ops")?)?;
    inside.split(',').nth(1)?.parse().ok()
}

/// Keys from `ldb dump --count_only`.
pub fn counted(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("Keys in range:"))?;
    line.trim().parse().ok()
}

impl RocksDb {
    fn acks<T>(&self, work: impl FnOnce(&mut Vec<u64>) -> T) -> T {
        work(&mut self.acks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn bench(
        at: &Site,
        benchmarks: &str,
        db: &str,
        more: &[&str],
    ) -> Result<std::process::Command> {
        let mut args = vec![format!("--benchmarks={benchmarks}"), format!("--db={db}")];
        args.extend(more.iter().map(ToString::to_string));
        let mut command = guarded("db_bench", &args);
        command.current_dir(&at.scratch);
        Ok(command)
    }

    fn verify(at: &Site, db: &str, acknowledged: u64) -> Result<()> {
        let option = format!("--db={db}");
        at.run("ldb", guarded("ldb", &[&option, "checkconsistency"]))?;
        let text = at.run("ldb", guarded("ldb", &[&option, "dump", "--count_only"]))?;
        let found = counted(&text).ok_or_else(|| Failed(format!("ldb dump says:\n{text}")))?;
        if found < acknowledged {
            return Err(Failed(format!("{acknowledged} writes were finished, {found} are there")));
        }
        let verify = Self::bench(at, "verifychecksum", db, &["--use_existing_db=1"])?;
        at.run("db_bench-verify", verify).map(drop)
    }
}

impl App for RocksDb {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        let db = database(at, "first")?;
        let bench = Self::bench(at, "fillsync,readrandom", &db, &["--num=1000", "--reads=1000"])?;
        at.run("db_bench-first", bench)?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        let phase = self.acks(|a| {
            a.push(0);
            a.len() - 1
        });
        // A small memtable, so that tables are written, compacted and removed all the time.
        let more = [
            "--sync=1",
            "--num=100000000",
            "--value_size=400",
            "--compression_type=none",
            "--write_buffer_size=1048576",
            "--target_file_size_base=1048576",
            "--stats_interval=20",
        ];
        let db = database(at, &format!("phase-{phase}"))?;
        let bench = Self::bench(at, "fillseq", &db, &more)?;
        let bench = at.start("db_bench", bench, Output::ErrorPiped)?;
        let output = bench.child(|c| c.stderr.take());
        let output = output.ok_or_else(|| Failed("db_bench without a pipe".into()))?;
        let mut last = String::new();
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            if let Some(n) = finished(&line)
                && at.alive()
            {
                self.acks(|a| a[phase] = n);
            }
            last = line;
            if at.stopped() {
                return Ok(());
            }
        }
        Err(Failed(format!("db_bench ended: {last}\n{}", bench.printed())))
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        Self::verify(at, &database(at, "first")?, 0)?;
        for (phase, acknowledged) in self.acks(|a| a.clone()).into_iter().enumerate() {
            Self::verify(at, &database(at, &format!("phase-{phase}"))?, acknowledged)?;
        }
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs::Leases
    }

    fn acknowledged(&self) -> String {
        format!("{} writes", self.acks(|a| a.iter().sum::<u64>()))
    }
}

#[cfg(test)]
#[path = "rocksdb_tests.rs"]
mod tests;
