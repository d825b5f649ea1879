use super::*;

/// Set `n` as it would be on a mount.
fn lay(dir: &Path, n: u64) {
    for part in ["a", "b", "sets"] {
        fs::create_dir_all(dir.join(part)).unwrap();
    }
    for (_, name, content) in files(n) {
        fs::write(dir.join(name), content).unwrap();
    }
}

#[test]
fn a_whole_set_and_no_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(found(dir, 0).unwrap(), 0);
    lay(dir, 1);
    assert_eq!((found(dir, 0).unwrap(), found(dir, 1).unwrap()), (1, 1));
    assert!(found(dir, 2).is_err(), "an acknowledged set is lost");
    lay(dir, 2);
    assert_eq!((found(dir, 1).unwrap(), found(dir, 2).unwrap()), (2, 2));
    assert!(found(dir, 0).is_err(), "one that was never begun");
}

#[test]
fn parts_of_two_sets() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lay(dir, 1);
    for (i, (_, name, content)) in files(2).enumerate() {
        fs::write(dir.join(&name), content).unwrap();
        assert_eq!(found(dir, 1).is_ok(), i + 1 == NAMES.len() + 1, "{name}");
    }
    lay(dir, 1);
    assert!(found(dir, 1).is_err(), "set 2 has its own name still");
    fs::remove_file(dir.join(own_name(2))).unwrap();
    assert_eq!(found(dir, 1).unwrap(), 1);
    fs::write(dir.join("a/1"), "").unwrap();
    assert!(found(dir, 1).is_err(), "a name without its bytes");
    lay(dir, 1);
    fs::remove_file(dir.join(own_name(1))).unwrap();
    assert!(found(dir, 1).is_err(), "without its own name");
}
