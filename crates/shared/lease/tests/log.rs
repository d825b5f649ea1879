//! File logs that any program may leave: made at random, then damaged. `make fuzz` does the same
//! for longer.

#[path = "../fuzz/log.rs"]
mod log;

use siftfs_base::Rng;

#[test]
fn any_log_is_read_within_its_bounds() {
    let count = if std::env::var_os("SIFTFS_LONG").is_some() { 20_000 } else { 1_000 };
    let mut rng = Rng::new(1);
    for _ in 0..count {
        let most = *rng.pick(&[20, 200, 9000]).expect("three");
        let len = rng.below(most) as usize;
        log::any_log(&rng.bytes(len));
    }
}
