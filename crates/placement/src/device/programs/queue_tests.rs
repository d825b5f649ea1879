use super::*;
use siftfs_base::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;

#[derive(Debug, PartialEq, Eq)]
struct Ask(Place);

impl Waits for Ask {
    fn place(&self) -> Place {
        self.0
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

fn ask(number: u64, first: u64) -> Ask {
    Ask(Place { queue: 0, number, first })
}

fn queue() -> Queue<Ask> {
    let queue = Queue::new();
    let (over, attached) = queue.attach(1, PATIENCE);
    assert!(over.is_empty() && attached.is_ok());
    queue
}

/// Numbers in groups, which arrive in any order and end in any order.
#[test]
fn groups_run_one_after_the_other() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let queue = queue();
        let (mut firsts, mut first) = (Vec::new(), 0);
        for number in 0..40 {
            if rng.below(3) == 0 {
                first = number;
            }
            firsts.push(first);
        }
        let mut to_come: Vec<u64> = (0..40).collect();
        let (mut running, mut ended) = (BTreeSet::new(), BTreeSet::new());
        while ended.len() < 40 {
            let begins: Vec<Ask> = if !to_come.is_empty() && rng.below(2) == 0 {
                let number = to_come.swap_remove(rng.below(to_come.len() as u64) as usize);
                match queue.arrive(1, ask(number, firsts[number as usize])).unwrap() {
                    Turn::Begins(ask) => vec![ask],
                    Turn::Waits { .. } => vec![],
                }
            } else if let Some(number) = running.iter().nth(rng.below(4) as usize).copied() {
                running.remove(&number);
                ended.insert(number);
                queue.ended(1, number, true)
            } else {
                continue;
            };
            for Ask(Place { number, first, .. }) in begins {
                assert!((0..first).all(|before| ended.contains(&before)), "{number} from {first}");
                assert!(running.insert(number), "{number} twice");
            }
        }
        assert!(running.is_empty());
    }
}

/// What may begin does not wait: beside the model above, which takes what begins when it begins.
#[test]
fn what_may_begin_begins_at_once() {
    let queue = queue();
    let begins = |number, first| matches!(queue.arrive(1, ask(number, first)), Ok(Turn::Begins(_)));
    assert!(begins(0, 0));
    assert!(!begins(2, 1), "behind one that runs");
    assert!(!begins(3, 3));
    assert!(begins(1, 0), "of the group that runs");
    assert_eq!(queue.ended(1, 1, true), vec![]);
    assert_eq!(queue.ended(1, 0, true), vec![ask(2, 1)]);
    assert_eq!(queue.ended(1, 2, true), vec![ask(3, 3)]);
    assert_eq!(queue.ended(1, 3, true), vec![]);
    assert!(begins(4, 4));
}

/// Numbers that no honest program sends are refused, and change nothing.
#[test]
fn numbers_that_have_no_place_are_refused() {
    let queue = queue();
    let refused = |number, first| {
        let came = queue.arrive(1, ask(number, first));
        assert!(matches!(came, Err(Error::Refused(_))), "{number} from {first}");
    };
    refused(QUEUE_WINDOW, 0);
    refused(u64::MAX - 1, 0);
    refused(0, 1);
    refused(3, u64::MAX);
    assert!(matches!(queue.arrive(1, ask(0, 0)), Ok(Turn::Begins(_))));
    refused(0, 0);
    assert!(matches!(queue.arrive(1, ask(2, 2)), Ok(Turn::Waits { first: true })));
    refused(2, 2);
    assert!(queue.ended(1, 0, true).is_empty());
    refused(0, 0);
    refused(QUEUE_WINDOW + 1, 0);
    assert!(matches!(queue.arrive(1, ask(QUEUE_WINDOW, 0)), Ok(Turn::Begins(_))));
    assert!(matches!(queue.arrive(1, ask(1, 1)), Ok(Turn::Begins(_))));
    assert_eq!(queue.ended(1, 1, true), vec![ask(2, 2)]);
}

/// Against a list of what came and what ended, with the window full again and again.
#[test]
fn the_window_moves_as_a_list_would() {
    let queue = queue();
    let (mut rng, mut low, mut all) = (Rng::new(5), 0, BTreeMap::new());
    for _ in 0..20_000 {
        let number = (low + rng.below(QUEUE_WINDOW + 3)).saturating_sub(1);
        let fits = number >= low && number < low + QUEUE_WINDOW && !all.contains_key(&number);
        assert_eq!(queue.arrive(1, ask(number, 0)).is_ok(), fits, "{number} at {low}");
        if fits {
            all.insert(number, false);
        }
        let running: Vec<u64> = all.iter().filter(|(_, e)| !**e).map(|(n, _)| *n).collect();
        if !running.is_empty() && rng.below(4) > 0 {
            let ends = running[rng.below(running.len() as u64) as usize];
            queue.ended(1, ends, true);
            all.insert(ends, true);
        }
        while all.get(&low) == Some(&true) {
            all.remove(&low);
            low += 1;
        }
    }
    assert!(low > 1000);
}

/// A request in no order neither waits, nor is waited for.
#[test]
fn a_request_in_no_order_runs_at_once() {
    let queue = queue();
    for _ in 0..3 {
        assert!(matches!(queue.arrive(1, ask(UNORDERED, 0)), Ok(Turn::Begins(_))));
    }
    assert!(matches!(queue.arrive(1, ask(0, 0)), Ok(Turn::Begins(_))));
    assert!(queue.ended(1, UNORDERED, true).is_empty());
    assert!(matches!(queue.arrive(1, ask(1, 1)), Ok(Turn::Waits { .. })));
    assert!(queue.ended(1, UNORDERED, true).is_empty());
    assert_eq!(queue.ended(1, 0, true), vec![ask(1, 1)]);
}

