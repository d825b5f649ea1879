//! Atomic sections: the bytes that their owners wrote, which are no file's before they are all
//! (rules R26 and R27).
//!
//! 1. *Open.* [`Sections::start`] made it. Its bytes are here and nowhere else.
//! 2. *Void.* Another caller changed a byte of its ranges or its file's size, or took the file's
//!    last name away. It can still be read.
//! 3. *Ended.* [`Sections::end`] took it out: to be applied, or to be forgotten.

use crate::locks::allowance::{Allowance, Charge};
use crate::state::costs;
use crate::state::shadow::Shadow;
use crate::state::tree::references::SessionId;
use ahash::HashMap;
use siftfs_base::{BLOCK_BYTES, Bytes, InodeNr, RangeSet, Result, errno};
use siftfs_proto::{SectionId, WriteData};
use siftfs_status::Operations;
use std::collections::BTreeMap;

/// What a page of a section costs, about.
const PAGE: u64 = BLOCK_BYTES + costs::PAGE as u64;
/// Most sections at a time.
pub const MOST_SECTIONS: usize = 1024;

/// One section.
pub struct Section {
    owner: SessionId,
    ino: InodeNr,
    shadow: Shadow,
    void: bool,
    /// The memory that its pages take.
    charge: Charge,
}

impl Section {
    /// Its file.
    pub fn ino(&self) -> InodeNr {
        self.ino
    }

    /// What was written.
    pub fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// The ranges that were written.
    pub fn written(&self) -> &RangeSet<Bytes> {
        self.shadow.written()
    }

    /// May it not be committed any more?
    pub fn is_void(&self) -> bool {
        self.void
    }
}

/// All sections that have not ended.
#[derive(Default)]
pub struct Sections {
    open: BTreeMap<SectionId, Section>,
    /// The section of each file that has one, unless the file was removed since.
    of_file: HashMap<InodeNr, SectionId>,
    last: u64,
    pages: usize,
    allowance: Allowance,
}

impl Sections {
    /// None, with their memory from there.
    pub fn new(allowance: Allowance) -> Self {
        Self { allowance, ..Self::default() }
    }

    /// Starts a section of a session and a user on `ino`.
    ///
    /// # Errors
    /// `EBUSY` if the file has one, `EMFILE` if there are [`MOST_SECTIONS`].
    pub fn start(&mut self, (owner, user): (SessionId, u32), ino: InodeNr) -> Result<SectionId> {
        if self.of_file.contains_key(&ino) {
            return Err(errno(libc::EBUSY));
        }
        if self.open.len() >= MOST_SECTIONS {
            return Err(errno(libc::EMFILE));
        }
        self.last += 1;
        let id = SectionId(self.last);
        let charge = self.allowance.of(user);
        let section = Section { owner, ino, shadow: Shadow::default(), void: false, charge };
        self.open.insert(id, section);
        self.of_file.insert(ino, id);
        Ok(id)
    }

    /// A section of this session.
    ///
    /// # Errors
    /// `EINVAL` if it has none such: it ended, or is another session's (rule R31).
    pub fn get(&self, owner: SessionId, id: SectionId) -> Result<&Section> {
        self.open.get(&id).filter(|s| s.owner == owner).ok_or_else(|| errno(libc::EINVAL))
    }

    /// Writes `data`; whole blocks are given at a block's begin.
    ///
    /// # Errors
    /// As [`Sections::get`]; `EFBIG` if there is no memory left for its user. It stays as it was
    /// then.
    pub fn write(
        &mut self,
        owner: SessionId,
        id: SectionId,
        offset: u64,
        data: &WriteData,
    ) -> Result<()> {
        let section = self.open.get_mut(&id).filter(|s| s.owner == owner);
        let section = section.ok_or_else(|| errno(libc::EINVAL))?;
        let before = section.shadow.pages();
        let (start, end) = (offset, offset + data.len() as u64);
        if !section.charge.grow(section.shadow.more_pages(start, end) * PAGE) {
            return Err(errno(libc::EFBIG));
        }
        section.shadow.put(offset, data);
        self.pages += section.shadow.pages() - before;
        Ok(())
    }

    /// The section ends.
    ///
    /// # Errors
    /// As [`Sections::get`].
    pub fn end(&mut self, owner: SessionId, id: SectionId) -> Result<Section> {
        self.get(owner, id)?;
        let section = self.open.remove(&id).expect("just seen");
        self.pages -= section.shadow.pages();
        if self.of_file.get(&section.ino) == Some(&id) {
            self.of_file.remove(&section.ino);
        }
        Ok(section)
    }

    /// Has the file a section?
    pub fn has(&self, ino: InodeNr) -> bool {
        self.of_file.contains_key(&ino)
    }

    /// How many sections a session has.
    pub fn count(&self, owner: SessionId) -> u64 {
        self.open.values().filter(|section| section.owner == owner).count() as u64
    }

    /// The session is over, and its sections with it.
    pub fn end_all(&mut self, owner: SessionId) {
        let own = self.open.iter().filter(|(_, section)| section.owner == owner);
        let own: Vec<SectionId> = own.map(|(id, _)| *id).collect();
        for id in own {
            drop(self.end(owner, id).expect("just seen"));
        }
    }

    /// Pages that all sections hold.
    pub fn pages(&self) -> usize {
        self.pages
    }

    fn of(&mut self, ino: InodeNr) -> Option<&mut Section> {
        let id = self.of_file.get(&ino)?;
        Some(self.open.get_mut(id).expect("a file's section is open"))
    }

    /// Bytes `[start, end)` of the file change, and by no section's commit: a section that has
    /// written any of them is void.
    pub fn changed(&mut self, ino: InodeNr, start: u64, end: u64) {
        if let Some(section) = self.of(ino) {
            section.void |= section.written().overlaps(start, end);
        }
    }

    /// The file's size was set: its section is void.
    pub fn resized(&mut self, ino: InodeNr) {
        if let Some(section) = self.of(ino) {
            section.void = true;
        }
    }

    /// The file lost its last name, or is gone: its section is void, and the number may become
    /// another file's.
    pub fn removed(&mut self, ino: InodeNr) {
        self.resized(ino);
        self.of_file.remove(&ino);
    }

    /// The sections' part of the status report.
    pub fn status(&self) -> Operations {
        let void = self.open.values().filter(|section| section.void).count();
        Operations {
            sections: self.open.len() as u64,
            void_sections: void as u64,
            section_bytes: self.bytes(),
            ..Operations::default()
        }
    }

    /// Memory in bytes, about.
    pub fn bytes(&self) -> u64 {
        self.open.values().map(|section| section.shadow.bytes()).sum()
    }
}

#[cfg(test)]
#[path = "sections_tests.rs"]
mod tests;
