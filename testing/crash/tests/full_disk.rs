//! Disks that are nearly full: whatever was accepted and made durable fits once more at recovery,
//! which finds of what was removed since only the record that carries it (rule R5). Writes may be
//! refused for want of space, and nothing else.

use siftfs_base::{Error, Rng};
use siftfs_crash::{Back, Bench, Config, VolumeKind, campaign};
use siftfs_device::Cut;
use siftfs_proto::{Allocate, Reply, Request};
use std::collections::BTreeMap;

const BLOCK: u64 = 4096;
/// Blocks that a file has at most.
const FILE: u64 = 48;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn free_blocks(b: &Bench) -> u64 {
    match b.call(Request::StatFs) {
        Ok(Reply::Statfs(s)) => s.free,
        other => panic!("statfs: {other:?}"),
    }
}

/// A volume of which 60 to 180 blocks are free.
fn nearly_full(kind: VolumeKind, rng: &mut Rng) -> Bench {
    let b = Bench::new(kind);
    let fill = free_blocks(&b) - 60 - rng.below(120);
    b.write_large("fill", &siftfs_model::pattern(1, 0, fill * BLOCK));
    b.settle();
    b
}

/// What is known: files whose content was made durable, and has not changed since.
type Durable = BTreeMap<&'static str, Vec<u8>>;

fn write(b: &Bench, name: &'static str, rng: &mut Rng) -> Result<(), String> {
    let made = if b.try_ino(name).is_some() { Ok(()) } else { b.try_create(name).map(|_| ()) };
    let at = rng.below(FILE - 12) * BLOCK + rng.below(2) * 100;
    let data = siftfs_model::pattern(rng.below(1000), at, 1 + rng.below(12 * BLOCK));
    match made.and_then(|()| b.try_write(name, at, &data)) {
        Ok(()) | Err(Error::Posix(libc::ENOSPC)) => Ok(()),
        Err(e) => Err(format!("write: {e}")),
    }
}

/// One operation on a file, and what it leaves known of it.
fn step(b: &Bench, rng: &mut Rng, durable: &mut Durable) -> Result<(), String> {
    let name = NAMES[rng.below(NAMES.len() as u64) as usize];
    let there = b.try_ino(name).is_some();
    match rng.below(40) {
        38 => b.commit(rng.below(2) == 0),
        // A shortage is over after a second, and what is freed goes back to the storage again.
        39 => {
            b.driver.clock.advance(2_000_000_000);
            b.checkpoint();
        }
        0..14 => {
            durable.remove(name);
            write(b, name, rng)?;
        }
        14..28 if there => {
            b.try_fsync(name).map_err(|e| format!("fsync: {e}"))?;
            durable.insert(name, b.read(name));
        }
        28..32 if there => {
            durable.remove(name);
            b.unlink(name);
        }
        32..34 if there => {
            durable.remove(name);
            let size = b.attr(name).size;
            b.truncate(name, rng.below(size + 1));
        }
        34..36 if there => {
            durable.remove(name);
            // It may want a block: the tree grows where an extent is divided.
            let _punched = b.try_allocate(
                name,
                Allocate::PunchHole,
                rng.below(FILE) * BLOCK,
                1 + rng.below(20) * BLOCK,
            );
        }
        _ => {}
    }
    Ok(())
}

fn check(b: &Bench, durable: &Durable, cut: Cut) -> Result<(), String> {
    let back = Back::from(&b.device.image(cut));
    for (name, content) in durable {
        if !back.has(name) || back.bytes(name) != *content {
            return Err(format!("{name} is not what was made durable"));
        }
    }
    Ok(())
}

fn run(kind: VolumeKind, seeds: u64) {
    let config = Config::from_env(seeds, 96);
    let result = campaign(&config, |seed| {
        let mut rng = Rng::new(seed);
        let b = nearly_full(kind, &mut rng);
        let mut durable = Durable::new();
        for n in 1..=config.ops {
            step(&b, &mut rng, &mut durable)?;
            if n.is_multiple_of(12) {
                check(&b, &durable, Cut::LoseAll)?;
                check(&b, &durable, Cut::Random(rng.below(1000)))?;
            }
        }
        b.stop();
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn what_is_durable_fits_again() {
    run(VolumeKind::SMALL, 40);
    run(VolumeKind::TWO_LANES.with_area(), 40);
}
