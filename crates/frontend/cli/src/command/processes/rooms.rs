//! The volumes that one process serves, of a directory or a pool: opened when they are asked for,
//! and closed when nobody has used them for a while.
//!
//! A volume is opened and closed without a lock over the others, so that one which takes long keeps
//! nobody from theirs. Its name is noted as busy meanwhile, and whatever wants it waits.

use siftfs_base::{Error, Result};
use siftfs_log::show_uuid;
use siftfs_placement::{LocalVolume, OpenOptions, Shelf};
use siftfs_remote::{Execution, MOST_VOLUMES, Server, Visit};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A volume that is open, and its server.
struct Room {
    volume: LocalVolume,
    server: Arc<Server>,
    /// Since when nobody uses it, as far as is known.
    unused: Option<Instant>,
}

impl Room {
    /// Ends what is left of its sessions, and closes it.
    fn close(self) -> Result<()> {
        let Self { volume, server, .. } = self;
        server.end_serving();
        drop(server);
        volume.close()
    }
}

/// The volumes of a directory or a pool that are open.
pub struct Rooms {
    shelf: Shelf,
    options: OpenOptions,
    execution: Execution,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: BTreeMap<String, Room>,
    /// Names that are being looked for, and of volumes that are being opened or closed.
    busy: BTreeSet<String>,
    /// Volumes that are being opened.
    opening: usize,
    /// The UUID of each that was opened, also of those that are closed again: clients may call
    /// them so.
    known: BTreeMap<String, String>,
    ending: bool,
}

impl State {
    /// The name of the volume that a client calls `said`: its name, its UUID, or nothing if there
    /// is one alone.
    fn name_of(&self, said: &str) -> Option<String> {
        let mut known = self.known.iter();
        match said.is_empty() {
            true if self.known.len() > 1 => None,
            true => known.next().map(|(name, _)| name.clone()),
            false if self.known.contains_key(said) => Some(said.into()),
            false => {
                let found = known.find(|(_, uuid)| *uuid == said);
                Some(found.map_or_else(|| said.into(), |(name, _)| name.clone()))
            }
        }
    }

    /// A visit at the volume's server, if it is open.
    fn visit(&mut self, name: &str) -> Option<Visit> {
        let room = self.open.get_mut(name)?;
        room.unused = None;
        Some(Visit::at(&room.server))
    }

    /// Takes the volumes out that nobody has used for so long, and notes them as busy.
    fn take_unused(&mut self, bound: Duration) -> Vec<(String, Room)> {
        let (now, mut names) = (Instant::now(), Vec::new());
        for (name, room) in &mut self.open {
            if !room.server.is_unused() {
                room.unused = None;
            } else if now - *room.unused.get_or_insert(now) >= bound {
                names.push(name.clone());
            }
        }
        let taken = names.into_iter().filter_map(|name| self.open.remove_entry(&name));
        let taken: Vec<_> = taken.collect();
        self.busy.extend(taken.iter().map(|(name, _)| name.clone()));
        taken
    }
}

/// A name is busy until this is dropped.
struct Busy<'a> {
    rooms: &'a Rooms,
    name: String,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.rooms.state().busy.remove(&self.name);
        self.rooms.changed.notify_all();
    }
}

