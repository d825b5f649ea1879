//! A volume for clients that another process has its Frontend in.

use crate::mount::local::{LocalVolume, Sessions};
use siftfs_base::Result;
use siftfs_log::show_uuid;
use siftfs_proto::{Cache, FileService, Holder, Opening};
use siftfs_remote::Served;
use std::sync::Arc;

/// An open volume, as a server has it.
pub struct ServedVolume {
    sessions: Sessions,
    uuid: [u8; 16],
    name: String,
}

impl LocalVolume {
    /// The volume for a server, until it is closed. Clients may call it `name`.
    pub fn served(&self, name: &str) -> Arc<ServedVolume> {
        let (sessions, uuid) = (self.sessions(), self.uuid());
        Arc::new(ServedVolume { sessions, uuid, name: name.into() })
    }
}

impl Served for ServedVolume {
    fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    fn is_called(&self, name: &str) -> bool {
        name == self.name || name == show_uuid(&self.uuid)
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
