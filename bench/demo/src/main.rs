//! The demonstration behind `make run`: a real job on a real volume, with a crash in the middle,
//! and everything that is claimed about it checked.

mod accelerated;
mod bench;
mod commits;
mod files;
mod publisher;
mod report;
mod served;
mod shell;
mod target;
mod twice;
mod two;
mod work;

use files::Tree;
use report::Table;
use siftfs_rig::database::{Acknowledged, Mode};
use siftfs_rig::place::{Failed, Place, Result, step};
use siftfs_rig::volume::{Io, Volume};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use two::Spent;
use work::{FILES, Work};

const VOLUME_SIZE: &str = "2G";
/// Space needed in the temporary directory, in bytes.
const NEEDED: u64 = 5 << 30;
const BEFORE_CRASH: Duration = Duration::from_secs(6);
const AFTER_CRASH: Duration = Duration::from_secs(4);

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
    let source = step("writing the files to be copied", || Tree::generate(&place, FILES))?;
    let (ext4, name) = siftfs_rig::ext4::directory(&place, 1 << 30)?;
    let mut table = Table::new(name);
    println!("\nOne process does everything:");
    one_process(&place, &source, &ext4, &mut table)?;
    println!("\nOne volume mounted at two places:");
    step("two mounts take turns", || twice::demonstrate(&place))?;
    println!("\nA process serves a volume, and two others mount it:");
    step("a server and two mounts, each killed", || served::demonstrate(&place))?;
    println!("\nA process has the storage, and the host reaches it through that one:");
    step("a target, its host and a direct program", || target::demonstrate(&place))?;
    println!("\nAn unmodified program has a log of its own:");
    accelerated::demonstrate(&place, &ext4, &mut table)?;
    println!("\nA device process does the background work:");
    let spent = two::run(&place, &source)?;
    shares(&mut table, &spent);
    table.print();
    println!("\ntook {:.0?}", start.elapsed());
    Ok(())
}

/// The job on a mount that does its background work itself, with a crash in the middle.
fn one_process(place: &Place, source: &Tree, ext4: &Path, table: &mut Table) -> Result<()> {
    let volume = Volume::make(place, "mount", VOLUME_SIZE)?;
    volume.mount()?;
    let mut work = Work::new(place, &volume, source);
    let first = first_half(&mut work)?;
    let recovery = Instant::now();
    volume.mount()?;
    println!("  mounted again, recovery included, in {:.0?}", recovery.elapsed());
    work.check()?;
    second_half(&mut work)?;
    work.check_all()?;
    bench::compare(place, &volume, ext4, table)?;

    volume.checkpoint()?;
    let second = volume.io()?;
    let sums = step("summing every file", || files::sums(&volume.dir))?;
    volume.unmount()?;
    volume.e2fsck()?;
    step("comparing under the kernel's ext4", || {
        volume.with_kernel_mount(place, "loop,ro", |dir| files::compare(&sums, &files::sums(dir)?))
    })?;
    totals(table, &first, &second, &work.acks, sums.len());
    table.fact("sets of four files published", work.published.to_string());
    Ok(())
}

/// Database and copying, cut off by SIGKILL of the daemon.
fn first_half(work: &mut Work) -> Result<Io> {
    work.create()?;
    let job = work.job()?;
    work.copy(FILES / 2, BEFORE_CRASH, &job.0)?;
    job.0.run_for(work.place, BEFORE_CRASH)?;
    let io = work.volume.io()?;
    work.volume.kill_daemon()?;
    work.end(job);
    println!("  killed the daemon with SIGKILL in the middle of it, after {}", work.done());
    Ok(io)
}

/// The rest of it, undisturbed. Files that the crash took because they were not fsynced are copied
/// again.
fn second_half(work: &mut Work) -> Result<()> {
    let job = work.job()?;
    work.copy_all(&job.0)?;
    job.0.run_for(work.place, AFTER_CRASH)?;
    work.end(job);
    work.volume.sync()
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn totals(table: &mut Table, first: &Io, second: &Io, acks: &Acknowledged, files: usize) {
    table.fact("transactions acknowledged and found", acks.total().to_string());
    let without = acks.total_of(Mode::Sections).to_string();
    table.fact("of them without a journal file", without);
    table.fact("files compared under the kernel's ext4", files.to_string());
    table.fact("bytes staged", mib(first.staged_bytes + second.staged_bytes));
    table.fact("bytes journaled", mib(first.journal_bytes + second.journal_bytes));
    table.fact("bytes checkpointed", mib(first.checkpoint_bytes + second.checkpoint_bytes));
}

fn shares(table: &mut Table, spent: &Spent) {
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    let [host, device] = spent.background_bytes;
    table.share("bytes staged by fsync", [mib(spent.staged_bytes), mib(0)]);
    table.share("bytes journaled and checkpointed", [mib(host), mib(device)]);
    let cpu = spent.cpu().map(seconds);
    table
        .share("processor time in the background", [seconds(spent.background_cpu), cpu[1].clone()]);
    table.share("processor time in all", cpu);
}