impl Rooms {
    /// None of them is open yet.
    pub fn new(shelf: Shelf, options: OpenOptions, execution: Execution) -> Self {
        let (state, changed) = Default::default();
        Self { shelf, options, execution, state, changed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The volumes that are open: name and UUID.
    pub fn names(&self) -> Vec<(String, String)> {
        let state = self.state();
        let open = state.known.iter().filter(|(name, _)| state.open.contains_key(*name));
        open.map(|(name, uuid)| (name.clone(), uuid.clone())).collect()
    }

    /// How the volume is named in messages.
    pub fn place_of(&self, name: &str) -> PathBuf {
        self.shelf.path_of(name).unwrap_or_else(|_| self.shelf.place().join(name))
    }

    /// Opens a volume that the shelf has listed, before anybody else knows of these.
    ///
    /// # Errors
    /// It cannot be opened, or too many are.
    pub fn open(&self, name: &str) -> Result<()> {
        self.find(name, || self.add(name)).map(drop)
    }

    /// A visit at the server of the volume that a client calls `said`, which is opened if it is
    /// not. What the client said is not believed.
    ///
    /// # Errors
    /// Refused: the message is the client's to know, and says nothing of where volumes are.
    pub fn visit(&self, said: &str) -> Result<Visit> {
        let refuse = |why: String| Err(Error::Refused(why));
        let Some(name) = self.state().name_of(said) else {
            return refuse("volumes are served here by their names: say which".into());
        };
        self.find(&name, || {
            if !self.shelf.volume(&name).is_ok_and(|found| found.is_some()) {
                self.state().known.remove(&name);
                return refuse(format!("no volume is called {said:?} here"));
            }
            self.add(&name).or_else(|error| {
                tracing::error!(volume = name, %error, "not served");
                let why = "cannot be opened: the server's messages say why";
                refuse(format!("the volume {said:?} {why}"))
            })
        })
    }

    /// A visit at the volume's server, if it is open; else what `open` makes of it, which nobody
    /// does twice at a time.
    fn find(&self, name: &str, open: impl FnOnce() -> Result<Visit>) -> Result<Visit> {
        let refuse = |why: String| Err(Error::Refused(why));
        let mut state = self.state();
        loop {
            if let Some(visit) = state.visit(name) {
                return Ok(visit);
            }
            if state.ending {
                return refuse("the server ends".into());
            }
            if !state.busy.contains(name) {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.busy.insert(name.into());
        drop(state);
        let _busy = Busy { rooms: self, name: name.into() };
        open()
    }

    /// Opens a volume whose name is busy, and serves it.
    fn add(&self, name: &str) -> Result<Visit> {
        {
            let mut state = self.state();
            if state.open.len() + state.opening >= MOST_VOLUMES {
                let what = format!("{MOST_VOLUMES} volumes are open here, and no more can be");
                return Err(Error::Refused(what));
            }
            state.opening += 1;
        }
        let opened = self.opened(name);
        let mut state = self.state();
        state.opening -= 1;
        let room = opened?;
        let (uuid, visit) = (show_uuid(&room.volume.uuid()), Visit::at(&room.server));
        tracing::info!(volume = name, uuid, "served");
        state.known.insert(name.into(), uuid);
        state.open.insert(name.into(), room);
        Ok(visit)
    }

    fn opened(&self, name: &str) -> Result<Room> {
        let path = self.shelf.path_of(name)?;
        let volume = LocalVolume::open(&path, &self.options, &mut |_, _, _| {})?;
        let server = volume.served(name).and_then(|served| {
            let before = served.before();
            Server::after(served, self.execution.clone(), before)
        });
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                volume.close()?;
                return Err(error);
            }
        };
        server.begin_serving();
        Ok(Room { volume, server, unused: None })
    }

    /// Closes volumes that nobody has used for so long. One that cannot be closed is named in the
    /// log, and opened again as after a crash.
    pub fn close_unused(&self, bound: Duration) {
        let taken = self.state().take_unused(bound);
        for (name, room) in taken {
            let _busy = Busy { rooms: self, name: name.clone() };
            match room.close() {
                Ok(()) => tracing::info!(volume = name, "closed: nobody uses it"),
                Err(error) => tracing::error!(volume = name, %error, "not closed"),
            }
        }
    }

    /// Opens none any more, has all sessions end, and waits for those that are being opened or
    /// closed.
    pub fn stop(&self) {
        let mut state = self.state();
        state.ending = true;
        self.changed.notify_all();
        let is_busy = |state: &mut State| !state.busy.is_empty();
        state = self.changed.wait_while(state, is_busy).unwrap_or_else(PoisonError::into_inner);
        state.open.values().for_each(|room| room.server.stop());
    }

    /// Are no volumes opened any more?
    pub fn is_ending(&self) -> bool {
        self.state().ending
    }

    /// Closes all volumes, when their sessions have ended. Returns the errors, with names: one
    /// keeps no other volume from being closed.
    pub fn close(&self) -> Vec<(String, Error)> {
        let open = std::mem::take(&mut self.state().open);
        let each = open.into_iter().map(|(name, room)| (name, room.close()));
        each.filter_map(|(name, closed)| closed.err().map(|error| (name, error))).collect()
    }
}

#[cfg(test)]
#[path = "rooms_tests.rs"]
mod tests;
