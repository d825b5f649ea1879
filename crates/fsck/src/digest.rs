//! The physical ranges that a transaction contains (rule R42): the records that its digest means
//! are there, all of them and no others, and the digest leaves no range out.

use crate::ring::Ring;
use crate::{Check, Volume};
use siftfs_base::LaneId;
use siftfs_log::{
    Digest, Item, JournalData, LaneEntry, LaneMedium, LogKey, RecordHead, Transaction,
    decode_record,
};

/// The physical ranges of a record: first byte in the file-system area, and length in bytes.
pub(crate) fn physical(head: &RecordHead) -> impl Iterator<Item = (u64, u32)> {
    head.items.iter().filter_map(|item| match *item {
        Item::Data { len, home: Some(dst), .. } => Some((dst, len)),
        _ => None,
    })
}

/// Do the physical ranges of a record lie in a file-system area of `area` bytes?
pub(crate) fn all_within(head: &RecordHead, area: u64) -> bool {
    let end = |(dst, len): (u64, u32)| dst.checked_add(len.into());
    physical(head).map(end).all(|end| end.is_some_and(|end| end <= area))
}

/// Checks what a transaction, whose lane positions can be, says of physical ranges; `before` is the
/// transaction before it, or what the service record says.
pub(crate) fn check(c: &mut Check<'_>, v: &Volume, txn: &Transaction, before: &Transaction) {
    let name = format!("transaction {}", txn.seq.0);
    if let Some(digest) = &txn.digest
        && let Err(why) = check_digest(c, v, txn, digest, before)
    {
        c.error("journal.digest", format!("{name}: digest of lane {}: {why}", digest.lane.0));
    }
    // Recovery applies the records that it finds by what they say of files, and journals that under
    // a key of its own: its transactions contain physical ranges and digest none.
    if v.host.journal_key == v.host.lane_key {
        check_left_out(c, v, txn, before, &name);
    }
}

/// A lane whose records can be digested.
fn record_area(v: &Volume, id: LaneId) -> Option<&LaneEntry> {
    let lane = v.header.lanes.get(usize::from(id.0))?;
    Some(lane).filter(|lane| lane.medium == LaneMedium::Bytes)
}

/// A position in a lane, of a list of those of all lanes.
fn position(of_lanes: &[u64], id: LaneId) -> u64 {
    of_lanes.get(usize::from(id.0)).copied().unwrap_or_default()
}

/// The digest means the records from where the transaction before ended up to where this one does,
/// and they are whole. Returns what is wrong, if anything is.
fn check_digest(
    c: &mut Check<'_>,
    v: &Volume,
    txn: &Transaction,
    digest: &Digest,
    before: &Transaction,
) -> Result<(), String> {
    let lane = record_area(v, digest.lane).ok_or("that is not the record area's")?;
    if v.header.journal_data() != JournalData::Ref {
        return Err("the journal of this volume repeats staged data, so nothing is digested".into());
    }
    let (ended, from) = (position(&before.lane_upto, digest.lane), digest.from);
    if ended != from {
        return Err(format!("it begins at {from}, the transaction before ended at {ended}"));
    }
    let upto = position(&txn.lane_upto, digest.lane);
    let mut chain = Chain::new(v, lane, from, Some(digest.prev_crc));
    let mut ranges = 0;
    while chain.end < upto {
        let head = chain.next(c)?;
        let lsn = head.header.params.lsn;
        if chain.end > upto {
            return Err(format!("record {} reaches beyond {upto}, where it ends", lsn.0));
        }
        if lsn > txn.staged_cut {
            return Err(format!("record {} is newer than cut {}", lsn.0, txn.staged_cut.0));
        }
        if !all_within(&head, v.header.area_len) {
            return Err(format!("record {} names bytes outside the file system", lsn.0));
        }
        ranges += physical(&head).count();
    }
    if chain.crc != Some(digest.crc) {
        return Err(format!("the last record, which ends at {upto}, is another one"));
    }
    if ranges as u64 != u64::from(digest.ranges) {
        return Err(format!("its records have {ranges} ranges, not {}", digest.ranges));
    }
    Ok(())
}

/// No record that a transaction contains has physical ranges that its digest leaves out: their
/// bytes would never reach the file system. Of lanes on block storage `lane.home` says it.
fn check_left_out(
    c: &mut Check<'_>,
    v: &Volume,
    txn: &Transaction,
    before: &Transaction,
    name: &str,
) {
    let digested = txn.digest.as_ref().map(|digest| digest.lane);
    for lane in v.header.lanes.iter().filter(|lane| Some(lane.id) != digested) {
        if lane.medium != LaneMedium::Bytes {
            continue;
        }
        let upto = position(&txn.lane_upto, lane.id);
        let mut chain = Chain::new(v, lane, position(&before.lane_upto, lane.id), None);
        while chain.end < upto {
            // What is not whole is a finding of its lane, if it is one.
            let Ok(head) = chain.next(c) else { break };
            let params = head.header.params;
            if params.pos < upto && physical(&head).next().is_some() {
                let text = format!(
                    "{name}: record {} at {} of lane {} names the place of its data, and no digest \
                     says that it is to be written there",
                    params.lsn.0, params.pos, lane.id.0
                );
                c.error("journal.digest", text);
                break;
            }
        }
    }
}

/// The records of a lane from a position on, as each names the one before it.
struct Chain {
    id: LaneId,
    ring: Ring,
    key: LogKey,
    what: String,
    /// Where the record before ended.
    end: u64,
    /// Checksum of the record before, if it is known.
    crc: Option<u32>,
}

impl Chain {
    /// Begins at `from`, behind a record whose checksum is `crc`.
    fn new(v: &Volume, lane: &LaneEntry, from: u64, crc: Option<u32>) -> Self {
        Self {
            id: lane.id,
            ring: Ring::of(lane, position(&v.service.lane_tails, lane.id)),
            key: v.host.lane_key.lane(lane.id),
            what: format!("lane {}", lane.id.0),
            end: from,
            crc,
        }
    }

    /// The next record; or why there is none.
    fn next(&mut self, c: &mut Check<'_>) -> Result<RecordHead, String> {
        let mut another = false;
        for pos in self.ring.candidates(self.end) {
            let Some(head) = self.whole_at(c, pos) else { continue };
            let (params, crc) = (head.header.params, head.header.crc);
            let follows = params.prev_end == self.end;
            if follows && self.crc.is_none_or(|crc| crc == params.prev_crc) {
                (self.end, self.crc) = (head.header.end(), Some(crc));
                return Ok(head);
            }
            another |= follows || pos == self.end;
        }
        let what = if another {
            "the record does not follow the one before"
        } else {
            "no record is whole"
        };
        Err(format!("at {} {what}", self.end))
    }

    /// A record whose head and data hold.
    fn whole_at(&self, c: &mut Check<'_>, pos: u64) -> Option<RecordHead> {
        let header = self.ring.header(c, pos, self.id, &self.key, &self.what)?;
        let bytes = self.ring.read(c, pos, u64::from(header.layout.len), &self.what)?;
        let record = decode_record(&bytes, &self.key, self.id, pos, self.ring.max_record());
        record.ok().map(|(head, _)| head)
    }
}
