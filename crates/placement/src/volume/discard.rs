//! `siftfs recover --discard-log`: giving the log up, for a dirty volume whose log is lost or
//! belongs to another state of the area (rule R16).

use crate::mount::open::Volume;
use crate::volume::files::nonce;
use crate::volume::marker::{self, SuperBytes};
use siftfs_base::{BLOCK_BYTES, Clock, Epoch, Error, Lsn, Result};
use siftfs_device::{Device, Origin, RegionDesc, RegionKind, Storage, SuperblockWriter};
use siftfs_ext4::{set_marker, set_own_bytes};
use siftfs_log::{EpochKey, HostRecord, HostState, OPEN_END};
use siftfs_registry::Left;
use siftfs_service::replay_redo;
use siftfs_volume::{
    AreaSuper, HEADER_HOST, HostSlots, Media, erase_headers, erase_record_area, erase_spare,
    read_media,
};
use std::sync::Arc;

/// LSNs that a lost log may have used beyond what the header knows.
/// (not a multiple of 2^32: generations are made from the low half).
pub(crate) const LSN_GAP: u64 = (1 << 32) + (1 << 28);

/// What became of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Discarded {
    /// The log is there, empty, and serves on.
    Emptied,
    /// The log, its spare one or its record area is not there or not usable: the volume is plain
    /// ext4 and has no log any more.
    Forgotten,
}

/// Forgets everything that lies in the log alone and clears the marker. What had been fsynced since
/// the last checkpoint may be lost, and the file system may be inconsistent: run e2fsck. A log
/// elsewhere that does not serve the volume is not written, and the volume forgets it.
///
/// # Errors
/// I/O errors; `Corrupt` if there is no ext4 superblock to clear the marker from; `Refused` if a
/// log was given that belongs to another volume, and then nothing is changed.
pub fn discard_log(media: Media, clock: &Arc<dyn Clock>) -> Result<Discarded> {
    match Volume::read_header(media.clone(), true) {
        Ok(volume) => {
            empty_redo(&volume)?;
            empty_log(&volume, clock).map(|()| Discarded::Emptied)
        }
        // A log or a record area was given, and it is not this volume's: the right one may be
        // somewhere.
        Err(error @ Error::Refused(_)) if media.log.is_some() && !part_is_lost(&media) => {
            Err(error)
        }
        Err(error @ Error::Refused(_)) if media.bytes.is_some() || media.spare.is_some() => {
            Err(error)
        }
        // A newer build's: it knows what is in the log.
        Err(error @ Error::Incompatible(_)) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the log is not usable; the area alone is looked at");
            forget_log(&media)?;
            area_alone(media.area, clock).map(|()| Discarded::Forgotten)
        }
    }
}

/// Invalidates a log whose record area or spare log is lost, before the marker is cleared.
/// Otherwise half a volume would remain, which misses it.
fn forget_log(media: &Media) -> Result<()> {
    let Ok(view) = read_media(&*media.area, media.log.as_deref()) else { return Ok(()) };
    if let Some(bytes) = &media.bytes {
        erase_record_area(&**bytes)?;
    }
    if let Some(spare) = &media.spare {
        erase_spare(&**spare)?;
    }
    erase_headers(media.log_device(), &view.header)
}

/// Is the log whole, and names a record area or a spare log that is nowhere?
fn part_is_lost(media: &Media) -> bool {
    let Ok(view) = read_media(&*media.area, media.log.as_deref()) else { return false };
    let area = media.bytes.is_none() && view.header.record_area().is_some();
    let spare = media.spare.is_none() && view.header.spare_log();
    area || spare
}

/// What the redo lane has is brought home, as far as it is whole; else it is given up, too.
fn empty_redo(volume: &Volume) -> Result<()> {
    match replay_redo(&volume.media, &volume.view) {
        Err(error @ Error::Corrupt { .. }) => {
            tracing::warn!(%error, "the redo lane is given up");
            let redo = volume.media.redo(&volume.view);
            redo.map_or(Ok(()), |redo| redo.format(nonce()?))
        }
        replayed => replayed.map(drop),
    }
}

fn empty_log(volume: &Volume, clock: &Arc<dyn Clock>) -> Result<()> {
    let storage = volume.storage()?;
    let area = storage.take_superblocks()?;
    let old = volume.forget_older_log();
    // The next epoch's key makes every record of this one invalid; the tails stay where they are.
    let key = EpochKey { epoch: Epoch(old.key.epoch.0 + 1), nonce: nonce()? };
    let lanes = volume.view().service.lane_tails.clone();
    let plain = plain_super(&area, clock)?;
    let given_up = old.registry.clone();
    let mut host = HostSlots::new(storage.take_header(HEADER_HOST)?, volume.view());
    host.write(
        Origin::Admin,
        &HostRecord {
            state: HostState::Clean,
            key,
            lane_key: key,
            journal_key: key,
            lane_ends: vec![OPEN_END; lanes.len()],
            lane_heads: lanes,
            lsn_floor: Lsn(old.lsn_floor.0 + LSN_GAP),
            area_crc: AreaSuper::parse(&plain).map_or(0, |s| s.crc),
            superblock: Box::new(plain),
            registry: None,
            ..old
        },
    )?;
    clear(&area, &plain)?;
    if let Some(name) = given_up {
        Left::give_up(&name);
    }
    Ok(())
}

/// The superblock without the marker; taken as it is if the lost log left the descriptors in a
/// state that nothing more can be said from.
fn plain_super(area: &SuperblockWriter, clock: &Arc<dyn Clock>) -> Result<SuperBytes> {
    marker::final_super(area, clock.now()).or_else(|error| {
        tracing::warn!(%error, "the file system is damaged");
        let mut primary = marker::read_primary(area)?;
        set_marker(&mut primary, false);
        Ok(primary)
    })
}

/// The marker goes from every copy, or, if the lost log left the descriptors in a state that they
/// cannot be found by, from the primary: e2fsck works from that one.
fn clear(area: &SuperblockWriter, plain: &SuperBytes) -> Result<()> {
    marker::clear(area, plain).or_else(|error| {
        tracing::warn!(%error, "the backup superblocks keep the marker");
        marker::write_primary(area, plain)
    })
}

fn area_alone(dev: Arc<dyn Device>, clock: &Arc<dyn Clock>) -> Result<()> {
    let mut bytes = [0u8; 1024];
    dev.read(1024, &mut bytes)?;
    let found = AreaSuper::parse(&bytes)
        .ok_or_else(|| siftfs_base::corrupt("volume", "neither a header nor an ext4 superblock"))?;
    let len = found.len.min(dev.size()) / BLOCK_BYTES * BLOCK_BYTES;
    let area = RegionDesc { kind: RegionKind::Area, index: 0, offset: 0, len };
    let storage = Storage::new(dev, &[area])?;
    let area = storage.take_superblocks()?;
    let mut plain = plain_super(&area, clock)?;
    set_own_bytes(&mut plain, &marker::link_bytes(None));
    clear(&area, &plain)
}
