//! Mounting while the kernel offers rings, for tests of several programs at once.

use rustix::fs::FlockOperation;
use std::fs::{self, File};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Does this kernel have FUSE over io_uring, switched on or not?
pub fn has_rings() -> bool {
    fs::exists(PARAMETER).unwrap()
}

/// Runs `act` while the kernel offers rings (`on`) or does not, and leaves the kernel as it was. A
/// connection keeps what it began with.
pub fn offering<T>(on: bool, act: impl FnOnce() -> T) -> T {
    let lock = File::create(std::env::temp_dir().join("siftfs-tests-enable-uring")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    if !has_rings() {
        return act();
    }
    let set = |value: &str| {
        fs::write(PARAMETER, value).expect("root can switch FUSE over io_uring on and off");
    };
    let before = fs::read_to_string(PARAMETER).unwrap();
    set(if on { "1" } else { "0" });
    // The kernel is left as it was even if the test fails.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
    set(before.trim());
    result.unwrap_or_else(|e| std::panic::resume_unwind(e))
}
