use super::*;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};

fn board() -> Arc<Board> {
    Arc::new(Board::default())
}

#[test]
fn a_process_is_ready_while_it_serves() {
    let board = board();
    assert!(board.ready().unwrap_err().starts_with("recovering"));
    assert!(board.status().unwrap_err().starts_with("recovering"));
    board.state().set(State::Standby);
    assert!(board.ready().unwrap_err().starts_with("standby"));
    let failed = Arc::new(Mutex::new(None));
    let says = failed.clone();
    board.show(move || {
        let mut status = Status { state: Some(State::Serving), ..Status::default() };
        status.runtime.failed = says.lock().unwrap().clone();
        Ok(status)
    });
    assert!(board.ready().unwrap_err().starts_with("standby"), "it does not serve by itself");
    board.state().set(State::Serving);
    assert_eq!(board.ready(), Ok(()));
    *failed.lock().unwrap() = Some("flush: EIO".to_string());
    assert_eq!(board.ready(), Err("latched: flush: EIO".into()));
    *failed.lock().unwrap() = None;
    board.state().set(State::Closing);
    assert!(board.ready().unwrap_err().starts_with("closing"));
}

/// A volume that does not answer keeps those who ask for a bounded time, and one thread.
#[test]
fn a_volume_that_does_not_answer_is_not_ready() {
    let (board, begun) = (board(), Instant::now());
    let (go_on, stays): (_, Receiver<()>) = channel();
    let stays = Mutex::new(stays);
    board.state().set(State::Serving);
    board.show(move || {
        let stays = stays.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stays.recv();
        Ok(Status { state: Some(State::Serving), ..Status::default() })
    });
    let others: Vec<_> = (0..4)
        .map(|_| {
            let board = board.clone();
            thread::spawn(move || board.ready())
        })
        .collect();
    for said in others {
        assert!(said.join().unwrap().unwrap_err().contains("does not answer"));
    }
    assert!(begun.elapsed() >= LIMIT && begun.elapsed() < 10 * LIMIT, "{:?}", begun.elapsed());
    // It answers again, and so does the board.
    drop(go_on);
    assert_eq!(board.ready(), Ok(()));
}
