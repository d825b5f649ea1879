use super::*;
use siftfs_base::Lsn;
use siftfs_calls::{FromServer, SLOTS};
use siftfs_proto::{Carried, Credentials, Recovered, Request};
use siftfs_transport::Sender;
use std::path::Path;
use std::thread::{sleep, spawn};

#[path = "held_tests.rs"]
mod held;

const VOLUME: [u8; 16] = [7; 16];

/// What a client hears.
#[derive(Default)]
struct Hears(Mutex<Vec<FromServer>>);

impl Sender<FromServer> for Hears {
    fn send(&self, message: FromServer) -> Result<()> {
        self.0.lock().unwrap().push(message);
        Ok(())
    }
    fn try_send(&self, _: FromServer) -> bool {
        false
    }
    fn close(&self) {}
}

/// A session that has nothing.
struct Nothing;

impl FileService for Nothing {
    fn call(&self, _: &Credentials, _: Request) -> Result<Reply> {
        Ok(Reply::Done)
    }
}

/// A connection ends, and nothing that came by it is under way. How many sessions are over.
fn leave(clients: &Clients, connection: Connection, how: Leaving) -> usize {
    let over = clients.leaves(connection, Arc::new(Nothing), how).len();
    clients.is_quiet(connection);
    over
}

fn outbox() -> Arc<Outbox> {
    Arc::new(Outbox::new(Arc::new(Hears::default())))
}

fn epoch(number: u64) -> VolumeEpoch {
    VolumeEpoch { number, nonce: 100 * number }
}

/// A volume's epoch begins, of which the header names the one before; and that was recovered.
fn begins(path: &Path, last: u64, next: u64, found: Option<&Recovered>) {
    let (last, next) = (epoch(last), epoch(next));
    let store: Arc<dyn BookStore> = Arc::new(BookFile::new(path));
    note_epoch(&store, Begins { volume: VOLUME, last, next, found }).unwrap();
}

/// A server that has opened the volume, in this epoch, and has found what one before it left.
fn server(path: &Path, number: u64, found: Option<Recovered>) -> Arc<Clients> {
    let last = found.as_ref().map_or(number - 1, |found| found.epoch);
    begins(path, last, number, found.as_ref());
    let (epoch, recovered) = (epoch(number), found.is_some());
    let before =
        Before { book: Some(Arc::new(BookFile::new(path))), epoch, recovered, ..Before::default() };
    Arc::new(Clients::new(VOLUME, before).unwrap())
}

fn found(epoch: u64) -> Option<Recovered> {
    Some(Recovered { epoch, ops_cut: Lsn(50), ..Recovered::default() })
}

fn arrive(clients: &Clients, client: u64, instance: u64) -> (Back, Connection) {
    let returning = Returning { client, instance };
    comes(clients, Comes { returning, whose: None, is_program: false }).unwrap()
}

fn comes(clients: &Clients, comes: Comes) -> Result<(Back, Connection)> {
    let outbox = outbox();
    let notices = Arc::new(Notices::new(outbox.clone()));
    clients.arrive(comes, (&outbox, &notices))
}

fn program(clients: &Clients, client: u64, whose: Option<Whose>) -> Result<Connection> {
    let returning = Returning { client, instance: 0 };
    let program = Comes { returning, whose, is_program: true };
    comes(clients, program).map(|(_, connection)| connection)
}

fn kept(instance: u64, order: u64, lsn: u64, number: u64) -> Change {
    let (inode, place) = (Some((12, 3)), SLOTS - 1);
    Change::Kept(Kept { instance, order, lsn, inode, place, number, tried: [0; TRIES] })
}

fn absolute() -> Change {
    Change::Absolute { place: 7, number: 1 }
}

fn admit(clients: &Clients, connection: Connection, change: Change) -> Verdict {
    clients.admit(Some(connection), (Some(&change), Some(12)), || false)
}

fn runs(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Run)
}

fn is_there(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::There(12))
}

