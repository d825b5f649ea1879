//! Holder and grantor under every order of their threads and of what each sees of the other's
//! memory, and a holder that says what it likes.

use super::*;
use crate::writer::{Place, Publish, Published, Settled, Writer};
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use proptest::prelude::*;
use std::sync::atomic::Ordering::SeqCst;

/// Memory of a model in which every order of steps that the memory model allows is tried.
struct Model(Vec<AtomicU64>);

impl Words for Model {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0[index].load(order)
    }
    fn fence() {
        fence(SeqCst);
    }
}

impl Own for Model {
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.0[index].store(value, order);
    }
}

const SHAPE: Shape = Shape { page: 48, slots: 1, records: 2, data: 16 };
const LARGEST: u64 = 1 << 40;

type Shared = (Arc<Model>, Arc<Model>);

fn memories() -> Shared {
    let of = |words: usize| Arc::new(Model((0..words).map(|_| AtomicU64::new(0)).collect()));
    (of(SHAPE.grantor_words()), of(SHAPE.holder_words()))
}

fn sides() -> (Reader<Model, Model>, Writer<Model, Model>, Shared) {
    let shared = memories();
    let reader = Reader::new(shared.clone(), SHAPE, (1, LARGEST));
    let writer = Writer::new(shared.clone(), SHAPE, LARGEST);
    (reader, writer, shared)
}

fn bounded(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// What the grantor took in: each write by its bytes, and its lease.
#[derive(Default)]
struct Took(Vec<(u64, Vec<u8>)>);

impl Took {
    fn sink(&mut self) -> impl FnMut(&Record, Vec<u8>) + '_ {
        |record, bytes| self.0.push((record.held.number, bytes))
    }

    fn times(&self, byte: u8) -> usize {
        self.0.iter().filter(|(_, bytes)| *bytes == [byte; 4]).count()
    }
}

/// Takes in what is published, one record at a time, as the back end does it.
pub fn ingest<G: Own, H: Words>(
    reader: &mut Reader<G, H>,
    sink: &mut dyn FnMut(&Record, Vec<u8>),
) -> Result<()> {
    let Ingestion { mut headers, data, mut taken } = reader.begin()?;
    loop {
        let (fetched, result) = headers.fetch((1, u64::MAX));
        let Some(fetched) = fetched else { return result };
        for record in &fetched.records {
            let mut bytes = vec![0; record.len as usize];
            data.copy(record.data, &mut bytes);
            sink(record, bytes);
        }
        taken.release(fetched.until);
        result?;
    }
}

/// Ends leases with what is published of them.
pub fn end<G: Own, H: Words>(
    reader: &mut Reader<G, H>,
    leases: &[Held],
    sink: &mut dyn FnMut(&Record, Vec<u8>),
    ended: impl FnMut(&G, usize),
) -> Result<()> {
    reader.end(leases, |reader| ingest(reader, sink), ended)
}

/// What a holder was told of a write of four bytes like this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Done(u8),
    /// It is to go through the mount.
    NotDone(u8),
}

/// What wakes a holder that waits for the end of a recall, as the kernel does.
#[derive(Default)]
struct Bell {
    waiters: Mutex<()>,
    woken: Condvar,
}

impl Bell {
    fn ring(&self) {
        let _waiters = self.waiters.lock().unwrap();
        self.woken.notify_all();
    }

    fn wait(&self, grantor: &Model, published: &Published) -> bool {
        let mut waits = self.waiters.lock().unwrap();
        loop {
            match published.settled(grantor) {
                Settled::NotYet { .. } => waits = self.woken.wait(waits).unwrap(),
                Settled::Done => return true,
                Settled::Lost => return false,
            }
        }
    }

    fn told(&self, grantor: &Model, published: Publish, byte: u8) -> Told {
        let Publish::Published(published) = published else { return Told::NotDone(byte) };
        match published.look(grantor) || self.wait(grantor, &published) {
            true => Told::Done(byte),
            false => Told::NotDone(byte),
        }
    }
}

/// A bell for both sides.
fn bells() -> (Arc<Bell>, Arc<Bell>) {
    let bell = Arc::new(Bell::default());
    (bell.clone(), bell)
}

