use super::*;

const ONE: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);

#[test]
fn a_number_is_free_when_all_have_given_it_back() {
    let mut former = Former::default();
    assert!(former.add((ONE, 12), 2));
    assert!(!former.add((ONE, 12), 1), "in another message");
    assert!(former.add((OTHER, 12), 1));
    assert_eq!(former.forget((ONE, 13), 1, 0), None, "it is there");
    assert_eq!(former.forget((ONE, 12), 2, 0), Some(false));
    assert_eq!(former.forget((ONE, 12), 1, 0), Some(true));
    assert_eq!(former.take_free(), [], "the other session's kernel refers to it");
    former.end(OTHER);
    assert_eq!(former.take_free(), [12]);
    assert_eq!(former.take_free(), []);
    assert_eq!(former.forget((ONE, 12), 1, 0), None);
}

/// The session has looked up the file, too, that has the number by now. A kernel does not say which
/// of the two it forgets: both count until it has forgotten both.
#[test]
fn two_files_of_one_number_are_given_back_together() {
    let mut former = Former::default();
    former.add((ONE, 12), 2);
    assert_eq!(former.forget((ONE, 12), 5, 5), Some(false), "one of them, and 2 are left");
    assert_eq!(former.take_free(), []);
    assert_eq!(former.forget((ONE, 12), 2, 5), Some(true));
    assert_eq!(former.take_free(), [12]);
}

/// A number that is given back and gone once more in between is not free.
#[test]
fn what_is_referred_to_again_is_not_free() {
    let mut former = Former::default();
    former.add((ONE, 12), 1);
    former.end(ONE);
    former.add((OTHER, 12), u32::MAX);
    assert_eq!(former.take_free(), []);
    assert_eq!(former.forget((OTHER, 12), u64::MAX, u64::MAX), Some(false));
    former.end(OTHER);
    assert_eq!(former.take_free(), [12]);
}