/// Which server a client finds decides what it is told. That its session was ended it is told until
/// it is back: seen to be told that it is the same, and to have a rename carried out twice, in the
/// model (`HeardOnce` in `testing/protocol/src/wire`).
#[test]
fn a_client_learns_what_became_of_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    let (back, connection) = arrive(&first, 1, 0);
    assert_eq!(back, Back::New);
    leave(&first, connection, Leaving::Lost);
    assert_eq!(arrive(&first, 1, first.instance).0, Back::Same);
    arrive(&first, 2, 0);
    assert_eq!(arrive(&first, 9, first.instance).0, Back::Unknown, "it was forgotten");
    let (back, late) = arrive(&first, 9, first.instance);
    assert_eq!(back, Back::Unknown, "it may not have heard that");
    let _over = first.returned(late);
    assert_eq!(arrive(&first, 9, first.instance).0, Back::Same);
    // It dies.
    let second = server(&path, 5, found(4));
    assert_eq!(arrive(&second, 1, first.instance).0, Back::Again);
    assert_eq!(arrive(&second, 3, first.instance).0, Back::Unknown, "nobody wrote it down");
    assert_eq!(arrive(&second, 2, 77).0, Back::Unknown, "a server that nobody knows");
    second.ended().unwrap();
    // That one ended in order.
    let third = server(&path, 6, None);
    assert_eq!(arrive(&third, 1, second.instance).0, Back::Clean);
    // Somebody else recovered the volume since.
    let fourth = server(&path, 9, None);
    assert_eq!(arrive(&fourth, 1, third.instance).0, Back::Unknown);
    let fifth = server(&path, 12, found(11));
    assert_eq!(arrive(&fifth, 1, fourth.instance).0, Back::Unknown, "of another epoch");
}

/// Who has gone in order is not waited for; a book for nobody does not stay.
#[test]
fn a_client_that_leaves_is_struck_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    assert!(!path.exists());
    let (_, one) = arrive(&first, 1, 0);
    let (_, other) = arrive(&first, 2, 0);
    assert!(path.exists());
    leave(&first, one, Leaving::ForGood);
    assert_eq!(first.take_gone(), [1]);
    let second = server(&path, 5, found(4));
    assert!(!second.is_open());
    let (_, connection) = arrive(&second, 2, first.instance);
    assert!(second.returned(connection).is_empty());
    assert!(second.wait_open(&|| false), "nobody else is waited for");
    leave(&second, connection, Leaving::ForGood);
    second.ended().unwrap();
    assert!(!path.exists());
    leave(&first, other, Leaving::ForGood);
}

/// Two clients repeat what they keep in the order of the server that died, and reclaim when both
/// have; others wait for both.
#[test]
fn clients_repeat_in_their_servers_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    for client in 1..=2 {
        arrive(&first, client, 0);
    }
    let of = first.instance;
    let second = server(&path, 5, found(4));
    let order = Arc::new(Mutex::new(Vec::new()));
    let clients: Vec<_> = [(1, vec![1, 4, 5]), (2, vec![2, 3, 6])]
        .into_iter()
        .map(|(client, orders)| {
            let (second, order) = (second.clone(), order.clone());
            spawn(move || {
                let (back, connection) = arrive(&second, client, of);
                assert_eq!(back, Back::Again);
                for number in orders {
                    let change = kept(of, number, 0, number);
                    assert!(runs(&admit(&second, connection, change)));
                    order.lock().unwrap().push(number);
                    second.done(
                        connection,
                        &change,
                        (Some(12), Done::default()),
                        (&Ok(Reply::Done), Owed::default()),
                    );
                }
                assert!(runs(&admit(&second, connection, Change::Reclaim)));
                order.lock().unwrap().push(10);
                assert!(second.returned(connection).is_empty());
            })
        })
        .collect();
    assert!(second.wait_open(&|| false));
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5, 6, 10, 10]);
}

