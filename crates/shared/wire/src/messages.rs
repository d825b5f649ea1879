//! The format of every message: the numbers of the variants and the order of the fields. Both
//! are part of the protocol's version; numbers are never used again for something else.

use crate::{
    Access, AtomicRun, BlockProtocol, Carried, CheckpointReport, DeviceStatistics, DirectRun,
    FileRun, FromService, GrantRun, IoCounts, OriginCounts, Place, ProgramStatistics, RegionCounts,
    ServiceStatistics, StorageAnswer, StorageCall, StorageDevice, ToService, Urgency,
    WorkerStatistics,
};
use siftfs_base::Result;
use siftfs_codec::{Field, Reader, Writer, fields, messages, variants};
use siftfs_device::{DeviceInfo, Discards, Medium, Role};
use siftfs_log::{CopyTag, Digest, StagedRef, Transaction, ZeroTag};
use siftfs_status::{ClusterInfo, Persists};

variants!(BlockProtocol: ToService {
    1 => Hello { version, volume, epoch },
    2 => Direct { seq, runs, waited },
    3 => Submit { txn, waited },
    4 => Checkpoint { id, upto, urgency },
    5 => Statistics {},
    6 => Goodbye {},
    7 => Objection { reason },
    8 => Inquire { version, volume },
    9 => ExpectUrgent { ms },
    10 => Discard { id, runs },
    11 => Storage { id, call },
    12 => Queued { id, place, call },
});

variants!(BlockProtocol: FromService {
    1 => Welcome { version, journaled, checkpointed },
    2 => Journaled { seq, bytes, image_pos },
    3 => Reclaimed { seq, journal_tail, lane_tails },
    4 => CheckpointDone { id, urgency, report },
    6 => Failed { error },
    7 => Refused { reason },
    8 => Bye {},
    9 => Discarded { id, blocks, failed, unsupported },
    10 => Storage { id, answer },
} tuple {
    5 => Statistics(statistics),
});

variants!(BlockProtocol: Urgency { 1 => Background {}, 2 => Emergency {} });

variants!(BlockProtocol: StorageCall {
    1 => Open { version, volume, access },
    2 => Claim { device, role, patience },
    3 => Unclaim { device, role },
    4 => Read { device, offset, len },
    5 => Write { device, offset, len, durable, blocks },
    6 => Flush { device },
    7 => Discard { device, offset, len },
    8 => Describe { device },
    9 => Grant { lease, file, write, runs },
    10 => Settle { lease, token },
    11 => Revoke { lease, token },
    12 => Attach { version, token, queue, life },
    13 => Extend { lease, token, runs },
    14 => AtomicWrite { transaction, commit, runs, blocks },
    15 => AtomicAbort { transaction },
});

fields!(BlockProtocol: AtomicRun { offset, len });

variants!(BlockProtocol: StorageAnswer {
    1 => Opened { log, record_area, devices },
    2 => Done {},
    3 => Data { blocks },
    4 => Described { info },
    5 => Failed { error },
    6 => Granted { token, programs },
    7 => Settled { written, lost, fresh, end, more },
    8 => Attached { carried },
    9 => Ended { carried },
});

fields!(BlockProtocol: GrantRun { block, len, first, fresh });

fields!(BlockProtocol: FileRun { first, len });

variants!(BlockProtocol: Access { 1 => Alone {}, 2 => ReadOnly {}, 3 => Shared {} });

variants!(BlockProtocol: Role { 1 => Host {}, 2 => Service {} });

variants!(BlockProtocol: Medium { 1 => Block {}, 2 => Bytes {} });

fields!(BlockProtocol: Carried { life, low, before, from });

fields!(BlockProtocol: Place { queue, number, first });

fields!(BlockProtocol: StorageDevice { size, medium, discards });

fields!(BlockProtocol: Discards { unit, usual });

fields!(BlockProtocol: DeviceInfo {
    path,
    kind,
    volatile_cache,
    fua,
    direct,
    uring,
    persistent,
    durable_write,
    why,
    persists,
    cluster,
});

