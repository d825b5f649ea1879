//! Users against each other on one mount, by `testing/users`, for half a minute; `SIFTFS_USERS=1h`
//! for so long, `SIFTFS_USERS_SEED` from that seed. Needs root, `/dev/fuse` and e2fsprogs.

use siftfs_kills::{Length, duration};
use siftfs_users::{Options, campaign};
use std::env::{var, var_os};
use std::time::Duration;

/// How long the everyday test goes on.
const EVERY_DAY: Duration = Duration::from_secs(40);
/// With `SIFTFS_LONG`.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn users_cannot_stop_or_rob_each_other() {
    let long = var_os("SIFTFS_LONG").is_some();
    let usual = if long { LONG } else { EVERY_DAY };
    let time = var("SIFTFS_USERS")
        .map_or(usual, |text| duration(&text).unwrap_or_else(|e| panic!("SIFTFS_USERS={e}")));
    let seed = var("SIFTFS_USERS_SEED").map_or(1, |text| {
        text.parse().unwrap_or_else(|_| panic!("SIFTFS_USERS_SEED is not a number: {text}"))
    });
    let options = Options {
        seed,
        from: 0,
        length: Length::Time(time),
        round: Duration::from_secs(3),
        patience: Duration::from_secs(40),
        only: Vec::new(),
        mount: String::new(),
        crowd: if long { 3000 } else { 300 },
        siftfs: env!("CARGO_BIN_EXE_siftfs").into(),
        dir: None,
        verbose: true,
    };
    let did = campaign(&options, &|line| eprintln!("{line}")).unwrap_or_else(|e| panic!("{}", e.0));
    println!("{did:?}");
    // It did what it is for, whatever the machine's speed.
    assert!(did.calls > 0, "no ordinary user called");
    assert!(!did.tried.is_empty(), "no scene tried anything");
}