/// Where two servers have died one after the other, what the second one repeated comes before what
/// it had not come to, whatever numbers the two have drawn.
#[test]
fn what_was_repeated_already_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let (one, two) = loop {
        let _ = std::fs::remove_file(&path);
        let first = server(&path, 4, None);
        for client in 1..=2 {
            arrive(&first, client, 0);
        }
        let second = server(&path, 5, found(4));
        if first.instance < second.instance {
            break (first.instance, second.instance);
        }
    };
    let third = server(&path, 6, found(5));
    let (_, late) = arrive(&third, 1, one);
    let (_, early) = arrive(&third, 2, one);
    let theirs = third.clone();
    let waits = spawn(move || admit(&theirs, late, kept(one, 5, 0, 1)));
    sleep(Duration::from_millis(50));
    assert!(!waits.is_finished(), "the other one has an older change, if any");
    let repeated = kept(two, 1, 0, 2);
    assert!(runs(&admit(&third, early, repeated)));
    assert!(!waits.is_finished(), "it was made before");
    third.done(early, &repeated, (Some(12), Done::default()), (&Ok(Reply::Done), Owed::default()));
    let theirs = third.clone();
    let reclaims = spawn(move || admit(&theirs, early, Change::Reclaim));
    assert!(runs(&waits.join().unwrap()));
    assert!(third.returned(late).is_empty());
    assert!(runs(&reclaims.join().unwrap()));
}

/// A client whose connection is lost while it comes back is waited for as before, and what it keeps
/// is not repeated once others have gone on.
#[test]
fn a_client_that_is_lost_on_its_way_back_has_not_returned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    for client in 1..=2 {
        arrive(&first, client, 0);
    }
    let of = first.instance;
    let second = server(&path, 5, found(4));
    let (_, lost) = arrive(&second, 1, of);
    let (_, other) = arrive(&second, 2, of);
    second.is_quiet(lost);
    drop(second.leaves(lost, Arc::new(Nothing), Leaving::Lost));
    assert!(second.returned(other).is_empty());
    assert!(!second.is_open(), "it has not repeated anything");
    let (back, lost) = arrive(&second, 1, of);
    assert_eq!(back, Back::Again);
    assert!(runs(&admit(&second, lost, kept(of, 3, 0, 1))));
    assert!(!second.is_open());
    // It is lost once more, and too late.
    second.is_quiet(lost);
    drop(second.leaves(lost, Arc::new(Nothing), Leaving::Lost));
    second.lock().until = Instant::now();
    assert!(second.wait_open(&|| false));
    let (back, late) = arrive(&second, 1, of);
    assert_eq!(back, Back::Unknown);
    assert!(!second.may_lock_again(late));
    assert!(matches!(admit(&second, late, kept(of, 4, 0, 2)), Verdict::Refused(_)));
    assert!(second.take_gone().is_empty(), "it is here again");
    // It is written down again.
    let third = server(&path, 6, found(5));
    assert_eq!(arrive(&third, 1, second.instance).0, Back::Again);
}

/// A client that has synced a file keeps its changes until it has the answer. Others may write and
/// sync the file meanwhile.
#[test]
fn a_sync_without_its_answer_leaves_changes_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    let (_, one) = arrive(&first, 1, 0);
    let (_, other) = arrive(&first, 2, 0);
    let done = |order| Done { order, ..Done::default() };
    first.done(one, &absolute(), (Some(12), done(1)), (&Ok(Reply::Done), Owed::default()));
    first.synced(Some(1), 12, 1).unwrap();
    assert!(!first.wants_durable(), "it is durable");
    first.done(other, &absolute(), (Some(12), done(2)), (&Ok(Reply::Done), Owed::default()));
    first.synced(Some(2), 12, 2).unwrap();
    let second = server(&path, 5, found(4));
    let (_, one) = arrive(&second, 1, first.instance);
    arrive(&second, 2, 0);
    assert!(is_there(&admit(&second, one, kept(first.instance, 1, 0, 1))), "it would be older");
    // One that is away may be forgotten.
    first.synced(Some(2), 12, 2).unwrap();
    drop(first.leaves(other, Arc::new(Nothing), Leaving::Lost));
    assert!(first.wants_durable());
    first.all_durable(2).unwrap();
    assert!(!first.wants_durable());
}

