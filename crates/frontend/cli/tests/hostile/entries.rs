//! More calls than a ring's queue has entries.

use crate::support::Setup;
use crate::{ends, free_inodes, mounted, place, until};
use siftfs_rig::hostile::lock::Held;
use siftfs_rig::hostile::{NOBODY, callers};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A processor that every machine has: its queue alone gets all the calls.
const PROCESSOR: usize = 0;

/// In the long run the number that was seen to stop a mount, else the one that stopped one queue.
fn many() -> usize {
    if is_long() { 3000 } else { 1200 }
}

fn is_long() -> bool {
    std::env::var_os("SIFTFS_LONG").is_some()
}

fn plain(dir: &Path) -> io::Result<()> {
    let mut file = File::create(dir.join("plain"))?;
    file.write_all(b"x")?;
    file.sync_all()?;
    fs::remove_file(dir.join("plain"))
}

/// A user's calls wait for a lock that he keeps himself, more of them than a queue has entries by
/// rings. Some are refused, and both other users' compounds and their plain calls go on, on the
/// same processor.
#[test]
fn calls_that_wait_for_ever_leave_entries_to_others() {
    for rings in [false, true] {
        let (setup, _connection) = mounted("256M", rings);
        let held = Held::new(&place(&setup), &setup.path("mine"), NOBODY).unwrap();
        let (before, refused) = (free_inodes(&setup), Arc::new(AtomicUsize::new(0)));
        let (dir, count) = (setup.path("mine"), refused.clone());
        let calls =
            callers::Callers::start(
                many(),
                (NOBODY, Some(PROCESSOR)),
                move |i| match callers::make(&dir, &format!("n{i}")) {
                    Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    result => result.unwrap(),
                },
            );
        let calls = calls.unwrap();
        let made = |setup: &Setup| (before - free_inodes(setup)) as usize;
        until("each call waits or is refused", || {
            made(&setup) + refused.load(Ordering::SeqCst) == many()
        });
        let dir = setup.path("other");
        let others = move || {
            callers::pin(PROCESSOR)?;
            plain(&dir)?;
            callers::make(&dir, "a")?;
            callers::remove(&dir, "a")
        };
        ends("another user's calls", others).unwrap();
        assert_eq!(calls.left() + refused.load(Ordering::SeqCst), many(), "rings {rings}");
        drop(held);
        ends("the user's calls", move || drop(calls));
        assert_eq!(fs::read_dir(setup.path("mine")).unwrap().count(), made(&setup));
        setup.umount();
    }
}

/// No trick: many threads make and remove names by compounds in a directory in which others make
/// plain files, whose requests have the directory's lock.
#[test]
fn compounds_beside_plain_files_go_on() {
    let count = if is_long() { 3000 } else { 300 };
    let (setup, _connection) = mounted("256M", true);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let act = |compounds: bool| {
        let (dir, stop, done) = (setup.path("other"), stop.clone(), done.clone());
        move |i: usize| {
            while !stop.load(Ordering::SeqCst) {
                let result = match compounds {
                    true => callers::make(&dir, &format!("c{i}"))
                        .and_then(|()| callers::remove(&dir, &format!("c{i}"))),
                    false => File::create(dir.join(format!("p{i}")))
                        .and_then(|_| fs::remove_file(dir.join(format!("p{i}")))),
                };
                match result {
                    // The most that may wait do.
                    Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => std::thread::yield_now(),
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                        drop(callers::remove(&dir, &format!("c{i}")));
                    }
                    result => result.unwrap(),
                }
                done.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let compounds = callers::Callers::start(count, (0, None), act(true)).unwrap();
    let files = callers::Callers::start(32, (0, None), act(false)).unwrap();
    let begun = Instant::now();
    let time = Duration::from_secs(if is_long() { 8 } else { 1 });
    until("they run", || begun.elapsed() > time && done.load(Ordering::SeqCst) > count);
    stop.store(true, Ordering::SeqCst);
    until("all come back", || compounds.left() + files.left() == 0);
    drop((compounds, files));
    setup.umount();
    setup.assert_plain_ext4();
}
