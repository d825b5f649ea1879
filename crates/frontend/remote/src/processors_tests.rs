use super::*;
use rustix::thread::{CpuSet, sched_setaffinity};

#[test]
fn lists_are_counted() {
    for (list, many) in [("0\n", 1), ("0-1", 2), ("0,2-3,8", 4), ("0-127\n", 128)] {
        assert_eq!(count(list), Some(many), "{list}");
    }
    for list in ["", "a", "3-1", "0-", "0-4294967295"] {
        assert_eq!(count(list), None, "{list}");
    }
}

/// Of a thread that is pinned, as of a process: it spins, and others do not.
#[test]
fn a_pinned_process_has_its_own() {
    let all = sched_getaffinity(None).unwrap();
    if all.count() < 2 {
        return;
    }
    let pinned = std::thread::spawn(move || {
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|n| all.is_set(*n)).unwrap());
        sched_setaffinity(None, &one).unwrap();
        (are_own(), crate::transport().spin)
    });
    let (own, spin) = pinned.join().unwrap();
    assert!(own && !spin.is_zero());
    assert_eq!(are_own(), !crate::transport().spin.is_zero());
}
