//! Sections in a sequence: several at once, whose bytes others change, or not.

use crate::generator::Generator;
use crate::model::Model;
use crate::model_sections::Section;
use crate::rng::pattern;
use siftfs_base::InodeNr;
use siftfs_proto::{FileKind, Request, SectionId, WriteData};

/// Most sections at once.
const SECTIONS: usize = 4;
/// Most pages that a section writes to: two of them fit a record of the smallest log.
const PAGES: usize = 5;

impl Generator {
    /// A step of a section, or of somebody who does not know of it.
    pub(crate) fn section_op(&mut self, model: &Model) -> Option<Request> {
        let open: Vec<(u64, &Section)> = model.sections().iter().map(|(id, s)| (*id, s)).collect();
        let few = open.len() < SECTIONS && self.rng.chance(25);
        let Some((id, section)) = self.rng.pick(&open).copied().filter(|_| !few) else {
            return self.start_section(model);
        };
        let alive = model.node(section.ino).is_some();
        match self.rng.below(100) {
            0..45 if alive => self.write_section(model, id, section),
            45..53 if alive => {
                let len = u32::try_from(self.rng.below(30_000)).unwrap_or(0);
                Some(Request::SectionRead {
                    section: SectionId(id),
                    offset: self.rng.below(30_000),
                    len,
                })
            }
            53..58 if alive => Some(self.write_beside(section)),
            58..90 => self.commit_sections(&open, id),
            90..96 => Some(Request::SectionAbort { section: SectionId(id) }),
            96..98 => Some(Request::SectionStart { file: section.ino.into() }),
            _ => None,
        }
    }

    fn start_section(&mut self, model: &Model) -> Option<Request> {
        let dead = self.rng.chance(5);
        let mut files = self.nodes_where(model, |n| {
            n.kind == FileKind::Regular && (n.nlink > 0 || dead) && !n.linkable
        });
        files.retain(|ino| model.sections().values().all(|section| section.ino != *ino));
        let ino = self.rng.pick(&files).copied()?;
        // Mostly one with something in it: what is new there is nothing's replacement.
        let empty = model.node(ino)?.content.size() == 0;
        (!empty || self.rng.chance(30)).then_some(Request::SectionStart { file: ino.into() })
    }

    fn write_section(&mut self, model: &Model, id: u64, section: &Section) -> Option<Request> {
        let size = model.node(section.ino)?.content.size();
        let near = self.rng.below(size.max(4096) + 5000);
        let offset = if self.rng.chance(40) { near - near % 4096 } else { near };
        let len = match self.rng.below(4) {
            0 => self.rng.between(1, 64),
            1 => 4096,
            _ => self.rng.between(1, 6000),
        };
        let mut pages = section.pages();
        pages.extend(offset / 4096..(offset + len).div_ceil(4096));
        if pages.len() > PAGES {
            return None;
        }
        let data = pattern(u64::from(self.next), offset, len);
        let data = WriteData::copy_of(offset, &data);
        Some(Request::SectionWrite { section: SectionId(id), offset, data })
    }

    /// A write of another caller's, over bytes of the section or beside them.
    fn write_beside(&mut self, section: &Section) -> Request {
        let ino: InodeNr = section.ino;
        let written: Vec<(u64, u64)> =
            section.writes.iter().map(|(at, data)| (*at, data.len() as u64)).collect();
        let (at, len) = self.rng.pick(&written).copied().unwrap_or((0, 4096));
        let offset = match self.rng.below(3) {
            0 => at + self.rng.below(len),
            1 => at + len,
            _ => at.saturating_sub(self.rng.below(3)),
        };
        let len = self.rng.between(1, 5);
        let data = pattern(u64::from(self.next), offset, len);
        let data = WriteData::copy_of(offset, &data);
        Request::write(ino, offset, data)
    }

    /// One section, or several; now and then one twice.
    fn commit_sections(&mut self, open: &[(u64, &Section)], id: u64) -> Option<Request> {
        // What was never written, or is void, is committed seldom.
        let ready = |section: &Section| !section.writes.is_empty() && !section.void;
        if !open.iter().any(|(o, section)| *o == id && ready(section)) && self.rng.chance(80) {
            return None;
        }
        let mut sections = vec![SectionId(id)];
        if self.rng.chance(60) {
            let others = open.iter().filter(|(o, section)| *o != id && ready(section));
            let other: Vec<u64> = others.map(|(o, _)| *o).collect();
            sections.extend(self.rng.pick(&other).map(|o| SectionId(*o)));
        }
        if self.rng.chance(2) {
            sections.push(SectionId(id));
        }
        let (durable, times) = (self.rng.chance(60), !self.rng.chance(15));
        Some(Request::SectionCommit { sections, durable, times })
    }
}
