//! The book: what a server writes down for the one that comes after its death
//! (`docs/design/lost-server.md`).
//!
//! Records of 64 bytes, each with a checksum, to which others are only added; a new server writes
//! them anew. The first record that is damaged is the end: what was written behind it was not
//! answered to anybody.

use super::book_store::BookStore;
use super::epochs::VolumeEpoch;
use siftfs_base::{InodeNr, Lsn, Result, crc32c, crc32c_append};
use siftfs_proto::{Carried, ORIGIN_SLOTS, Recovered};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a record: its kind, its checksum, seven numbers.
const RECORD: usize = 64;
const NUMBERS: usize = 7;
const MAGIC: u64 = u64::from_le_bytes(*b"SIFTbok\x01");
/// No server writes a longer book.
const LONGEST: u64 = 64 << 20;
/// It is written anew when it has become this long.
const LONG: u64 = 1 << 20;

const HEAD: u32 = 1;
const INSTANCE: u32 = 2;
const CLIENT: u32 = 3;
const GONE: u32 = 4;
const DURABLE: u32 = 5;
const MARK: u32 = 6;
const CUT: u32 = 7;
const OPERATION: u32 = 8;
const REPLY: u32 = 9;
const ENDED: u32 = 10;
const EPOCH: u32 = 11;
const BLIND: u32 = 12;
const WAITED: u32 = 13;

/// Epochs that a part may name: the header's one, and the one that it is to name next.
const EPOCHS: usize = 2;

/// One server's part of a book.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Part {
    /// Its clients.
    pub clients: BTreeSet<u64>,
    /// All changes up to this one in its order are durable.
    pub durable: u64,
    /// Files of which all changes up to one in its order are durable.
    pub marks: BTreeMap<InodeNr, u64>,
    /// The volume's epoch while it served.
    pub epoch: VolumeEpoch,
    /// After its death the volume is in one of these, in which nobody has changed anything but
    /// recoveries.
    pub epochs: Vec<VolumeEpoch>,
    /// What was recovered after its death; or the replies to changes of names that it had given
    /// when it ended.
    pub found: Option<Recovered>,
    /// It ended in order: everything is durable.
    pub ended: bool,
    /// There may have been clients before it of which nothing was written down, and it had not
    /// waited to the end for what their kernels may show.
    pub blind: bool,
}

/// A book that is being written.
pub(in crate::server) struct Book {
    store: Arc<dyn BookStore>,
    length: u64,
    volume: [u8; 16],
}

type Record = [u8; RECORD];

