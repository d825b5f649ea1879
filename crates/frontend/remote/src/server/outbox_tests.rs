use super::*;
use siftfs_base::Result;

/// Notes what is sent.
#[derive(Default)]
struct Wire(Mutex<Vec<FromServer>>, AtomicBool);

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

    fn cut(&self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

/// A hold on a volume that a test gives and takes.
#[derive(Debug, Default)]
struct Given {
    counts: AtomicBool,
    lost: AtomicBool,
}

impl Tenure for Given {
    fn counts_now(&self) -> bool {
        self.counts.load(Ordering::SeqCst) && !self.lost.load(Ordering::SeqCst)
    }

    fn wait(&self, over: &dyn Fn() -> bool) -> bool {
        loop {
            if self.counts_now() {
                return true;
            }
            if over() || self.lost.load(Ordering::SeqCst) {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

fn held() -> (Arc<Wire>, Arc<Given>, Arc<Outbox>) {
    let (wire, given) = (Arc::new(Wire::default()), Arc::new(Given::default()));
    let outbox = Outbox::under(wire.clone(), Some(given.clone()));
    (wire, given, Arc::new(outbox))
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

/// No message leaves while another process may have the volume, not even the answer to a question;
/// all leave in their order once this one is known to have it.
#[test]
fn nothing_leaves_before_it_counts() {
    let (wire, given, outbox) = held();
    // Callers do not wait for it.
    outbox.send(settled(1));
    outbox.post(settled(2));
    outbox.answer(7);
    let sends = outbox.clone();
    let thread = std::thread::spawn(move || sends.run());
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(*wire.0.lock().unwrap(), []);
    given.counts.store(true, Ordering::SeqCst);
    outbox.end();
    thread.join().unwrap();
    let sent = std::mem::take(&mut *wire.0.lock().unwrap());
    assert_eq!(sent, [FromServer::Pong { number: 7 }, settled(1), settled(2)]);
    outbox.send(settled(3));
    assert_eq!(*wire.0.lock().unwrap(), [settled(3)], "at once");
}

/// A server that was taken for dead tells nobody anything: its clients' connections are cut.
#[test]
fn a_server_without_its_volume_cuts_its_clients_off() {
    let (wire, given, outbox) = held();
    given.lost.store(true, Ordering::SeqCst);
    outbox.begin(settled(0));
    assert!(wire.1.load(Ordering::SeqCst), "it was cut");
    outbox.send(settled(1));
    outbox.end();
    outbox.run();
    assert_eq!(*wire.0.lock().unwrap(), []);
    // A connection that is cut waits for nothing.
    let (wire, _, outbox) = held();
    outbox.send(settled(1));
    outbox.cut();
    outbox.end();
    outbox.run();
    assert_eq!(*wire.0.lock().unwrap(), []);
}
