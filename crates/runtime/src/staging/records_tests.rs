use super::*;

fn records() -> Records {
    Records::new(Lsn(0))
}

fn publish(r: &mut Records, lsn: u64, mode: WriteMode) {
    r.publish(Lsn(lsn), LaneId(0), mode, Writer::Caller);
}

/// Rule R3: a durable write above a hole proves nothing of itself until the hole is filled.
#[test]
fn r03_the_watermark_stops_at_a_hole() {
    let mut r = records();
    for lsn in 1..=3 {
        publish(&mut r, lsn, WriteMode::Fua);
    }
    r.written_ok(Lsn(3), WriteMode::Fua);
    assert_eq!((r.durable(), r.written()), (Lsn(0), Lsn(0)));
    r.written_ok(Lsn(1), WriteMode::Fua);
    assert_eq!((r.durable(), r.written()), (Lsn(1), Lsn(1)));
    r.written_ok(Lsn(2), WriteMode::Fua);
    assert_eq!((r.durable(), r.written()), (Lsn(3), Lsn(3)));
    assert!(r.idle());
}

/// A flush covers what was written when it began, and no hole below.
#[test]
fn r03_a_flush_covers_what_was_written_before() {
    let mut r = records();
    publish(&mut r, 1, WriteMode::Plain);
    publish(&mut r, 2, WriteMode::Plain);
    publish(&mut r, 3, WriteMode::Plain);
    r.written_ok(Lsn(1), WriteMode::Plain);
    r.written_ok(Lsn(3), WriteMode::Plain);
    let (flush, _) = r.begin_flush();
    r.written_ok(Lsn(2), WriteMode::Plain);
    r.flushed(flush);
    assert_eq!((r.durable(), r.written()), (Lsn(1), Lsn(3)), "the second came too late");
    let (flush, _) = r.begin_flush();
    r.flushed(flush);
    assert_eq!(r.durable(), Lsn(3));
}

#[test]
fn what_a_flush_would_serve() {
    let mut r = records();
    publish(&mut r, 1, WriteMode::Fua);
    publish(&mut r, 2, WriteMode::Plain);
    assert!(!r.unflushed_upto(Lsn(1)) && r.unflushed_upto(Lsn(2)));
    assert!(!r.flush_serves(Lsn(2)), "it is not written");
    r.written_ok(Lsn(2), WriteMode::Plain);
    assert!(!r.flush_serves(Lsn(2)), "the one below is not");
    assert!(r.settled_by_callers(Lsn(1)) && !r.settled_by_callers(Lsn(2)));
    r.written_ok(Lsn(1), WriteMode::Fua);
    assert!(r.flush_serves(Lsn(2)) && !r.flush_serves(Lsn(1)));
    assert_eq!(r.durable(), Lsn(1));
    let (flush, _) = r.begin_flush();
    r.flushed(flush);
    assert_eq!(r.durable(), Lsn(2));
}

/// The background's thread runs no caller's answer, so no caller may rely on its write.
#[test]
fn the_background_settles_nobody() {
    let mut r = records();
    r.publish(Lsn(1), LaneId(0), WriteMode::Fua, Writer::Background);
    publish(&mut r, 2, WriteMode::Fua);
    assert!(!r.settled_by_callers(Lsn(2)) && !r.behind_others());
    r.written_ok(Lsn(1), WriteMode::Fua);
    assert!(r.settled_by_callers(Lsn(2)));
    r.publish(Lsn(3), LaneId(0), WriteMode::Plain, Writer::Background);
    assert!(r.behind_others());
    r.written_ok(Lsn(3), WriteMode::Plain);
    assert!(r.behind_others(), "until it is flushed");
    let (flush, _) = r.begin_flush();
    r.flushed(flush);
    assert!(!r.behind_others());
}

/// A record of a ticket keeps the watermark where it is, and no gathering waits for its write.
#[test]
fn a_ticket_is_in_flight_and_not_on_its_way() {
    let mut r = records();
    r.publish(Lsn(1), LaneId(0), WriteMode::Plain, Writer::Ticket);
    assert!(r.all_come() && r.in_flight() == 1 && r.behind_others());
    publish(&mut r, 2, WriteMode::Plain);
    assert!(!r.all_come());
    r.written_ok(Lsn(2), WriteMode::Plain);
    assert!(r.all_come() && !r.flush_serves(Lsn(2)), "the ticket's is not written");
    assert!(!r.settled_by_callers(Lsn(1)) && r.unflushed_upto(Lsn(1)));
    r.written_ok(Lsn(1), WriteMode::Plain);
    assert!(r.flush_serves(Lsn(2)) && r.behind_others());
    let (flush, _) = r.begin_flush();
    r.flushed(flush);
    assert!(r.idle() && r.all_come() && !r.behind_others());
}

#[test]
fn callers_are_acknowledged_in_order() {
    let mut r = records();
    for (lsn, at) in [(1, 10), (2, 20)] {
        publish(&mut r, lsn, WriteMode::Fua);
        r.note_caller(Way::Parallel, at);
    }
    r.written_ok(Lsn(2), WriteMode::Fua);
    assert_eq!((r.acknowledged(), r.unacknowledged()), (None, 2));
    r.written_ok(Lsn(1), WriteMode::Fua);
    assert_eq!(r.acknowledged(), Some((Way::Parallel, 10)));
    assert_eq!(r.acknowledged(), Some((Way::Parallel, 20)));
    assert_eq!(r.acknowledged(), None);
}

/// A flush is told in which lanes something waits for it, and no others.
#[test]
fn a_flush_names_its_lanes() {
    let mut r = records();
    for (lsn, lane) in [(1, 0), (2, 3), (3, 15), (4, 3)] {
        r.publish(Lsn(lsn), LaneId(lane), WriteMode::Plain, Writer::Caller);
    }
    for lsn in [2, 3, 4] {
        r.written_ok(Lsn(lsn), WriteMode::Plain);
    }
    let (flush, lanes) = r.begin_flush();
    assert_eq!(lanes.iter().collect::<Vec<_>>(), [3, 15], "lane 0 is not written yet");
    r.flushed(flush);
    r.written_ok(Lsn(1), WriteMode::Plain);
    let (flush, lanes) = r.begin_flush();
    assert_eq!(lanes.iter().collect::<Vec<_>>(), [0]);
    r.flushed(flush);
    assert!(r.idle());
}
