use super::*;

fn file() -> OwnedFd {
    std::fs::File::open("/dev/null").expect("a file").into()
}

#[test]
fn few_files_stay_open() {
    let kept = Kept::default();
    for node in 0..MOST as u64 {
        assert!(kept.insert((node, 1), file()).is_none());
    }
    assert!(kept.get(5, 1).is_some() && kept.get(5, 2).is_none());
    // Another generation takes the place of the first.
    assert!(kept.insert((5, 2), file()).is_some());
    assert!(kept.get(5, 1).is_none() && kept.get(5, 2).is_some());
    assert!(kept.insert((1000, 1), file()).is_some(), "one more than stay open");
    assert!(kept.get(1000, 1).is_some());
    assert_eq!(kept.files().len(), MOST);
    assert!(kept.remove(1000).is_some() && kept.remove(1000).is_none());
}

#[test]
fn what_is_not_open_may_have_anything() {
    let (looker, kept): (Looker, Arc<Kept>) = Default::default();
    let part = Part { offset: 0, len: 0 };
    assert!(!looker.is_sent((1, 1), part), "nobody looks");
    let (close, closed) = channel();
    looker.start(kept.clone(), close).expect("a thread");
    assert!(!looker.is_sent((1, 1), part));
    // No pages are there to be counted.
    kept.insert((1, 1), file());
    assert!(looker.is_sent((1, 1), part));
    assert!(!looker.is_sent((1, 2), part));
    kept.remove(1);
    assert!(!looker.is_sent((1, 1), part));
    drop(looker);
    assert_eq!(closed.iter().count(), 0, "the last to have it closed it");
}
