//! Pools of free blocks, as a mount has them by its options.

use crate::support::{Setup, run, siftfs};
use crate::{Held, LOGS};
use std::time::Duration;

/// Times that each of two programs appends before the other one does.
const TURNS: usize = 6;

/// A count of the volume's allocations.
fn allocated(s: &Setup, count: &str) -> u64 {
    let status = siftfs(&["status", s.dir(), "--json"]).ok().out;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["runtime"]["allocation"][count].as_u64().expect("a count")
}

/// Extents of two files to which two programs appended turn by turn, and runs of blocks that came
/// from pools.
fn extents(options: &str) -> ([usize; 2], u64) {
    let s = Setup::new();
    // What a log holds is taken in, and has its place, when it is so old.
    s.mount(&format!("{LOGS},commit=0.05{options}"));
    let held = ["f", "g"].map(|name| Held::of(&s.path(name)));
    for turn in 0..TURNS {
        for one in &held {
            let before = allocated(&s, "runs");
            one.append(&[turn as u8 + 1; 12_288]);
            while allocated(&s, "runs") == before {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let pooled = allocated(&s, "pooled_runs");
    drop(held);
    for name in ["f", "g"] {
        let read = std::fs::read(s.path(name)).unwrap();
        assert_eq!(read.len(), TURNS * 12_288);
        let right =
            |(turn, bytes): (usize, &[u8])| bytes.iter().all(|b| usize::from(*b) == turn + 1);
        assert!(read.chunks(12_288).enumerate().all(right));
    }
    s.umount();
    s.assert_plain_ext4();
    let of = |name: &str| {
        let asked = format!("dump_extents -l /{name}");
        let said = run("debugfs", &["-R", &asked, s.volume()]).ok().out;
        let is_extent = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        said.lines().filter(is_extent).count()
    };
    (["f", "g"].map(of), pooled)
}

/// Two programs that append turn by turn: with a pool for each their files do not interleave.
#[test]
fn pools_keep_files_in_one_piece() {
    let (without, pooled) = extents("");
    assert!(without.iter().all(|extents| *extents >= TURNS - 1), "{without:?}");
    assert_eq!(pooled, 0);
    let (with, pooled) = extents(",block-pools");
    assert_eq!(with, [1, 1]);
    assert!(pooled >= 2 * TURNS as u64, "{pooled}");
    let (_, pooled) = extents(",free-lists");
    assert!(pooled >= 2 * TURNS as u64, "{pooled}");
}
