use super::*;
use std::fs;

fn table(dir: &Path) -> String {
    fs::read_to_string(dir.join("utab")).unwrap()
}

#[test]
fn a_line_comes_and_goes_and_others_stay() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path();
    let first = Line::write_in(dir, Path::new("/a b"), Path::new("/m\\n#"));
    let line = "SRC=/a\\040b TARGET=/m\\134n\\043 ROOT=/ OPTS=helper=siftfs\n";
    assert_eq!(table(dir), line);
    let others =
        "ID=3 SRC=/dev/sda1 TARGET=/x ROOT=/ OPTS=user\nSRC=/a\\040b TARGET=/y OPTS=uhelper=y\n";
    fs::write(dir.join("utab"), format!("{others}{line}")).unwrap();
    let second = Line::write_in(dir, Path::new("/a"), Path::new("/other"));
    drop(first);
    assert_eq!(table(dir), format!("{others}SRC=/a TARGET=/other ROOT=/ OPTS=helper=siftfs\n"));
    // A dead daemon's line is replaced by the next mount's.
    std::mem::forget(second);
    let third = Line::write_in(dir, Path::new("/a"), Path::new("/new"));
    assert_eq!(table(dir), format!("{others}SRC=/a TARGET=/new ROOT=/ OPTS=helper=siftfs\n"));
    // umount(8) has taken it out.
    fs::write(dir.join("utab"), others).unwrap();
    drop(third);
    assert_eq!(table(dir), others);
    assert_eq!(fs::metadata(dir.join("utab")).unwrap().permissions().mode() & 0o777, 0o644);
}

/// Mounts of one volume have a line each. The first one of a new daemon takes those away that a
/// dead daemon left, of all its mounts.
#[test]
fn several_mounts_of_a_volume() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path();
    let line = |target: &str| format!("SRC=/a TARGET={target} ROOT=/ OPTS=helper=siftfs\n");
    let first = Line::write_in(dir, Path::new("/a"), Path::new("/m"));
    let second = Line::add_in(dir, Path::new("/a"), Path::new("/m/n"));
    let third = Line::add_in(dir, Path::new("/a"), Path::new("/mn"));
    assert_eq!(table(dir), line("/m") + &line("/m/n") + &line("/mn"));
    drop(first);
    assert_eq!(table(dir), line("/m/n") + &line("/mn"));
    std::mem::forget((second, third));
    let again = Line::write_in(dir, Path::new("/a"), Path::new("/m"));
    assert_eq!(table(dir), line("/m"));
    drop(again);
    assert_eq!(table(dir), "");
}

#[test]
fn no_table_is_no_error() {
    let tmp = tempfile::tempdir().unwrap();
    drop(Line::write_in(&tmp.path().join("missing"), Path::new("/v"), Path::new("/m")));
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}
