use super::*;
use proptest::prelude::*;
use siftfs_wire::{CopyTag, ZeroTag};

proptest! {
    /// Resolved pieces give every byte the source that applying the tags in order gives it.
    #[test]
    fn late_tags_win(
        zeros in prop::collection::vec((0u64..300, 1u32..100), 0..6),
        copies in prop::collection::vec((0u64..300, 1u32..100, 0u32..4, 0u32..50), 0..10),
    ) {
        let mut naive: Vec<Option<(Source, u32)>> = vec![None; 400];
        let mut txn = Transaction::default();
        for (i, (dst, len)) in zeros.iter().enumerate() {
            txn.zeros.push(ZeroTag { dst: *dst, len: *len });
            naive[*dst as usize..(*dst + u64::from(*len)) as usize]
                .fill(Some((Source::Zero, i as u32)));
        }
        for (i, (dst, len, source, data_offset)) in copies.iter().enumerate() {
            let (source, data_offset) = (*source, *data_offset);
            txn.copies.push(CopyTag { source, data_offset, dst: *dst, len: *len });
            for k in 0..*len {
                let staged = Source::Staged { record: source, offset: data_offset + k };
                naive[*dst as usize + k as usize] = Some((staged, (zeros.len() + i) as u32));
            }
        }
        let mut got = vec![None; 400];
        let mut last = 0;
        for p in resolve(&txn) {
            prop_assert!(p.start >= last && p.len > 0);
            last = p.end();
            for k in 0..p.len {
                let source = match p.source {
                    Source::Zero => Source::Zero,
                    Source::Staged { record, offset } => {
                        Source::Staged { record, offset: offset + k as u32 }
                    }
                };
                got[(p.start + k) as usize] = Some((source, p.tag));
            }
        }
        prop_assert_eq!(got, naive);
    }
}
