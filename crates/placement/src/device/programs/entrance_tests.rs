use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

struct Way(Entrance<u8, u32>);

impl Gate for Way {
    type Granted = u8;
    type Late = u32;

    fn entrance(&self) -> &Entrance<u8, u32> {
        &self.0
    }
}

fn enters(way: &Arc<Way>, one: u32) -> Option<Entered<Way>> {
    match enter(way, one) {
        Entering::Inside(entered, own) => {
            assert_eq!(own, one);
            Some(entered)
        }
        Entering::Late | Entering::Over(_) => None,
    }
}

/// The end waits for those inside, whatever thread they leave by, lets nobody in meanwhile, and
/// keeps those who come until all that it does is done.
#[test]
fn an_end_waits_for_those_inside_alone() {
    let way = Arc::new(Way(Entrance::new(7)));
    let entrance = way.entrance();
    let (first, second) = (enters(&way, 1).unwrap(), enters(&way, 2).unwrap());
    assert_eq!((*first, *second), (7, 7));
    let (finished, late) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let ends = scope.spawn(|| {
            entrance.end(|granted| {
                // One who comes while the end does its work is late, too.
                assert!(matches!(enter(&way, 4), Entering::Late));
                assert!(!late.load(Ordering::SeqCst));
                finished.store(true, Ordering::SeqCst);
                granted.copied()
            })
        });
        while !lock(&entrance.state).ends {
            thread::yield_now();
        }
        assert!(matches!(enter(&way, 3), Entering::Late));
        assert!(try_inside(&way).is_none());
        scope.spawn(|| {
            assert!(inside(&way).is_none());
            assert!(finished.load(Ordering::SeqCst), "it waits for the end");
            late.store(true, Ordering::SeqCst);
        });
        scope.spawn(move || drop(second));
        thread::sleep(Duration::from_millis(20));
        assert!(!finished.load(Ordering::SeqCst) && !entrance.has_ended());
        drop(first);
        assert_eq!(ends.join().unwrap(), (Some(7), vec![3, 4]));
    });
    assert!(entrance.has_ended());
    assert!(matches!(enter(&way, 5), Entering::Over(5)));
    assert_eq!(entrance.end(|granted| granted.copied()), (None, Vec::new()));
}
