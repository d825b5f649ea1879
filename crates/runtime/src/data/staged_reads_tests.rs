use super::*;
use crate::state::log::lane::Lane;
use siftfs_base::{LaneId, Lsn};
use std::sync::Arc;

fn piece(offset: u64, len: u64) -> Piece {
    Piece { lane: 0, offset, len, to: 0 }
}

/// Where the reads of pieces at these offsets are: begin, end and pieces of each.
fn reads(pieces: &[Piece]) -> Vec<(u64, u64, usize)> {
    runs(pieces).iter().map(|run| (run.start, run.end, run.pieces.len())).collect()
}

#[test]
fn records_behind_each_other_are_one_read() {
    // A head of 4 KiB before each 4 KiB of data, which does not begin on a block.
    let pieces: Vec<Piece> = (0..16).map(|i| piece(i * 8192 + 100, 4096)).collect();
    assert_eq!(reads(&pieces), [(0, 16 * 8192, 16)]);
}

#[test]
fn what_lies_far_apart_is_read_apart() {
    assert_eq!(
        reads(&[piece(10, 20), piece(40, 20), piece(1 << 20, 1), piece((1 << 20) + 8192, 1)]),
        [(0, 4096, 2), (1 << 20, (1 << 20) + 12_288, 2)]
    );
}

#[test]
fn no_read_and_no_round_is_longer_than_it_may_be() {
    let mut pieces = Vec::new();
    cut(piece(77, 10 << 20), &mut pieces);
    assert_eq!(pieces.iter().map(|p| p.len).sum::<u64>(), 10 << 20);
    assert!(pieces.windows(2).all(|w| w[0].offset + w[0].len == w[1].offset));
    assert!(pieces.windows(2).all(|w| w[0].to + w[0].len == w[1].to));
    let runs = runs(&pieces);
    // A piece that does not begin on a block needs one more.
    assert!(runs.iter().all(|run| run.end - run.start <= READ + BLOCK_BYTES));
    let mut rest = &runs[..];
    while !rest.is_empty() {
        let (round, more) = rest.split_at(round_of(rest));
        assert!(round.iter().map(|run| run.end - run.start).sum::<u64>() <= ROUND);
        rest = more;
    }
}

fn record(lane: &mut Lane, lsn: u64) -> Arc<crate::state::log::lane::RecordRef> {
    let place = lane.place(4096).unwrap();
    Arc::new(lane.fix(place, LaneId(0), Lsn(lsn), 0, 64))
}

#[test]
fn parts_of_a_page_are_cut_to_it() {
    let mut lane = Lane::new(1 << 20, 0);
    let record = record(&mut lane, 1);
    let staged = |offset| Source::Staged { record: record.clone(), offset };
    let mut overlay = Overlay::default();
    overlay.insert(1000, 9000, staged(0));
    overlay.insert(12_000, 12_100, Source::Zero);
    let all = parts(&overlay, 0, 20_000);
    let part = |start, end, source| Part { start, end, source };
    let of = |start| of_page(&all, start).collect::<Vec<Part>>();
    assert_eq!(of(0), [part(1000, 4096, staged(0))]);
    assert_eq!(of(4096), [part(4096, 8192, staged(3096))]);
    assert_eq!(of(8192), [part(8192, 9000, staged(7192)), part(12_000, 12_100, Source::Zero)]);
    assert_eq!(of(12_288), []);
}

#[test]
fn a_part_that_crosses_pages_is_put_into_each() {
    let mut pages = vec![SharedBlock::from([1; BLOCK_SIZE]); 3];
    let other = pages[1].clone();
    let data: Vec<u8> = (0..6000u32).map(|i| (i % 251) as u8).collect();
    put(&mut pages, 4000, 6000, |part, done| part.copy_from_slice(&data[done..done + part.len()]));
    let bytes: Vec<u8> = pages.iter().flat_map(|p| p.iter().copied()).collect();
    assert!(bytes[..4000].iter().all(|b| *b == 1) && bytes[10_000..].iter().all(|b| *b == 1));
    assert_eq!(&bytes[4000..10_000], &data[..]);
    assert_eq!(other, SharedBlock::from([1; BLOCK_SIZE]), "somebody else's page was changed");
}
