use super::*;
use crate::kernel::bounds::CALLS;

fn all(calls: &Arc<Calls>, user: u32) -> Vec<Place> {
    std::iter::from_fn(|| calls.enter(user).ok()).collect()
}

#[test]
fn a_user_has_as_many_places_as_he_leaves_free() {
    let calls = Arc::new(Calls::of(CALLS));
    let first = all(&calls, 1);
    assert_eq!(first.len(), CALLS / 2);
    let second = all(&calls, 2);
    assert_eq!(second.len(), CALLS / 4);
    let third = calls.enter(3).unwrap();
    drop(first);
    assert_eq!(all(&calls, 1).len(), (CALLS - second.len()) / 2);
    drop((second, third));
    assert_eq!(*calls.lock(), HashMap::new(), "all are given back");
}

#[test]
fn a_place_is_kept_until_the_answer() {
    let calls = Arc::new(Calls::of(CALLS));
    let answer = calls.enter(7).unwrap().until(Box::new(drop));
    assert_eq!(calls.lock().get(&7), Some(&1));
    answer(Ok(siftfs_proto::Reply::Done));
    assert_eq!(calls.lock().get(&7), None);
}
