//! A tree with everything that a copying program may have to keep.

use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use siftfs_rig::place::{Result, arg, failed};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;

const DIRECTORIES: usize = 12;
const FILES: usize = 30;

/// Makes the tree: sizes from nothing to a megabyte, holes, hard and symbolic links, a fifo, modes,
/// owners, times to the nanosecond, user attributes, access and default ACLs.
pub fn generate(root: &Path) -> Result<()> {
    for d in 0..DIRECTORIES {
        let dir = root.join(format!("dir-{d}"));
        fs::create_dir_all(&dir).map_err(failed(dir.display()))?;
        for f in 0..FILES {
            file(&dir.join(format!("file {f}")), d * FILES + f)?;
        }
        special(&dir, d).map_err(failed(dir.display()))?;
        // Last: the directory's default ACL would be inherited by what is made after it.
        acl(&["-m", "u:1234:rw,g:4321:r"], &dir.join("file 1"))?;
        acl(&["-d", "-m", "u:1234:rwx"], &dir)?;
    }
    Ok(())
}

fn file(path: &Path, n: usize) -> Result<()> {
    let size = match n % 10 {
        0 => 0,
        9 => 1 << (n % 21),
        rest => rest * 1777,
    };
    // Not compressible away, and another for each file.
    let data: Vec<u8> =
        (0..size).map(|i: usize| (i.wrapping_mul(n + 31) >> 3).to_le_bytes()[0]).collect();
    let write = || -> std::io::Result<()> {
        let file = File::create(path)?;
        file.write_all_at(&data, if n.is_multiple_of(7) { 1 << 20 } else { 0 })?;
        chown(path, Some(1000 + u32::try_from(n % 5).unwrap_or(0)), Some(100))?;
        let mode = [0o644, 0o600, 0o755, 0o4755, 0o440][n % 5];
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        if n.is_multiple_of(3) {
            rustix::fs::fsetxattr(&file, "user.number", &n.to_le_bytes(), XattrFlags::empty())?;
        }
        let seconds = 1_000_000_000 + i64::try_from(n).unwrap_or(0) * 86_399;
        let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        Ok(())
    };
    write().map_err(failed(path.display()))
}

fn special(dir: &Path, d: usize) -> std::io::Result<()> {
    symlink("file 2", dir.join("short link"))?;
    symlink("long/".repeat(40 + d), dir.join("long link"))?;
    fs::hard_link(dir.join("file 3"), dir.join("hard link"))?;
    rustix::fs::mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::from(0o640), 0)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o2755))
}

fn acl(options: &[&str], path: &Path) -> Result<()> {
    let mut args = options.to_vec();
    args.push(arg(path)?);
    siftfs_rig::place::run("setfacl", &args).map(drop)
}
