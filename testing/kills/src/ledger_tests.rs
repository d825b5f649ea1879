use super::*;

/// The file behind `n` sections.
fn write(dir: &Path, n: u64) {
    let pages = (0..).zip(writers(n)).flat_map(|(index, writer)| page(writer, index));
    std::fs::write(path(dir), pages.collect::<Vec<u8>>()).unwrap();
}

#[test]
fn all_of_a_section_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    Ledger::make(dir).unwrap();
    let ledger = |committed| Ledger { committed };
    assert!(ledger(0).judge(dir, true).is_empty());
    for n in 1..60 {
        write(dir, n);
        assert!(ledger(n).judge(dir, false).is_empty(), "as it was acknowledged");
        assert!(ledger(n - 1).judge(dir, true).is_empty(), "the one under way");
        assert!(!ledger(n - 1).judge(dir, false).is_empty(), "nothing was under way");
        assert!(!ledger(n + 1).judge(dir, true).is_empty(), "acknowledged, and lost");
        for index in pages_of(n) {
            write(dir, n);
            let before = page(writers(n - 1)[index as usize], index);
            let file = File::options().write(true).open(path(dir)).unwrap();
            file.write_all_at(&before, index * PAGE as u64).unwrap();
            let whole = pages_of(n).iter().all(|i| *i == index);
            let complaints = ledger(n - 1).judge(dir, true);
            assert_eq!(complaints.is_empty(), whole, "without page {index} of {n}: {complaints:?}");
        }
    }
}