/// A change is repeated unless it is there: by what was recovered, or by what was written down.
#[test]
fn what_is_there_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    let (_, one) = arrive(&first, 1, 0);
    let (_, other) = arrive(&first, 2, 0);
    let done = |order| Done { order, ..Done::default() };
    first.done(one, &absolute(), (Some(12), done(3)), (&Ok(Reply::Done), Owed::default()));
    first.all_durable(2).unwrap();
    // The other's sync covers what this one keeps.
    first.synced(Some(2), 12, 4).unwrap();
    first.synced(Some(2), 13, 4).unwrap();
    leave(&first, other, Leaving::ForGood);
    let of = first.instance;
    let mut recovered = found(4).unwrap();
    recovered.ops.insert(Lsn(60));
    recovered.note(1, 5, Carried { number: 8, lsn: Lsn(60), ino: 12 });
    let second = server(&path, 5, Some(recovered));
    let (_, one) = arrive(&second, 1, of);
    let mut number = 100;
    let mut ask = |order, lsn| {
        number += 1;
        let change = kept(of, order, lsn, number);
        let verdict = admit(&second, one, change);
        second.done(one, &change, (None, Done::default()), (&Ok(Reply::Done), Owed::default()));
        verdict
    };
    assert!(is_there(&ask(2, 0)), "all up to here was durable");
    assert!(is_there(&ask(4, 0)), "a sync of the file");
    assert!(runs(&ask(5, 0)));
    assert!(is_there(&ask(6, 50)) && is_there(&ask(7, 60)), "recovered");
    assert!(runs(&ask(8, 51)), "not recovered");
    assert!(second.returned(one).is_empty());
    assert!(matches!(admit(&second, one, kept(of, 9, 0, 200)), Verdict::Refused(_)), "too late");
    // What was not answered.
    let once = |place, number| Change::Once { place, number };
    assert!(is_there(&admit(&second, one, once(5, 8))));
    assert!(runs(&admit(&second, one, once(5, 9))));
    assert!(runs(&admit(&second, one, once(6, 1))));
    assert!(matches!(admit(&second, one, once(SLOTS, 1)), Verdict::Refused(_)));
}

/// A call that comes again after a lost connection is answered as before, and waits while an older
/// connection's thread is at it.
#[test]
fn a_repeated_call_is_carried_out_once() {
    carried_out_once(|number| Change::Once { place: 3, number });
    carried_out_once(|number| Change::Absolute { place: 3, number });
}

fn carried_out_once(of: impl Fn(u64) -> Change) {
    let clients = Arc::new(Clients::new(VOLUME, Before::default()).unwrap());
    let (_, old) = arrive(&clients, 1, 0);
    let change = of(5);
    assert!(runs(&admit(&clients, old, change)));
    assert!(clients.leaves(old, Arc::new(Nothing), Leaving::Lost).is_empty());
    let (_, new) = arrive(&clients, 1, clients.instance);
    let theirs = clients.clone();
    let waits = spawn(move || admit(&theirs, new, change));
    sleep(Duration::from_millis(50));
    assert!(!waits.is_finished());
    let done = Done { order: 9, lsn: 4, at: None };
    // Another session has not taken note of it.
    let mut owed = Owed::default();
    let notice = siftfs_proto::Notice::new(&mut owed);
    clients.done(old, &change, (None, done), (&Ok(Reply::Flags(1)), owed));
    clients.is_quiet(old);
    let Verdict::Answered(result, said, owed) = waits.join().unwrap() else { panic!("no answer") };
    assert_eq!((*result, said), (Ok(Reply::Flags(1)), done));
    assert!(!owed.is_settled(), "the answer that is given again waits, too");
    drop(notice);
    assert!(owed.is_settled());
    assert!(matches!(admit(&clients, new, of(4)), Verdict::Refused(_)));
    assert!(matches!(admit(&clients, old, change), Verdict::Over), "an older connection");
    assert!(runs(&admit(&clients, new, of(6))));
}

