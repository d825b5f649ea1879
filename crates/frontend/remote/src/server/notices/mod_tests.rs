use super::*;
use siftfs_base::Result;
use siftfs_proto::Owed;
use siftfs_transport::Sender;

/// Counts the notices that are sent.
#[derive(Default)]
struct Wire(Mutex<usize>);

impl Sender<FromServer> for Wire {
    fn send(&self, message: FromServer) -> Result<()> {
        let counts = matches!(message, FromServer::Notice { .. });
        *self.0.lock().unwrap() += usize::from(counts);
        Ok(())
    }

    fn try_send(&self, message: FromServer) -> bool {
        self.send(message).is_ok()
    }

    fn close(&self) {}
}

fn notices() -> (Arc<Notices>, Arc<Outbox>, Arc<Wire>) {
    let wire = Arc::new(Wire::default());
    let outbox = Arc::new(Outbox::new(wire.clone()));
    (Arc::new(Notices::new(outbox.clone())), outbox, wire)
}

/// How many notices a connection has sent.
fn sent(outbox: &Outbox, wire: &Wire) -> usize {
    outbox.end();
    outbox.run();
    *wire.0.lock().unwrap()
}

/// A change of which such a kernel is told, and what it owes.
fn change(notices: &Notices) -> Owed {
    let mut owed = Owed::default();
    let mut notice = Notice::new(&mut owed);
    notice.attributes.push(7);
    notices.take_back(notice);
    owed
}

/// Changes wait for a kernel whose connection is lost until its term is over, those from before and
/// those from after the loss.
#[test]
fn notices_are_held_for_a_kernel_that_is_away() {
    let (notices, outbox, wire) = notices();
    assert!(notices.asks());
    let before = change(&notices);
    let until = notices.lost();
    let left = until.saturating_duration_since(Instant::now());
    assert!(left > CERTAIN - Duration::from_secs(1) && left <= CERTAIN, "{left:?}");
    assert!(!notices.asks(), "a question is not answered any more");
    let after = change(&notices);
    assert!(!before.is_settled() && !after.is_settled());
    notices.runs_out();
    assert!(before.is_settled() && after.is_settled());
    assert!(change(&notices).is_settled(), "the kernel shows nothing any more");
    assert_eq!(sent(&outbox, &wire), 1);
}

/// The next connection tells what was held, and what the session before is told from then on.
#[test]
fn the_next_connection_tells_what_was_held() {
    let (first, ..) = notices();
    let (second, outbox, wire) = notices();
    let before = change(&first);
    first.lost();
    let held = change(&first);
    first.go_on(&second);
    let after = change(&first);
    first.runs_out();
    first.end();
    assert!(!before.is_settled() && !held.is_settled() && !after.is_settled());
    assert!(!first.taken(0));
    (0..3).for_each(|number| assert!(second.taken(number)));
    assert!(before.is_settled() && held.is_settled() && after.is_settled());
    assert_eq!(sent(&outbox, &wire), 3);
}

/// A notice that goes from one connection to the next is not younger for that.
#[test]
fn a_notice_keeps_its_age() {
    let (first, ..) = notices();
    let (second, ..) = notices();
    let owed = change(&first);
    let old = Instant::now().checked_sub(TERM + Duration::from_secs(1)).unwrap();
    first.lock().notices.values_mut().for_each(|noted| noted.since = old);
    first.lost();
    first.go_on(&second);
    assert!(second.is_late() && !owed.is_settled());
}

/// Each term comes to its end, and a server that ends waits for all of them.
#[test]
fn terms_come_to_their_ends() {
    let terms = Arc::new(Terms::default());
    terms.wait();
    let begun = Instant::now();
    let owed = [300, 100].map(|after| {
        let (notices, ..) = notices();
        let owed = change(&notices);
        notices.lost();
        terms.hold(begun + Duration::from_millis(after), notices);
        owed
    });
    terms.wait();
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(owed.iter().all(Owed::is_settled));
}
