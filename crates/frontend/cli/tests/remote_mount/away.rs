//! A mount whose connection is lost while the server lives: its kernel shows nothing that was
//! before another client's change which was answered, and that client waits no longer than the
//! term (`docs/design/lost-server.md`, "What a kernel knows without a connection").

use super::network::Far;
use crate::Mount;
use rustix::fs::Advice;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Others wait no longer than this for a kernel whose connection is lost; with what a busy machine
/// needs.
const TERM: Duration = Duration::from_secs(5);
/// A connection that is silent is lost after 10 s.
const STALL: Duration = Duration::from_secs(10);
/// How long it is waited for what must not come.
const BRIEFLY: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(60);

/// How the connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Both ends are told.
    Reset,
    /// Nothing arrives, and nobody is told.
    Silent,
}

/// Something that a program does on a mount.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(work()));
    told
}

/// What a program finds at the mount that is cut off.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    page: [u8; 4096],
    size: u64,
    old_name: bool,
}

fn look(file: &File, dir: &Path) -> Seen {
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    let size = std::fs::metadata(dir.join("f")).unwrap().size();
    Seen { page, size, old_name: dir.join("old").exists() }
}

/// A mount that knows a file with its attributes and pages, and a name.
struct Known {
    far: Far,
    near: Mount,
    file: File,
    dir: PathBuf,
}

fn known(alone: bool) -> Known {
    let far = Far::new("role=admin squash=none");
    let near = (!alone).then(|| far.near());
    let dir = far.mount.path("all");
    std::fs::write(dir.join("f"), [1; 4096]).unwrap();
    std::fs::write(dir.join("other"), [1; 4096]).unwrap();
    std::fs::write(dir.join("old"), "").unwrap();
    let file = File::open(dir.join("f")).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    assert_eq!(look(&file, &dir), Seen { page: [1; 4096], size: 4096, old_name: true });
    let near = near.unwrap_or_else(|| Mount(far.directory("near")));
    Known { far, near, file, dir }
}

/// The file, its name and its size are changed by another mount, which is answered within `most`.
/// The mount that was cut off shows what is there, once it has its server again.
fn shows_nothing_old(cut: Cut, alone: bool, most: Duration) {
    let Known { far, near, file, dir } = known(alone);
    match cut {
        Cut::Reset => far.proxy.part(),
        Cut::Silent => far.proxy.plan.hole.store(true, Ordering::SeqCst),
    }
    let begun = Instant::now();
    if alone {
        far.mount_at(&near);
    }
    let changed = OpenOptions::new().write(true).open(near.path("all/f")).unwrap();
    changed.write_all_at(&[2; 5000], 0).unwrap();
    changed.sync_all().unwrap();
    drop(changed);
    std::fs::rename(near.path("all/old"), near.path("all/new")).unwrap();
    let waited = begun.elapsed();
    // Another one's answer has come: whatever is read from here on is from after that.
    let theirs = dir.clone();
    let seen = apart(move || look(&file, &theirs));
    let early = seen.recv_timeout(BRIEFLY);
    let expected = Seen { page: [2; 4096], size: 5000, old_name: false };
    if let Ok(early) = &early {
        assert!(*early == expected, "{cut:?}: {} of {}", early.page[0], early.size);
    }
    assert!(waited < most, "{cut:?}: {waited:?}");
    far.proxy.join();
    let seen = early.unwrap_or_else(|_| seen.recv_timeout(LIMIT).unwrap());
    assert!(seen == expected, "{cut:?}: {} of {}, {}", seen.page[0], seen.size, seen.old_name);
    near.umount();
    far.end();
}

#[test]
fn a_mount_whose_connection_is_reset_shows_nothing_old() {
    shows_nothing_old(Cut::Reset, false, TERM);
}

#[test]
fn a_mount_whose_connection_is_silent_shows_nothing_old() {
    shows_nothing_old(Cut::Silent, false, STALL + TERM);
}

/// It was told that names and attributes count for long, because nobody else was there.
#[test]
fn a_mount_that_was_alone_shows_nothing_old() {
    shows_nothing_old(Cut::Reset, true, TERM);
}

/// Nobody waits for a kernel that does not know what was changed.
#[test]
fn changes_that_a_kernel_knows_nothing_of_do_not_wait() {
    let Known { far, near, file, dir } = known(false);
    std::fs::write(near.path("all/theirs"), "one").unwrap();
    far.proxy.part();
    std::thread::sleep(BRIEFLY);
    let begun = Instant::now();
    std::fs::write(near.path("all/theirs"), "two").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    far.proxy.join();
    assert_eq!(look(&file, &dir).page, [1; 4096]);
    drop(file);
    near.umount();
    far.end();
}

/// A connection that comes back at once brings what was held: the change waits for no term.
#[test]
fn a_mount_that_is_back_takes_note_at_once() {
    let Known { far, near, file, dir } = known(false);
    far.proxy.part();
    std::thread::sleep(BRIEFLY);
    let theirs = near.path("all/f");
    let changed = apart(move || {
        let file = OpenOptions::new().write(true).open(theirs).unwrap();
        file.write_all_at(&[3; 4096], 0).unwrap();
    });
    assert!(changed.recv_timeout(BRIEFLY).is_err(), "it waits for the kernel that is away");
    let begun = Instant::now();
    far.proxy.join();
    changed.recv_timeout(LIMIT).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(2500), "{:?}", begun.elapsed());
    assert_eq!(look(&file, &dir).page, [3; 4096]);
    drop(file);
    near.umount();
    far.end();
}

/// Answers arrive, but so late that they say nothing of the present: the kernel forgets, although
/// the connection is there.
#[test]
fn a_mount_whose_answers_are_held_back_forgets() {
    let Known { far, near, file, dir } = known(false);
    far.proxy.plan.delay.store(4_000_000, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(3500));
    let theirs = file.try_clone().unwrap();
    let read = apart(move || theirs.read_exact_at(&mut [0; 4096], 0).unwrap());
    assert!(read.recv_timeout(BRIEFLY).is_err(), "the page is in the kernel's cache still");
    far.proxy.plan.delay.store(0, Ordering::SeqCst);
    read.recv_timeout(LIMIT).unwrap();
    assert_eq!(look(&file, &dir).page, [1; 4096]);
    assert_eq!(far.proxy.plan.made.load(Ordering::SeqCst), 1, "no connection was lost");
    drop(file);
    near.umount();
    far.end();
}
