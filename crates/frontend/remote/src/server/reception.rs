//! One place where clients of several volumes connect: each says which volume it wants, and has
//! that volume's server from then on.

use super::places::Places;
use super::session::{asked, refuse};
use super::{CONNECTIONS, Counters, Logged, POLL, Server, count};
use crate::Listener;
use siftfs_base::{Error, Result};
use siftfs_calls::FileProtocol;
use siftfs_transport::ServerEnd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Connections that have not said yet which volume they want, besides those that have one.
const STRANGERS: usize = 64;

/// Knows the servers of several volumes.
pub trait Directory: Send + Sync {
    /// The server of the volume that a client calls `name`, which may be empty, as a visit that
    /// begins before anybody can find that nobody uses the volume. The name is the client's and not
    /// checked.
    ///
    /// # Errors
    /// Refused: the message is told to the client.
    fn find(&self, name: &str) -> Result<Visit>;
}

/// A connection's stay at the server of a volume: the volume is in use until this is dropped.
pub struct Visit(Arc<Server>);

impl Visit {
    /// A connection is about to come to this server.
    pub fn at(server: &Arc<Server>) -> Self {
        server.visits.fetch_add(1, Ordering::SeqCst);
        Self(server.clone())
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let before = self.0.visits.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a visit ends once");
    }
}

/// Takes connections for the volumes of a directory.
pub struct Reception {
    directory: Arc<dyn Directory>,
    ending: AtomicBool,
    counters: Counters,
    logged: Logged,
}

impl Reception {
    /// Nobody has connected yet.
    pub fn new(directory: Arc<dyn Directory>) -> Arc<Self> {
        let (ending, counters, logged) = Default::default();
        Arc::new(Self { directory, ending, counters, logged })
    }

    /// Takes connections until [`Reception::stop`]; all sessions that came by this listener have
    /// ended when it returns, for which their servers have to be stopped. Several listeners may be
    /// served at a time.
    pub fn serve(self: &Arc<Self>, listener: &Listener) {
        let mut sessions: Vec<JoinHandle<()>> = Vec::new();
        let places = Arc::new(Places::default());
        while !self.ending.load(Ordering::Acquire) {
            sessions.retain(|session| !session.is_finished());
            self.logged.look();
            match listener.accept(Some(POLL)) {
                Ok(Some(end)) => self.begin(end, &places, &mut sessions),
                Ok(None) => {}
                Err(error) => self.turned_away(&error),
            }
        }
        for session in sessions {
            if session.join().is_err() {
                tracing::error!("a session ended with a failed assertion");
            }
        }
    }

    /// Takes no more connections. Sessions that there are go on until their servers stop.
    pub fn stop(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Connections that got no server.
    pub fn refused(&self) -> u64 {
        let refused: &AtomicU64 = &self.counters.refused;
        refused.load(Ordering::Relaxed)
    }

    fn begin(
        self: &Arc<Self>,
        end: ServerEnd<FileProtocol>,
        places: &Arc<Places>,
        sessions: &mut Vec<JoinHandle<()>>,
    ) {
        if sessions.len() >= CONNECTIONS + STRANGERS {
            let why = format!("{}: too many connections, at most {CONNECTIONS}", end.peer);
            return self.turned_away(&Error::Refused(why));
        }
        let (reception, places) = (self.clone(), places.clone());
        let session = move || reception.attend(end, &places);
        match Builder::new().name("siftfs-session".into()).spawn(session) {
            Ok(session) => sessions.push(session),
            Err(error) => tracing::error!(%error, "no thread for a connection"),
        }
    }

    /// Hears what a client wants, and has its server do it.
    fn attend(&self, mut end: ServerEnd<FileProtocol>, places: &Arc<Places>) {
        let wanted = asked(&mut end.receiver);
        let found = wanted.and_then(|opening| {
            let visit = self.directory.find(&opening.volume)?;
            let place = Places::take(places, visit.0.volume.uuid())?;
            Ok((visit, place, opening))
        });
        match found {
            Ok((visit, _place, opening)) => visit.0.attend_to(end, opening),
            Err(error) => {
                self.turned_away(&error);
                refuse(&end.sender, &error);
            }
        }
    }

    fn turned_away(&self, error: &Error) {
        count(&self.counters.refused);
        Logged::turned_away(self.logged.turned_away.note(&error.to_string(), Instant::now()));
    }
}

#[cfg(test)]
#[path = "reception_tests.rs"]
mod tests;
