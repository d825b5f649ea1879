//! One planted damage per finding about a redo lane.

use super::*;

const LEN: u64 = MIN_REDO_LANE;
const AT: u64 = SIZE - HEADER_LEN;

const SLOT: RedoSlot =
    RedoSlot { seq: 6, volume: [1; 16], tail: 8192, number: 3, prev_crc: 77, nonce: 5 };

/// A volume in this state, with a redo lane behind its lane, and two transactions of two records
/// each if it is to have some. Says where each of the transactions begins.
fn volume(state: HostState, some: bool) -> (Fixture, Vec<u64>) {
    let mut f = Fixture::empty(state);
    f.dev = MemDevice::new(SIZE + LEN);
    f.header.incompat |= INCOMPAT_REDO_LANE;
    f.header.redo = Some(RedoRegion { offset: AT, len: LEN });
    f.header.header_offsets[1] += LEN;
    BACKUPS.iter().for_each(|at| f.put(*at, &superblock(state != HostState::Clean, 64)));
    f.headers();
    for seq in [SLOT.seq - 1, SLOT.seq] {
        f.put(AT + RedoSlot::place(seq), &RedoSlot { seq, ..SLOT }.encode());
    }
    let mut begins = Vec::new();
    let (mut pos, mut crc) = (SLOT.tail, SLOT.prev_crc);
    for (number, durable) in [(3, SLOT.tail), (4, SLOT.tail + 8192)].into_iter().filter(|_| some) {
        begins.push(pos);
        for index in [0, 1] {
            let place = RedoPlace {
                pos,
                prev_end: pos,
                prev_crc: crc,
                number,
                index,
                commit: index == 1,
                durable,
            };
            crc = write(&f, &place, 4096 * number);
            pos += 4096;
        }
    }
    (f, begins)
}

fn write(f: &Fixture, place: &RedoPlace, offset: u64) -> u32 {
    let mut bytes = [0; 4096];
    let crc = encode_redo(&SLOT.key(), place, &[(offset, &[9; 100])], &mut bytes);
    f.put(AT + REDO_RING + place.pos, &bytes);
    crc
}

fn view(f: &Fixture) -> RedoLaneView {
    inspect(&f.dev as &dyn Device).redo_lane.unwrap()
}

#[test]
fn a_sound_lane_is_shown() {
    let (f, _) = volume(HostState::Clean, false);
    assert_eq!(check(&f.dev), vec![]);
    let empty = RedoLaneView {
        len: LEN - REDO_RING,
        seq: 6,
        tail: 8192,
        end: 8192,
        next_transaction: 3,
        transactions: 0,
        bytes: 0,
    };
    assert_eq!(view(&f), empty);
    let (f, _) = volume(HostState::Mounted, true);
    assert_eq!(check(&f.dev), vec![]);
    assert_eq!(view(&f), RedoLaneView { end: 24_576, transactions: 2, bytes: 400, ..empty });
    assert!(inspect(&f.dev as &dyn Device).recovery.needed);
}

#[test]
fn a_damaged_slot_is_an_error() {
    for seq in [SLOT.seq, SLOT.seq - 1] {
        let (f, _) = volume(HostState::Mounted, true);
        f.flip(AT + RedoSlot::place(seq) + 50);
        assert_eq!(f.codes(), ["redo.slot"], "{seq}");
    }
    for other in [RedoSlot { seq: 9, ..SLOT }, RedoSlot { seq: 7, volume: [2; 16], ..SLOT }] {
        let (f, _) = volume(HostState::Mounted, true);
        f.put(AT + RedoSlot::place(other.seq), &other.encode());
        assert_eq!(f.codes(), ["redo.slot"], "{other:?}");
    }
}

#[test]
fn r14_damage_in_front_of_a_record_is_an_error_and_at_the_end_it_is_torn() {
    let (f, begins) = volume(HostState::Mounted, true);
    f.flip(AT + REDO_RING + begins[0] + 4096 + 200);
    assert_eq!(f.codes(), ["redo.rot"]);
    let (f, begins) = volume(HostState::Mounted, true);
    f.flip(AT + REDO_RING + begins[1] + 4096 + 200);
    assert_eq!(f.codes(), [""; 0]);
    assert_eq!(view(&f).transactions, 1);
}

#[test]
fn what_a_clean_volume_has_is_an_error() {
    let (f, _) = volume(HostState::Clean, true);
    assert!(f.codes().contains(&"redo.clean"), "{:?}", f.codes());
}

#[test]
fn a_range_outside_the_area_is_an_error() {
    let (f, begins) = volume(HostState::Mounted, true);
    let place = RedoPlace {
        pos: begins[0],
        prev_end: begins[0],
        prev_crc: SLOT.prev_crc,
        number: 3,
        index: 0,
        commit: true,
        durable: 0,
    };
    write(&f, &place, AREA - 99);
    assert!(f.codes().contains(&"redo.range"), "{:?}", f.codes());
    write(&f, &place, AREA - 100);
    assert!(!f.codes().contains(&"redo.range"), "{:?}", f.codes());
}

/// R34: the byte ranges of two producers are disjoint.
#[test]
fn r34_a_lane_that_overlaps_another_region_is_an_error() {
    let (mut f, _) = volume(HostState::Mounted, false);
    f.header.redo = Some(RedoRegion { offset: LANE, len: LEN });
    f.headers();
    assert!(f.codes().contains(&"header.content"), "{:?}", f.codes());
}
