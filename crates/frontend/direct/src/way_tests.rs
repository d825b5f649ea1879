use super::*;

const B: u64 = BLOCK_BYTES;

#[test]
fn a_range_is_cut_where_a_grant_begins_or_ends() {
    let run = |first, block, count| DirectRun { first, block, count, fresh: false };
    let runs = [run(2, 100, 2), run(4, 50, 1), run(9, 70, 1)];
    let piece = |file, area| Piece { file, area };
    let of = |range| pieces(&runs, range);
    assert_eq!(of(0..0), []);
    assert_eq!(of(0..B), [piece(0..B, None)]);
    assert_eq!(of(2 * B..3 * B), [piece(2 * B..3 * B, Some(100 * B))]);
    assert_eq!(of(3 * B + 5..3 * B + 9), [piece(3 * B + 5..3 * B + 9, Some(101 * B + 5))]);
    assert_eq!(
        of(B..20 * B),
        [
            piece(B..2 * B, None),
            piece(2 * B..4 * B, Some(100 * B)),
            piece(4 * B..5 * B, Some(50 * B)),
            piece(5 * B..9 * B, None),
            piece(9 * B..10 * B, Some(70 * B)),
            piece(10 * B..20 * B, None),
        ]
    );
    assert_eq!(of(10 * B..10 * B + 1), [piece(10 * B..10 * B + 1, None)]);
    // A host that says nonsense is refused at the target; here nothing overflows.
    assert_eq!(pieces(&[run(u64::MAX, u64::MAX, u64::MAX)], 0..9), [piece(0..9, None)]);
}
