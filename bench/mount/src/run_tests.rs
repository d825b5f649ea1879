use super::*;
use crate::rows::JOBS;

#[test]
fn the_floor_is_what_one_operation_stages() {
    let io = |writes, write_bytes| Backend { writes, write_bytes, ..Backend::default() };
    assert_eq!(floor_shape(&io(100, 100 * 8192), 100), (1, 8192));
    assert_eq!(floor_shape(&io(104, 104 * 4096), 100), (1, 4096), "a push of another file");
    assert_eq!(floor_shape(&io(200, 200 * 5900), 100), (2, 12288), "whole blocks");
    assert_eq!(floor_shape(&io(0, 0), 100), (1, 4096), "never nothing");
}

#[test]
fn rounds_are_collected() {
    let latency = |j: &&Job| j.rows[0].metric == Metric::Latency;
    let row = &JOBS.iter().find(latency).expect("a row of latencies").rows[0];
    let mut outcome = Outcome { row, floor: None, columns: Vec::new() };
    let cell = |nanos: &[u64], backend| Measured {
        nanos: nanos.to_vec(),
        operations: 3,
        counts: Counts { backend, ..Counts::default() },
        ..Measured::default()
    };
    let counted = |writes| Some(Backend { writes, ..Backend::default() });
    outcome.add("siftfs", 0, cell(&[1000, 2000, 3000], counted(3)));
    outcome.add(EXT4, 0, cell(&[9000], None));
    outcome.add("siftfs", 2, cell(&[5000, 6000, 7000], counted(4)));
    let fuse = outcome.column("siftfs").expect("measured");
    assert_eq!((fuse.rounds.as_slice(), fuse.operations), ([(0, 2.0), (2, 6.0)].as_slice(), 6));
    assert_eq!(fuse.samples.len(), 6);
    assert_eq!(fuse.counts.backend.map(|b| b.writes), Some(7));
    assert!(outcome.column(EXT4).is_some_and(|c| c.counts.backend.is_none()));
    assert!(outcome.column(FLOOR).is_none());
}
