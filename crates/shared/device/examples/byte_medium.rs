//! Writes records that can be checked to a record area until its power is cut, and checks them
//! later. `byte_medium write PLACE SIZE SALT` prints what the place promises, then the number of
//! each record once it is persistent. `byte_medium verify PLACE COUNT SALT` says whether the first
//! COUNT of them are there whole. `testing/guest` has both run.

use std::process::ExitCode;

use siftfs_base::{Error, Result};
use siftfs_device::{ByteDevice, ByteOptions, BytePlace, Device};

/// Bytes between the beginnings of two records.
const SLOT: u64 = 1024;
/// Bytes that records are multiples of.
const UNIT: usize = 64;

/// Each word of a record follows from its place, the record's number and the salt.
fn record(number: u64, salt: u64) -> Vec<u8> {
    let units = 1 + number % (SLOT / UNIT as u64);
    let words = units * (UNIT / 8) as u64;
    let word = |i: u64| {
        let x = (salt << 48) ^ (number << 8) ^ i;
        let x = (x ^ (x >> 30)).wrapping_add(1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    };
    (0..words).flat_map(|i| word(i).to_le_bytes()).collect()
}

fn write(place: &BytePlace, size: u64, salt: u64) -> Result<()> {
    let device = ByteDevice::create(place, size, ByteOptions::default())?;
    println!("{}", device.promise());
    for number in 0..device.size() / SLOT {
        device.write(number * SLOT, &record(number, salt), true)?;
        println!("acknowledged {number}"); // flushed at the end of the line
    }
    Err(Error::Refused("the power was not cut".into()))
}

fn verify(place: &BytePlace, count: u64, salt: u64) -> Result<()> {
    let device = ByteDevice::open(place, ByteOptions { read_only: true, ..Default::default() })?;
    for number in 0..count {
        let wanted = record(number, salt);
        let mut found = vec![0; wanted.len()];
        device.read(number * SLOT, &mut found)?;
        if let Some(at) = wanted.iter().zip(&found).position(|(a, b)| a != b) {
            let what = format!("record {number} of {count} differs from its byte {at} on");
            return Err(Error::Refused(what));
        }
    }
    println!("all {count} records are there");
    Ok(())
}

fn run(args: &[String]) -> Result<()> {
    let usage = || Error::Refused("usage: byte_medium write|verify PLACE NUMBER SALT".into());
    let [what, place, number, salt] = args else { return Err(usage()) };
    let (place, number) = (place.parse()?, number.parse().map_err(|_| usage())?);
    let salt = salt.parse().map_err(|_| usage())?;
    match what.as_str() {
        "write" => write(&place, number, salt),
        "verify" => verify(&place, number, salt),
        _ => Err(usage()),
    }
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("byte_medium: {e}");
            ExitCode::FAILURE
        }
    }
}
