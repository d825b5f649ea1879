//! A volume for clients that another process has its Frontend in.

use crate::mount::local::{LocalVolume, Sessions};
use crate::volume::find::{book_of_clients, secret_of_servers};
use siftfs_base::Result;
use siftfs_log::show_uuid;
use siftfs_proto::{Cache, FileService, Holder, Opening, Recovered};
use siftfs_remote::{Before, Served};
use std::sync::Arc;

/// An open volume, as a server has it.
pub struct ServedVolume {
    sessions: Sessions,
    recovered: Option<Arc<Recovered>>,
    epoch: u64,
    uuid: [u8; 16],
    name: String,
}

impl LocalVolume {
    /// The volume for a server, until it is closed. Clients may call it `name`.
    pub fn served(&self, name: &str) -> Arc<ServedVolume> {
        let (sessions, uuid) = (self.sessions(), self.uuid());
        let (recovered, epoch) = (self.recovered(), self.epoch());
        Arc::new(ServedVolume { sessions, recovered, epoch, uuid, name: name.into() })
    }
}

impl ServedVolume {
    /// As [`LocalVolume::recovered`].
    pub fn recovered(&self) -> Option<Arc<Recovered>> {
        self.recovered.clone()
    }

    /// As [`LocalVolume::epoch`].
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What a server of it has to know of the one before.
    pub fn before(&self) -> Before {
        let (epoch, found) = (self.epoch, self.recovered());
        let (book, secret) = (book_of_clients(&self.uuid), secret_of_servers());
        Before { book: Some(book), secret: Some(secret), epoch, found }
    }
}

impl Served for ServedVolume {
    fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    fn is_called(&self, name: &str) -> bool {
        name == self.name || name == show_uuid(&self.uuid)
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
}
