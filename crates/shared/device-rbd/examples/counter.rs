//! Writes a counter all over an image until it is told that it was fenced, or compares an image
//! with itself: for trials of the fence. `counter rbd:POOL/IMAGE write|take-over SECONDS`.

use siftfs_device::{Device, WriteOp};
use siftfs_device_rbd::{Access, RbdDevice, RbdPlace, Whom};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a block, and blocks that are written at once.
const BLOCK: usize = 4096;
const TOGETHER: u64 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, what, seconds] = &arguments[..] else {
        return Err("usage: counter rbd:POOL/IMAGE write|take-over SECONDS".into());
    };
    let place = RbdPlace::parse(Path::new(name)).ok_or("name an image")??;
    let until = Duration::from_secs(seconds.parse()?);
    let begun = Instant::now();
    let access = if what == "write" { Access::Alone } else { Access::TakeOver(Whom::Anybody) };
    let device = RbdDevice::open(&place, access)?;
    println!("open after {} ms", begun.elapsed().as_millis());
    match &what[..] {
        "write" => count(&device, until),
        "take-over" => compare(&device, until),
        _ => return Err("write or take-over".into()),
    }
    Ok(())
}

/// Writes blocks of numbers, several at once, round and round.
fn count(device: &RbdDevice, time: Duration) {
    let (begun, blocks) = (Instant::now(), device.size() / BLOCK as u64);
    let mut round = 0u64;
    while begun.elapsed() < time {
        let data: Vec<u8> = round.to_le_bytes().repeat(BLOCK / 8);
        let at = |n: u64| (round * TOGETHER + n).wrapping_mul(1027) % blocks * BLOCK as u64;
        let ops: Vec<_> = (0..TOGETHER).map(|n| WriteOp { offset: at(n), data: &data }).collect();
        if let Err(error) = device.write_batch(&ops) {
            println!("round {round}: {error}");
            return;
        }
        round += 1;
        if round.is_power_of_two() {
            println!("round {round}");
        }
    }
    println!("{round} rounds");
}

/// Reads everything, waits, and reads it again.
fn compare(device: &RbdDevice, time: Duration) {
    let read = || {
        let mut all = vec![0; device.size() as usize];
        device.read(0, &mut all).map(|()| all)
    };
    let first = read().expect("the image is this process's");
    println!("read");
    std::thread::sleep(time);
    let second = read().expect("the image is this process's");
    let differ = first.chunks(BLOCK).zip(second.chunks(BLOCK)).filter(|(a, b)| a != b).count();
    println!("{differ} blocks differ");
}
