use super::*;
use std::fs;

#[test]
fn the_library_is_found_where_it_belongs_to_the_program() {
    let tmp = tempfile::tempdir().unwrap();
    let [bin, lib] = ["bin", "lib"].map(|dir| tmp.path().join(dir));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&lib).unwrap();
    let exe = bin.join("siftfs");
    let missing = find(&exe).unwrap_err().message;
    for dir in [&bin, &lib] {
        assert!(missing.contains(dir.to_str().unwrap()), "{missing}");
    }
    fs::write(lib.join(LIBRARY), "").unwrap();
    assert_eq!(find(&exe).unwrap(), lib.join(LIBRARY));
    fs::write(bin.join(LIBRARY), "").unwrap();
    assert_eq!(find(&exe).unwrap(), bin.join(LIBRARY));
}

#[test]
fn libraries_that_are_there_stay() {
    let ours = Path::new("/lib/ours.so");
    let all = |before| preloaded(ours, before).unwrap().into_string().unwrap();
    assert_eq!(all(None), "/lib/ours.so");
    assert_eq!(all(Some(OsStr::new(""))), "/lib/ours.so");
    assert_eq!(all(Some(OsStr::new("/a.so:/b.so"))), "/lib/ours.so:/a.so:/b.so");
    assert_eq!(all(Some(OsStr::new("/a.so /lib/ours.so"))), "/a.so /lib/ours.so");
    assert!(preloaded(Path::new("/a b/ours.so"), None).is_err());
}
