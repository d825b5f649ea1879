use super::*;

/// A row's number is its own, also where another row's name begins alike.
#[test]
fn numbers_belong_to_their_rows() {
    let printed = "fillsync 84.5\nfillseq 2.8\nreadseq nothing\n";
    assert!((number(printed, "fillsync") - 84.5).abs() < 1e-9);
    assert!((number(printed, "fillseq") - 2.8).abs() < 1e-9);
    for row in ["fill", "readseq", "overwrite"] {
        assert!(number(printed, row).is_nan(), "{row}");
    }
}
