//! The bench with the library of private logs loaded into it and all programs that it starts.

use siftfs_rig::place::{Failed, Result, failed};
use std::os::unix::process::CommandExt;
use std::process::Command;

const PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "libsiftfs_preload.so";

/// Is the library loaded?
pub fn is_loaded() -> bool {
    std::env::var_os(PRELOAD).is_some_and(|all| all.to_string_lossy().contains(LIBRARY))
}

/// This process begins anew with the library, by the `siftfs accel` that is beside this program.
///
/// # Errors
/// That cannot be started. Otherwise this never returns.
pub fn begin_anew() -> Result<()> {
    let exe = std::env::current_exe().map_err(failed("own path"))?;
    let siftfs = exe.with_file_name("siftfs");
    let mut command = Command::new(&siftfs);
    let error = command.args(["accel", "--"]).arg(&exe).args(std::env::args_os().skip(1)).exec();
    Err(Failed(format!("{}: {error}; build -p siftfs-cli -p siftfs-preload", siftfs.display())))
}
