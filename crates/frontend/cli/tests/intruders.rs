//! Hostile clients of a server, by `testing/intruders`, for some seconds; `SIFTFS_INTRUDERS=1h` for
//! so long, `SIFTFS_INTRUDERS_SEED` from that seed. Needs root, `/dev/fuse` and e2fsprogs.

use siftfs_intruders::{Options, campaign};
use siftfs_kills::duration;
use std::env::{var, var_os};
use std::time::Duration;

/// How long the everyday test goes on.
const EVERY_DAY: Duration = Duration::from_secs(10);
/// With `SIFTFS_LONG`.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn hostile_clients_get_nothing_and_stop_nobody() {
    let long = var_os("SIFTFS_LONG").is_some();
    let usual = if long { LONG } else { EVERY_DAY };
    let length = var("SIFTFS_INTRUDERS")
        .map_or(usual, |text| duration(&text).unwrap_or_else(|e| panic!("SIFTFS_INTRUDERS={e}")));
    let seed = var("SIFTFS_INTRUDERS_SEED").map_or(1, |text| {
        text.parse().unwrap_or_else(|_| panic!("SIFTFS_INTRUDERS_SEED is not a number: {text}"))
    });
    let options = Options {
        seed,
        length,
        patience: Duration::from_secs(60),
        intruders: 3,
        siftfs: env!("CARGO_BIN_EXE_siftfs").into(),
        dir: None,
    };
    let did = campaign(&options, &|line| eprintln!("{line}")).unwrap_or_else(|e| panic!("{}", e.0));
    println!("{did:?}");
    // It did what it is for, whatever the machine's speed.
    assert!(did.calls > 0, "no honest client called");
    assert!(did.searched > 0 && !did.attacks.is_empty(), "no hostile client got in");
}