/// A write that is done was taken in once. One that is not was not taken in at all.
fn judge(taken: &Took, told: impl IntoIterator<Item = Told>) {
    for told in told {
        match told {
            Told::Done(byte) => assert_eq!(taken.times(byte), 1, "{told:?}"),
            Told::NotDone(byte) => assert_eq!(taken.times(byte), 0, "{told:?}"),
        }
    }
    assert!(taken.0.iter().all(|(_, bytes)| bytes.iter().all(|b| *b == bytes[0])), "a torn write");
}

/// A recall beside two writes. Nothing is taken in after the end.
#[test]
fn a_write_is_done_exactly_if_a_recall_takes_it_in() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, _)) = sides();
        let (bell, ringer) = bells();
        let held = reader.grant(0);
        let recall = loom::thread::spawn(move || {
            let mut taken = Took::default();
            end(&mut reader, &[held], &mut taken.sink(), |_, _| ringer.ring()).unwrap();
            let ended = taken.0.len();
            ingest(&mut reader, &mut taken.sink()).unwrap();
            assert_eq!(taken.0.len(), ended, "something was taken in after the end");
            taken
        });
        assert!(writer.begin(held, 0, 0));
        let mut write =
            |byte: u8| bell.told(&grantor, writer.publish(held, Place::End, &[byte; 4], 0), byte);
        let told = [write(1), write(2)];
        judge(&recall.join().unwrap(), told);
    });
}

/// Three writes through a ring of two records, which the grantor takes in meanwhile: every byte
/// arrives as it was written, and what was not taken in before the recall is.
#[test]
fn a_place_in_the_ring_is_not_written_again_before_it_was_read() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, _)) = sides();
        let (bell, ringer) = bells();
        let held = reader.grant(0);
        let thread = loom::thread::spawn(move || {
            let mut taken = Took::default();
            ingest(&mut reader, &mut taken.sink()).unwrap();
            end(&mut reader, &[held], &mut taken.sink(), |_, _| ringer.ring()).unwrap();
            taken
        });
        assert!(writer.begin(held, 0, 0));
        let mut write =
            |byte: u8| bell.told(&grantor, writer.publish(held, Place::End, &[byte; 4], 0), byte);
        let told = [write(1), write(2), write(3)];
        judge(&thread.join().unwrap(), told);
    });
}

/// Two threads of a holder take turns with the ring, and look each for itself.
#[test]
fn each_thread_of_a_holder_learns_of_its_own_write() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, _)) = sides();
        let (bell, ringer) = bells();
        let held = reader.grant(0);
        assert!(writer.begin(held, 0, 0));
        let writer = Arc::new(Mutex::new(writer));
        let (own, memory, bell) = (writer.clone(), grantor.clone(), bell);
        let write = move |writer: &Mutex<Writer<Model, Model>>, grantor: &Model, byte: u8| {
            let published = writer.lock().unwrap().publish(held, Place::End, &[byte; 4], 0);
            bell.told(grantor, published, byte)
        };
        let other = {
            let write = write.clone();
            loom::thread::spawn(move || write(&own, &memory, 2))
        };
        let recall = loom::thread::spawn(move || {
            let mut taken = Took::default();
            end(&mut reader, &[held], &mut taken.sink(), |_, _| ringer.ring()).unwrap();
            taken
        });
        let one = write(&writer, &grantor, 1);
        let two = other.join().unwrap();
        judge(&recall.join().unwrap(), [one, two]);
    });
}

/// A slot is used again at once. What an old lease left in the ring is passed over, and the new
/// lease's write is taken in.
#[test]
fn a_slot_that_is_used_again_takes_no_old_record() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, _)) = sides();
        let (bell, ringer) = bells();
        let first = reader.grant(0);
        assert!(writer.begin(first, 0, 0));
        let recall = loom::thread::spawn(move || {
            let mut taken = Took::default();
            end(&mut reader, &[first], &mut taken.sink(), |_, _| ringer.ring()).unwrap();
            (reader, taken)
        });
        let one = bell.told(&grantor, writer.publish(first, Place::End, &[1; 4], 0), 1);
        let (mut reader, mut taken) = recall.join().unwrap();
        let ringer = bell.clone();
        let second = reader.grant(0);
        assert!(writer.begin(second, 0, 0));
        let recall = loom::thread::spawn(move || {
            end(&mut reader, &[second], &mut taken.sink(), |_, _| ringer.ring()).unwrap();
            taken
        });
        let two = bell.told(&grantor, writer.publish(second, Place::End, &[2; 4], 0), 2);
        let taken = recall.join().unwrap();
        judge(&taken, [one, two]);
        let strange = |(number, bytes): &&(u64, Vec<u8>)| {
            *number != if bytes[0] == 1 { first.number } else { second.number }
        };
        assert!(!taken.0.iter().any(|t| strange(&t)), "a record of another lease: {:?}", taken.0);
    });
}

