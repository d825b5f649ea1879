use super::*;

fn take(places: &Arc<Places>, volume: u8, count: usize) -> Vec<Place> {
    (0..count).map_while(|_| Places::take(places, [volume; 16]).ok()).collect()
}

#[test]
fn the_clients_of_one_volume_keep_no_other_volumes_out() {
    let places = Arc::new(Places::default());
    let greedy = take(&places, 0, 1000);
    assert_eq!(greedy.len(), OWN + SHARED);
    let said = Places::take(&places, [0; 16]).err().unwrap().to_string();
    assert!(said.contains("the volume has 130"), "{said}");
    // Each of the others has what is its own, and no more as long as the first one has the rest.
    let others: Vec<_> = (1..MOST_VOLUMES as u8).map(|volume| take(&places, volume, 9)).collect();
    assert!(others.iter().all(|taken| taken.len() == OWN));
    let all = greedy.len() + others.iter().map(Vec::len).sum::<usize>();
    assert_eq!(all, CONNECTIONS);
}

#[test]
fn a_place_that_is_given_back_is_anothers() {
    let places = Arc::new(Places::default());
    let mut first = take(&places, 0, 1000);
    let mut second = take(&places, 1, 3);
    assert_eq!((first.len(), second.len()), (OWN + SHARED, OWN));
    first.pop();
    second.extend(take(&places, 1, 9));
    assert_eq!(second.len(), OWN + 1);
    assert!(take(&places, 0, 1).is_empty());
    // Its own come back to it, also when all that is shared is taken.
    drop(first);
    let shared = take(&places, 1, 1000);
    assert_eq!(shared.len(), SHARED - 1);
    assert_eq!(take(&places, 0, 1000).len(), OWN);
    drop((second, shared));
    assert!(places.taken().of.is_empty());
    assert_eq!(places.taken().shared, 0);
}
