use super::*;
use siftfs_base::Epoch;
use siftfs_log::{SPARE_FIRST, SpareHeader};

fn state(len: u64) -> State {
    state_of(len, 0)
}

/// The same with room for an image at `image`, behind which there is as much as it needs.
fn state_of(len: u64, image: u64) -> State {
    let (volume, epoch) = (*b"volume-uuid-0001", Epoch(4));
    let header = SpareHeader {
        generation: 1,
        volume,
        epoch,
        nonce: 7,
        len,
        log_len: 1 << 30,
        image,
        alone: false,
    };
    let slot = Slot { header, index: 0 };
    let mut st = State::new(slot, BTreeMap::new(), Tail::FIRST);
    (st.mode, st.bound) = (Mode::First, Duration::from_secs(1));
    st
}

fn data(blocks: usize) -> Arc<AlignedBuf> {
    Arc::new(AlignedBuf::zeroed(blocks * 4096))
}

/// A call is answered once it and all before it are in durable batches.
///
/// Seen to fail when the batch that is being written counts as durable.
#[test]
fn calls_on_the_spare_log_are_answered_in_order() {
    let mut st = state(1 << 30);
    let first = st.write(0, data(1), true);
    st.leave();
    let long = st.write(8192, data(2000), true);
    let flush = st.flush();
    let (_, parts) = st.next_batch().expect("room");
    assert_eq!(parts.len(), 2, "the first and a part of the second");
    st.flush();
    assert!(st.outcome(first).is_none());
    st.appended(&parts);
    assert_eq!(st.outcome(first), Some(Ok(())));
    assert!(st.outcome(long).is_none() && st.outcome(flush).is_none());
    let (_, parts) = st.next_batch().expect("room");
    assert!(st.outcome(long).is_none() && st.outcome(flush).is_none());
    st.appended(&parts);
    assert_eq!((st.outcome(long), st.outcome(flush)), (Some(Ok(())), Some(Ok(()))));
}

/// What finds no room waits, and goes to the first log when that has all.
#[test]
fn without_room_calls_wait_for_the_first_log() {
    let mut st = state(SPARE_FIRST + 3 * 4096);
    let now = Instant::now();
    st.leave();
    let (one, two) = (st.write(0, data(2), true), st.write(8192, data(1), false));
    let (_, parts) = st.next_batch().expect("room");
    st.appended(&parts);
    assert!(st.next_batch().is_none() && st.full && !st.may_append());
    assert_eq!(st.outcome(one), Some(Ok(())));
    assert!(st.outcome(two).is_none());
    assert_eq!(st.take_lacking(9), [(0, SPARE_FIRST + 4096), (1, SPARE_FIRST + 8192)]);
    let slot = st.slot;
    st.go_back(slot, now);
    assert!(st.outcome(two).is_none() && st.to_write(two).is_some_and(|write| write.durable));
    st.written(two, Ok(()));
    assert_eq!(st.outcome(two), Some(Ok(())));
    assert!(!st.holds_any() && !st.full);
}

/// A block that was written again lacks again.
#[test]
fn a_block_lacks_until_its_newest_bytes_are_home() {
    let mut st = state(1 << 30);
    st.leave();
    for _ in 0..2 {
        st.write(4096, data(1), true);
        let (tail, parts) = st.next_batch().expect("room");
        st.appended(&parts);
        assert_eq!(st.take_lacking(9), [(1, tail.pos + 4096)]);
    }
    assert_eq!(st.lacking(), 0);
}

/// What was flushed, or was durable by itself, does not go along.
#[test]
fn what_is_durable_on_the_first_log_stays_there() {
    let mut st = state(1 << 30);
    let seqs: Vec<u64> = [true, false, false].map(|d| st.write(0, data(1), d)).into();
    st.written(seqs[0], Ok(()));
    st.written(seqs[1], Ok(()));
    let covered = st.answered();
    let flush = st.flush();
    st.flushed(flush, &covered, Ok(()));
    st.written(seqs[2], Ok(()));
    assert_eq!(st.oldest(), None, "each call has its answer");
    st.leave();
    let (_, parts) = st.next_batch().expect("the last one is not flushed");
    assert_eq!((parts.len(), st.next_batch().is_some()), (1, false));
}

/// What waits for a thread is not late yet, and little goes before bulk.
#[test]
fn a_call_is_late_by_the_time_that_the_device_has_had_it() {
    let mut st = state(1 << 30);
    let now = Instant::now();
    let bulk = st.write(0, data(200), false);
    let small = st.write(1 << 20, data(1), true);
    assert_eq!(st.oldest(), None);
    assert!(matches!(st.next_job(now), Some(Job::Write(seq)) if seq == small));
    assert_eq!(st.oldest(), Some(now));
    assert!(matches!(st.next_job(now), Some(Job::Write(seq)) if seq == bulk));
    assert!(!st.has_jobs() && st.next_job(now).is_none());
}

