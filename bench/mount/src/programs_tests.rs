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

#[test]
fn a_script_is_as_long_as_its_bound() {
    let tmp = tempfile::tempdir().expect("a directory");
    let path = tmp.path().join("script");
    fs::write(&path, "one;\ntwo;\nthree;\n").expect("a file");
    let script = Script(path);
    let of = |bound| io::read_to_string(script.open(bound).expect("a script")).expect("text");
    assert_eq!(of(Bound::Operations(2)), "one;\ntwo;\n");
    assert_eq!(of(Bound::Time(SHORT)), "one;\ntwo;\nthree;\n");
}
