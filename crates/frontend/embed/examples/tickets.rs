//! How much sooner 64 overwrites of 4 KiB are durable with tickets than with 64 fsyncs one after
//! the other, by one thread: `cargo run --release -p siftfs --example tickets -- FILE`, where FILE
//! is made anew.

use siftfs::{File, Result, Volume};
use siftfs_placement::{MkfsOptions, mkfs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 64;
const ROUNDS: usize = 100;

fn overwrite(file: &File, block: u64, round: usize) -> Result<()> {
    file.write_at(block * 4096, &[round as u8; 4096])
}

fn by_fsyncs(file: &File, round: usize) -> Result<()> {
    for block in 0..BLOCKS {
        overwrite(file, block, round)?;
        file.sync_data()?;
    }
    Ok(())
}

fn by_tickets(file: &File, round: usize) -> Result<()> {
    let mut tickets = Vec::new();
    for block in 0..BLOCKS {
        overwrite(file, block, round)?;
        tickets.push(file.stage()?);
    }
    tickets.iter().try_for_each(siftfs::Ticket::wait)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> Result<()> {
    let path = PathBuf::from(std::env::args().nth(1).expect("a file to be made"));
    let options = MkfsOptions { size: Some(512 << 20), force: true, ..MkfsOptions::default() };
    mkfs(&path, &options, &mut |_, _, _| {})?;
    let volume = Volume::open(&path)?;
    let file = volume.create("/f", 0o600)?;
    file.write_at(0, &vec![1; BLOCKS as usize * 4096])?;
    volume.checkpoint()?;
    let (mut fsyncs, mut tickets) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let start = Instant::now();
        by_fsyncs(&file, round)?;
        fsyncs.push(start.elapsed());
        let start = Instant::now();
        by_tickets(&file, round)?;
        tickets.push(start.elapsed());
    }
    let (fsyncs, tickets) = (median(fsyncs), median(tickets));
    let rate = |time: Duration| BLOCKS as f64 / time.as_secs_f64();
    println!("fsyncs one after the other: {fsyncs:?}, {:.0} per second", rate(fsyncs));
    println!("tickets, then a wait: {tickets:?}, {:.0} per second", rate(tickets));
    println!("{:.1} times as many", rate(tickets) / rate(fsyncs));
    drop(file);
    volume.close()
}
