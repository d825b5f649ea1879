//! The Runtime: what changes do, what becomes durable, what a recovery finds.

use super::config::{Config, Mutation};
use super::state::{Broken, FILES, Found, Id, NameOp, Note, Snapshot, Up, bit};

/// A change that is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Its number.
    pub id: Id,
    /// Its file.
    pub file: usize,
    /// It writes.
    pub writes: bool,
    /// The number of its change of names.
    pub names: Option<Id>,
    /// Its client, which of that one's two slots, and the number there.
    pub origin: (usize, usize, u8),
    /// It was made before, by a server that died.
    pub repeated: bool,
}

/// It was made now, for the judge: a change that is repeated keeps its place.
fn made(order: &mut Vec<Id>, id: Id, repeated: bool) {
    if !repeated || !order.contains(&id) {
        order.retain(|other| *other != id);
        order.push(id);
    }
}

impl Snapshot {
    /// Carries a change out: its place in the order, and its LSN.
    pub(crate) fn run(&mut self, change: Change) -> (u8, u8) {
        let Change { id, file, .. } = change;
        self.server.order += 1;
        let mut lsn = 0;
        if change.writes {
            if self.ghost.ran & bit(id) != 0 {
                self.ghost.note(Broken::Twice);
            }
            self.files.data[file].push(id);
            self.ghost.ran |= bit(id);
            made(&mut self.ghost.writes[file], id, change.repeated);
        }
        if let Some(id) = change.names {
            if self.files.names[file].iter().any(|op| op.id == id) {
                self.ghost.note(Broken::Twice);
            }
            self.lsn += 1;
            lsn = self.lsn;
            self.files.names[file].push(NameOp { id, lsn });
            made(&mut self.ghost.renames[file], id, change.repeated);
            let (client, slot, number) = change.origin;
            self.files.notes[client][slot] = Note { number, file };
        }
        (self.server.order, lsn)
    }

    /// Makes a file durable, with its name, and what is noted of the calls that changed that.
    pub(crate) fn sync(&mut self, config: &Config, file: usize) {
        self.disk.files.data[file].clone_from(&self.files.data[file]);
        self.disk.files.names[file].clone_from(&self.files.names[file]);
        let alone = config.has(Mutation::ReplyWithoutEffect);
        let durable = self.disk.files.notes.iter_mut().flatten();
        for (durable, note) in durable.zip(self.files.notes.iter().flatten()) {
            let with = note.file == file && !config.has(Mutation::EffectWithoutReply);
            if note.number != 0 && (with || alone) {
                *durable = *note;
            }
        }
    }

    /// Makes everything durable.
    pub(crate) fn sync_all(&mut self, config: &Config) {
        (0..FILES).for_each(|file| self.sync(config, file));
    }

    /// Is there anything that is not durable?
    pub(crate) fn is_pending(&self) -> bool {
        let (now, durable) = (&self.files, &self.disk.files);
        now.data != durable.data || now.names != durable.names
    }

    /// A new process reads what there is to be recovered, and writes it down with the epoch that it
    /// is about to begin.
    pub(crate) fn note(&mut self, config: &Config) {
        let ops = || self.disk.files.names.iter().flatten();
        let found = Found {
            epoch: self.disk.epoch,
            lsns: ops().fold(0, |lsns, op| lsns | 1 << op.lsn),
            replies: self.disk.files.notes.map(|slots| slots.map(|note| note.number)),
        };
        if config.has(Mutation::FoundUnwritten) {
            self.disk.book.iter_mut().for_each(|part| part.found = None);
        }
        self.ghost.epochs += 1;
        self.server.next = self.ghost.epochs;
        match config.has(Mutation::EpochFirst) {
            true => self.server.found = Some(found),
            false => self.write_found(config, found),
        }
        self.server.up = Up::Noted;
    }

    /// The epoch begins: the volume is recovered. What was noted of calls is forgotten.
    pub(crate) fn recover(&mut self) {
        self.disk.files.notes = Default::default();
        self.files = self.disk.files.clone();
        self.disk.epoch = self.server.next;
        self.server.up = Up::Recovered;
    }
}
