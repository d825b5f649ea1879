//! Servers die at every step between the death of one before and their own part of the book.

use super::super::book::{Book, Part};
use super::super::book_store::BookFile;
use super::*;
use siftfs_base::Lsn;
use siftfs_proto::Carried;
use std::path::{Path, PathBuf};

const VOLUME: [u8; 16] = [9; 16];

fn epoch(number: u64, nonce: u64) -> VolumeEpoch {
    VolumeEpoch { number, nonce }
}

/// What a recovery of epoch 4 finds.
fn found() -> Recovered {
    let mut found = Recovered { epoch: 4, ops_cut: Lsn(50), ..Recovered::default() };
    found.ops.insert(Lsn(60));
    found.note(7, 3, Carried { number: 9, lsn: Lsn(60), ino: 12 });
    found
}

fn store(path: &Path) -> Arc<dyn BookStore> {
    Arc::new(BookFile::new(path))
}

/// The book of a server that has died in epoch 4, with one client.
fn dead(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("book");
    let part = Part { clients: [7].into(), epoch: epoch(4, 40), ..Part::default() };
    Book::write(store(&path), VOLUME, &[(1, part)]).unwrap();
    path
}

fn begins(path: &Path, last: VolumeEpoch, next: VolumeEpoch, found: Option<&Recovered>) {
    note_epoch(&store(path), Begins { volume: VOLUME, last, next, found }).unwrap();
}

fn newest(path: &Path) -> Part {
    Book::read(&*store(path), VOLUME).pop().unwrap().1
}

/// What a server in this epoch has of the one that died in epoch 4.
fn known(path: &Path, at: VolumeEpoch) -> Option<Recovered> {
    let part = newest(path);
    part.fits(at).then(|| part.found.unwrap())
}

/// A recovery that dies before its epoch is durable is done again from the same epoch; one that
/// dies after that is gone on with, and finds nothing itself. The volume is opened in an epoch of
/// its own, in which a server may die, too, and that one is recovered again. All of them know what
/// the first one found.
#[test]
fn what_was_found_stays_known_through_every_death() {
    let dir = tempfile::tempdir().unwrap();
    let path = dead(&dir);
    // It dies before the header names its epoch.
    begins(&path, epoch(4, 40), epoch(5, 50), Some(&found()));
    // So it is done again, and dies behind that.
    begins(&path, epoch(4, 40), epoch(5, 51), Some(&found()));
    assert_eq!(known(&path, epoch(5, 51)), Some(found()));
    assert_eq!(known(&path, epoch(5, 50)), None, "no header ever names it");
    // Twice more, of which the first one again does not get there.
    begins(&path, epoch(5, 51), epoch(6, 60), None);
    assert_eq!(known(&path, epoch(5, 51)), Some(found()), "where it has stayed");
    begins(&path, epoch(5, 51), epoch(6, 61), None);
    assert_eq!(known(&path, epoch(6, 61)), Some(found()));
    // Its end, and the epoch of an open volume, whose server dies before its own part.
    begins(&path, epoch(6, 61), epoch(7, 70), None);
    let nothing = Recovered { epoch: 7, ops_cut: Lsn(70), ..Recovered::default() };
    begins(&path, epoch(7, 70), epoch(8, 80), Some(&nothing));
    begins(&path, epoch(8, 80), epoch(9, 90), None);
    assert_eq!(known(&path, epoch(9, 90)), Some(found()), "of epoch 4, not of 7");
}

/// A volume that was somewhere else in between has another epoch, or the same number with another
/// nonce: its book says nothing of what was done there.
#[test]
fn a_volume_that_was_elsewhere_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    for (last, found) in [
        (epoch(4, 41), Some(found())),
        (epoch(4, 40), None),
        (epoch(5, 50), None),
        (epoch(6, 60), Some(Recovered { epoch: 6, ..found() })),
    ] {
        let path = dead(&dir);
        begins(&path, last, epoch(9, 90), found.as_ref());
        assert!(!newest(&path).fits(epoch(9, 90)), "{last:?}");
        assert!(!newest(&path).fits(last), "{last:?}");
    }
    let path = dead(&dir);
    begins(&path, epoch(4, 40), epoch(5, 50), Some(&found()));
    begins(&path, epoch(5, 55), epoch(6, 60), None);
    assert!(!newest(&path).fits(epoch(6, 60)), "another machine had its epoch 5");
    begins(&path, epoch(6, 60), epoch(7, 70), None);
    assert!(!newest(&path).fits(epoch(7, 70)));
}

/// Nobody's book is not written: after an end in order all is known. Where there is no book, and
/// something is recovered, there may be clients that nobody knows.
#[test]
fn nothing_is_written_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("book");
    begins(&path, epoch(4, 40), epoch(5, 50), None);
    assert!(!path.exists());
    begins(&path, epoch(4, 40), epoch(5, 50), Some(&found()));
    let nobody = newest(&path);
    assert!(nobody.blind && nobody.fits(epoch(5, 50)) && nobody.clients.is_empty());
    // That recovery dies behind its epoch.
    begins(&path, epoch(5, 50), epoch(6, 60), None);
    assert!(newest(&path).blind && newest(&path).fits(epoch(6, 60)));
    let part = Part { clients: [7].into(), ended: true, ..Part::default() };
    Book::write(store(&path), VOLUME, &[(1, part.clone())]).unwrap();
    begins(&path, epoch(4, 40), epoch(5, 50), Some(&found()));
    assert_eq!(newest(&path), part);
    assert!(part.fits(epoch(77, 7)));
    store(&path).remove().unwrap();
    store(&path).remove().unwrap();
    assert!(!path.exists());
}

/// An epoch must not begin of which nobody could write down what was found before it.
#[test]
fn a_book_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dead(&dir);
    // Where the new one would be made.
    std::fs::create_dir(path.with_extension("new")).unwrap();
    let (last, next, found) = (epoch(4, 40), epoch(5, 50), found());
    let begins = Begins { volume: VOLUME, last, next, found: Some(&found) };
    let error = note_epoch(&store(&path), begins).unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
    assert!(newest(&path).found.is_none());
}