/// The session ends while its holder, which does not know of it, writes.
#[test]
fn a_write_beside_the_end_of_the_session_is_done_or_not() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, _)) = sides();
        let (bell, ringer) = bells();
        let held = reader.grant(0);
        assert!(writer.begin(held, 0, 0));
        let end = loom::thread::spawn(move || {
            let mut taken = Took::default();
            end(&mut reader, &[held], &mut taken.sink(), |_, _| ringer.ring()).unwrap();
            reader.close();
            taken
        });
        let one = bell.told(&grantor, writer.publish(held, Place::End, &[1; 4], 0), 1);
        let after = grantor.load(ALIVE_AT, Ordering::Acquire) == 0;
        let two = bell.told(&grantor, writer.publish(held, Place::End, &[2; 4], 0), 2);
        assert!(!after || two == Told::NotDone(2), "a write after the end");
        judge(&end.join().unwrap(), [one, two]);
    });
}

/// How the file log stops being a way for a lease.
#[derive(Clone, Copy)]
enum Stops {
    /// The lease ends.
    Lease,
    /// The registry cannot be written.
    Registry,
}

/// R37: what a holder was told by its log's words is taken in when they change.
fn promised_by_the_log(stops: Stops) {
    bounded(move || {
        let (mut reader, mut writer, (grantor, _)) = sides();
        let held = reader.grant(0);
        assert!(writer.begin(held, 0, 0));
        set_order(&*grantor, 1);
        vouch(&*grantor, 9);
        reader.covered(held, 1);
        let ends = loom::thread::spawn(move || {
            let mut taken = Took::default();
            match stops {
                Stops::Lease => end(&mut reader, &[held], &mut taken.sink(), |_, _| {}).unwrap(),
                Stops::Registry => {
                    reader.covered(held, 0);
                    ingest(&mut reader, &mut taken.sink()).unwrap();
                }
            }
            taken
        });
        let published = writer.publish(held, Place::End, &[1; 4], 0);
        let promised = matches!(published, Publish::Published(_))
            && crate::log_promises(&*grantor, &SHAPE, held, 8);
        let taken = ends.join().unwrap();
        assert!(!promised || taken.times(1) == 1, "acknowledged, and neither here nor there");
        assert!(!crate::log_promises(&*grantor, &SHAPE, held, 8));
    });
}

#[test]
fn r37_what_the_log_promised_is_taken_in_when_the_lease_ends() {
    promised_by_the_log(Stops::Lease);
}

#[test]
fn what_the_log_promised_is_taken_in_when_it_is_given_up() {
    promised_by_the_log(Stops::Registry);
}

/// R38, R46: what was answered before the batch was durable is seen by the look after it.
#[test]
fn r46_a_log_does_not_overtake_what_was_answered() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, _)) = sides();
        let held = reader.grant(0);
        assert!(writer.begin(held, 0, 0));
        set_order(&*grantor, 1);
        vouch(&*grantor, 9);
        reader.covered(held, 1);
        assert!(crate::log_promises(&*grantor, &SHAPE, held, 8));
        assert!(!crate::log_promises(&*grantor, &SHAPE, held, 9), "nobody vouches for it");
        let answered = Arc::new(AtomicU64::new(0));
        let (memory, flag) = (grantor.clone(), answered.clone());
        let renames = loom::thread::spawn(move || {
            set_order(&*memory, 2);
            flag.store(1, Ordering::Release);
        });
        let before = answered.load(Ordering::Acquire) == 1;
        let promised = crate::log_promises(&*grantor, &SHAPE, held, 8);
        assert!(!before || !promised, "the rename was answered");
        renames.join().unwrap();
        // The daemon has made all durable as of then.
        reader.covered(held, order(&*grantor));
        assert!(crate::log_promises(&*grantor, &SHAPE, held, 8));
        // The slot's next lease has no log.
        end(&mut reader, &[held], &mut |_, _| {}, |_, _| {}).unwrap();
        let next = reader.grant(0);
        assert!(!crate::log_promises(&*grantor, &SHAPE, next, 8));
    });
}