/// A new life waits for what runs of the last one, whose rest is over.
#[test]
fn a_new_life_begins_when_nothing_of_the_last_one_runs() {
    let queue = Arc::new(queue());
    assert!(matches!(queue.arrive(1, ask(0, 0)), Ok(Turn::Begins(_))));
    assert!(matches!(queue.arrive(1, ask(1, 1)), Ok(Turn::Waits { .. })));
    assert!(matches!(queue.arrive(1, ask(5, 0)), Ok(Turn::Begins(_))));
    assert!(queue.ended(1, 5, true).is_empty());
    let own = queue.clone();
    let next = thread::spawn(move || own.attach(2, PATIENCE));
    // Until then this number is refused as one that has come.
    while queue.arrive(1, ask(5, 0)).err() != Some(Error::Posix(libc::ESTALE)) {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(20));
    assert!(!next.is_finished(), "a request of the last life runs");
    let early = queue.arrive(2, ask(0, 0));
    assert_eq!(early.err(), Some(Error::Posix(libc::ESTALE)));
    assert!(queue.ended(1, 0, true).is_empty());
    let (over, attached) = next.join().unwrap();
    let carried = Carried { life: 1, low: 1, before: 1 << 63, from: 0 };
    assert_eq!((over, attached), (vec![ask(1, 1)], Ok(Carried { from: 1 << 4, ..carried })));
    assert_eq!(queue.arrive(1, ask(2, 0)).err(), Some(Error::Posix(libc::ESTALE)));
    assert!(matches!(queue.arrive(2, ask(0, 0)), Ok(Turn::Begins(_))));
    assert!(matches!(queue.attach(1, PATIENCE).1, Err(Error::Refused(_))), "an older one");
    assert!(queue.attach(2, PATIENCE).1.is_ok(), "a further connection of this one");
    assert!(queue.ended(2, 0, true).is_empty());
}

/// A number that does not come ends the life, after a time in which nothing moves; a request that
/// runs for long does not.
#[test]
fn a_number_that_never_comes_ends_the_life() {
    let queue = queue();
    assert_eq!(queue.look(Duration::ZERO), None, "nothing waits");
    assert!(matches!(queue.arrive(1, ask(0, 0)), Ok(Turn::Begins(_))));
    assert!(matches!(queue.arrive(1, ask(2, 2)), Ok(Turn::Waits { .. })));
    assert_eq!(queue.look(Duration::ZERO), Some(vec![]), "one runs");
    assert!(queue.ended(1, 0, true).is_empty());
    assert_eq!(queue.look(Duration::from_secs(1000)), Some(vec![]), "it may come yet");
    assert_eq!(queue.look(Duration::ZERO), Some(vec![ask(2, 2)]));
    assert_eq!(queue.arrive(1, ask(1, 1)).err(), Some(Error::Posix(libc::ESTALE)));
    assert_eq!(queue.attach(1, PATIENCE).1, Err(Error::Posix(libc::EAGAIN)));
    assert!(queue.attach(2, PATIENCE).1.is_ok());
}

#[test]
fn nothing_is_attached_to_what_is_closed() {
    let queue = queue();
    assert!(matches!(queue.arrive(1, ask(1, 1)), Ok(Turn::Waits { .. })));
    assert_eq!(queue.close(), vec![ask(1, 1)]);
    for life in [1, 2, u64::MAX] {
        assert_eq!(queue.attach(life, PATIENCE).1, Err(Error::Posix(libc::ESTALE)), "{life}");
    }
    assert_eq!(queue.arrive(1, ask(0, 0)).err(), Some(Error::Posix(libc::ESTALE)));
}

/// What was carried out of the last life that had requests is told, to each life until one comes.
#[test]
fn what_was_carried_out_is_told() {
    let queue = queue();
    let mut rng = Rng::new(9);
    let mut carried = BTreeSet::new();
    for number in 0..200 {
        assert!(matches!(queue.arrive(1, ask(number, 0)), Ok(Turn::Begins(_))));
        let done = rng.chance(70);
        if number != 150 {
            queue.ended(1, number, done);
            carried.extend(done.then_some(number));
        }
    }
    let told = |life| queue.attach(life, PATIENCE).1.unwrap();
    assert_eq!(queue.end_life(1), vec![]);
    // One that ends after its life counts, too.
    queue.ended(1, 150, true);
    carried.insert(150);
    for life in 2..5 {
        let told = told(life);
        assert_eq!((told.life, told.low), (1, 200));
        assert!((136..200).all(|number| told.has(number) == carried.contains(&number)));
    }
    assert!(matches!(queue.arrive(4, ask(0, 0)), Ok(Turn::Begins(_))));
    queue.ended(4, 0, false);
    assert_eq!(told(5), Carried { life: 4, low: 1, before: 0, from: 0 });
}

/// A new life does not wait for ever: its connection is one of those that others wait for.
#[test]
fn a_new_life_waits_for_a_while() {
    let queue = queue();
    assert!(matches!(queue.arrive(1, ask(0, 0)), Ok(Turn::Begins(_))));
    let attached = queue.attach(2, Duration::from_millis(5)).1;
    assert_eq!(attached, Err(Error::Posix(libc::EAGAIN)));
    assert_eq!(queue.arrive(2, ask(0, 0)).err(), Some(Error::Posix(libc::ESTALE)));
    assert!(queue.ended(1, 0, true).is_empty());
    let carried = Carried { life: 1, low: 1, before: 1 << 63, from: 0 };
    assert_eq!(queue.attach(3, Duration::ZERO).1, Ok(carried));
}
