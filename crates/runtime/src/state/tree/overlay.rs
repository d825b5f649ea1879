//! An inode's overlay: where the newest *staged or journaled* bytes lie while the area does not
//! hold them yet (rule R11). Byte ranges of the file map to bytes of a staged record, or to zeroes.

use crate::state::costs;
use crate::state::log::lane::RecordRef;
use siftfs_base::TxnSeq;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Byte `offset` of the record's data section onwards.
    Staged {
        /// The record.
        record: Arc<RecordRef>,
        /// Offset in its data section of the entry's first byte.
        offset: u32,
    },
    /// Zeroes.
    Zero,
}

impl Source {
    /// The source of what lies `by` bytes behind this one's first byte.
    pub fn advanced(&self, by: u64) -> Source {
        match self {
            Source::Zero => Source::Zero,
            Source::Staged { record, offset } => Source::Staged {
                record: record.clone(),
                offset: offset + u32::try_from(by).expect("entry lengths fit a record"),
            },
        }
    }
}

/// Bytes `[start, end)` of a file, and where the newest of them are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte in the file.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Where the first of them is; the others follow it.
    pub source: Source,
}

/// One range's newest durable source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// One past the range's last byte.
    pub end: u64,
    /// Where the range's bytes are.
    pub source: Source,
    /// The transaction that contains the range; `None` until one has a tag for it. The one under
    /// way, for a physical range: it needs none (rule R42).
    pub txn: Option<TxnSeq>,
}

/// Disjoint file ranges, in order.
#[derive(Debug, Default)]
pub struct Overlay {
    map: BTreeMap<u64, Entry>,
    unjournaled: usize,
}

impl Overlay {
    /// Has the overlay no ranges?
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Memory in bytes, about; the records that it names are counted once per entry.
    pub fn bytes(&self) -> u64 {
        let entry = size_of::<(u64, Entry)>() + size_of::<RecordRef>() + costs::RANGE as usize;
        (self.map.len() * entry) as u64
    }

    /// Number of entries no transaction has journaled yet.
    #[cfg(test)]
    pub fn unjournaled(&self) -> usize {
        self.unjournaled
    }

    fn put(&mut self, start: u64, entry: Entry) {
        debug_assert!(start < entry.end);
        self.unjournaled += usize::from(entry.txn.is_none());
        self.map.insert(start, entry);
    }

    fn take(&mut self, start: u64) -> Option<Entry> {
        let entry = self.map.remove(&start)?;
        self.unjournaled -= usize::from(entry.txn.is_none());
        Some(entry)
    }

    /// Forgets `[start, end)`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end || self.map.is_empty() {
            return;
        }
        if let Some((&s, e)) = self.map.range(..start).next_back()
            && e.end > start
        {
            let old = self.take(s).expect("just seen");
            self.put(s, Entry { end: start, ..old.clone() });
            if old.end > end {
                let source = old.source.advanced(end - s);
                self.put(end, Entry { source, ..old });
            }
        }
        while let Some((&s, _)) = self.map.range(start..end).next() {
            let old = self.take(s).expect("just seen");
            if old.end > end {
                let source = old.source.advanced(end - s);
                self.put(end, Entry { source, ..old });
            }
        }
    }

    /// The newest source of `[start, end)` is `source`, not journaled yet.
    pub fn insert(&mut self, start: u64, end: u64, source: Source) {
        self.insert_in(start, end, source, None);
    }

    /// As [`Overlay::insert`], of a physical range, which the transaction `txn`, the next to be
    /// cut, will contain without a tag.
    pub fn insert_physical(&mut self, start: u64, end: u64, source: Source, txn: TxnSeq) {
        self.insert_in(start, end, source, Some(txn));
    }

    fn insert_in(&mut self, start: u64, end: u64, source: Source, txn: Option<TxnSeq>) {
        if start < end {
            // A hot page brings the same range over and over.
            if let Some(same) = self.map.get_mut(&start).filter(|e| e.end == end) {
                self.unjournaled -= usize::from(same.txn.is_none());
                self.unjournaled += usize::from(txn.is_none());
                *same = Entry { end, source, txn };
                return;
            }
            self.remove(start, end);
            self.put(start, Entry { end, source, txn });
        }
    }

    /// Ranges that touch `[start, end)` and that were physical ones of the transaction `txn`, which
    /// is not cut yet, need tags from here on. Returns them.
    pub fn needs_tags(&mut self, start: u64, end: u64, txn: TxnSeq) -> Vec<(u64, u64)> {
        let touching: Vec<u64> = self
            .map
            .range(..end)
            .rev()
            .take_while(|(_, e)| e.end > start)
            .filter(|(_, e)| e.txn == Some(txn))
            .map(|(s, _)| *s)
            .collect();
        let mut ranges = Vec::with_capacity(touching.len());
        for start in touching {
            let entry = self.map.get_mut(&start).expect("just seen");
            entry.txn = None;
            self.unjournaled += 1;
            ranges.push((start, entry.end));
        }
        ranges
    }

    /// The parts inside `[start, end)`, clipped to it.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = Part> + '_ {
        let first = self
            .map
            .range(..start)
            .next_back()
            .filter(|(_, e)| e.end > start)
            .map_or(start, |(s, _)| *s);
        self.map.range(first..end.max(first)).filter_map(move |(&s, e)| {
            let (from, to) = (s.max(start), e.end.min(end));
            let source = || e.source.advanced(from - s);
            (from < to).then(|| Part { start: from, end: to, source: source() })
        })
    }

    /// Does anything lie in `[start, end)`?
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).next().is_some()
    }

    /// The ranges that no transaction has journaled.
    pub fn unjournaled_ranges(&self) -> Vec<Part> {
        self.map
            .iter()
            .filter(|(_, e)| e.txn.is_none())
            .map(|(s, e)| Part { start: *s, end: e.end, source: e.source.clone() })
            .collect()
    }

    /// The ranges that no transaction has journaled and that end behind byte `from`, ascending.
    pub fn unjournaled_from(&self, from: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.map.range(..from).next_back().filter(|(_, e)| e.end > from);
        let all = before.into_iter().chain(self.map.range(from..));
        all.filter(|(_, e)| e.txn.is_none()).map(|(start, e)| (*start, e.end))
    }

    /// Every unjournaled entry is now journaled by `seq`.
    pub fn mark_journaled(&mut self, seq: TxnSeq) {
        for entry in self.map.values_mut().filter(|e| e.txn.is_none()) {
            entry.txn = Some(seq);
        }
        self.unjournaled = 0;
    }

    /// The area holds what transactions up to `seq` journaled: forget those entries.
    pub fn reclaimed(&mut self, seq: TxnSeq) {
        self.map.retain(|_, e| e.txn.is_none_or(|t| t > seq));
    }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
