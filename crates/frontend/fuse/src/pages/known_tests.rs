//! What is noted before an answer counts until it is taken back or its time is over.

use super::*;

const DIR: InodeNr = 11;
const FILE: InodeNr = 12;

fn changed(known: &Known, names: &[&'static str]) -> Vec<&'static str> {
    let found = known.changed(DIR, names.iter().map(|name| name.as_bytes()));
    let text =
        |(name, _): &(&[u8], Instant)| *names.iter().find(|n| n.as_bytes() == *name).unwrap();
    found.iter().map(text).collect()
}

#[test]
fn only_names_that_were_asked_for_are_told() {
    let known = Known::new(true);
    known.asked(DIR, b"a");
    known.asked(DIR, b"c");
    assert!(known.told(DIR, b"a") > Duration::ZERO);
    known.untold(DIR, b"c");
    assert_eq!(changed(&known, &["a", "b", "c"]), ["a"]);
}

#[test]
fn a_name_that_is_being_asked_for_counts() {
    let known = Known::new(true);
    known.asked(DIR, b"a");
    known.asked(DIR, b"a");
    assert_eq!(changed(&known, &["a"]), ["a"]);
    // What is told now does not count: the name has just been changed.
    assert_eq!(known.told(DIR, b"a"), Duration::ZERO);
    assert_eq!(changed(&known, &["a"]), ["a"], "another request asks still");
    assert_eq!(known.told(DIR, b"a"), Duration::ZERO);
    assert!(changed(&known, &["a"]).is_empty());
}

#[test]
fn a_name_that_the_kernel_moved_is_known() {
    let known = Known::new(true);
    known.moves((DIR, b"a"), (DIR, b"b"));
    assert!(changed(&known, &["a", "b"]).is_empty(), "it did not know the old name");
    let known = Known::new(true);
    known.asked(DIR, b"a");
    known.told(DIR, b"a");
    known.moves((DIR, b"a"), (DIR, b"b"));
    assert_eq!(changed(&known, &["a", "b", "c"]), ["a", "b"]);
}

#[test]
fn pages_that_came_after_a_drop_began_stay_known() {
    let known = Known::new(true);
    known.pages(FILE);
    let at = known.has_pages(FILE).unwrap();
    known.pages(FILE);
    known.dropped(FILE, at);
    let at = known.has_pages(FILE).expect("it came later");
    known.dropped(FILE, at);
    assert_eq!(known.has_pages(FILE), None);
}

#[test]
fn what_a_forget_meant_is_gone_and_what_came_later_is_not() {
    let known = Known::new(true);
    known.pages(FILE);
    let at = known.moment();
    known.pages(FILE);
    known.forgotten(FILE, at);
    assert!(known.has_pages(FILE).is_some());
    known.forgotten(FILE, known.moment());
    assert!(known.has_pages(FILE).is_none());
}

#[test]
fn many_names_become_all_names_and_stay_known() {
    let known = Known::new(true);
    for i in 0..=u32::try_from(MOST_NAMES).unwrap() {
        known.asked(DIR, &i.to_le_bytes());
        known.told(DIR, &i.to_le_bytes());
    }
    assert!(known.table().names <= MOST_NAMES);
    let first = 0u32.to_le_bytes();
    assert_eq!(known.changed(DIR, [first.as_slice()].into_iter()).len(), 1);
}

#[test]
fn counts_of_opens_and_held_back_writes_end() {
    let known = Known::new(true);
    known.opened(FILE);
    known.opened(FILE);
    known.closed(FILE);
    assert!(known.is_open(FILE));
    known.closed(FILE);
    assert!(!known.is_open(FILE));
    known.hold_back(FILE);
    assert!(known.is_held_back(FILE));
    known.answered(FILE);
    assert!(!known.is_held_back(FILE));
}

#[test]
fn a_write_is_lost_at_most_if_pages_were_taken_and_read_again() {
    let known = Known::new(true);
    known.reads(FILE);
    known.read(FILE);
    assert!(!known.may_have_lost(FILE), "nothing was taken");
    known.takes(FILE);
    assert!(!known.may_have_lost(FILE), "nothing was read again");
    known.reads(FILE);
    assert!(known.may_have_lost(FILE));
    assert!(!known.may_have_lost(FILE), "it is told of once");
}

#[test]
fn a_read_under_way_keeps_its_page_locked() {
    let known = Known::new(true);
    known.hold_back(FILE);
    known.reads(FILE);
    assert!(!known.is_held_back(FILE));
    known.read(FILE);
    assert!(known.is_held_back(FILE));
}

/// A mount that is not shared notes nothing but what becomes of files of which pages were taken
/// back, and is told of all of its files.
#[test]
fn a_mount_that_is_not_shared_watches_what_was_taken_back() {
    let known = Known::new(false);
    known.share(true);
    assert!(known.is_alone() && !known.watches(FILE));
    let at = known.moment();
    known.pages(FILE);
    known.opened(FILE);
    known.closed(FILE);
    assert!(known.has_pages(FILE).is_some() && known.is_open(FILE));
    known.dropped(FILE, at);
    assert!(known.has_pages(FILE).is_some(), "it may have new ones");
    known.takes(FILE);
    known.takes(FILE);
    assert!(known.watches(FILE) && !known.watches(FILE + 1));
    assert!(!known.may_have_lost(FILE), "it has read nothing since");
    known.reads(FILE);
    known.read(FILE);
    assert!(known.may_have_lost(FILE) && !known.watches(FILE));
    // It is watched again from the next time, and until the kernel forgets it.
    known.takes(FILE);
    let other = FILE + u32::try_from(PARTS).unwrap();
    assert!(known.watches(other), "it falls into the same part");
    assert!(!known.may_have_lost(other));
    known.forgotten(FILE, known.moment());
    assert!(!known.watches(FILE));
}
