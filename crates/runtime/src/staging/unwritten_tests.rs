use super::*;
use crate::staging::sequencer::Writer;
use crate::state::log::lane::Lane;
use siftfs_base::LaneId;

const LANES: u64 = 4 << 20;

/// Two lanes, and a queue for their records.
struct Place {
    lanes: [Lane; 2],
    seq: Sequencer,
    unwritten: Unwritten,
    drawn: u64,
}

impl Place {
    fn new() -> Self {
        let lanes = [0, 1].map(|_| Lane::new(LANES, 0));
        let seq = Sequencer::for_tests();
        Self { lanes, seq, unwritten: Unwritten::default(), drawn: 0 }
    }

    /// Stages a record of a ticket; is the queue full?
    fn stage(&mut self, lane: usize, len: usize) -> bool {
        self.drawn += 1;
        let place = self.lanes[lane].place(len as u64).expect("there is room");
        let offset = place.pos() % LANES;
        let lsn = Lsn(self.drawn);
        let record = self.lanes[lane].fix(place, LaneId(lane as u16), lsn, 0, 64);
        let published = self.seq.publish(&record, Writer::Ticket);
        let mut buf = AlignedBuf::zeroed(len);
        buf.fill(self.drawn as u8);
        self.unwritten.push(Staged { published, lane, offset, buf })
    }
}

/// Lane, offset, and the number of the record that each 4096 bytes are of.
fn shown(runs: &[Run]) -> Vec<(usize, u64, Vec<u8>)> {
    let blocks = |run: &Run| -> Vec<u8> {
        let all: Vec<u8> = run.parts().flatten().copied().collect();
        assert_eq!(all.len(), run.total());
        all.chunks(4096).map(|block| block[0]).collect()
    };
    runs.iter().map(|run| (run.lane(), run.offset(), blocks(run))).collect()
}

#[test]
fn neighbours_in_a_lane_are_one_write() {
    let mut p = Place::new();
    for (lane, len) in [(0, 4096), (1, 8192), (0, 8192), (1, 4096), (0, 4096)] {
        assert!(!p.stage(lane, len));
    }
    assert_eq!(p.unwritten.bytes(), 28_672);
    assert!(!p.unwritten.holds_up(Lsn(0)) && p.unwritten.holds_up(Lsn(1)));
    let runs = p.unwritten.take();
    assert_eq!(shown(&runs), [(0, 0, vec![1, 3, 3, 5]), (1, 0, vec![2, 2, 4])]);
    assert!(!p.unwritten.holds_up(Lsn(5)) && p.unwritten.take().is_empty());
    assert_eq!((p.unwritten.bytes(), p.seq.depths().0), (0, 5));
    let mut spare = 0;
    for run in runs {
        run.completed(&p.seq, &Ok(()), |_| spare += 1);
    }
    assert_eq!((spare, p.seq.depths().0), (5, 0));
    assert_eq!(p.seq.durable(), Lsn(0), "a flush is owed");
    assert!(p.seq.wait_durable(Lsn(5), |_| Ok(())).expect("flushed").covers(Lsn(5)));
}

/// What another thread's record lies between, or the ring's end, is not joined.
#[test]
fn a_gap_divides_a_run() {
    let mut p = Place::new();
    p.stage(0, 4096);
    let between = p.lanes[0].place(4096).expect("room");
    let fsync = p.lanes[0].fix(between, LaneId(0), Lsn(2), 0, 64);
    let fsync = p.seq.publish(&fsync, Writer::Caller);
    p.drawn = 2;
    p.stage(0, 4096);
    assert_eq!(shown(&p.unwritten.take()), [(0, 0, vec![1]), (0, 8192, vec![3])]);
    p.seq.completed(fsync, Ok(())).expect("completes");
}

#[test]
fn the_queue_is_bounded_and_so_is_one_write() {
    let mut p = Place::new();
    let big = 96 << 12;
    assert!(!p.stage(0, big) && !p.stage(1, big));
    assert!(p.stage(0, big), "1152 KiB wait");
    assert!(p.stage(1, 32 << 12));
    let lens: Vec<usize> = p.unwritten.take().iter().map(Run::total).collect();
    assert_eq!(lens, [2 * big, big + (32 << 12)]);
    let mut p = Place::new();
    for _ in 0..4 {
        p.stage(0, 60 << 12);
    }
    p.stage(0, 10 << 12);
    p.stage(0, 10 << 12);
    let lens: Vec<usize> = p.unwritten.take().iter().map(Run::total).collect();
    assert_eq!(lens, [(4 * 60 + 10) << 12, 10 << 12], "a write has 1 MiB at most");
}

/// Rule R21: a write that brought several fails for all of them.
#[test]
fn r21_a_failed_run_is_latched() {
    let mut p = Place::new();
    p.stage(0, 4096);
    p.stage(0, 4096);
    let error = siftfs_base::Error::Io { op: "write", offset: 0, len: 0, errno: libc::EIO };
    for run in p.unwritten.take() {
        run.completed(&p.seq, &Err(error.clone()), drop);
    }
    assert!(p.seq.proof(Lsn(1)).is_err() && p.seq.proof(Lsn(2)).is_err());
    assert!(p.seq.proof(Lsn(0)).expect("nothing is durable for nothing").is_some());
    assert!(p.seq.wait_durable(Lsn(1), |_| Ok(())).is_err());
}
