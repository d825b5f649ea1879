use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All that is asked is done, by no more threads than there may be, and what waits for others that
/// are asked beside it does not keep them from being done.
#[test]
fn everything_is_done_by_a_few() {
    let helpers = Helpers::default();
    let (done, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new((Mutex::new(0), Condvar::new())));
    for _ in 0..MOST {
        let gate = gate.clone();
        helpers.help(Box::new(move || {
            let (count, changed) = &*gate;
            let mut count = count.lock().unwrap();
            *count += 1;
            changed.notify_all();
            while *count < MOST {
                count = changed.wait(count).unwrap();
            }
        }));
    }
    for _ in 0..100 {
        let done = done.clone();
        helpers.help(Box::new(move || {
            done.fetch_add(1, Ordering::SeqCst);
        }));
    }
    assert_eq!(lock(&helpers.shared.state).threads.len(), MOST);
    drop(helpers);
    assert_eq!((done.load(Ordering::SeqCst), *gate.0.lock().unwrap()), (100, MOST));
}
