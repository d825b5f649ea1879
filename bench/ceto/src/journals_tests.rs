use super::*;

/// A record lies in one piece of the file, behind its first block, and no place is used twice
/// within one round.
#[test]
fn records_go_round_in_one_piece() {
    let (mut at, len) = (0, 3 * 4096 + 4096);
    for _ in 0..5000 {
        let own = place(at, len);
        assert!(own >= at && own < at + len, "{own} behind {at}");
        assert!(in_file(own) >= 4096 && in_file(own) + len <= LOG);
        at = own + len;
    }
}

/// The fields are where a recovery looks.
#[test]
fn a_record_says_what_it_has() {
    let block = described(7, (8192, 4096), [11, 12]);
    let field = |at: usize| u64::from_le_bytes(block[at * 8..at * 8 + 8].try_into().unwrap());
    assert_eq!([0, 1, 2, 3, 4].map(field), [7, 8192, 4096, 11, 12]);
}

/// A writer that waits for room goes on when a checkpoint is made, and fails when one has failed.
#[test]
fn room_is_waited_for() {
    let room = Room::default();
    room.lock().tail = 4096;
    room.until(4096).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| room.until(8192));
        room.lock().failed = Some("lost".into());
        room.moved.notify_all();
        assert_eq!(waits.join().unwrap().unwrap_err().0, "lost");
    });
}
