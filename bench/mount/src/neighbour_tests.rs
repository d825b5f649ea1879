//! Each neighbour works until it is stopped, and leaves what it says.

use super::*;
use std::fs;
use std::time::{Duration, Instant};

const END: Duration = Duration::from_secs(30);

/// Lets it work until `done`; the names left in its directory.
fn left_by(what: Neighbour, done: impl Fn(&Path) -> bool) -> Vec<String> {
    let tmp = tempfile::tempdir().expect("a directory");
    let system = Mounted::there(tmp.path().to_path_buf());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| what.work(&system, ".", 8 << 20, &stop));
        let start = Instant::now();
        let mut worked = false;
        while !worked && start.elapsed() < END {
            std::thread::sleep(Duration::from_millis(1));
            worked = done(tmp.path());
        }
        stop.store(true, Ordering::Relaxed);
        worker.join().expect("no panic").expect("no error");
        assert!(worked, "{what:?} did nothing");
    });
    let names = fs::read_dir(tmp.path()).expect("a directory");
    names.map(|e| e.expect("a name").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_stream_and_a_sparse_file() {
    for what in [Neighbour::Stream, Neighbour::Scatter] {
        let large =
            |dir: &Path| fs::metadata(dir.join("neighbour")).is_ok_and(|m| m.len() > 4 << 20);
        assert_eq!(left_by(what, large), ["neighbour"], "{what:?}");
    }
}

#[test]
fn litter_is_removed() {
    let some = |dir: &Path| fs::exists(dir.join("many/99")).is_ok_and(|there| there);
    assert!(left_by(Neighbour::Litter, some).is_empty());
}