/// What an older connection brought is carried out, or is not, before a later one changes anything:
/// else an older write could come over a newer one.
#[test]
fn an_older_connection_is_quiet_before_a_later_one_changes_anything() {
    let clients = Arc::new(Clients::new(VOLUME, Before::default()).unwrap());
    let (_, old) = arrive(&clients, 1, 0);
    let (_, new) = arrive(&clients, 1, clients.instance);
    for change in [absolute(), Change::Reclaim] {
        let first = Arc::new(AtomicBool::new(false));
        let over = first.clone();
        let verdict = clients
            .admit(Some(new), (Some(&change), None), move || over.swap(true, Ordering::SeqCst));
        assert!(matches!(verdict, Verdict::Over), "it waits until it is over");
        assert!(first.load(Ordering::SeqCst));
    }
    assert!(runs(&clients.admit(Some(new), (None, None), || false)), "what only reads");
    leave(&clients, old, Leaving::Lost);
    assert!(runs(&admit(&clients, new, absolute())));
    assert!(runs(&admit(&clients, new, Change::Reclaim)));
}

/// The session of a lost connection keeps what it has until its client has taken that back, or the
/// term is over; those of more connections end the oldest one.
#[test]
fn a_lost_connection_keeps_its_session() {
    let clients = Clients::new(VOLUME, Before::default()).unwrap();
    let (_, first) = arrive(&clients, 1, 0);
    assert_eq!(leave(&clients, first, Leaving::Lost), 0);
    assert!(clients.take_late().is_empty(), "its term is not over");
    let (back, second) = arrive(&clients, 1, clients.instance);
    assert_eq!(back, Back::Same);
    assert!(clients.may_lock_again(second));
    assert_eq!(leave(&clients, second, Leaving::Lost), 0, "it has not taken anything back");
    let (_, third) = arrive(&clients, 1, clients.instance);
    let (_, fourth) = arrive(&clients, 1, clients.instance);
    assert_eq!(leave(&clients, third, Leaving::Lost), 1, "the oldest one of three");
    assert_eq!(clients.returned(fourth).len(), 2);
    assert_eq!(leave(&clients, fourth, Leaving::Ended), 1, "it broke a rule");
    let (_, fifth) = arrive(&clients, 1, clients.instance);
    assert_eq!(leave(&clients, fifth, Leaving::Lost), 0);
    let later = Instant::now() + Duration::from_secs(11);
    assert_eq!(
        clients.lock().clients.values_mut().map(|c| c.take_late(later).len()).sum::<usize>(),
        1
    );
    let (back, sixth) = arrive(&clients, 1, clients.instance);
    assert_eq!(back, Back::Same);
    assert!(!clients.may_lock_again(sixth), "its locks were free");
    assert_eq!(leave(&clients, sixth, Leaving::Lost), 0);
    let (_, seventh) = arrive(&clients, 1, clients.instance);
    assert_eq!(leave(&clients, seventh, Leaving::ForGood), 2, "all that there is of it");
}

/// Programs come and go: one that has left is forgotten at once, one that is away soon, and where
/// there is no room the one that has ended is the first to go. One key has not all the room.
#[test]
fn programs_make_room() {
    let clients = Clients::new(VOLUME, Before::default()).unwrap();
    let key = Some([1; 32]);
    let all: Vec<_> = (1..=64).map(|id| program(&clients, id, key).unwrap()).collect();
    assert!(matches!(program(&clients, 100, key), Err(Error::Refused(_))), "one too many");
    program(&clients, 101, Some([2; 32])).unwrap();
    assert_eq!(leave(&clients, all[0], Leaving::ForGood), 1);
    let next = program(&clients, 102, key).unwrap();
    // The connection is lost, and its client may come back.
    assert_eq!(leave(&clients, next, Leaving::Lost), 0);
    assert!(matches!(program(&clients, 103, key), Err(Error::Refused(_))), "it is waited for");
    assert_eq!(leave(&clients, all[1], Leaving::Ended), 1);
    program(&clients, 104, key).unwrap();
    assert!(clients.take_gone().contains(&2), "its process had ended");

    let (_, mount) = arrive(&clients, 200, 0);
    let other = program(&clients, 201, None).unwrap();
    assert_eq!(leave(&clients, mount, Leaving::Ended), 1);
    assert_eq!(leave(&clients, other, Leaving::Ended), 1);
    let known = |after: u64| {
        let mut state = clients.lock();
        state.forget(Instant::now() + Duration::from_secs(after));
        [200, 201].map(|id| state.clients.contains_key(&id))
    };
    assert_eq!(known(5), [true, true]);
    assert_eq!(known(11), [true, false]);
    assert_eq!(known(61), [false, false]);
}

