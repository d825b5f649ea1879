//! Two queue pairs of one device that talk to each other, to try a machine: `two_queues ADDRESS`,
//! with an address of IP that the device has. It says how many bytes went each way.

use siftfs_rdma::{Flow, QueuePair, Terms, open};
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

const BYTES: usize = 4 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: two_queues ADDRESS")?.parse()?;
    let (mut one, mut other) = (open(address)?, open(address)?);
    let told = |pair: &QueuePair| Terms::decode(&pair.terms().encode(), "the other");
    one.connect(&told(&other)?)?;
    other.connect(&told(&one)?)?;
    println!("connected: {:?}, {:?}", one.terms(), other.terms());
    let (mut one, mut other) = (Flow::new(one), Flow::new(other));
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i * 7 + i / 251) as u8).collect();
    let began = Instant::now();
    cross(&mut one, &mut other, &bytes)?;
    cross(&mut other, &mut one, &bytes)?;
    println!("{BYTES} bytes each way in {:?}", began.elapsed());
    Ok(())
}

fn cross(
    from: &mut Flow<QueuePair>,
    to: &mut Flow<QueuePair>,
    bytes: &[u8],
) -> Result<(), Box<dyn std::error::Error>> {
    let (mut sent, mut got, mut space) = (0, Vec::new(), vec![0; 100_000]);
    let end = Instant::now() + Duration::from_secs(60);
    while got.len() < bytes.len() {
        sent += from.write(&[IoSlice::new(&bytes[sent..])])?;
        let n = to.read(&mut [IoSliceMut::new(&mut space)])?;
        got.extend_from_slice(&space[..n]);
        from.wake();
        to.wake();
        if Instant::now() > end {
            return Err(format!("{} of {} bytes came within a minute", got.len(), sent).into());
        }
    }
    assert!(got == bytes, "what came is what was sent");
    Ok(())
}
