use super::*;
use crate::layout::TAIL_AT;
use crate::reader::Reader;
use std::sync::atomic::AtomicU64;

/// Memory of one process.
struct Plain(Vec<AtomicU64>);

impl Words for Plain {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0[index].load(order)
    }
    fn fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

impl Own for Plain {
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.0[index].store(value, order);
    }
}

const SHAPE: Shape = Shape { page: 48, slots: 2, records: 4, data: 64 };
const LARGEST: u64 = 1000;

fn plain(words: usize) -> Arc<Plain> {
    Arc::new(Plain((0..words).map(|_| AtomicU64::new(0)).collect()))
}

struct Sides {
    reader: Reader<Plain, Plain>,
    writer: Writer<Plain, Plain>,
    grantor: Arc<Plain>,
    taken: Vec<(u64, u64, Vec<u8>)>,
}

impl Sides {
    fn new() -> Self {
        let (grantor, holder) = (plain(SHAPE.grantor_words()), plain(SHAPE.holder_words()));
        let both = || (grantor.clone(), holder.clone());
        let reader = Reader::new(both(), SHAPE, (1, LARGEST));
        let writer = Writer::new(both(), SHAPE, LARGEST);
        Self { reader, writer, grantor, taken: Vec::new() }
    }

    fn lease(&mut self, slot: u32, size: u64) -> Held {
        let held = self.reader.grant(slot);
        assert!(self.writer.begin(held, size, 0));
        held
    }

    fn ingest(&mut self) {
        let Self { reader, taken, .. } = self;
        let sink = &mut |record: &Record, bytes: Vec<u8>| {
            taken.push((record.held.number, record.offset, bytes));
        };
        crate::reader::tests::ingest(reader, sink).unwrap();
    }

    fn publish(&mut self, held: Held, place: Place, bytes: &[u8]) -> Publish {
        self.writer.publish(held, place, bytes, 0)
    }

    fn done(&mut self, held: Held, place: Place, bytes: &[u8]) {
        let published = self.publish(held, place, bytes);
        assert!(matches!(published, Publish::Published(p) if p.look(&*self.grantor)));
    }
}

/// Lengths that leave room at the ring's end, again and again: every byte arrives in its place.
#[test]
fn rings_go_round() {
    let mut sides = Sides::new();
    let held = sides.lease(0, 0);
    let mut file = Vec::new();
    for round in 0..200_u64 {
        let bytes = vec![round as u8; 1 + (round * 7 % 30) as usize];
        if file.len() + bytes.len() > LARGEST as usize {
            break;
        }
        if sides.publish(held, Place::End, &bytes) == Publish::Full {
            sides.ingest();
            sides.done(held, Place::End, &bytes);
        }
        file.extend_from_slice(&bytes);
    }
    sides.ingest();
    assert!(sides.taken.len() > 50);
    let taken: Vec<u8> = sides.taken.iter().flat_map(|(_, _, bytes)| bytes.clone()).collect();
    assert_eq!(taken, file);
    let ends = sides.taken.iter().scan(0, |end, (_, offset, bytes)| {
        let fits = *end == *offset;
        *end += bytes.len() as u64;
        Some(fits)
    });
    assert!(ends.into_iter().all(|fits| fits), "each follows the one before");
}

#[test]
fn a_full_ring_takes_nothing_before_something_was_taken_in() {
    let mut sides = Sides::new();
    let held = sides.lease(0, 0);
    for _ in 0..4 {
        sides.done(held, Place::End, b"x");
    }
    assert_eq!(sides.publish(held, Place::End, b"x"), Publish::Full, "records");
    sides.ingest();
    sides.done(held, Place::End, &[1; 40]);
    assert_eq!(sides.publish(held, Place::End, &[1; 40]), Publish::Full, "data");
    sides.ingest();
    sides.done(held, Place::End, &[1; 40]);
    // An empty ring takes whatever a ring can hold.
    sides.ingest();
    sides.done(held, Place::End, &[1; 64]);
}

#[test]
fn half_full_is_said_once() {
    let mut sides = Sides::new();
    let held = sides.lease(0, 0);
    let mut half = |bytes: &[u8]| match sides.writer.publish(held, Place::End, bytes, 0) {
        Publish::Published(p) => p.half,
        other => panic!("{other:?}"),
    };
    assert_eq!([half(b"a"), half(b"a"), half(b"a")], [false, true, false], "records");
    sides.ingest();
    let mut half = |bytes: &[u8]| match sides.writer.publish(held, Place::End, bytes, 0) {
        Publish::Published(p) => p.half,
        other => panic!("{other:?}"),
    };
    assert!(half(&[1; 33]), "data");
}

#[test]
fn what_no_record_can_say_is_not_published() {
    let mut sides = Sides::new();
    let held = sides.lease(0, 900);
    for (place, len) in [
        (Place::At(0), 0),
        (Place::At(0), 65),
        (Place::At(950), 51),
        (Place::At(u64::MAX), 1),
        (Place::End, 64 + 37),
    ] {
        assert_eq!(sides.publish(held, place, &vec![0; len]), Publish::Unfit, "{place:?} {len}");
    }
    sides.done(held, Place::At(950), &[1; 50]);
    assert_eq!(sides.writer.size(held), Some(1000));
}

#[test]
fn what_the_grantor_says_is_not_believed() {
    let mut sides = Sides::new();
    let held = sides.lease(0, 0);
    assert!(!sides.writer.begin(held, 0, 0), "the same lease again");
    let number = held.number + 1;
    assert!(!sides.writer.begin(Held { slot: 2, number }, 0, 0), "no such slot");
    assert!(!sides.writer.begin(Held { slot: 1, number }, LARGEST + 1, 0), "no such size");
    assert!(!sides.writer.begin(Held { slot: 1, number: u64::MAX }, 0, 0), "no such number");
    assert_eq!(sides.publish(Held { slot: 9, number }, Place::End, b"x"), Publish::Ended);
    sides.done(held, Place::End, b"x");
    for tail in [2, u64::MAX] {
        sides.grantor.store(TAIL_AT, tail, Ordering::SeqCst);
        assert_eq!(sides.publish(held, Place::End, b"x"), Publish::Broken, "tail {tail}");
    }
    sides.grantor.store(TAIL_AT, 1, Ordering::SeqCst);
    sides.done(held, Place::End, b"x");
    sides.grantor.store(TAIL_AT, 0, Ordering::SeqCst);
    assert_eq!(sides.publish(held, Place::End, b"x"), Publish::Broken, "a tail that turns back");
}

#[test]
fn the_size_grows_with_what_is_written() {
    let mut sides = Sides::new();
    let held = sides.lease(1, 5);
    sides.done(held, Place::At(2), b"xy");
    assert_eq!(sides.writer.size(held), Some(5), "a write inside changes no size");
    sides.done(held, Place::End, b"xy");
    assert_eq!(sides.writer.size(held), Some(7));
    assert_eq!(sides.writer.size(Held { slot: 1, number: held.number + 1 }), None);
}
