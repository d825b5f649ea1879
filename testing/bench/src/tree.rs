//! A tree to unpack, as an archive.

use crate::cell::Measured;
use siftfs_rig::place::{Place, Result, arg, failed, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const DIRECTORIES: usize = 50;
const FILES_EACH: usize = 40;

/// A tar archive of a generated tree, like the sources of a program: many small files, few large.
pub struct Archive(PathBuf);

impl Archive {
    /// Writes it.
    pub fn generate(place: &Place) -> Result<Self> {
        let root = place.path("tree");
        for d in 0..DIRECTORIES {
            let dir = root.join(format!("part-{}", d / 10)).join(format!("module-{d}"));
            fs::create_dir_all(&dir).map_err(failed(dir.display()))?;
            for f in 0..FILES_EACH {
                let data = vec![b'a' + u8::try_from(f % 26).unwrap_or(0); size(f)];
                let path = dir.join(format!("file-{f}.rs"));
                fs::write(&path, data).map_err(failed(path.display()))?;
            }
        }
        let archive = place.path("tree.tar");
        run("tar", &["-cf", arg(&archive)?, "-C", arg(&root)?, "."])?;
        fs::remove_dir_all(&root).map_err(failed(root.display()))?;
        Ok(Self(archive))
    }

    /// `tar -x` into a directory that is made for it.
    pub fn unpack(&self, dir: &Path) -> Result<Measured> {
        fs::create_dir(dir).map_err(failed(dir.display()))?;
        let start = Instant::now();
        run("tar", &["-xf", arg(&self.0)?, "-C", arg(dir)?])?;
        let operations = (DIRECTORIES * FILES_EACH) as u64;
        let rate = operations as f64 / start.elapsed().as_secs_f64();
        Ok(Measured { rate, operations, ..Measured::default() })
    }
}

/// Bytes of a directory's file number `f`: 0.5 to 10 KiB mostly, one of 128 KiB.
fn size(f: usize) -> usize {
    if f == 0 { 128 << 10 } else { 512 + f * 251 }
}