/// A change of names that a server carried out before it ended in order, and whose answer the
/// client may not have got, is there at the next one. A write is made again, and what failed is
/// tried again.
#[test]
fn replies_outlive_a_server_that_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    let (_, one) = arrive(&first, 1, 0);
    let once = |number| Change::Once { place: 3, number };
    let (made, failed) = (once(8), Change::Once { place: 4, number: 1 });
    let done = |order, lsn| Done { order, lsn, at: None };
    let owed = Owed::default;
    for (change, said, result) in [
        (made, done(1, 60), Ok(Reply::Done)),
        (failed, done(0, 0), Err(errno(libc::EEXIST))),
        (absolute(), done(2, 0), Ok(Reply::Done)),
    ] {
        assert!(runs(&admit(&first, one, change)));
        first.done(one, &change, (None, said), (&result, owed()));
    }
    leave(&first, one, Leaving::Ended);
    first.ended().unwrap();
    let second = server(&path, 5, None);
    let (back, one) = arrive(&second, 1, first.instance);
    assert_eq!(back, Back::Clean);
    assert!(second.returned(one).is_empty());
    assert!(matches!(admit(&second, one, made), Verdict::There(0)));
    assert!(runs(&admit(&second, one, failed)));
    assert!(runs(&admit(&second, one, absolute())));
    assert!(runs(&admit(&second, one, once(9))));
}

/// A client that was told by a connection that was lost what is durable, and may not have heard
/// it, is told again: it would keep that for ever.
#[test]
fn what_is_durable_is_told_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir.path().join("book"), 4, None);
    let (_, one) = arrive(&server, 1, 0);
    server.all_durable(7).unwrap();
    leave(&server, one, Leaving::Lost);
    let hears = Arc::new(Hears::default());
    let outbox = Arc::new(Outbox::new(hears.clone()));
    let notices = Arc::new(Notices::new(outbox.clone()));
    let returning = Returning { client: 1, instance: server.instance };
    let comes = Comes { returning, whose: None, is_program: false };
    let (back, connection) = server.arrive(comes, (&outbox, &notices)).unwrap();
    assert_eq!(back, Back::Same);
    assert!(server.returned(connection).len() < 2);
    outbox.end();
    outbox.run();
    let heard = hears.0.lock().unwrap();
    assert!(matches!(heard[..], [FromServer::Durable { order: 7 }]), "{heard:?}");
}

/// Clients of which no book says anything are waited for once, also where those that wait die:
/// after the recovery, before it, or while they wait.
#[test]
fn unknown_clients_are_waited_for_until_one_server_has_done_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 5, found(4));
    assert!(!first.is_open() && !first.lock().open);
    first.listens();
    // It dies. The next one dies in its recovery, and leaves nothing to be found.
    begins(&path, 5, 6, found(5).as_ref());
    let third = server(&path, 7, None);
    assert!(!third.lock().open, "the first one had waited for a moment");
    third.listens();
    third.lock().until = Instant::now();
    assert!(third.wait_open(&|| false));
    let fourth = server(&path, 8, found(7));
    assert!(fourth.lock().open, "they were waited for");
}

