//! Epochs of a volume, written down before its header names them: so the book still fits the
//! volume if a server dies while it recovers it, or before it has a part of its own
//! (`docs/design/lost-server.md`, "The book").

use super::book::{Book, Part};
use super::book_store::BookStore;
use siftfs_base::Result;
use siftfs_proto::Recovered;
use std::sync::Arc;

/// An epoch of a volume. No two are equal, also not of copies of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeEpoch {
    /// Its number in the volume's header, counted up.
    pub number: u64,
    /// Drawn at random for it.
    pub nonce: u64,
}

/// An epoch that is about to begin, so that nobody but a recovery, or the server that comes next,
/// changes anything in it.
#[derive(Clone, Copy, Debug)]
pub struct Begins<'a> {
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// The epoch that the volume's header names now.
    pub last: VolumeEpoch,
    /// The one that it names next.
    pub next: VolumeEpoch,
    /// What a recovery has found of clients' calls in `last`; `None` if nothing was to be
    /// recovered, or nobody knows.
    pub found: Option<&'a Recovered>,
}

/// Writes down, durably, that an epoch begins, and what was found in the one before. If there is no
/// book, and something is recovered, one is written that says that there may have been
/// clients. Nothing is written if the book is nobody's, or does not fit the volume.
///
/// # Errors
/// The book cannot be written: the epoch must not begin.
pub fn note_epoch(book: &Arc<dyn BookStore>, begins: Begins<'_>) -> Result<()> {
    let mut parts = Book::read(&**book, begins.volume);
    let Some((_, newest)) = parts.last_mut() else {
        if begins.found.is_none() {
            return Ok(());
        }
        let (epoch, epochs) = (begins.last, vec![begins.next]);
        let nobody = Part { epoch, epochs, blind: true, ..Part::default() };
        return Book::write(book.clone(), begins.volume, &[(NOBODY, nobody)]).map(drop);
    };
    if newest.ended || !newest.goes_on(begins) {
        return Ok(());
    }
    Book::write(book.clone(), begins.volume, &parts).map(drop)
}

/// In the place of the instance of a server that has written nothing down. No server has it.
const NOBODY: u64 = 0;

impl Part {
    /// Does the epoch that begins follow the one of this server, with nothing but recoveries in
    /// between? Then it does so whether the header comes to name it or not.
    fn goes_on(&mut self, begins: Begins<'_>) -> bool {
        let Begins { last, next, found, .. } = begins;
        if last == self.epoch
            && let Some(found) = found
        {
            // A recovery that has found it before did not come to its own epoch, and this one finds
            // the same again.
            self.found = Some(found.clone());
            self.epochs = vec![next];
            return true;
        }
        let follows = self.epochs.contains(&last);
        if follows {
            self.epochs = vec![last, next];
        }
        follows
    }

    /// Is the volume in this epoch as the server has left it, after its recovery?
    pub fn fits(&self, epoch: VolumeEpoch) -> bool {
        self.ended || self.epochs.contains(&epoch)
    }
}

#[cfg(test)]
#[path = "epochs_tests.rs"]
mod tests;
