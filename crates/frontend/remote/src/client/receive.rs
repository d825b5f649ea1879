//! The thread that receives what a server says.

use super::Link;
use siftfs_base::{Error, Result, corrupt};
use siftfs_calls::{FromServer, ToServer, Told};
use siftfs_proto::{Notice, Owed};
use siftfs_transport::{Received, Receiver, Sender};
use std::sync::Arc;

impl Link {
    /// Receives until the connection ends; then nothing can be called any more.
    pub fn receive(&self, mut receiver: Box<dyn Receiver<FromServer>>) {
        let error = loop {
            match receiver.recv(None) {
                Ok(Received::Message(message)) => {
                    if let Err(error) = self.take(message) {
                        break error;
                    }
                }
                Ok(Received::Timeout) => {}
                Ok(Received::Closed) => {
                    break Error::Link(format!("{} has closed the connection", self.peer));
                }
                Err(error) => break error,
            }
        };
        self.slots.broke(&error);
    }

    fn take(&self, message: FromServer) -> Result<()> {
        let broke = |why: &str| Err(corrupt(format!("message from {}", self.peer), why));
        match message {
            FromServer::Answer { slot, number, result } => {
                match self.slots.answer(slot, number, result.map(|reply| *reply)) {
                    true => Ok(()),
                    false => broke("it answers a call that is not under way"),
                }
            }
            FromServer::Notice { notice, all, told } => self.notice(notice, all, told),
            FromServer::Shares { others } => {
                self.cache.iter().for_each(|cache| cache.shares(others));
                Ok(())
            }
            FromServer::Ended { reason } => {
                Err(Error::Link(format!("{} has ended the session: {reason}", self.peer)))
            }
            FromServer::Opened { .. } | FromServer::Refused { .. } => {
                broke("it opens a second session")
            }
        }
    }

    /// Has the session's cache take something back, and says so when it has.
    fn notice(&self, number: u64, all: bool, told: Told) -> Result<()> {
        let Some(cache) = &self.cache else {
            let why = "it tells a session that does not cache";
            return Err(corrupt(format!("message from {}", self.peer), why));
        };
        let mut owed = Owed::default();
        let mut notice = Notice::new(&mut owed);
        notice.attributes = told.attributes;
        notice.sizes = told.sizes;
        notice.data = told.data.into_iter().map(|(ino, (start, end))| (ino, start, end)).collect();
        notice.names = told.names;
        match all {
            true => cache.forget_all(notice),
            false => cache.take_back(notice),
        }
        let sender: Arc<dyn Sender<ToServer>> = self.sender.clone();
        // A connection that is gone says so to its callers.
        owed.then(Box::new(move || drop(sender.send(ToServer::Taken { notice: number }))));
        Ok(())
    }
}
