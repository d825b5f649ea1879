//! The marker in the area's superblocks (rule R15): while a mount may hold state that is not in the
//! area, an incompatible-feature bit keeps the kernel and e2fsck away from it.

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockNr, BlockRun, Error, Result, Timestamp};
use siftfs_device::{AreaWriter, Origin, RegionReader};
use siftfs_ext4::{BlockStore, Fs, check_super, set_marker};
use std::collections::HashMap;

const SUPER_OFFSET: u64 = 1024;
/// A superblock as the area holds it.
pub type SuperBytes = [u8; 1024];

/// A look at the area's metadata that cannot change it.
struct LookStore {
    area: RegionReader,
    blocks: HashMap<BlockNr, Box<[u8; BLOCK_SIZE]>>,
}

impl BlockStore for LookStore {
    fn read(&mut self, nr: BlockNr) -> Result<&[u8; BLOCK_SIZE]> {
        if !self.blocks.contains_key(&nr) {
            let mut data = Box::new([0u8; BLOCK_SIZE]);
            self.area.read(Origin::Admin, nr * BLOCK_BYTES, &mut data[..])?;
            self.blocks.insert(nr, data);
        }
        Ok(&self.blocks[&nr])
    }
    fn modify(&mut self, _nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
        Err(Error::Posix(libc::EROFS))
    }
    fn create(&mut self, _nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
        Err(Error::Posix(libc::EROFS))
    }
    fn freed(&mut self, _run: BlockRun) {}
    fn verified(&self, _nr: BlockNr) -> bool {
        false
    }
    fn set_verified(&mut self, _nr: BlockNr) {}
}

/// The primary superblock as it stands.
pub fn read_primary(area: &RegionReader) -> Result<SuperBytes> {
    let mut bytes = [0u8; 1024];
    area.read(Origin::Admin, SUPER_OFFSET, &mut bytes)?;
    Ok(bytes)
}

/// Writes the primary superblock, flushed.
pub fn write_primary(area: &AreaWriter, bytes: &SuperBytes) -> Result<()> {
    area.write(Origin::Admin, SUPER_OFFSET, bytes)?;
    area.flush(Origin::Admin)
}

/// Sets or clears the marker in every copy of the superblock, backups first, primary last, each
/// flushed. A backup that a crash tore is made anew from the primary.
pub fn mark(area: &AreaWriter, on: bool, now: Timestamp) -> Result<SuperBytes> {
    let reader: &RegionReader = area;
    let mut store = LookStore { area: reader.clone(), blocks: HashMap::new() };
    let mut fs = Fs::open(&mut store)?;
    if on && !fs.is_clean() {
        return Err(Error::Refused(
            "the file system was not unmounted cleanly by whoever used it last; run e2fsck on it"
                .into(),
        ));
    }
    if on {
        fs.set_mount_time(now);
    } else {
        fs.set_write_time(now);
    }
    fs.set_marker(on);
    for block in fs.backup_superblocks() {
        let mut bytes = [0u8; 1024];
        area.read(Origin::Admin, block * BLOCK_BYTES, &mut bytes)?;
        if check_super(&bytes).is_err() {
            bytes = fs.backup_image(block);
        }
        set_marker(&mut bytes, on);
        area.write(Origin::Admin, block * BLOCK_BYTES, &bytes)?;
    }
    area.flush(Origin::Admin)?;
    let primary = fs.super_image();
    write_primary(area, &primary)?;
    Ok(primary)
}
