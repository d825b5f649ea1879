//! A FUSE mount's connection, which the kernel ends on demand whatever its host and its callers
//! wait for.

use crate::place::{Result, failed};
use std::path::Path;

/// Where the kernel shows all connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Makes connections visible where they are not.
pub fn prepare() -> Result<()> {
    let shown = std::fs::read_dir(CONNECTIONS).is_ok_and(|mut d| d.next().is_some());
    let table = std::fs::read_to_string("/proc/self/mountinfo").map_err(failed("mountinfo"))?;
    if shown || table.contains(" - fusectl ") {
        return Ok(());
    }
    crate::place::run("mount", &["-t", "fusectl", "none", CONNECTIONS]).map(drop)
}

/// The numbers of the connections mounted at `dir`, as the kernel's table of mounts has them: the
/// mount itself is not asked.
pub fn at(dir: &Path) -> Vec<u32> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(|line| connection(line, dir)).collect()
}

fn connection(line: &str, dir: &Path) -> Option<u32> {
    let (fields, kind) = line.split_once(" - ")?;
    let mut fields = fields.split(' ').skip(2);
    let (number, at) = (fields.next()?, fields.nth(1)?);
    let ours = kind.starts_with("fuse") && Path::new(at) == dir;
    ours.then(|| number.split_once(':')?.1.parse().ok()).flatten()
}

/// Ends a connection: all calls on its mount fail from here on.
pub fn abort(number: u32) -> Result<()> {
    let path = format!("{CONNECTIONS}/{number}/abort");
    std::fs::write(&path, "1").map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_found_in_the_table() {
        let line = "93 28 0:57 / /tmp/a/mount rw,nosuid - fuse.siftfs /tmp/v rw,user_id=0";
        assert_eq!(connection(line, Path::new("/tmp/a/mount")), Some(57));
        assert_eq!(connection(line, Path::new("/tmp/a")), None);
        let other = "93 28 7:0 / /tmp/a/mount rw - ext4 /dev/loop0 rw";
        assert_eq!(connection(other, Path::new("/tmp/a/mount")), None);
    }
}
