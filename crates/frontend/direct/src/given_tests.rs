use super::*;

#[test]
fn an_fsync_covers_what_was_given_before_it_began() {
    let given = Given::default();
    assert!(given.is_synced());
    given.note();
    let (first, second) = (given.now(), given.now());
    assert!(!given.is_synced(), "none has ended");
    given.note();
    given.synced(first);
    assert!(!given.is_synced(), "the other came behind it");
    given.synced(given.now());
    assert!(given.is_synced());
    given.synced(second);
    assert!(given.is_synced(), "one that ends late takes nothing back");
}