/// Another program asks for the size after a write has returned, and before.
#[test]
fn nobody_is_shown_an_older_size_than_a_write_that_returned() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, holder)) = sides();
        let (bell, _) = bells();
        let held = reader.grant(0);
        let returned = Arc::new(AtomicU64::new(0));
        let (flag, memory) = (returned.clone(), grantor.clone());
        let asks = loom::thread::spawn(move || {
            let size = flag.load(Ordering::Acquire);
            if let Some(shown) = shown((&*memory, &*holder), &SHAPE, held) {
                assert!(shown.size >= size, "{shown:?} after {size} bytes were written");
                assert!([5, 9].contains(&shown.size), "{shown:?}");
            } else {
                assert_eq!(size, 0, "the lease lasts, and the holder has said what it has");
            }
        });
        assert!(writer.begin(held, 5, 0));
        let one = bell.told(&grantor, writer.publish(held, Place::End, &[1; 4], 0), 1);
        assert_eq!(one, Told::Done(1));
        returned.store(9, Ordering::Release);
        asks.join().unwrap();
    });
}

/// A recall, or the holder's death, takes in the record of each size that others were shown: else
/// they would see a smaller one afterwards.
#[test]
fn nobody_is_shown_a_size_before_its_record_is_published() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, holder)) = sides();
        let held = reader.grant(0);
        assert!(writer.begin(held, 5, 10));
        let writes = loom::thread::spawn(move || {
            writer.publish(held, Place::End, &[1; 4], 20);
        });
        let seen = shown((&*grantor, &*holder), &SHAPE, held).expect("the lease lasts");
        let mut taken = Took::default();
        end(&mut reader, &[held], &mut taken.sink(), |_, _| {}).unwrap();
        let before = seen == Shown { size: 5, mtime: 10 };
        assert!(before || taken.0.len() == 1, "{seen:?}, and the record is not there");
        writes.join().unwrap();
    });
}

/// A size that belongs to the lease that the slot had before is not shown.
#[test]
fn nobody_is_shown_another_leases_size() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, holder)) = sides();
        let first = reader.grant(0);
        assert!(writer.begin(first, 5, 0));
        end(&mut reader, &[first], &mut |_, _| {}, |_, _| {}).unwrap();
        let second = reader.grant(0);
        let asks = loom::thread::spawn(move || {
            let both = (&*grantor, &*holder);
            assert_eq!(shown(both, &SHAPE, first), None);
            if let Some(shown) = shown(both, &SHAPE, second) {
                assert_eq!((shown.size, shown.mtime), (7, 70));
            }
        });
        assert!(writer.begin(second, 7, 70));
        asks.join().unwrap();
    });
}

/// A lease ends, and the slot is used again, while somebody asks for its size.
#[test]
fn nobody_is_shown_the_size_of_the_next_lease() {
    bounded(|| {
        let (mut reader, mut writer, (grantor, holder)) = sides();
        let first = reader.grant(0);
        assert!(writer.begin(first, 5, 50));
        let asks = loom::thread::spawn(move || {
            if let Some(shown) = shown((&*grantor, &*holder), &SHAPE, first) {
                assert_eq!((shown.size, shown.mtime), (5, 50));
            }
        });
        let grants = loom::thread::spawn(move || {
            end(&mut reader, &[first], &mut |_, _| {}, |_, _| {}).unwrap();
            reader.grant(0)
        });
        assert!(writer.begin(grants.join().unwrap(), 7, 70));
        asks.join().unwrap();
    });
}