/// What was repeated at a server that died before it answered may be there, also where a later one
/// died before it had come to it: it is looked for by all the numbers that it had.
#[test]
fn what_several_dead_servers_were_asked_for_is_carried_out_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    arrive(&first, 1, 0);
    let second = server(&path, 5, found(4));
    arrive(&second, 1, first.instance);
    let mut made = found(5).unwrap();
    made.note(1, SLOTS - 1, Carried { number: 6, lsn: Lsn(70), ino: 12 });
    let third = server(&path, 6, Some(made));
    arrive(&third, 1, first.instance);
    let fourth = server(&path, 7, found(6));
    let (_, one) = arrive(&fourth, 1, first.instance);
    let again = |number, tried: [u64; 2]| {
        let mut numbers = [0; TRIES];
        let (place, inode) = (SLOTS - 1, Some((12, 3)));
        numbers[..2].copy_from_slice(&tried);
        let (instance, order, lsn) = (first.instance, 3, 90);
        Change::Kept(Kept { instance, order, lsn, inode, place, number, tried: numbers })
    };
    assert!(is_there(&admit(&fourth, one, again(8, [6, 7]))));
    assert!(runs(&admit(&fourth, one, again(9, [7, 0]))));
}

/// A server without a book, and a session that keeps nothing, have nothing to wait for.
#[test]
fn who_does_not_come_back_changes_nothing() {
    let clients = Clients::new(VOLUME, Before::default()).unwrap();
    assert!(clients.is_open());
    assert!(runs(&clients.admit(None, (None, None), || false)));
    let claimed = clients.admit(None, (Some(&Change::Reclaim), None), || false);
    assert!(matches!(claimed, Verdict::Refused(_)), "it has no connection that comes back");
}

/// A client that does not come back is struck out when the grace time is over.
#[test]
fn the_grace_time_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    for client in 1..=2 {
        arrive(&first, client, 0);
    }
    let second = server(&path, 5, found(4));
    let (_, one) = arrive(&second, 1, first.instance);
    assert!(second.returned(one).is_empty());
    assert!(!second.is_open());
    second.lock().until = Instant::now();
    assert!(second.wait_open(&|| false));
    let (back, late) = arrive(&second, 2, first.instance);
    assert_eq!(back, Back::Unknown);
    assert!(matches!(admit(&second, late, kept(first.instance, 1, 0, 1)), Verdict::Refused(_)));
}

/// A server dies when the volume is recovered and open, and before it has a part of its own. The
/// next one finds an epoch with nothing in it, and knows the clients of the one before.
#[test]
fn a_death_before_the_own_part_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 4, None);
    arrive(&first, 1, 0);
    let of = first.instance;
    begins(&path, 4, 5, found(4).as_ref());
    begins(&path, 5, 6, None);
    let second = server(&path, 7, found(6));
    let (back, connection) = arrive(&second, 1, of);
    assert_eq!(back, Back::Again);
    assert!(is_there(&admit(&second, connection, kept(of, 1, 50, 1))));
    assert!(runs(&admit(&second, connection, kept(of, 2, 51, 2))));
}

/// A server that had to recover its volume and finds no book does not know for whom to wait: it
/// waits the grace time out. One that finds the book of a server without clients does not.
#[test]
fn a_server_without_a_book_waits_for_those_that_it_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    let first = server(&path, 5, found(4));
    first.listens();
    assert!(!first.is_open());
    let (_, connection) = arrive(&first, 1, 0);
    assert!(!first.is_open(), "one that comes is not all of them");
    let begun = Instant::now();
    assert!(first.wait_open(&|| false));
    let waited = begun.elapsed();
    assert!(waited > GRACE / 2 && waited < GRACE + Duration::from_secs(1), "{waited:?}");
    leave(&first, connection, Leaving::ForGood);
    drop(first);
    assert!(path.exists());
    let second = server(&path, 6, found(5));
    assert!(second.is_open(), "a book that names nobody");
    second.listens();
    second.ended().unwrap();
    assert!(!path.exists());
    assert!(server(&path, 7, None).is_open(), "there was nothing to recover");
}
