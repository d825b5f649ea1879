use super::*;
use crate::rows::ROWS;

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
    let mut outcome = Outcome { row: &ROWS[0], floor: None, columns: Vec::new() };
    let cell = |nanos: &[u64], writes| Measured {
        nanos: nanos.to_vec(),
        operations: 3,
        backend: writes,
        ..Measured::default()
    };
    let counted = |writes| Some(Backend { writes, ..Backend::default() });
    outcome.add(FUSE, cell(&[1000, 2000, 3000], counted(3)));
    outcome.add(EXT4, cell(&[9000], None));
    outcome.add(FUSE, cell(&[5000, 6000, 7000], counted(4)));
    let fuse = outcome.column(FUSE).expect("measured");
    assert_eq!((fuse.rounds.as_slice(), fuse.operations), ([2.0, 6.0].as_slice(), 6));
    assert_eq!(fuse.samples.len(), 6);
    assert_eq!(fuse.backend.map(|b| b.writes), Some(7));
    assert!(outcome.column(EXT4).is_some_and(|c| c.backend.is_none()));
    assert!(outcome.column(FLOOR).is_none());
}
