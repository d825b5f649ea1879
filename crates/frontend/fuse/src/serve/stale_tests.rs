use super::*;

#[test]
fn pages_read_beside_a_direct_writer_are_dropped() {
    let mut cached = Cached::default();
    assert!(!cached.written_past(0, 4096), "nobody read");
    cached.note(4096, 8192);
    assert!(!cached.written_past(0, 4096), "nobody read here");
    assert!(cached.written_past(5000, 10));
    assert!(cached.written_past(4096, 4096), "the first one's pages are not gone yet");
    assert!(cached.written_past(8192, 1), "nor those beside them");
    assert!(!cached.written_past(12_288, 1), "these were never there");
    cached.note(8192, 1);
    for _ in 0..3 {
        assert!(cached.is_waited_for());
        cached.dropped();
    }
    assert!(!cached.is_waited_for());
    assert!(!cached.written_past(4096, 4096), "all are gone");
    assert!(cached.written_past(8192, 1), "this one was read while they went");
}

#[test]
fn many_ranges_are_all_of_it() {
    let mut cached = Cached::default();
    for i in 0..=RANGES as u64 {
        cached.note(i * 8 * PAGE, 1);
    }
    assert!(cached.written_past(4 * PAGE, 1));
    cached.note(0, 1);
    cached.clear();
    assert!(cached.written_past(9 * PAGE, 1), "it is still being dropped");
}