fields!(BlockProtocol: ClusterInfo { fsid, pool, object_bytes, health, waiting, longest_ms });

fields!(BlockProtocol: Persists { persists, fences, bytes, inherited });

fields!(BlockProtocol: Transaction {
    seq,
    ops_cut,
    staged_cut,
    lane_upto,
    digest,
    staged,
    zeros,
    copies,
    images,
    image_data,
    direct,
    drops,
});

fields!(BlockProtocol: Digest { lane, from, prev_crc, crc, ranges });

fields!(BlockProtocol: StagedRef { lane, pos, len, lsn, crc });

fields!(BlockProtocol: DirectRun { run, data });

fields!(BlockProtocol: CheckpointReport {
    trigger,
    batch,
    coalesced_batches,
    light_batches,
    staged,
    raw_tags,
    surviving_tags,
    raw_blocks,
    surviving_blocks,
    raw_images,
    surviving_images,
    raw_inodes,
    surviving_inodes,
    reads,
    read_bytes,
    writes,
    write_bytes,
    flushes,
    windows,
    journal_credits,
    staging_credits,
    index_nanos,
    read_nanos,
    write_nanos,
    flush_nanos,
    nanos,
});

fields!(BlockProtocol: ServiceStatistics {
    journaled_transactions,
    journaled_bytes,
    journaled_tags,
    digested_ranges,
    journaled_images,
    direct_bytes,
    drops,
    checkpoints_background,
    checkpoints_emergency,
    checkpoint_total,
    checkpoint_last,
    checkpoint_last_s,
    device,
});

fields!(BlockProtocol: DeviceStatistics {
    pid,
    cpu_us,
    messages,
    refusals,
    hosts,
    hints,
    programs,
    workers,
    io,
});

fields!(BlockProtocol: ProgramStatistics { queues, requests, groups, waited, further_lives });

fields!(BlockProtocol: WorkerStatistics {
    workers,
    connections,
    begun,
    helped,
    waited,
    most_helpers,
    broken,
});

fields!(BlockProtocol: RegionCounts { area, staging, journal, header });

fields!(BlockProtocol: OriginCounts { foreground, background, admin });

fields!(BlockProtocol: IoCounts {
    reads,
    read_bytes,
    writes,
    write_bytes,
    flushes,
    discards,
    discard_bytes,
    errors
});

/// A range of bytes of the area that is sent or has arrived ends within 64 bits.
fn ends_within(dst: u64, len: u32) -> bool {
    dst.checked_add(u64::from(len)).is_some()
}

fn put_range(dst: u64, len: u32, out: &mut Writer<BlockProtocol>) {
    assert!(ends_within(dst, len), "a tag is what its reader demands");
    dst.put(out);
    len.put(out);
}

fn range(from: &mut Reader<'_, BlockProtocol>) -> Result<(u64, u32)> {
    let (dst, len) = (u64::get(from)?, u32::get(from)?);
    if ends_within(dst, len) {
        return Ok((dst, len));
    }
    Err(from.bad(format!("a tag of {len} bytes at byte {dst}")))
}

impl Field<BlockProtocol> for ZeroTag {
    fn put(&self, out: &mut Writer<BlockProtocol>) {
        put_range(self.dst, self.len, out);
    }
    fn get(from: &mut Reader<'_, BlockProtocol>) -> Result<Self> {
        range(from).map(|(dst, len)| ZeroTag { dst, len })
    }
}

impl Field<BlockProtocol> for CopyTag {
    fn put(&self, out: &mut Writer<BlockProtocol>) {
        put_range(self.dst, self.len, out);
        self.source.put(out);
        self.data_offset.put(out);
    }
    fn get(from: &mut Reader<'_, BlockProtocol>) -> Result<Self> {
        let (dst, len) = range(from)?;
        Ok(CopyTag { source: u32::get(from)?, data_offset: u32::get(from)?, dst, len })
    }
}

messages!(BlockProtocol: ToService, FromService);

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
