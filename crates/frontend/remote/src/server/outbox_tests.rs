use super::*;
use siftfs_base::Result;

/// Notes what is sent.
#[derive(Default)]
struct Wire(Mutex<Vec<FromServer>>);

impl Wire {
    fn note(&self, message: FromServer) {
        self.0.lock().unwrap().push(message);
    }
}

impl Sender<FromServer> for Wire {
    fn send(&self, message: FromServer) -> Result<()> {
        self.note(message);
        Ok(())
    }

    fn try_send(&self, message: FromServer) -> bool {
        self.note(message);
        true
    }

    fn close(&self) {}
}

fn settled(number: u64) -> FromServer {
    FromServer::Settled { slot: 0, number }
}

/// A client hears that it is not alone any more before it gets an answer that was made after that,
/// and an answer that is given when the session is over still leaves.
#[test]
fn nothing_overtakes_what_waits() {
    let wire = Arc::new(Wire::default());
    let outbox = Outbox::new(wire.clone());
    outbox.begin(settled(0));
    outbox.send(settled(1));
    outbox.queue(FromServer::Shares { others: true });
    outbox.send(settled(2));
    outbox.post(settled(3));
    assert_eq!(wire.0.lock().unwrap().len(), 2, "the rest waits for its thread");
    outbox.end();
    outbox.send(settled(4));
    outbox.queue(FromServer::Shares { others: false });
    assert!(!outbox.is_done());
    outbox.run();
    assert!(outbox.is_done());
    let shares = FromServer::Shares { others: true };
    let wanted = [settled(0), settled(1), shares, settled(2), settled(3), settled(4)];
    assert_eq!(*wire.0.lock().unwrap(), wanted);
    outbox.send(settled(5));
    assert_eq!(wire.0.lock().unwrap().len(), 7);
}

/// Of questions that cannot be answered at once the newest is, which counts for all.
#[test]
fn the_newest_question_is_answered() {
    let wire = Arc::new(Wire::default());
    let outbox = Outbox::new(wire.clone());
    outbox.answer(1);
    outbox.queue(settled(1));
    outbox.answer(2);
    outbox.answer(3);
    outbox.end();
    outbox.run();
    let pong = |number| FromServer::Pong { number };
    assert_eq!(*wire.0.lock().unwrap(), [pong(1), pong(3), settled(1)]);
}
