use super::*;

#[test]
fn writes_and_flushes_of_a_disk() {
    let line = "   11  12  13  14  25  26  27  28  0  10  11  0  0  0  0  46  47\n";
    assert_eq!(parse(line), Some(DiskCounts { writes: 25, flushes: 46 }));
    // Kernels before 5.5 have no flushes.
    assert_eq!(parse("11 12 13 14 25 26 27 28 0 10 11"), None);
    assert_eq!(parse(""), None);
}
