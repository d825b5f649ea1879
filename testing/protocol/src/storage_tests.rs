use super::*;
use std::collections::HashSet;

fn volume() -> Storage {
    Storage::new(1, 2, 2, 2, 1)
}

fn record(pos: u8, lsn: u8, prev: u8) -> Record {
    let (lane, prev_area, needs) = (0, 0, [0; 2]);
    Record {
        key: 1,
        mount: 1,
        lane,
        pos,
        lsn,
        prev,
        prev_area,
        needs,
        file: 0,
        op: lsn,
        live: true,
        home: NONE,
    }
}

#[test]
fn a_flush_makes_the_last_write_durable() {
    let mut cell = Cell::new(0);
    cell.write(1);
    cell.write(2);
    assert_eq!((*cell.visible(), cell.durable), (2, 0));
    cell.flush();
    assert_eq!(cell, Cell::new(2));
}

/// A power cut leaves each selection of the unflushed writes, and each once.
#[test]
fn a_power_cut_leaves_every_selection() {
    let mut storage = volume();
    storage.blocks[0].write(3);
    storage.blocks[0].write(5);
    storage.blocks[1].write(7);
    storage.lane_mut(0, 1).write(Some(record(1, 1, 0)));
    let after = |choice| {
        let mut cut = storage.clone();
        cut.fail(Regions::ALL, Failure::Power, choice);
        assert!(cut.blocks.iter().all(|b| b.pending.is_empty()));
        let lane = cut.lane(0, 1).durable.is_some();
        (cut.blocks[0].durable, cut.blocks[1].durable, lane)
    };
    let cuts = storage.choices(Regions::ALL);
    let left: HashSet<_> = (0..cuts).map(after).collect();
    assert_eq!((cuts, left.len()), (3 * 2 * 2, 3 * 2 * 2));
    assert!(left.contains(&(3, 7, false)) && left.contains(&(0, 0, true)));
}

/// A failed flush leaves each selection of the writes in its regions, pending, and no other
/// region's write is touched.
#[test]
fn a_failed_flush_loses_every_selection() {
    let mut storage = volume();
    storage.blocks[0].write(3);
    storage.blocks[0].write(5);
    storage.blocks[1].write(7);
    storage.lane_mut(0, 1).write(Some(record(1, 1, 0)));
    let area = Regions { area: true, ..Regions::default() };
    let after = |choice| {
        let mut failed = storage.clone();
        failed.fail(area, Failure::Flush, choice);
        assert!(failed.lane(0, 1).visible().is_some());
        assert!(failed.blocks.iter().all(|b| b.durable == 0), "nothing became durable");
        (*failed.blocks[0].visible(), *failed.blocks[1].visible())
    };
    let left: HashSet<_> = (0..storage.choices(area)).map(after).collect();
    assert_eq!((storage.choices(area), left.len()), (3 * 2, 3 * 2));
    assert!(left.contains(&(0, 7)) && left.contains(&(3, 0)) && left.contains(&(5, 7)));
}

/// A lane ends at the first position that holds no record of its own; a record of an older lap does
/// not count.
#[test]
fn a_lane_ends_where_its_chain_does() {
    let mut storage = volume();
    storage.lane_mut(0, 2).write(Some(record(2, 3, 2)));
    storage.lane_mut(0, 1).write(Some(record(1, 2, 1)));
    let host = storage.host.durable;
    let (found, ends) = storage.staged(View::Visible, &host, [1, 0]);
    assert_eq!((found.len(), ends), (2, [3, 0]));
    let (found, ends) = storage.staged(View::Visible, &host, [0, 0]);
    assert_eq!((found.len(), ends), (0, [0, 0]), "position 0 holds the record of position 2");
    let (found, _) = storage.staged(View::Durable, &host, [1, 0]);
    assert_eq!(found.len(), 0, "nothing was flushed");
}

/// Rule R24: recovery ends at a record whose predecessor is missing, wherever that one lay.
#[test]
fn a_gap_ends_what_is_applied() {
    let found = [record(0, 2, 1), record(1, 3, 2), record(2, 6, 5)];
    let numbers =
        |cut| Chains::new(false).above_cut(&found, cut).iter().map(|r| r.lsn).collect::<Vec<_>>();
    assert_eq!(numbers(1), [2, 3]);
    assert_eq!(numbers(2), [3]);
    assert_eq!(numbers(0), [0; 0], "the first one's predecessor is above the cut, and missing");
    assert_eq!(numbers(5), [6]);
}

/// Rule R44: the area's records stay beside a gap on the disk, and one of the disk goes with its
/// predecessor in the area.
#[test]
fn the_area_has_a_chain_of_its_own() {
    let compact = |pos, lsn| Record { lane: 1, ..record(pos, lsn, lsn - 1) };
    let after = |lsn, prev, prev_area| Record { prev_area, ..record(0, lsn, prev) };
    let numbers = |found: &[Record], chains: Chains| {
        chains.above_cut(found, 1).iter().map(|r| r.lsn).collect::<Vec<_>>()
    };
    let beside_a_gap = [compact(0, 2), after(5, 4, 2), compact(1, 6)];
    let right = Chains::new(true);
    assert_eq!(numbers(&beside_a_gap, right), [2, 6]);
    assert_eq!(numbers(&beside_a_gap, Chains { together: true, ..right }), [2]);
    let over_the_area = [after(2, 1, 0), after(4, 2, 3), compact(0, 6)];
    assert_eq!(numbers(&over_the_area, right), [2, 6]);
    assert_eq!(numbers(&over_the_area, Chains { both: false, ..right }), [2, 4, 6]);
}

/// Disk and area fail, and are flushed, apart.
#[test]
fn disk_and_area_are_flushed_apart() {
    let mut storage = Storage::new(2, 2, 2, 2, 1).with_area(true);
    storage.lane_mut(0, 0).write(Some(record(0, 1, 0)));
    storage.lane_mut(1, 0).write(Some(Record { lane: 1, ..record(0, 2, 0) }));
    let compact = Regions { compact: true, ..Regions::default() };
    assert_eq!((storage.choices(compact), storage.choices(Regions::ALL)), (2, 4));
    storage.flush_lanes();
    assert_eq!((storage.choices(compact), storage.choices(Regions::ALL)), (2, 2));
    storage.fail(compact, Failure::Power, 0);
    assert!(storage.lane(0, 0).durable.is_some() && storage.lane(1, 0).visible().is_none());
    storage.lane_mut(1, 1).write(Some(Record { lane: 1, ..record(1, 3, 0) }));
    storage.persist_area();
    assert_eq!(storage.choices(Regions::ALL), 1);
}
