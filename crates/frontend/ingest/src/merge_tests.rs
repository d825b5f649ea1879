use super::*;

const LONG: u64 = LENT_WRITE_BYTES;

struct Nothing;

impl Index for Nothing {
    fn cold(&self, _: Held, _: (u64, u32), _: u64) -> siftfs_base::Result<u64> {
        Ok(0)
    }
}

/// What records of one file come to, each an offset and a length, with their data one behind the
/// other: offsets, and parts by their places in the ring and lengths.
fn merged(records: &[(u64, u64)]) -> Vec<(u64, Vec<(u64, u64)>)> {
    let (mut newest, counters) = (Newest::default(), Counters::default());
    let mut merger =
        Merger { newest: &mut newest, index: &Nothing, counters: &counters, merges: true };
    let held = Held { slot: 0, number: 1 };
    let mut data = 0;
    let of = |(offset, len): &(u64, u64)| {
        let record = Record { held, offset: *offset, len: *len as u32, data, time: 0 };
        data += *len;
        record
    };
    let records: Vec<Record> = records.iter().map(of).collect();
    let most = records.len();
    let located = Located { records, until: 0, cold: HashSet::default() };
    let updates = merger.step(located).updates;
    assert_eq!(updates.len(), 1);
    let pieces = &updates[0].pieces;
    assert!(pieces.len() <= most, "no more writes than there is space for");
    let parts = |piece: &Piece| {
        let len: u64 = piece.parts.iter().map(|part| u64::from(part.len)).sum();
        assert!(len == piece.len && len <= LONG);
        piece.parts.iter().map(|part| (part.place.0, part.len.into())).collect()
    };
    pieces.iter().map(|piece| (piece.offset, parts(piece))).collect()
}

#[test]
fn a_later_record_supersedes_what_it_covers() {
    assert_eq!(merged(&[(0, 10), (3, 4)]), [(0, vec![(0, 3), (10, 4), (7, 3)])]);
    assert_eq!(merged(&[(3, 4), (0, 10)]), [(0, vec![(4, 10)])]);
    assert_eq!(merged(&[(0, 10), (20, 5), (10, 10)]), [(0, vec![(0, 10), (15, 10), (10, 5)])]);
    assert_eq!(merged(&[(20, 5), (0, 10)]), [(0, vec![(5, 10)]), (20, vec![(0, 5)])]);
}

/// What is longer than a write may be is cut where a block begins, in no more pieces than there are
/// records.
#[test]
fn long_pieces_are_cut_at_blocks() {
    let half = LONG / 2 + 100;
    let cut = merged(&[(50, half), (50 + half, half)]);
    let head = LONG - 50 - half;
    assert_eq!(
        cut,
        [(50, vec![(0, half), (half, head)]), (LONG, vec![(half + head, half - head)])]
    );
    let whole = merged(&[(100, LONG), (100 + LONG, LONG)]);
    assert_eq!(whole, [(100, vec![(0, LONG)]), (100 + LONG, vec![(LONG, LONG)])]);
}