/// Whatever a holder writes into its memory, its reader ends with an answer, takes no more than a
/// ring holds, and every lease ends.
fn hostile(writes: Vec<(usize, u64)>, heads: [u64; 2]) {
    use std::sync::atomic::AtomicU64;
    struct Plain(Vec<AtomicU64>);
    impl Words for Plain {
        fn load(&self, index: usize, order: Ordering) -> u64 {
            self.0[index].load(order)
        }
        fn fence() {}
    }
    impl Own for Plain {
        fn store(&self, index: usize, value: u64, order: Ordering) {
            self.0[index].store(value, order);
        }
    }
    let shape = Shape { page: 48, slots: 2, records: 4, data: 64 };
    let of = |words: usize| Arc::new(Plain((0..words).map(|_| AtomicU64::new(0)).collect()));
    let (grantor, holder) = (of(shape.grantor_words()), of(shape.holder_words()));
    let both = || (grantor.clone(), holder.clone());
    let mut reader = Reader::new(both(), shape, (1, LARGEST));
    let mut writer = Writer::new(both(), shape, LARGEST);
    let leases = [reader.grant(0), reader.grant(1)];
    for held in leases {
        assert!(writer.begin(held, 0, 0));
        let _ = writer.publish(held, Place::End, &[1; 20], 0);
    }
    let places: Vec<usize> =
        (0..shape.holder_words()).filter(|at| *at == 0 || *at >= shape.page).collect();
    for (at, value) in writes {
        holder.store(places[at % places.len()], value, Ordering::SeqCst);
    }
    let mut taken = 0;
    for head in heads {
        holder.store(HEAD_AT, head, Ordering::SeqCst);
        let mut sink = |record: &Record, bytes: Vec<u8>| {
            assert!(record.len as usize == bytes.len() && bytes.len() <= shape.data);
            assert!(leases.contains(&record.held));
            taken += 1;
        };
        let refused = ingest(&mut reader, &mut sink).is_err();
        assert_eq!(refused, reader.broken);
        assert!(reader.waiting() <= shape.records as u64);
        if let Some(shown) = shown((&*grantor, &*holder), &shape, leases[0]) {
            assert_eq!(shown.size, holder.load(shape.size(0), Ordering::SeqCst));
        }
    }
    let _ = end(&mut reader, &leases, &mut |_, _| taken += 1, |_, _| {});
    assert!(taken <= 3 * shape.records);
    for held in leases {
        let word = grantor.load(shape.word(held.slot), Ordering::SeqCst);
        assert_eq!(held.state(word), Some(State::Ended));
    }
}

proptest! {
    #[test]
    fn a_holder_may_say_what_it_likes(
        writes in proptest::collection::vec((any::<usize>(), prop_oneof![0u64..9, any::<u64>()]), 0..12),
        heads in proptest::array::uniform2(prop_oneof![0u64..9, any::<u64>()]),
    ) {
        hostile(writes, heads);
    }
}

/// Records that follow each other as they should, and are more than the ring of data holds.
#[test]
fn more_than_a_ring_holds_is_not_taken_in_at_once() {
    loom::model(|| {
        let (mut reader, mut writer, (_, holder)) = sides();
        let held = reader.grant(0);
        assert!(writer.begin(held, 0, 0));
        assert!(matches!(writer.publish(held, Place::End, &[1; 12], 0), Publish::Published(_)));
        // The second begins where the ring does, as if the first had been taken in.
        let (shape, drawn) = (SHAPE, held.number);
        let bounds = Bounds { shape, largest: LARGEST, position: 16, drawn };
        let second = Record { held, offset: 12, len: 12, data: 16, time: 0 };
        holder.copy_in(SHAPE.record(1), &second.encode(&bounds));
        holder.store(HEAD_AT, 2, SeqCst);
        let mut taken = Took::default();
        assert!(ingest(&mut reader, &mut taken.sink()).is_err());
        assert_eq!(taken.0.len(), 1);
    });
}

/// What stood in the ring before a broken rule is taken in, what follows is not, and the holder is
/// told so.
#[test]
fn a_broken_rule_takes_nothing_away_that_stood_before() {
    loom::model(|| {
        let (mut reader, mut writer, (grantor, holder)) = sides();
        let (bell, _) = bells();
        let held = reader.grant(0);
        assert!(writer.begin(held, 0, 0));
        let one = writer.publish(held, Place::End, &[1; 4], 0);
        let two = writer.publish(held, Place::End, &[2; 4], 0);
        holder.store(SHAPE.record(1), 9, SeqCst);
        let mut taken = Took::default();
        assert!(end(&mut reader, &[held], &mut taken.sink(), |_, _| {}).is_err());
        judge(&taken, [bell.told(&grantor, one, 1), bell.told(&grantor, two, 2)]);
        assert_eq!(taken.times(1), 1);
    });
}
