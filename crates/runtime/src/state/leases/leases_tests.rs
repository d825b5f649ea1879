use super::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const FILE: (InodeNr, u32) = (20, 7);
const TERM: Duration = Duration::from_secs(2);
const HOUR: u64 = 3_600_000_000_000;

struct Nobody;

impl Holder for Nobody {
    fn recall(&self, _lease: LeaseId) {}
}

fn leases() -> Leases {
    let mut leases = Leases::new(TERM);
    leases.hold(A, Arc::new(Nobody), false);
    leases.hold(B, Arc::new(Nobody), true);
    leases
}

fn begin(leases: &mut Leases, now: u64) -> LeaseId {
    leases.begin((A, 10), FILE, now).unwrap()
}

fn granted(leases: &mut Leases, now: u64) -> LeaseId {
    let id = begin(leases, now);
    assert_eq!(leases.grant(id, 100, now), Ok(true));
    id
}

/// Does a request go on that touches the file?
fn touch(leases: &mut Leases, session: SessionId, pages: bool) -> bool {
    let does = if pages { Does::Pages } else { Does::Anything };
    leases.touch(Touch { session, does }, FILE.0).is_ok()
}

fn failed<T>(result: Result<T>) -> i32 {
    result.err().expect("an error").errno()
}

#[test]
fn a_lease_is_small() {
    let lease = size_of::<(InodeNr, Lease)>() + size_of::<(LeaseId, InodeNr)>();
    // A table of hashes is half empty at the worst, and has a byte more for each place.
    assert!(2 * (lease + 2) <= 256, "{lease}");
}

#[test]
fn what_drains_is_granted_unless_another_session_touches_it() {
    let mut leases = leases();
    let id = begin(&mut leases, 0);
    assert_eq!(leases.holder_of(FILE.0), None);
    assert_eq!(failed(leases.used(A, id, 0)), libc::ESTALE, "not before it is granted");
    leases.take_all(id).unwrap();
    // What taking pages back makes the other session ask for.
    assert!(touch(&mut leases, B, false));
    leases.take_attributes(id).unwrap();
    assert!(touch(&mut leases, A, true), "the own session's does not count");
    assert_eq!(leases.grant(id, 100, 0), Ok(true));
    assert_eq!(leases.holder_of(FILE.0), Some(A));

    for pages in [false, true] {
        let mut leases = self::leases();
        let id = begin(&mut leases, 0);
        leases.take_all(id).unwrap();
        leases.take_attributes(id).unwrap();
        assert!(touch(&mut leases, B, pages));
        assert_eq!(leases.grant(id, 100, 0), Ok(false), "touched after the last notice");
    }
    // Pages that came while the others were told are not taken back by the second notice.
    let mut leases = self::leases();
    let id = begin(&mut leases, 0);
    leases.take_all(id).unwrap();
    assert!(touch(&mut leases, B, true));
    leases.take_attributes(id).unwrap();
    assert_eq!(leases.grant(id, 100, 0), Ok(false));
    leases.take_all(id).unwrap();
    leases.take_attributes(id).unwrap();
    assert_eq!(leases.grant(id, 100, 0), Ok(true));
}

#[test]
fn a_granted_lease_lasts_from_its_last_use() {
    let (mut leases, term) = (leases(), ns(TERM));
    let id = granted(&mut leases, 1000);
    assert_eq!(leases.used(A, id, 1000 + term - 1), Ok(FILE));
    assert_eq!(leases.used(A, id, 1000 + 2 * (term - 1)), Ok(FILE));
    assert_eq!(failed(leases.used(B, id, 1000)), libc::ESTALE, "another session's");
    assert_eq!(failed(leases.used(A, LeaseId(id.0 ^ 1), 1000)), libc::ESTALE, "a number guessed");
    let last = 1000 + 2 * (term - 1);
    assert_eq!(leases.due(Some(last + term - 1)), []);
    assert_eq!(leases.due(Some(last + term)), [FILE.0]);
    assert_eq!(failed(leases.used(A, id, last + term)), libc::ESTALE);
    // It is not told to give back what has run out.
    let recalled = leases.recall(FILE.0, last + term).unwrap();
    assert!(recalled.holder.is_none());
    assert_eq!(leases.left(FILE.0, id, last + term), Some(Duration::ZERO));
}

#[test]
fn a_recalled_lease_is_told_once_and_not_renewed() {
    let (mut leases, term) = (leases(), ns(TERM));
    let id = granted(&mut leases, 0);
    assert!(!touch(&mut leases, B, false));
    let recalled = leases.recall(FILE.0, 500).unwrap();
    assert_eq!(recalled.lease, id);
    assert!(recalled.holder.is_some());
    assert!(leases.recall(FILE.0, 600).unwrap().holder.is_none(), "once");
    assert_eq!(leases.left(FILE.0, id, 500), Some(TERM));
    assert_eq!(leases.used(A, id, 500 + term - 1), Ok(FILE));
    assert_eq!(leases.left(FILE.0, id, 500 + term), Some(Duration::ZERO));
    assert_eq!(failed(leases.used(A, id, 500 + term)), libc::ESTALE);
}

