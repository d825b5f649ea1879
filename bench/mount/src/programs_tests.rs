use super::*;

#[test]
fn messages_and_objects_have_many_sizes_within_bounds() {
    let sizes: Vec<usize> = (0..100).map(message_size).collect();
    assert!(sizes.iter().all(|s| (1024..=16384).contains(s)), "{sizes:?}");
    let objects: Vec<usize> = (0..100).map(object_size).collect();
    assert!(objects.iter().all(|s| (200..4200).contains(s)), "{objects:?}");
    for mut many in [sizes, objects] {
        many.sort_unstable();
        many.dedup();
        assert!(many.len() > 50);
    }
}
