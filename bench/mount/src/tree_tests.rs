use super::*;

#[test]
fn the_tree_is_as_large_as_it_is_called() {
    assert_eq!(whole(PARTS), 18_500);
    let mut random = Random(1);
    let sizes: Vec<usize> = (0..whole(PARTS)).map(|_| random.text().len()).collect();
    let (all, largest) = (sizes.iter().sum::<usize>(), sizes.iter().max().copied());
    assert!((303_000_000..323_000_000).contains(&all), "{all}");
    assert!(largest.is_some_and(|n| n < 70_000), "{largest:?}");
}

#[test]
fn grep_finds_nothing_in_it() {
    let mut random = Random(1);
    assert!((0..100).all(|_| !random.text().contains("no such word")));
    let mut again = Random(1);
    assert_eq!(again.text(), Random(1).text(), "the same in each run");
}

#[test]
fn files_are_counted_through_all_directories() {
    let tmp = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(tmp.path().join("a/b")).expect("directories");
    for name in ["x", "a/y", "a/b/z"] {
        std::fs::write(tmp.path().join(name), "").expect("a file");
    }
    assert_eq!(files_in(tmp.path()).expect("a tree"), 3);
}
