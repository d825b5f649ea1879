//! The physical ranges of a transaction.

use siftfs_log::{CopyTag, Item, RecordHead, StagedRef};

/// What a transaction's digest comes to: records and, for each of their physical ranges, the copy
/// tag that the transaction does not have.
#[derive(Debug, Default)]
pub(crate) struct Digested {
    /// Records with physical ranges, in the order of their lane.
    pub staged: Vec<StagedRef>,
    /// Their ranges, in the order in which they were staged. `source` is an index into `staged`.
    pub copies: Vec<CopyTag>,
}

/// What a transaction without a digest has.
pub(crate) static NOTHING: Digested = Digested { staged: Vec::new(), copies: Vec::new() };

impl Digested {
    /// Takes a record's physical ranges.
    pub fn add(&mut self, head: &RecordHead) {
        let source = u32::try_from(self.staged.len()).expect("bounded by the lane");
        let before = self.copies.len();
        for item in &head.items {
            if let Item::Data { len, data_offset, home: Some(dst), .. } = *item {
                self.copies.push(CopyTag { source, data_offset, dst, len });
            }
        }
        if self.copies.len() > before {
            let header = &head.header;
            self.staged.push(StagedRef {
                lane: header.lane,
                pos: header.params.pos,
                len: header.layout.len,
                lsn: header.params.lsn,
                crc: header.crc,
            });
        }
    }
}