#[test]
fn what_has_ended_is_not_there() {
    let mut leases = leases();
    let id = granted(&mut leases, 0);
    assert!(leases.take(FILE.0).is_some());
    assert!(leases.is_empty());
    assert!(touch(&mut leases, B, true));
    assert_eq!(leases.left(FILE.0, id, 0), None);
    assert!(leases.recall(FILE.0, 0).is_none());
    assert_eq!(failed(leases.used(A, id, 0)), libc::ESTALE);
    assert_eq!(failed(leases.grant(id, 0, 0)), libc::ESTALE);
    assert_eq!(failed(leases.take_all(id)), libc::ESTALE);
    assert!(leases.take(FILE.0).is_none());
    // One that drained is recalled by nobody, and ends as well.
    let id = begin(&mut leases, 0);
    assert!(leases.recall(FILE.0, 0).is_none());
    assert_eq!(leases.due(None), []);
    assert!(leases.take(FILE.0).is_some());
    assert_eq!(failed(leases.grant(id, 0, 0)), libc::ESTALE);
    // The number of the next one is another.
    assert_ne!(begin(&mut leases, 0), id);
}

#[test]
fn a_clock_that_jumps_lengthens_nothing() {
    let mut leases = leases();
    // The machine slept for an hour.
    let id = granted(&mut leases, HOUR);
    assert_eq!(failed(leases.used(A, id, 2 * HOUR)), libc::ESTALE);
    assert_eq!(leases.due(Some(2 * HOUR)), [FILE.0]);
    leases.take(FILE.0);
    // A clock that is set back by an hour.
    let id = granted(&mut leases, 2 * HOUR);
    leases.recall(FILE.0, 2 * HOUR);
    assert_eq!(leases.left(FILE.0, id, HOUR), Some(Duration::ZERO));
    leases.note_silence(FILE.0, 2 * HOUR);
    leases.take(FILE.0);
    assert!(leases.begin((A, 10), FILE, HOUR).is_ok(), "left alone for ten seconds at most");
}

#[test]
fn who_may_begin() {
    let mut leases = leases();
    let nobody = SessionId(3);
    assert_eq!(failed(leases.begin((nobody, 10), FILE, 0)), libc::EOPNOTSUPP);
    assert_eq!(failed(leases.begin((A, 0), FILE, 0)), libc::EAGAIN);
    let id = begin(&mut leases, 0);
    assert_eq!(failed(leases.begin((A, 10), FILE, 0)), libc::EBUSY);
    assert_eq!(failed(leases.begin((B, 10), FILE, 0)), libc::EAGAIN, "it drains for another");
    assert!(!leases.is_in_the_way(B, FILE.0, 0));
    leases.grant(id, 0, 0).unwrap();
    assert!(leases.is_in_the_way(B, FILE.0, 0));
    assert!(!leases.is_in_the_way(A, FILE.0, 0));
    assert!(leases.is_in_the_way(A, FILE.0, ns(TERM)), "its own that is over");
    assert_eq!(failed(leases.begin((A, 1), (21, 1), 0)), libc::EAGAIN, "one more than it may");
    assert!(leases.begin((A, 2), (21, 1), 0).is_ok());
    assert_eq!(leases.end_session(A).len(), 2);
    leases.take(21);
    leases.take(FILE.0);
    leases.close(true);
    assert_eq!(failed(leases.begin((B, 10), FILE, 0)), libc::EAGAIN);
    leases.close(false);
    let id = leases.begin((B, 10), FILE, 0).unwrap();
    leases.close(true);
    assert_eq!(failed(leases.grant(id, 0, 0)), libc::EAGAIN);
}

#[test]
fn three_recalls_within_a_second_and_a_silent_holder_leave_a_file_alone() {
    let (second, ten) = (ns(OFTEN), ns(ALONE));
    let recall_at = |leases: &mut Leases, at: u64| {
        granted(leases, at);
        assert!(leases.recall(FILE.0, at).is_some());
        leases.take(FILE.0);
    };
    let mut leases = leases();
    recall_at(&mut leases, 0);
    recall_at(&mut leases, second / 2);
    recall_at(&mut leases, second + 1);
    recall_at(&mut leases, 2 * second);
    // The third in less than a second.
    let last = 2 * second;
    recall_at(&mut leases, last);
    is_refused(&mut leases, last);
    // It is left alone from the last recall that was counted.
    let free = last + ten;
    is_refused(&mut leases, free - 1);
    recall_at(&mut leases, free);

    let mut leases = self::leases();
    granted(&mut leases, 0);
    leases.note_silence(FILE.0, 0);
    leases.take(FILE.0);
    granted(&mut leases, 0);
    leases.recall(FILE.0, 0);
    leases.note_silence(FILE.0, 0);
    leases.take(FILE.0);
    is_refused(&mut leases, ten - 1);
    assert!(leases.begin((A, 10), (21, 1), 0).is_ok(), "others are not concerned");
    recall_at(&mut leases, ten);
}

fn is_refused(leases: &mut Leases, at: u64) {
    assert_eq!(failed(leases.begin((A, 10), FILE, at)), libc::EAGAIN);
}

#[test]
fn recalls_are_not_remembered_for_ever() {
    let mut leases = leases();
    for turn in 0..10_000u64 {
        let (ino, now) = (100 + turn as u32, turn * ns(OFTEN));
        let id = leases.begin((A, 10), (ino, 1), now).unwrap();
        leases.grant(id, 0, now).unwrap();
        assert!(leases.recall(ino, now).is_some());
        leases.take(ino);
    }
    assert!(leases.recalls.len() < 100, "{}", leases.recalls.len());
}

#[test]
fn the_next_lease_waits_until_the_last_ones_end_is_told() {
    let mut leases = leases();
    let mut owed = Owed::default();
    let notice = siftfs_proto::Notice::new(&mut owed);
    leases.settles(FILE.0, owed);
    is_refused(&mut leases, 0);
    assert!(leases.begin((A, 10), (21, 1), 0).is_ok(), "others are not concerned");
    drop(notice);
    granted(&mut leases, 0);
    leases.settles(22, Owed::default());
    assert!(leases.settling.is_empty());
}
