//! Atomic sections: bytes that are the file's together, with the commit, or never.

use crate::content::Content;
use crate::model::{Effects, Fresh, Model, Outcome};
use siftfs_base::InodeNr;
use siftfs_proto::{FileKind, Reply, Request, SectionId};
use std::collections::{BTreeMap, BTreeSet};

/// A section that has not ended.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its file.
    pub ino: InodeNr,
    /// What was written, in this order, and where.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Somebody else changed its bytes, the file's size, or took the file's last name.
    pub void: bool,
}

impl Section {
    /// The pages that it wrote to.
    pub fn pages(&self) -> BTreeSet<u64> {
        let pages =
            |(at, data): &(u64, Vec<u8>)| at / 4096..(at + data.len() as u64).div_ceil(4096);
        self.writes.iter().flat_map(pages).collect()
    }

    fn lay_over(&self, content: &mut Content) {
        for (at, data) in &self.writes {
            content.write(*at, data);
        }
    }
}

/// The sections that were committed together: the bytes that each brought its file.
pub type Committed = Vec<(InodeNr, Vec<(u64, u64)>)>;

impl Model {
    /// All sections that have not ended, by number.
    pub fn sections(&self) -> &BTreeMap<u64, Section> {
        &self.sections
    }

    pub(crate) fn exec_section(
        &mut self,
        req: &Request,
        fresh: Fresh,
        fx: &mut Effects,
    ) -> Outcome {
        match req {
            Request::SectionStart { file } => self.start_section(self.target(*file)?, fresh),
            Request::SectionWrite { section, offset, data } => {
                let writes = &mut self.section(*section)?.writes;
                let data = data.clone().into_bytes();
                let len = u32::try_from(data.len()).map_err(|_| libc::EINVAL)?;
                writes.push((*offset, data));
                Ok(Reply::Written { len })
            }
            Request::SectionRead { section, offset, len } => {
                let section = self.section(*section)?.clone();
                let node = self.get_mut(section.ino)?;
                node.atime = None;
                let mut content = node.content.clone();
                section.lay_over(&mut content);
                Ok(Reply::Data(content.read(*offset, u64::from(*len))))
            }
            Request::SectionCommit { sections, times, .. } => {
                self.commit_sections(sections, *times, fx)
            }
            Request::SectionAbort { section } => {
                self.section(*section)?;
                self.sections.remove(&section.0);
                Ok(Reply::Done)
            }
            other => unreachable!("not about sections: {other:?}"),
        }
    }

    fn section(&mut self, id: SectionId) -> Result<&mut Section, i32> {
        self.sections.get_mut(&id.0).ok_or(libc::EINVAL)
    }

    fn start_section(&mut self, ino: InodeNr, fresh: Fresh) -> Outcome {
        let node = self.get(ino)?;
        match node.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(libc::EISDIR),
            _ => return Err(libc::EINVAL),
        }
        if node.nlink == 0 && !node.linkable {
            return Err(libc::ENOENT);
        }
        if self.sections.values().any(|s| s.ino == ino) {
            return Err(libc::EBUSY);
        }
        let section = Section { ino, writes: Vec::new(), void: false };
        self.sections.insert(fresh.handle, section);
        Ok(Reply::Section(SectionId(fresh.handle)))
    }

    fn commit_sections(&mut self, ids: &[SectionId], times: bool, fx: &mut Effects) -> Outcome {
        let mut seen = BTreeSet::new();
        for id in ids {
            let void = self.section(*id)?.void;
            if !seen.insert(*id) {
                return Err(libc::EINVAL);
            }
            if void {
                return Err(libc::ECANCELED);
            }
        }
        for id in ids {
            let Some(section) = self.sections.remove(&id.0) else { continue };
            if section.writes.is_empty() {
                continue;
            }
            let node = self.get_mut(section.ino)?;
            section.lay_over(&mut node.content);
            if times {
                node.mtime = None;
            }
            fx.nodes.push(section.ino);
            let ranges = section.writes.iter().map(|(at, data)| (*at, at + data.len() as u64));
            fx.committed.push((section.ino, ranges.collect()));
        }
        Ok(Reply::Done)
    }

    /// Bytes `[start, end)` of a file changed, and by no section's commit.
    pub(crate) fn bytes_changed(&mut self, ino: InodeNr, start: u64, end: u64) {
        for section in self.sections.values_mut().filter(|s| s.ino == ino) {
            let touches = |(at, data): &(u64, Vec<u8>)| *at < end && at + data.len() as u64 > start;
            section.void |= section.writes.iter().any(touches);
        }
    }

    /// A file's size was set.
    pub(crate) fn size_was_set(&mut self, ino: InodeNr) {
        for section in self.sections.values_mut().filter(|s| s.ino == ino) {
            section.void = true;
        }
    }

    /// Sections of files whose last name is gone are void.
    pub(crate) fn void_what_was_removed(&mut self) {
        for section in self.sections.values_mut() {
            let node = self.nodes.get(&section.ino);
            section.void |= node.is_none_or(|n| n.nlink == 0 && !n.linkable);
        }
    }
}
