//! Reading the staged records that a transaction's copy tags name, in windows of bounded size.

use siftfs_base::{Result, corrupt};
use siftfs_device::{AlignedBuf, Origin, ReadOp, StagingReader};
use siftfs_log::{LogKey, RecordHead, RecordKind, decode_record};
use siftfs_wire::{CheckpointReport, StagedRef};
use std::ops::Range;

/// Bytes of staged records in memory at a time; one record alone is never longer.
const WINDOW: u64 = siftfs_log::MAX_RECORD_LEN;

/// Records by lane and position, cut into windows of at most [`WINDOW`] bytes. `needed` says
/// which entries of `staged` any tag uses.
pub(crate) fn windows(staged: &[StagedRef], needed: &[bool]) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> =
        (0u32..).zip(needed).filter(|(_, used)| **used).map(|(i, _)| i).collect();
    order.sort_by_key(|i| (staged[*i as usize].lane, staged[*i as usize].pos));
    let mut all: Vec<Vec<u32>> = Vec::new();
    let mut bytes = WINDOW;
    for i in order {
        let len = u64::from(staged[i as usize].len);
        if bytes + len > WINDOW {
            all.push(Vec::new());
            bytes = 0;
        }
        bytes += len;
        all.last_mut().expect("a window was opened").push(i);
    }
    all
}

/// One verified record of a window.
pub(crate) struct Loaded {
    /// Index into `Transaction::staged`.
    pub record: u32,
    data: Range<usize>,
}

/// The records of one window in memory.
#[derive(Default)]
pub(crate) struct Window {
    buf: AlignedBuf,
    pub records: Vec<Loaded>,
}

impl Window {
    /// Reads the records `which` of `staged`, neighbours in one read, and verifies each whole
    /// against its reference (rule R11).
    pub fn load(
        &mut self,
        lanes: &[StagingReader],
        key: &LogKey,
        origin: Origin,
        staged: &[StagedRef],
        which: &[u32],
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let total: usize = which.iter().map(|i| staged[*i as usize].len as usize).sum();
        if self.buf.len() < total {
            self.buf = AlignedBuf::zeroed(total);
        }
        self.read(lanes, origin, staged, which, report)?;
        report.windows += 1;
        report.read_bytes += total as u64;
        self.records.clear();
        let mut at = 0;
        for i in which {
            let r = &staged[*i as usize];
            let bytes = &self.buf[at..at + r.len as usize];
            let data = verified_data(r, key, bytes)?;
            self.records.push(Loaded { record: *i, data: at + data.start..at + data.end });
            at += r.len as usize;
        }
        Ok(())
    }

    fn read(
        &mut self,
        lanes: &[StagingReader],
        origin: Origin,
        staged: &[StagedRef],
        which: &[u32],
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let mut rest = &mut self.buf[..];
        let mut i = 0;
        while let Some(first) = which.get(i).map(|r| &staged[*r as usize]) {
            // All runs of neighbouring records in this lane go into one batch of reads.
            let lane = &lanes[usize::from(first.lane.0)];
            let mut ops: Vec<ReadOp<'_>> = Vec::new();
            while let Some(run) = which.get(i).map(|r| &staged[*r as usize]) {
                if run.lane != first.lane {
                    break;
                }
                let mut end = run.pos + u64::from(run.len);
                i += 1;
                while let Some(next) = which.get(i).map(|r| &staged[*r as usize]) {
                    if next.lane != run.lane || next.pos != end || end % lane.len() == 0 {
                        break;
                    }
                    end += u64::from(next.len);
                    i += 1;
                }
                let (buf, after) = rest.split_at_mut((end - run.pos) as usize);
                rest = after;
                ops.push(ReadOp { offset: run.pos % lane.len(), buf });
            }
            report.reads += ops.len() as u64;
            lane.read_batch(origin, &mut ops)?;
        }
        Ok(())
    }

    /// The bytes `[offset, offset + len)` of a loaded record's data section.
    pub fn bytes(&self, loaded: &Loaded, offset: u32, len: u64) -> Result<&[u8]> {
        let start = loaded.data.start + offset as usize;
        let end = start + len as usize;
        if end > loaded.data.end {
            return Err(corrupt("copy tag", "outside the staged record's data"));
        }
        Ok(&self.buf[start..end])
    }
}

/// The record's data section inside `bytes`, after every check.
fn verified_data(r: &StagedRef, key: &LogKey, bytes: &[u8]) -> Result<Range<usize>> {
    let what = || format!("staged record {} in lane {} at position {}", r.lsn.0, r.lane.0, r.pos);
    let (head, _) = match decode_record(bytes, key, r.lane, r.pos, u64::from(r.len))? {
        Ok(record) => record,
        Err(invalid) => return Err(invalid.into_error(what())),
    };
    check_ref(r, &head).map_err(|why| corrupt(what(), why))?;
    let l = head.header.layout;
    Ok(l.data_offset as usize..(l.data_offset + l.data_len) as usize)
}

fn check_ref(r: &StagedRef, head: &RecordHead) -> std::result::Result<(), &'static str> {
    let h = &head.header;
    if h.kind != RecordKind::Transaction {
        return Err("a pad, not a transaction");
    }
    if h.crc != r.crc || h.params.lsn != r.lsn || h.layout.len != r.len {
        return Err("not the record that was journaled");
    }
    Ok(())
}
