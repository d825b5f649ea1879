use super::*;

#[test]
fn locks_are_taken_away_and_nothing_else() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path();
    for name in
        ["refs/heads/main.lock", "refs/heads/main", "index.lock", "gc.pid", "objects/x.lock"]
    {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("has one")).expect("directory");
        fs::write(path, "").expect("file");
    }
    unlock(root).expect("readable");
    assert!(root.join("refs/heads/main").exists() && root.join("objects/x.lock").exists());
    for gone in ["refs/heads/main.lock", "index.lock", "gc.pid"] {
        assert!(!root.join(gone).exists(), "{gone}");
    }
}
