//! Rot between two rounds: one copy of the header is damaged somewhere, and recovery must not mind.

use crate::stage::Stage;
use siftfs_model::Rng;
use siftfs_rig::place::{Result, failed};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a header copy, and of each of the blocks of it that mean something.
const COPY: u64 = 65_536;
const BLOCK: u64 = 4096;
/// Static part, two host slots, two service slots.
const BLOCKS: u64 = 5;

/// Damages one copy of the header of the stage's volume in a quarter of the cases. No process may
/// have it open.
///
/// # Errors
/// The file cannot be read or written.
pub fn one_header_copy(stage: &mut Stage<'_>, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    if !rng.chance(50) {
        return Ok(());
    }
    let (path, first) = match stage.log().exists() {
        true => (stage.log(), 0),
        false => (stage.volume(), area_len(&stage.volume())?),
    };
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let file = file.map_err(failed(path.display()))?;
    let len = file.metadata().map_err(failed(path.display()))?.len();
    let copy = if rng.chance(50) { first } else { len - COPY };
    spoil(&file, copy, &mut rng).map_err(failed(path.display()))?;
    stage.summary.headers_damaged += 1;
    Ok(())
}

/// One bit, or a whole block, or every block.
fn spoil(file: &File, copy: u64, rng: &mut Rng) -> std::io::Result<()> {
    let block = copy + rng.below(BLOCKS) * BLOCK;
    match rng.below(3) {
        0 => {
            let at = block + rng.below(BLOCK);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at)?;
            file.write_all_at(&[byte[0] ^ (1 << rng.below(8))], at)?;
        }
        1 => file.write_all_at(&[0; BLOCK as usize], block)?,
        _ => file.write_all_at(&vec![0xa5; (BLOCKS * BLOCK) as usize], copy)?,
    }
    file.sync_data()
}

/// Bytes of the ext4 area, by its superblock: the first copy of the header lies behind it.
fn area_len(volume: &Path) -> Result<u64> {
    let file = File::open(volume).map_err(failed(volume.display()))?;
    let mut count = [0; 4];
    file.read_exact_at(&mut count, 1024 + 4).map_err(failed(volume.display()))?;
    Ok(u64::from(u32::from_le_bytes(count)) * BLOCK)
}
