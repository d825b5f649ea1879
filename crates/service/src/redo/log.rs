//! The records of a batch of transactions, and where in the ring they go.

use crate::redo::running::Writes;
use siftfs_device::AlignedBuf;
use siftfs_log::{
    LogKey, REDO_MAX_DATA, REDO_MAX_RUNS, RedoPlace, encode_redo, place_record, redo_record_len,
};
use siftfs_volume::RedoEnd;
use std::ops::Range;

/// Ranges of one record: of its transaction's data, and their places in the area.
type Part = Vec<(u64, Range<usize>)>;

/// A transaction, cut into what its records hold.
pub(super) struct Cut {
    records: Vec<(Part, u64)>,
}

impl Cut {
    /// Records of at most [`REDO_MAX_DATA`] bytes and [`REDO_MAX_RUNS`] ranges.
    pub fn of(writes: &Writes) -> Self {
        let most = REDO_MAX_DATA as usize;
        let (mut records, mut part, mut bytes) = (Vec::new(), Part::new(), 0);
        let mut close = |part: &mut Part, bytes: &mut usize| {
            if !part.is_empty() {
                let len = redo_record_len(part.len(), *bytes as u64);
                records.push((std::mem::take(part), len));
                *bytes = 0;
            }
        };
        let mut from = 0;
        for (offset, len) in &writes.runs {
            let mut done = 0;
            while done < *len {
                if bytes == most || part.len() == REDO_MAX_RUNS {
                    close(&mut part, &mut bytes);
                }
                let take = (len - done).min(most - bytes);
                part.push((offset + done as u64, from + done..from + done + take));
                (bytes, done) = (bytes + take, done + take);
            }
            from += len;
        }
        close(&mut part, &mut bytes);
        Self { records }
    }

    /// Bytes of all records.
    pub fn len(&self) -> u64 {
        self.records.iter().map(|(_, len)| len).sum()
    }
}

/// Where the records of these transactions go, one behind the other; and where the last one ends.
/// A record does not wrap.
fn places(cuts: &[&Cut], end: u64, ring: u64) -> (Vec<u64>, u64) {
    let mut at = end;
    let lens = cuts.iter().flat_map(|cut| cut.records.iter().map(|(_, len)| *len));
    let begins = lens.map(|len| {
        let begin = place_record(at, len, ring).expect("a record is shorter than the ring");
        at = begin + len;
        begin
    });
    let begins = begins.collect();
    (begins, at)
}

/// Where these transactions would end.
pub(super) fn end_of(cuts: &[&Cut], end: u64, ring: u64) -> u64 {
    places(cuts, end, ring).1
}

/// A batch as it is written.
pub(super) struct Batch {
    /// Pieces without a gap, by their positions: one, or two where the ring's end lies between.
    pub extents: Vec<(u64, AlignedBuf)>,
    /// Where each of the transactions ends.
    pub ends: Vec<RedoEnd>,
}

/// Encodes transactions behind `end`, up to which everything is durable.
pub(super) fn encode(batch: &[(&Cut, &[u8])], end: RedoEnd, key: &LogKey, ring: u64) -> Batch {
    let cuts: Vec<&Cut> = batch.iter().map(|(cut, _)| *cut).collect();
    let (begins, _) = places(&cuts, end.pos, ring);
    let lens = cuts.iter().flat_map(|cut| cut.records.iter().map(|(_, len)| *len));
    let mut extents: Vec<(u64, u64)> = Vec::new();
    for (begin, len) in begins.iter().zip(lens) {
        match extents.last_mut() {
            Some((at, all)) if *at + *all == *begin && !begin.is_multiple_of(ring) => *all += len,
            _ => extents.push((*begin, len)),
        }
    }
    let make = |(at, len): (u64, u64)| (at, AlignedBuf::zeroed(len as usize));
    let mut extents: Vec<(u64, AlignedBuf)> = extents.into_iter().map(make).collect();
    let (mut at, mut ends, mut begins) = (end, Vec::new(), begins.into_iter());
    for (cut, data) in batch {
        let last = cut.records.len() - 1;
        for (index, (part, len)) in cut.records.iter().enumerate() {
            let pos = begins.next().expect("each record has a place");
            let holds = |(start, buf): &&mut (u64, AlignedBuf)| pos - *start < buf.len() as u64;
            let home = extents.iter_mut().filter(|(start, _)| *start <= pos).find(holds);
            let (start, buf) = home.expect("each place is in an extent");
            let from = (pos - *start) as usize;
            let writes: Vec<_> =
                part.iter().map(|(offset, at)| (*offset, &data[at.clone()])).collect();
            let place = RedoPlace {
                pos,
                prev_end: at.pos,
                prev_crc: at.prev_crc,
                number: at.number,
                index: index as u32,
                commit: index == last,
                durable: end.pos,
            };
            let crc = encode_redo(key, &place, &writes, &mut buf[from..from + *len as usize]);
            at = RedoEnd { pos: pos + len, prev_crc: crc, ..at };
        }
        (at.number, at.transactions) = (at.number + 1, at.transactions + 1);
        ends.push(at);
    }
    Batch { extents, ends }
}
