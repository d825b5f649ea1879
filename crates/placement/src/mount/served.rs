//! A volume for clients that another process has its Frontend in.

use crate::mount::beside::{book_store_of, secret_of};
use crate::mount::local::{LocalVolume, Sessions};
use crate::mount::open::Volume;
use crate::options::OpenOptions;
use siftfs_base::Result;
use siftfs_log::{EpochKey, show_uuid};
use siftfs_proto::{Cache, FileService, Holder, Opening, Recovered};
use siftfs_remote::{Before, Begins, BookStore, Secret, Served, Tenure, VolumeEpoch, note_epoch};
use std::sync::Arc;

/// An open volume, as a server has it.
pub struct ServedVolume {
    sessions: Sessions,
    book: Option<Arc<dyn BookStore>>,
    secret: Option<Secret>,
    tenure: Option<Arc<dyn Tenure>>,
    key: EpochKey,
    recovered: bool,
    uuid: [u8; 16],
    name: String,
}

impl LocalVolume {
    /// The volume for a server, until it is closed. Clients may call it `name`.
    ///
    /// # Errors
    /// The secret of the volume's servers, which lies beside it, cannot be had.
    pub fn served(&self, name: &str) -> Result<Arc<ServedVolume>> {
        let (sessions, uuid) = (self.sessions(), self.uuid());
        let (book, key, recovered) = (self.book(), self.key(), self.recovered().is_some());
        let secret = book.is_some().then(|| secret_of(self.area())).transpose()?;
        let (name, tenure) = (name.into(), self.tenure());
        let served = ServedVolume { sessions, book, secret, tenure, key, recovered, uuid, name };
        Ok(Arc::new(served))
    }

    /// No server takes its book of clients up before something else changes the volume.
    ///
    /// # Errors
    /// The book is still there: the volume must not be changed.
    pub fn give_up_book(&self) -> Result<()> {
        self.book().map_or(Ok(()), |book| book.remove())
    }
}

impl ServedVolume {
    /// What a server of it has to know of the one before.
    pub fn before(&self) -> Before {
        let (book, secret) = (self.book.clone(), self.secret.clone());
        Before { book, secret, epoch: of_book(self.key), recovered: self.recovered }
    }
}

impl Volume {
    /// An epoch is about to begin: if the volume is opened to be served, that is written down
    /// before, with what was found in the one before it. So a server that dies on the way leaves a
    /// book that fits the volume.
    ///
    /// # Errors
    /// The book cannot be written: the epoch must not begin.
    pub(crate) fn note_epoch(
        &self,
        opts: &OpenOptions,
        last: EpochKey,
        next: EpochKey,
        found: Option<&Recovered>,
    ) -> Result<()> {
        let Some(books) = &opts.books else { return Ok(()) };
        let volume = self.view().header.volume;
        let (last, next) = (of_book(last), of_book(next));
        let store = book_store_of(&*self.media.area, books, &volume);
        note_epoch(&store, Begins { volume, last, next, found })
    }
}

/// An epoch, as a server's book names it.
fn of_book(key: EpochKey) -> VolumeEpoch {
    VolumeEpoch { number: key.epoch.0, nonce: key.nonce }
}

impl Served for ServedVolume {
    fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    fn is_called(&self, name: &str) -> bool {
        name == self.name || name == show_uuid(&self.uuid)
    }

    fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        self.tenure.clone()
    }

    fn forget_client(&self, client: u64) {
        self.sessions.forget_client(client);
    }

    fn open(
        &self,
        opening: Opening,
        cache: Option<Arc<dyn Cache>>,
    ) -> Result<Arc<dyn FileService>> {
        match cache {
            Some(cache) => self.sessions.front(opening, cache),
            None => self.sessions.open(opening),
        }
    }

    fn lend(&self, opening: Opening, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        self.sessions.lender(opening, holder)
    }

    fn hold(&self, opening: Opening, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        self.sessions.holder(opening, holder)
    }
}
