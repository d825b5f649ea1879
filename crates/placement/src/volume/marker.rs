//! The marker in the area's superblocks (rule R15): while a mount may hold state that is not in the
//! area, an incompatible-feature bit keeps the kernel and e2fsck away from it.

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockNr, BlockRun, Error, Result, Timestamp};
use siftfs_device::{Origin, RegionReader, SuperblockWriter};
use siftfs_ext4::{BlockStore, Fs, check_super, has_marker, own_bytes, set_marker, set_own_bytes};
use siftfs_log::{AreaLink, LINK_LEN};
use std::collections::HashMap;

const SUPER_OFFSET: u64 = 1024;
/// A superblock as the area holds it.
pub type SuperBytes = [u8; 1024];

/// The area's metadata, read-only.
pub struct LookStore {
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
pub fn write_primary(area: &SuperblockWriter, bytes: &SuperBytes) -> Result<()> {
    area.write(Origin::Admin, SUPER_OFFSET, bytes)?;
    area.flush(Origin::Admin)
}

/// Opens the file system as the area has it, read-only.
pub fn look(area: &RegionReader) -> Result<Fs> {
    look_at(area).map(|(fs, _)| fs)
}

/// As [`look`], with the blocks that it was opened on.
pub fn look_at(area: &RegionReader) -> Result<(Fs, LookStore)> {
    let mut store = LookStore { area: area.clone(), blocks: HashMap::new() };
    Ok((Fs::open(&mut store)?, store))
}

/// The superblock as it will stand when the volume is plain ext4 again.
pub fn final_super(area: &RegionReader, now: Timestamp) -> Result<SuperBytes> {
    let mut fs = look(area)?;
    fs.superblock.set_write_time(now);
    fs.superblock.set_marker(false);
    Ok(fs.super_image())
}

/// The primary superblock with the marker, a mount noted, and this link.
///
/// # Errors
/// `Refused` if another user of the file system did not unmount it cleanly.
pub fn marked_super(
    area: &RegionReader,
    now: Timestamp,
    link: Option<AreaLink>,
) -> Result<SuperBytes> {
    let mut fs = look(area)?;
    if let Some(why) = fs.superblock.unclean() {
        return Err(Error::Refused(format!("the file system {why}")));
    }
    fs.superblock.set_mount_time(now);
    fs.superblock.set_marker(true);
    fs.superblock.set_own_bytes(&link_bytes(link));
    Ok(fs.super_image())
}

/// A link, or none, as the superblock has it.
pub fn link_bytes(link: Option<AreaLink>) -> [u8; LINK_LEN] {
    link.map_or([0; LINK_LEN], |l| l.encode())
}

/// Leaves `primary` as the primary superblock, then gives every backup its marker and link, each
/// flushed. A crash in the middle leaves a primary that says what is unfinished, as one in
/// [`clear`] does.
pub fn set(area: &SuperblockWriter, primary: &SuperBytes) -> Result<()> {
    write_primary(area, primary)?;
    mark_backups(area, primary)
}

/// As [`set`], backups first: takes marker or link away. Doing it again after a crash in it ends
/// the same.
pub fn clear(area: &SuperblockWriter, primary: &SuperBytes) -> Result<()> {
    assert!(!has_marker(primary), "what is left is plain ext4");
    mark_backups(area, primary)?;
    write_primary(area, primary)
}

/// Gives every backup the marker and the link of `primary`. One that a crash tore is made anew.
fn mark_backups(area: &SuperblockWriter, primary: &SuperBytes) -> Result<()> {
    let mut fs = look(area)?;
    fs.superblock.set_marker(has_marker(primary));
    fs.superblock.set_own_bytes(&own_bytes(primary));
    for block in fs.layout.backup_superblocks() {
        let mut bytes = [0u8; 1024];
        area.read(Origin::Admin, block * BLOCK_BYTES, &mut bytes)?;
        if check_super(&bytes).is_err() {
            bytes = fs.backup_image(block);
        }
        set_marker(&mut bytes, has_marker(primary));
        set_own_bytes(&mut bytes, &own_bytes(primary));
        area.write(Origin::Admin, block * BLOCK_BYTES, &bytes)?;
    }
    area.flush(Origin::Admin)
}
