use super::*;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Memory of a model in which every order of steps that the memory model allows is tried.
struct Model(Vec<AtomicU64>);

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

impl Memory for Model {
    type Word = AtomicU64;
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0[index]
    }
    fn fence() {
        fence(SeqCst);
    }
}

/// A bell that remembers that it rang.
#[derive(Default)]
struct Bell {
    rang: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rang.lock().unwrap() = true;
        self.changed.notify_one();
    }
    fn sleep(&self) {
        let mut rang = self.rang.lock().unwrap();
        while !*rang {
            rang = self.changed.wait(rang).unwrap();
        }
        *rang = false;
    }
}

/// Control and data of `rings` rings of 2 words, and `extra` words behind them.
fn memory(rings: usize, extra: usize) -> (Arc<Model>, impl Fn(usize) -> Place) {
    let control = rings * CONTROL_WORDS;
    // The model watches every word; unused ones of the control cost nothing.
    let words = control + 2 * rings + extra;
    let place =
        move |i: usize| Place { control: i * CONTROL_WORDS, data: control + 2 * i, capacity: 2 };
    (Arc::new(Model((0..words).map(|_| AtomicU64::new(0)).collect())), place)
}

struct Bells {
    words: Bell,
    room: Bell,
}

fn send(ring: &mut Producer<Model>, word: u64, bells: &Bells) {
    while ring.room().unwrap() == 0 {
        if ring.may_sleep().unwrap() {
            bells.room.sleep();
            ring.awake();
        }
    }
    ring.put(word);
    if ring.publish() {
        bells.words.ring();
    }
}

fn receive(ring: &mut Consumer<Model>, bells: &Bells) -> u64 {
    while ring.available().unwrap() == 0 {
        if ring.may_sleep().unwrap() {
            bells.words.sleep();
            ring.awake();
        }
    }
    let word = ring.take();
    if ring.publish() {
        bells.room.ring();
    }
    word
}

fn bounded(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// Three words through a ring of two: the producer has to wait for room, the consumer for words.
/// A lost wake-up is a deadlock, which the model reports.
#[test]
fn no_wake_up_is_lost_and_words_arrive_in_order() {
    bounded(|| {
        let (memory, place) = memory(1, 0);
        let bells = Arc::new(Bells { words: Bell::default(), room: Bell::default() });
        let mut producer = Producer::new(memory.clone(), place(0));
        let their = bells.clone();
        let thread = loom::thread::spawn(move || {
            for word in 1..=3 {
                send(&mut producer, word, &their);
            }
        });
        let mut consumer = Consumer::new(memory, place(0));
        for word in 1..=3 {
            assert_eq!(receive(&mut consumer, &bells), word);
        }
        thread.join().unwrap();
    });
}

/// One slot of one word, lent twice. Each time the borrower must read what was written for it: a
/// slot that is written again while it is still read shows the wrong word.
#[test]
fn no_slot_is_written_again_before_it_was_given_back() {
    bounded(|| {
        let (memory, place) = memory(2, 1);
        let slot = 2 * CONTROL_WORDS + 4;
        let (sent, freed) = (place(0), place(1));
        let theirs = memory.clone();
        let thread = loom::thread::spawn(move || {
            let mut messages = Consumer::new(theirs.clone(), sent);
            let mut back = Producer::new(theirs.clone(), freed);
            for _ in 0..2 {
                while messages.available().unwrap() == 0 {
                    loom::thread::yield_now();
                }
                let expected = messages.take();
                let _ = messages.publish();
                assert_eq!(theirs.word(slot).load(Relaxed), expected, "slot used again too early");
                back.put(0);
                let _ = back.publish();
            }
        });
        let mut messages = Producer::new(memory.clone(), sent);
        let mut back = Consumer::new(memory.clone(), freed);
        for word in [7, 8] {
            memory.word(slot).store(word, Relaxed);
            messages.put(word);
            let _ = messages.publish();
            while back.available().unwrap() == 0 {
                loom::thread::yield_now();
            }
            let _ = (back.take(), back.publish());
        }
        thread.join().unwrap();
    });
}

/// Positions that cannot be are errors, whichever side forges them.
#[test]
fn forged_positions_are_refused() {
    loom::model(|| {
        let (memory, place) = memory(1, 0);
        let producer = Producer::new(memory.clone(), place(0));
        let consumer = Consumer::new(memory.clone(), place(0));
        for position in [3, 1 << 63, u64::MAX] {
            memory.word(TAIL).store(position, SeqCst);
            assert!(consumer.available().is_err(), "tail {position}");
            assert!(consumer.may_sleep().is_err(), "tail {position}");
        }
        for position in [1, 1 << 63, u64::MAX - 2] {
            memory.word(HEAD).store(position, SeqCst);
            assert!(producer.room().is_err(), "head {position}");
            assert!(producer.may_sleep().is_err(), "head {position}");
        }
    });
}
