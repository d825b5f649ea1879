//! The format of every message: the numbers of the variants and the order of the fields. Both
//! are part of the protocol's version; numbers are never used again for something else.

use super::field::{Field, Reader, Writer, bad, fields, variants};
use super::{Encoded, Message};
use crate::{
    CheckpointReport, DeviceStatistics, DirectRun, FromService, IoCounts, OriginCounts,
    RegionCounts, ServiceStatistics, ToService, Urgency,
};
use siftfs_base::{Result, SharedBlock};
use siftfs_log::{CopyTag, Digest, StagedRef, Transaction, ZeroTag};

variants!(ToService {
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
});

variants!(FromService {
    1 => Welcome { version, journaled, checkpointed },
    2 => Journaled { seq, bytes, image_pos },
    3 => Reclaimed { seq, journal_tail, lane_tails },
    4 => CheckpointDone { id, urgency, report },
    6 => Failed { error },
    7 => Refused { reason },
    8 => Bye {},
    9 => Discarded { id, blocks, failed, unsupported },
} tuple {
    5 => Statistics(statistics),
});

variants!(Urgency { 1 => Background {}, 2 => Emergency {} });

fields!(Transaction {
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

fields!(Digest { lane, from, prev_crc, crc, ranges });

fields!(StagedRef { lane, pos, len, lsn, crc });

fields!(DirectRun { run, data });

fields!(CheckpointReport {
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

fields!(ServiceStatistics {
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

fields!(DeviceStatistics { pid, cpu_us, messages, refusals, hosts, hints, io });

fields!(RegionCounts { area, staging, journal, header });

fields!(OriginCounts { foreground, background, admin });

fields!(IoCounts {
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
fn check_range(dst: u64, len: u32) -> Result<()> {
    match dst.checked_add(u64::from(len)) {
        Some(_) => Ok(()),
        None => Err(bad(format!("a tag of {len} bytes at byte {dst}"))),
    }
}

fn put_range(dst: u64, len: u32, out: &mut Writer) {
    check_range(dst, len).expect("a tag is what its reader demands");
    dst.put(out);
    len.put(out);
}

fn range(from: &mut Reader<'_>) -> Result<(u64, u32)> {
    let (dst, len) = (u64::get(from)?, u32::get(from)?);
    check_range(dst, len)?;
    Ok((dst, len))
}

impl Field for ZeroTag {
    fn put(&self, out: &mut Writer) {
        put_range(self.dst, self.len, out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        range(from).map(|(dst, len)| ZeroTag { dst, len })
    }
}

impl Field for CopyTag {
    fn put(&self, out: &mut Writer) {
        put_range(self.dst, self.len, out);
        self.source.put(out);
        self.data_offset.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        let (dst, len) = range(from)?;
        Ok(CopyTag { source: u32::get(from)?, data_offset: u32::get(from)?, dst, len })
    }
}

impl Message for ToService {
    fn encode(&self) -> Encoded {
        super::encode(self)
    }
    fn decode(head: &[u8], blocks: Vec<SharedBlock>) -> Result<Self> {
        super::decode(head, blocks)
    }
}

impl Message for FromService {
    fn encode(&self) -> Encoded {
        super::encode(self)
    }
    fn decode(head: &[u8], blocks: Vec<SharedBlock>) -> Result<Self> {
        super::decode(head, blocks)
    }
}
