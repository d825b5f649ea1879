//! Mounts whose callers the server checks, and whose server dies: they come back, and get no more
//! than they had.

use crate::checked::{Checked, by};
use crate::errno;
use crate::returns::{Ledger, check, work};
use rustix::fs::{Mode, chmod};
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(200);

fn prepare(root: &Path) {
    std::fs::create_dir(root.join("part")).unwrap();
    for dir in [root.to_path_buf(), root.join("part")] {
        std::fs::write(dir.join("secret"), "root's own").unwrap();
        chmod(dir.join("secret"), Mode::from_raw_mode(0o600)).unwrap();
        std::fs::create_dir(dir.join("open")).unwrap();
        chmod(dir.join("open"), Mode::from_raw_mode(0o1777)).unwrap();
    }
}

/// A user's files stay open, also one that the user may not open any more, and what was written and
/// not synced is there. What the user may not do is refused as before.
#[test]
fn r52_a_users_files_stay_open() {
    for line in ["", "subtree=/part"] {
        let mut m = Checked::new(line, prepare);
        let path = |name: &str| m.p(name);
        let (file, closed, gone) = by(1000, &[1000], || {
            let new = |name| {
                let mut open = OpenOptions::new();
                open.read(true).write(true).create_new(true).open(path(name)).unwrap()
            };
            let (file, closed, gone) = (new("open/f"), new("open/closed"), new("open/gone"));
            file.write_all_at(b"synced, ", 0).unwrap();
            file.sync_all().unwrap();
            file.write_all_at(b"and not", 8).unwrap();
            std::fs::rename(path("open/f"), path("open/g")).unwrap();
            closed.write_all_at(b"before", 0).unwrap();
            chmod(path("open/closed"), Mode::from_raw_mode(0)).unwrap();
            gone.sync_all().unwrap();
            std::fs::remove_file(path("open/gone")).unwrap();
            (file, closed, gone)
        });
        m.restart(Signal::KILL, PAUSE);
        by(1000, &[1000], || {
            closed.write_all_at(b"behind", 6).unwrap();
            file.sync_all().unwrap();
            closed.sync_all().unwrap();
            assert_eq!(std::fs::read(m.p("open/g")).unwrap(), b"synced, and not", "{line:?}");
            assert_eq!(errno(File::open(m.p("open/closed"))), libc::EACCES);
            assert_eq!(errno(File::open(m.p("secret"))), libc::EACCES);
            assert_eq!(errno(File::open(m.p("open/f"))), libc::ENOENT);
            let lost = gone.write_all_at(b"x", 0).and_then(|()| gone.sync_all());
            assert_eq!(errno(lost), libc::ESTALE, "its name was gone");
        });
        let mut bytes = [0; 12];
        closed.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"beforebehind");
        assert_eq!(errno(File::open(m.p("secret"))), libc::EACCES, "root is squashed");
        drop((file, closed, gone));
        let part = if line.is_empty() { "" } else { "part/" };
        m.end(|root| {
            let there = std::fs::read(root.join(format!("{part}open/g"))).unwrap();
            assert_eq!(there, b"synced, and not");
        });
    }
}

/// A program works on while the server is killed again and again: no call of it fails, and in the
/// end everything is as it was told.
#[test]
fn a_checked_ledger_survives_many_deaths() {
    let mut m = Checked::new("subtree=/part", prepare);
    let dir = m.p("open/work");
    std::fs::create_dir(&dir).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let worker = {
        let (dir, over) = (dir.clone(), over.clone());
        std::thread::spawn(move || work(&dir, 5, &over))
    };
    for death in 0..5 {
        std::thread::sleep(Duration::from_millis(400 + 150 * death));
        m.restart(if death == 3 { Signal::TERM } else { Signal::KILL }, PAUSE / 4);
    }
    std::thread::sleep(Duration::from_secs(1));
    over.store(true, Ordering::Relaxed);
    let ledger: Ledger = worker.join().unwrap();
    assert!(ledger.len() > 1, "nothing was done");
    check(&dir, &ledger);
    m.end(|root| check(&root.join("part/open/work"), &ledger));
}
