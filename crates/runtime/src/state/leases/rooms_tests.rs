use super::*;

const INO: InodeNr = 12;

fn ranges(room: &RangeSet<Blocks>) -> Vec<(u64, u64)> {
    room.iter().collect()
}

#[test]
fn what_was_set_aside_is_given_back_once() {
    let mut rooms = Rooms::default();
    rooms.note(INO, &[]);
    assert!(!rooms.has(INO));
    rooms.note(INO, &[(4, 8), (10, 12)]);
    rooms.note(INO, &[(8, 9)]);
    rooms.note(INO + 1, &[(0, 1)]);
    assert!(rooms.has(INO));
    assert_eq!(ranges(&rooms.take(INO)), [(4, 9), (10, 12)]);
    assert!(!rooms.has(INO) && rooms.take(INO).is_empty());
    assert!(rooms.has(INO + 1), "another file's");
}

#[test]
fn what_fallocate_was_asked_for_stays() {
    let mut rooms = Rooms::default();
    rooms.keep(INO, 0, 100);
    rooms.note(INO, &[(4, 12)]);
    rooms.keep(INO, 6, 8);
    assert_eq!(ranges(&rooms.take(INO)), [(4, 6), (8, 12)]);
    rooms.note(INO, &[(4, 12)]);
    rooms.keep(INO, 0, 100);
    assert!(!rooms.has(INO));
}
