//! Measures what one persist of a record area costs. Usage: `byte_persist [PLACE [BYTES]]`; the
//! default is 700 bytes on a volatile file in `/dev/shm`, made and removed.

use std::time::Instant;

use siftfs_device::{ByteDevice, ByteOptions, BytePlace, Device};

const SIZE: u64 = 16 << 20;
const ROUNDS: u64 = 1_000_000;

fn main() -> siftfs_base::Result<()> {
    let mut args = std::env::args().skip(1);
    let given = args.next();
    let usual = format!("volatile:/dev/shm/siftfs-byte-persist-{}", std::process::id());
    let place: BytePlace = given.as_deref().unwrap_or(&usual).parse()?;
    let bytes = args.next().and_then(|n| n.parse().ok()).unwrap_or(700);
    let device = ByteDevice::create(&place, SIZE, ByteOptions::default())?;
    let data = vec![0x5a; bytes];
    let step = (bytes as u64).next_multiple_of(64);
    let places = (device.size() - bytes as u64) / step;
    for fua in [false, true] {
        let start = Instant::now();
        for round in 0..ROUNDS {
            device.write(round % places * step, &data, fua)?;
        }
        let ns = start.elapsed().as_nanos() / u128::from(ROUNDS);
        println!("{bytes} bytes, fua {fua}: {ns} ns ({})", device.promise());
    }
    println!("{:?}", device.persists());
    if let (None, Some(path)) = (given, place.path()) {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
