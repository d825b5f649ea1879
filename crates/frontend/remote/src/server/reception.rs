//! One place where clients of several volumes connect: each says which volume it wants, and has
//! that volume's server from then on.

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

/// Knows the servers of several volumes.
pub trait Directory: Send + Sync {
    /// The server of the volume that a client calls `name`, which may be empty. The name is the
    /// client's and not checked.
    ///
    /// # Errors
    /// Refused: the message is told to the client.
    fn find(&self, name: &str) -> Result<Arc<Server>>;
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
        while !self.ending.load(Ordering::Acquire) {
            sessions.retain(|session| !session.is_finished());
            self.logged.look();
            match listener.accept(Some(POLL)) {
                Ok(Some(end)) => self.begin(end, &mut sessions),
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

    fn begin(self: &Arc<Self>, end: ServerEnd<FileProtocol>, sessions: &mut Vec<JoinHandle<()>>) {
        if sessions.len() >= CONNECTIONS {
            let why = format!("{}: too many connections, at most {CONNECTIONS}", end.peer);
            return self.turned_away(&Error::Refused(why));
        }
        let reception = self.clone();
        let session = move || reception.attend(end);
        match Builder::new().name("siftfs-session".into()).spawn(session) {
            Ok(session) => sessions.push(session),
            Err(error) => tracing::error!(%error, "no thread for a connection"),
        }
    }

    /// Hears what a client wants, and has its server do it.
    fn attend(&self, mut end: ServerEnd<FileProtocol>) {
        let wanted = asked(&mut end.receiver);
        let found = wanted.and_then(|opening| {
            let server = self.directory.find(&opening.volume)?;
            Ok((server, opening))
        });
        match found {
            Ok((server, opening)) => server.attend_to(end, opening),
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
