//! The file system takes what is behind its end.

use crate::mount::open::Volume;
use crate::options::OpenOptions;
use crate::volume::files::nonce;
use crate::volume::marker;
use siftfs_base::{BLOCK_BYTES, Clock, Epoch, Error, Result, SharedBlock, Timestamp, TxnSeq};
use siftfs_device::{Device, Origin, RegionReader, zero_fill};
use siftfs_ext4::Growth;
use siftfs_log::{EpochKey, HostRecord, HostState, OPEN_END, Transaction, encoded_len};
use siftfs_service::Service;
use siftfs_volume::{AreaSuper, HEADER_HOST, HostSlots};
use siftfs_wire::{PROTOCOL_VERSION, ToService, Urgency};
use std::sync::Arc;

/// Makes the clean volume's file system `blocks` long; it is clean, and durably so, when this
/// returns.
///
/// New groups are written first, where nothing names them, and flushed. Then the volume is marked
/// as by a mount, and one transaction with every block of the old file system that changes is
/// journaled: this is the step that switches. A crash before it leaves the old file system, one
/// after it the new one, once recovery has replayed the journal.
pub(super) fn grow_area(
    volume: &Volume,
    clock: &Arc<dyn Clock>,
    opts: &OpenOptions,
    blocks: u64,
) -> Result<()> {
    assert!(volume.is_clean(), "recovery comes first");
    let growth = draw(&*volume.storage()?.area_reader()?, blocks, clock.now())?;
    check_journal(volume, &growth)?;
    write_behind(&*volume.media.area, &growth)?;
    commit(volume, clock, opts, blocks)
}

/// What makes the file system in this area `blocks` long.
fn draw(area: &RegionReader, blocks: u64, now: Timestamp) -> Result<Growth> {
    let (fs, mut store) = marker::look_at(area)?;
    fs.grow(&mut store, blocks, now)
}

/// Refuses a growth whose transaction the journal has no room for.
fn check_journal(volume: &Volume, growth: &Growth) -> Result<()> {
    let header = &volume.view().header;
    let txn = transaction(&volume.view().service.lane_tails, TxnSeq(1), growth);
    let len = encoded_len(&txn, header.journal_data());
    // One that does not fit in front of the ring's end begins at its start.
    if len.is_none_or(|len| 2 * len > header.journal_len) {
        return Err(Error::Refused(format!(
            "a journal of {} bytes is too small for the {} blocks that change at once",
            header.journal_len,
            growth.changed.len()
        )));
    }
    Ok(())
}

/// Writes what is behind the end of the file system; durable when it returns.
fn write_behind(dev: &dyn Device, growth: &Growth) -> Result<()> {
    for run in &growth.zeroed {
        zero_fill(dev, run.start * BLOCK_BYTES, run.len * BLOCK_BYTES)?;
    }
    for (nr, block) in &growth.behind {
        dev.write(nr * BLOCK_BYTES, &block[..], false)?;
    }
    dev.flush()
}

/// One transaction with all blocks that change. It contains nothing that was staged.
fn transaction(lane_upto: &[u64], seq: TxnSeq, growth: &Growth) -> Transaction {
    Transaction {
        seq,
        lane_upto: lane_upto.to_vec(),
        images: growth.changed.iter().map(|(nr, _)| *nr).collect(),
        image_data: growth.changed.iter().map(|(_, block)| SharedBlock::from(**block)).collect(),
        ..Transaction::default()
    }
}

/// Brings what changes into the area by the journal, as a mount does it.
fn commit(volume: &Volume, clock: &Arc<dyn Clock>, opts: &OpenOptions, blocks: u64) -> Result<()> {
    let storage = volume.storage()?;
    let old = volume.forget_older_log();
    let epoch = Epoch(old.key.epoch.0 + 1);
    let key = EpochKey { epoch, nonce: nonce()? };
    if volume.view().area.is_some_and(|area| area.crc == volume.view().host.area_crc) {
        volume.note_epoch(opts, volume.view().host.key, key, None)?;
    }
    let mut host = HostSlots::new(storage.take_header(HEADER_HOST)?, volume.view());
    volume.note_mounted(&storage, &mut host, key, clock.now())?;
    let mut service = volume.service(&storage, clock, opts, Origin::Admin)?;
    service.begin_epoch(key, key);
    let reader = storage.area_reader()?;
    // Drawn again, over superblocks that are marked now.
    let growth = draw(&reader, blocks, clock.now())?;
    journal(&mut service, volume.view().header.volume, epoch, &growth)?;
    let plain = marker::final_super(&reader, clock.now())?;
    let newest = host.newest().clone();
    host.write(
        Origin::Admin,
        &HostRecord {
            state: HostState::Clean,
            lane_key: newest.key,
            lane_ends: vec![OPEN_END; newest.lane_ends.len()],
            lane_heads: old.lane_heads,
            lsn_floor: old.lsn_floor,
            area_crc: AreaSuper::parse(&plain).map_or(0, |area| area.crc),
            superblock: Box::new(plain),
            ..newest
        },
    )?;
    drop(service);
    marker::clear(&volume.storage()?.take_superblocks()?, &plain)
}

/// Journals the growth and checkpoints it: the journal is empty when this returns.
fn journal(service: &mut Service, volume: [u8; 16], epoch: Epoch, growth: &Growth) -> Result<()> {
    let durable = service.durable();
    let mut txn = transaction(&durable.lane_tails, durable.next_seq, growth);
    (txn.ops_cut, txn.staged_cut) = (durable.ops_cut, durable.staged_cut);
    let messages = [
        ToService::Hello { version: PROTOCOL_VERSION, volume, epoch },
        ToService::Submit { txn: Box::new(txn), waited: true },
        ToService::Checkpoint { id: 1, upto: TxnSeq(u64::MAX), urgency: Urgency::Emergency },
    ];
    for message in messages {
        service.handle(message);
        while service.has_work() {
            service.step();
        }
        if let Some(error) = service.failure() {
            return Err(error.clone());
        }
    }
    assert_eq!(service.journal_used(), 0, "everything was checkpointed");
    Ok(())
}
