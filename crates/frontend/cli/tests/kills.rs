//! Host and device process killed at random moments under load, by `testing/kills`, for a minute;
//! `SIFTFS_KILLS=10m` for so long, `SIFTFS_KILLS_SEED` from that seed. Needs root, `/dev/fuse`, loop
//! devices and e2fsprogs.

use siftfs_kills::{Length, Options, duration, kills};
use std::env::{var, var_os};
use std::time::Duration;

/// How long the everyday test goes on.
const EVERY_DAY: Duration = Duration::from_secs(45);
/// With `SIFTFS_LONG`.
const LONG: Duration = Duration::from_secs(300);

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let usual = if var_os("SIFTFS_LONG").is_some() { LONG } else { EVERY_DAY };
    let time = var("SIFTFS_KILLS")
        .map_or(usual, |text| duration(&text).unwrap_or_else(|e| panic!("SIFTFS_KILLS={e}")));
    let seed = var("SIFTFS_KILLS_SEED").map_or(1, |text| {
        text.parse().unwrap_or_else(|_| panic!("SIFTFS_KILLS_SEED is not a number: {text}"))
    });
    let options = Options {
        seed,
        from: 0,
        length: Length::Time(time),
        only: Default::default(),
        siftfs: env!("CARGO_BIN_EXE_siftfs").into(),
        dir: None,
        keep: None,
        verbose: false,
    };
    let did = kills(&options, &|line| eprintln!("{line}")).unwrap_or_else(|e| panic!("{}", e.0));
    println!("{did:?}");
    // It did what it is for, whatever the machine's speed.
    assert!(did.host_kills > 0 && did.device_kills > 0, "nobody was killed");
    assert!(did.acknowledged > 0 && did.trees_after_deaths > 0, "nothing was judged");
    assert!(did.e2fsck_runs > 0 && did.trees_compared > 0, "nothing was unmounted");
}