fn record(kind: u32, numbers: &[u64]) -> Record {
    let mut bytes = [0; RECORD];
    let (head, rest) = bytes.split_at_mut(8);
    for (at, number) in rest.chunks_exact_mut(8).zip(numbers) {
        at.copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc32c_append(crc32c(&kind.to_le_bytes()), rest);
    head.copy_from_slice(&(u64::from(kind) | u64::from(sum) << 32).to_le_bytes());
    bytes
}

fn numbers(record: &[u8]) -> Option<(u32, [u64; NUMBERS])> {
    let (head, rest) = record.split_first_chunk::<8>()?;
    let head = u64::from_le_bytes(*head);
    let (kind, sum) = (head as u32, (head >> 32) as u32);
    if crc32c_append(crc32c(&kind.to_le_bytes()), rest) != sum {
        return None;
    }
    let mut numbers = [0; NUMBERS];
    for (number, bytes) in numbers.iter_mut().zip(rest.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some((kind, numbers))
}

fn head(volume: [u8; 16]) -> Record {
    let (low, high) = volume.split_at(8);
    let number = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("half of 16 bytes"));
    record(HEAD, &[MAGIC, number(low), number(high)])
}

/// What is there of what a server has carried out.
fn put_found(found: &Recovered, out: &mut Vec<u8>) {
    let mut put = |kind, numbers: &[u64]| out.extend(record(kind, numbers));
    put(CUT, &[found.ops_cut.0, found.epoch]);
    found.ops.iter().for_each(|lsn| put(OPERATION, &[lsn.0]));
    for ((client, slot), carried) in &found.replies {
        let Carried { number, lsn, ino } = *carried;
        put(REPLY, &[*client, u64::from(*slot), number, lsn.0, u64::from(ino)]);
    }
}

impl Part {
    fn put(&self, instance: u64, out: &mut Vec<u8>) {
        let mut put = |kind, numbers: &[u64]| out.extend(record(kind, numbers));
        put(INSTANCE, &[instance, self.epoch.number, self.epoch.nonce]);
        self.clients.iter().for_each(|client| put(CLIENT, &[*client]));
        put(DURABLE, &[self.durable]);
        self.marks.iter().for_each(|(ino, order)| put(MARK, &[u64::from(*ino), *order]));
        if let Some(found) = &self.found {
            put_found(found, out);
        }
        for VolumeEpoch { number, nonce } in &self.epochs {
            out.extend(record(EPOCH, &[*number, *nonce]));
        }
        if self.blind {
            out.extend(record(BLIND, &[]));
        }
        if self.ended {
            out.extend(record(ENDED, &[]));
        }
    }

    /// Takes one record in; none of another kind than a part's.
    fn take(&mut self, kind: u32, numbers: [u64; NUMBERS]) -> Option<()> {
        let [a, b, c, d, e, ..] = numbers;
        match kind {
            CLIENT => drop(self.clients.insert(a)),
            ENDED => self.ended = true,
            BLIND => self.blind = true,
            WAITED => self.blind = false,
            GONE => drop(self.clients.remove(&a)),
            DURABLE => self.durable = self.durable.max(a),
            MARK => {
                let mark = self.marks.entry(InodeNr::try_from(a).ok()?).or_default();
                *mark = b.max(*mark);
            }
            CUT => {
                self.found = Some(Recovered { ops_cut: Lsn(a), epoch: b, ..Recovered::default() });
            }
            OPERATION => drop(self.found.as_mut()?.ops.insert(Lsn(a))),
            REPLY => {
                let slot = u32::try_from(b).ok().filter(|slot| *slot < ORIGIN_SLOTS)?;
                let carried = Carried { number: c, lsn: Lsn(d), ino: InodeNr::try_from(e).ok()? };
                self.found.as_mut()?.note(a, slot, carried);
            }
            EPOCH if self.epochs.len() < EPOCHS => {
                self.epochs.push(VolumeEpoch { number: a, nonce: b });
            }
            _ => return None,
        }
        Some(())
    }
}

/// What a file says: of each server its part, the newest one last. Nothing of a file that is no
/// book of this volume.
fn parse(bytes: &[u8], volume: [u8; 16]) -> Vec<(u64, Part)> {
    let mut records = bytes.chunks_exact(RECORD);
    if records.next() != Some(&head(volume)) {
        return Vec::new();
    }
    let mut parts: Vec<(u64, Part)> = Vec::new();
    for bytes in records {
        let Some((kind, given)) = numbers(bytes) else { break };
        let [instance, number, nonce, ..] = given;
        let taken = match (kind, parts.last_mut()) {
            (INSTANCE, _) => {
                let epoch = VolumeEpoch { number, nonce };
                parts.push((instance, Part { epoch, ..Part::default() }));
                Some(())
            }
            (_, Some((_, part))) => part.take(kind, given),
            (_, None) => None,
        };
        if taken.is_none() {
            break;
        }
    }
    parts
}

impl Book {
    /// What the servers before have written down, the newest one last; nothing if nothing is there,
    /// or what is there is no book of this volume.
    pub fn read(store: &dyn BookStore, volume: [u8; 16]) -> Vec<(u64, Part)> {
        match store.read(LONGEST + 1) {
            // A part of what was found would be taken for all of it.
            Ok(Some(bytes)) if bytes.len() as u64 > LONGEST => {
                tracing::warn!(?store, "the book of clients is too long");
                Vec::new()
            }
            Ok(bytes) => bytes.map_or_else(Vec::new, |bytes| parse(&bytes, volume)),
            Err(error) => {
                tracing::warn!(%error, "the book of clients cannot be read");
                Vec::new()
            }
        }
    }

    /// Writes a book of these parts, of which the last one is going to be written on. What was
    /// there is replaced when the new one is durable.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(
        store: Arc<dyn BookStore>,
        volume: [u8; 16],
        parts: &[(u64, Part)],
    ) -> Result<Self> {
        let mut bytes = head(volume).to_vec();
        parts.iter().for_each(|(instance, part)| part.put(*instance, &mut bytes));
        store.replace(&bytes)?;
        Ok(Self { store, length: bytes.len() as u64, volume })
    }

    /// A client is about to be told that it has a session.
    ///
    /// # Errors
    /// As [`Book::write`], for all that is written.
    pub fn client(&mut self, client: u64) -> Result<()> {
        self.add(&record(CLIENT, &[client]))
    }

    /// A client has gone for good.
    pub fn gone(&mut self, client: u64) -> Result<()> {
        self.add(&record(GONE, &[client]))
    }

    /// Clients are about to be told that all up to this change is durable.
    pub fn durable(&mut self, order: u64) -> Result<()> {
        self.add(&record(DURABLE, &[order]))
    }

    /// A session is about to be told that the file is durable, of which others keep changes up to
    /// this one.
    pub fn mark(&mut self, ino: InodeNr, order: u64) -> Result<()> {
        self.add(&record(MARK, &[u64::from(ino), order]))
    }

    /// The server has waited for what kernels of clients that it does not know may show.
    pub fn waited(&mut self) -> Result<()> {
        self.add(&record(WAITED, &[]))
    }

    /// The server ends, and everything is durable. Clients may not have got these replies.
    pub fn ended(&mut self, replies: &Recovered) -> Result<()> {
        let mut records = Vec::new();
        put_found(replies, &mut records);
        records.extend(record(ENDED, &[]));
        self.add(&records)
    }

    /// Nobody needs it any more.
    pub fn remove(self) -> Result<()> {
        self.store.remove()
    }

    /// Is it time to write it anew?
    pub fn is_long(&self) -> bool {
        self.length > LONG
    }

    /// As [`Book::write`], in its place.
    pub fn rewrite(&mut self, parts: &[(u64, Part)]) -> Result<()> {
        *self = Self::write(self.store.clone(), self.volume, parts)?;
        Ok(())
    }

    fn add(&mut self, records: &[u8]) -> Result<()> {
        self.length += records.len() as u64;
        self.store.append(records)
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
