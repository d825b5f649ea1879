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

fn look(area: &RegionReader) -> Result<Fs> {
    Fs::open(&mut LookStore { area: area.clone(), blocks: HashMap::new() })
}

/// The superblock as it will stand when the volume is plain ext4 again.
pub fn final_super(area: &RegionReader, now: Timestamp) -> Result<SuperBytes> {
    let mut fs = look(area)?;
    fs.set_write_time(now);
    fs.set_marker(false);
    Ok(fs.super_image())
}

/// Sets the marker in every copy of the superblock, primary first, each flushed, and notes the
/// mount. Answers the primary. A crash in the middle leaves a marked primary, as one in [`clear`]
/// does: whoever opens the volume next sees that something is unfinished.
///
/// # Errors
/// `Refused` if somebody else used the file system and did not unmount it cleanly.
pub fn set(area: &AreaWriter, now: Timestamp) -> Result<SuperBytes> {
    let mut fs = look(area)?;
    if !fs.is_clean() {
        return Err(Error::Refused(
            "the file system was not unmounted cleanly by whoever used it last; run e2fsck on it"
                .into(),
        ));
    }
    fs.set_mount_time(now);
    fs.set_marker(true);
    let primary = fs.super_image();
    write_primary(area, &primary)?;
    mark_backups(area, &mut fs)?;
    Ok(primary)
}

/// Clears the marker, backups first, and leaves `primary` as the primary superblock. Doing it
/// again after a crash in it ends the same.
pub fn clear(area: &AreaWriter, primary: &SuperBytes) -> Result<()> {
    let mut fs = look(area)?;
    fs.set_marker(false);
    mark_backups(area, &mut fs)?;
    write_primary(area, primary)
}

/// Gives every backup the marker that `fs` has. One that a crash tore is made anew.
fn mark_backups(area: &AreaWriter, fs: &mut Fs) -> Result<()> {
    for block in fs.backup_superblocks() {
        let mut bytes = [0u8; 1024];
        area.read(Origin::Admin, block * BLOCK_BYTES, &mut bytes)?;
        if check_super(&bytes).is_err() {
            bytes = fs.backup_image(block);
        }
        set_marker(&mut bytes, fs.marker());
        area.write(Origin::Admin, block * BLOCK_BYTES, &bytes)?;
    }
    area.flush(Origin::Admin)
}
