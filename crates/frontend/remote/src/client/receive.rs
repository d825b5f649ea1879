//! The thread that receives what a server says.

use super::slots::{Noted, Said};
use super::{Caching, Link};
use siftfs_base::{Error, Result, corrupt};
use siftfs_calls::{Done, FromServer, Proof, ToServer, Told};
use siftfs_proto::{Notice, Owed, Reply};
use siftfs_transport::{Received, Receiver};
use std::sync::atomic::Ordering;

/// Notices that a server may have open. All its other sessions together do not wait for more.
const MOST_NOTICES: usize = 1 << 18;

fn said(result: Result<Box<Reply>>, done: Option<Done>, proofs: Option<Vec<Proof>>) -> Said {
    (result.map(|reply| *reply), Noted { done, proofs: proofs.unwrap_or_default() })
}

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
        self.sender.close();
        self.over();
        if let Some(watch) = &self.watch {
            watch.lost(&error);
        }
    }

    /// Nothing more is told: what the cache has counts no more.
    fn over(&self) {
        if !self.leaving.load(Ordering::SeqCst) {
            self.holder.iter().for_each(|holder| holder.lost());
        }
        let Some(caching) = &self.cache else { return };
        caching.owing.end();
        if self.leaving.load(Ordering::SeqCst) {
            return;
        }
        caching.cache.shares(true);
        let (cache, looked_up) = (caching.cache.clone(), caching.looked_up.clone());
        caching.notices.give(move || cache.lost(looked_up.all()));
    }

    fn take(&self, message: FromServer) -> Result<()> {
        let broke = |why: &str| Err(corrupt(format!("message from {}", self.peer), why));
        match message {
            FromServer::Answer { slot, number, result, done, proofs } => {
                match self.slots.answer(slot, number, said(result, done, proofs)) {
                    true => Ok(()),
                    false => broke("it answers a call that is not under way"),
                }
            }
            FromServer::Owing { slot, number, result, done, proofs } => {
                let Some(caching) = &self.cache else {
                    return broke("it answers a session that does not cache before it is done");
                };
                caching.owing.owes((slot, number));
                match self.slots.answer(slot, number, said(result, done, proofs)) {
                    true => Ok(()),
                    false => broke("it answers a call that is not under way"),
                }
            }
            FromServer::Settled { slot, number } => {
                let settled = |caching: &Caching| caching.owing.settled((slot, number));
                match self.cache.as_ref().is_some_and(settled) {
                    true => Ok(()),
                    false => broke("it settles a call that owes nothing"),
                }
            }
            FromServer::Notice { notice, all, told } => self.notice(notice, all, told),
            FromServer::Shares { others } => {
                self.cache.iter().for_each(|caching| caching.cache.shares(others));
                Ok(())
            }
            FromServer::Recall { lease } => match &self.holder {
                Some(holder) => {
                    holder.recall(lease);
                    Ok(())
                }
                None => broke("it recalls a lease of a session that has none"),
            },
            FromServer::Ended { reason, all_answered } => {
                self.all_answered.store(all_answered, Ordering::SeqCst);
                Err(Error::Link(format!("{} has ended the session: {reason}", self.peer)))
            }
            FromServer::Durable { order } => match &self.watch {
                Some(watch) => {
                    watch.durable(order);
                    Ok(())
                }
                None => broke("it tells a client that keeps nothing what is durable"),
            },
            FromServer::Opened { .. } | FromServer::Refused { .. } => {
                broke("it opens a second session")
            }
        }
    }

    /// Has the session's cache take something back, and says so when it has.
    fn notice(&self, number: u64, all: bool, told: Told) -> Result<()> {
        let broke = |why: &str| Err(corrupt(format!("message from {}", self.peer), why));
        let Some(caching) = &self.cache else {
            return broke("it tells a session that does not cache");
        };
        if caching.open.fetch_add(1, Ordering::SeqCst) >= MOST_NOTICES {
            return broke("it tells more than it waits for");
        }
        let (cache, looked_up) = (caching.cache.clone(), caching.looked_up.clone());
        looked_up.notice(&told.attributes);
        let (sender, open) = (self.sender.clone(), caching.open.clone());
        caching.notices.give(move || {
            let mut owed = Owed::default();
            let mut notice = Notice::new(&mut owed);
            let attributes = told.attributes.clone();
            notice.attributes = told.attributes;
            notice.sizes = told.sizes;
            let data = told.data.into_iter();
            notice.data = data.map(|(ino, (start, end))| (ino, start, end)).collect();
            notice.names = told.names;
            match all {
                true => cache.forget_all(notice),
                false => cache.take_back(notice),
            }
            owed.then(Box::new(move || {
                looked_up.taken(&attributes);
                open.fetch_sub(1, Ordering::SeqCst);
                // A connection that is gone says so to its callers.
                let _ = sender.send(ToServer::Taken { notice: number });
            }));
        });
        Ok(())
    }
}