/// A flush that waits when the first log is gone back to waits for what had no room, and for no
/// more.
///
/// Seen to fail when such a flush is answered by batches alone: it waited for the next stall.
#[test]
fn a_flush_does_not_wait_for_the_next_stall() {
    let mut st = state(SPARE_FIRST + 2 * 4096);
    let (told, later) = (st.write(0, data(1), false), st.write(4096, data(1), false));
    for seq in [told, later] {
        st.written(seq, Ok(()));
        assert_eq!(st.outcome(seq), Some(Ok(())));
    }
    let before = st.flush();
    st.leave();
    let own = st.write(8192, data(1), true);
    let behind = st.flush();
    let (_, parts) = st.next_batch().expect("room for one");
    st.appended(&parts);
    assert!(st.next_batch().is_none());
    assert_eq!(st.take_lacking(9).len(), 1);
    st.go_back(st.slot, Instant::now());
    assert!([before, own, behind].iter().all(|seq| st.outcome(*seq).is_none()));
    st.written(later, Ok(()));
    assert_eq!(st.outcome(before), Some(Ok(())));
    assert!(st.outcome(behind).is_none());
    st.written(own, Ok(()));
    assert_eq!((st.outcome(own), st.outcome(behind)), (Some(Ok(())), Some(Ok(()))));
    assert!(!st.results.contains_key(&later) && st.waits.is_empty());
}

/// What had its answer before the first log was left cannot be told that it failed.
#[test]
fn what_was_promised_and_fails_ends_all_promises() {
    let mut st = state(SPARE_FIRST + 4096);
    let told = st.write(0, data(1), false);
    st.written(told, Ok(()));
    assert_eq!(st.outcome(told), Some(Ok(())));
    st.leave();
    assert!(st.next_batch().is_none(), "there is no room at all");
    st.go_back(st.slot, Instant::now());
    let error = Error::Io { op: "write", offset: 0, len: 4096, errno: libc::EIO };
    st.written(told, Err(error));
    assert!(st.failed.is_some());
}

/// Nobody is answered from the failure on until the image is the log, neither for a batch that was
/// on its way nor for the flush that failed.
///
/// Seen to fail when batches are answered as during a stall, and when more of them are written.
#[test]
fn a_failure_answers_nobody_until_the_image_is_the_log() {
    let mut st = state_of(2 << 30, 1 << 30);
    let first = st.write(0, data(1), true);
    st.leave();
    let (_, parts) = st.next_batch().expect("room");
    st.lose(Error::Refused("it failed".into()));
    st.appended(&parts);
    let flush = st.flush();
    let late = st.write(0, data(1), true);
    assert!(!st.may_append(), "no batch counts once the image is the log");
    assert!([first, flush, late].into_iter().all(|seq| st.outcome(seq).is_none()));
    let header = SpareHeader { generation: 2, alone: true, ..st.slot.header };
    st.stand_alone(Slot { header, index: 1 }, Instant::now());
    assert_eq!((st.outcome(first), st.outcome(late)), (Some(Ok(())), None));
    assert!(!st.can_lose_first(), "there is no third device");
}

/// Seen to fail when a flush that failed is answered.
#[test]
fn a_flush_that_fails_waits_for_the_image() {
    let mut st = state_of(2 << 30, 1 << 30);
    let write = st.write(0, data(1), false);
    assert!(st.next_job(Instant::now()).is_some());
    st.written(write, Ok(()));
    assert_eq!(st.outcome(write), Some(Ok(())));
    let flush = st.flush();
    let covered = st.answered();
    st.flushed(flush, &covered, Err(Error::Refused("it failed".into())));
    assert!(st.outcome(flush).is_none() && st.lost.is_some());
    let header = SpareHeader { generation: 2, alone: true, ..st.slot.header };
    st.stand_alone(Slot { header, index: 1 }, Instant::now());
    assert!(st.outcome(flush).is_none(), "what it covers is on its way to the image");
    assert!(matches!(st.next_job(Instant::now()), Some(Job::Write(seq)) if seq == write));
    st.written(write, Ok(()));
    assert_eq!(st.outcome(flush), Some(Ok(())));
}

/// Seen to fail when batches may lie where the image does.
#[test]
fn batches_end_before_the_image() {
    let mut st = state_of(2 << 30, SPARE_FIRST + 3 * 4096);
    st.leave();
    st.write(0, data(9), true);
    let (_, parts) = st.next_batch().expect("room");
    assert_eq!(parts.iter().map(|part| part.len).sum::<usize>(), 2 * 4096);
}
