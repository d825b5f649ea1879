//! The demonstration behind `make run`: a real job on a real volume, with a crash in the middle,
//! and everything that is claimed about it checked.

mod bench;
mod files;
mod report;

use files::Tree;
use report::Table;
use siftfs_rig::database::{self, Acknowledged, Job};
use siftfs_rig::place::{Failed, Place, Result, step};
use siftfs_rig::volume::{Io, Volume};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const VOLUME_SIZE: &str = "2G";
/// Space needed in the temporary directory, in bytes.
const NEEDED: u64 = 4 << 30;
const FILES: usize = 3000;
/// Which share of the files is fsynced, and so must survive the crash.
const FSYNC_EVERY: usize = 4;
const BEFORE_CRASH: Duration = Duration::from_secs(10);
const AFTER_CRASH: Duration = Duration::from_secs(6);

fn main() -> ExitCode {
    match run() {
        Ok(()) => {
            println!("\nAll of it held.");
            ExitCode::SUCCESS
        }
        Err(Failed(message)) => {
            eprintln!("\nFAILED: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let start = Instant::now();
    let place = Place::new("siftfs-demo", NEEDED, None)?;
    let volume = Volume::make(&place, "mount", VOLUME_SIZE)?;
    let source = step("writing the files to be copied", || Tree::generate(&place, FILES))?;

    let mut acks = Acknowledged::default();
    let mut copied = 0;
    volume.mount()?;
    let first = first_half(&place, &volume, &source, &mut acks, &mut copied)?;
    let recovery = Instant::now();
    volume.mount()?;
    println!("  mounted again, recovery included, in {:.0?}", recovery.elapsed());
    step("checking every acknowledged transaction", || database::verify(&volume.dir, &acks))?;
    step("checking every fsynced file", || {
        source.verify_copies(&volume.dir, |i| i < copied && i % FSYNC_EVERY == 0)
    })?;

    second_half(&place, &volume, &source, &mut acks)?;
    step("checking every acknowledged transaction", || database::verify(&volume.dir, &acks))?;
    step("checking every copied file", || source.verify_copies(&volume.dir, |_| true))?;
    let mut table = bench::compare(&place, &volume)?;

    volume.checkpoint()?;
    let second = volume.io()?;
    let sums = step("summing every file", || files::sums(&volume.dir))?;
    volume.unmount()?;
    volume.e2fsck()?;
    step("comparing under the kernel's ext4", || {
        volume.with_kernel_mount(&place, "loop,ro", |dir| files::compare(&sums, &files::sums(dir)?))
    })?;
    totals(&mut table, &first, &second, &acks, sums.len());
    table.print();
    println!("\ntook {:.0?}", start.elapsed());
    Ok(())
}

/// Database and copying, cut off by SIGKILL of the daemon.
fn first_half(
    place: &Place,
    volume: &Volume,
    source: &Tree,
    acks: &mut Acknowledged,
    copied: &mut usize,
) -> Result<Io> {
    database::create(&volume.dir)?;
    let job = Job::start(&volume.dir, &place.path("acknowledged"), acks, "")?;
    *copied = source.copy(place, &volume.dir, 0..FILES / 2, FSYNC_EVERY, BEFORE_CRASH, &job)?;
    job.run_for(place, BEFORE_CRASH)?;
    let io = volume.io()?;
    volume.kill_daemon()?;
    let done = job.stop();
    println!(
        "  killed the daemon with SIGKILL after {} acknowledged transactions and {copied} files",
        done.total()
    );
    acks.add(done);
    Ok(io)
}

/// The rest of it, undisturbed; what the crash took of files nobody had fsynced is copied again.
fn second_half(
    place: &Place,
    volume: &Volume,
    source: &Tree,
    acks: &mut Acknowledged,
) -> Result<()> {
    let job = Job::start(&volume.dir, &place.path("acknowledged"), acks, "")?;
    source.copy(place, &volume.dir, 0..FILES, FSYNC_EVERY, Duration::from_secs(60), &job)?;
    job.run_for(place, AFTER_CRASH)?;
    acks.add(job.stop());
    volume.sync()?;
    println!("  {} acknowledged transactions and {FILES} files in all", acks.total());
    Ok(())
}

fn totals(table: &mut Table, first: &Io, second: &Io, acks: &Acknowledged, files: usize) {
    let mib = |n: u64| format!("{:.1} MiB", n as f64 / f64::from(1 << 20));
    table.fact("transactions acknowledged and found", acks.total().to_string());
    table.fact("files compared under the kernel's ext4", files.to_string());
    table.fact("bytes staged", mib(first.staged_bytes + second.staged_bytes));
    table.fact("bytes journaled", mib(first.journal_bytes + second.journal_bytes));
    table.fact("bytes checkpointed", mib(first.checkpoint_bytes + second.checkpoint_bytes));
}
