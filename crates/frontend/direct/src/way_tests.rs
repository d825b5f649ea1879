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

/// What is added is found in the order of the file, whatever order it comes in, and is one run with
/// what it goes on from.
#[test]
fn what_is_added_has_its_place() {
    let run = |first, block, count, fresh| DirectRun { first, block, count, fresh };
    let mut runs = vec![run(2, 100, 2, false), run(8, 50, 1, true)];
    add(&mut runs, vec![run(9, 51, 3, true), run(4, 102, 1, false), run(12, 54, 1, false)]);
    let whole = [run(2, 100, 3, false), run(8, 50, 4, true), run(12, 54, 1, false)];
    assert_eq!(runs, whole, "a run has fresh blocks alone, or none");
    add(&mut runs, vec![run(5, 104, 1, false), run(0, 98, 1, false)]);
    let starts: Vec<_> = runs.iter().map(|run| (run.first, run.count)).collect();
    assert_eq!(starts, [(0, 1), (2, 3), (5, 1), (8, 4), (12, 1)]);
    let nonsense = run(u64::MAX, u64::MAX, u64::MAX, false);
    add(&mut runs, vec![nonsense, run(u64::MAX, u64::MAX, 1, false)]);
    let kept = |offset| Kept { offset, data: vec![1] };
    let kept = vec![kept(104 * B + 7), kept(53 * B), kept(98 * B)];
    let placed: Vec<_> = placed(&runs, kept).into_iter().map(|(at, _)| at).collect();
    assert_eq!(placed, [5 * B + 7, 11 * B, 0]);
}
