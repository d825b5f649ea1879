//! What is known of one file of a program: what it has, and what it may have after a crash.

use std::path::{Path, PathBuf};

/// A write or a truncation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Bytes that follow from their place and a tag.
    Write {
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u64,
        /// Says which write it was.
        tag: u32,
    },
    /// Another size.
    Truncate(u64),
}

/// The byte that a write with this tag puts at a place of its file.
fn byte(tag: u32, at: u64) -> u8 {
    let digit = (tag >> (28 - 4 * (at % 8))) & 15;
    b"0123456789abcdef".get(digit as usize).copied().unwrap_or_default()
}

impl Change {
    /// Makes it.
    pub fn apply(self, content: &mut Vec<u8>) {
        match self {
            Self::Truncate(size) => content.resize(size as usize, 0),
            Self::Write { offset, len, tag } => {
                let end = (offset + len) as usize;
                content.resize(content.len().max(end), 0);
                let bytes = content.iter_mut().zip(0..).skip(offset as usize).take(len as usize);
                bytes.for_each(|(to, at)| *to = byte(tag, at));
            }
        }
    }

    /// The size afterwards.
    fn size(self, before: u64) -> u64 {
        match self {
            Self::Truncate(size) => size,
            Self::Write { offset, len, .. } => before.max(offset + len),
        }
    }
}

/// A file. Its names are its stem and a number, which each rename counts up.
#[derive(Clone, Debug)]
pub struct File {
    stem: String,
    /// Its program has opened it, so that it is there while the host lives.
    pub made: bool,
    /// The number of the name that it has.
    pub number: u32,
    /// The number that its name has at least after a crash; none: it may have no name at all.
    promised: Option<u32>,
    /// What it has.
    pub content: Vec<u8>,
    /// What it had when it was synced last.
    base: Vec<u8>,
    /// What happened to it since then.
    since: Vec<Change>,
    mode: u32,
    /// Modes that it may have after a crash.
    modes: Vec<u32>,
}

impl File {
    /// A new one, which no sync has seen.
    pub fn new(stem: &str) -> Self {
        let (content, base, since) = (Vec::new(), Vec::new(), Vec::new());
        let (mode, stem) = (0o600, stem.to_string());
        Self {
            stem,
            made: false,
            number: 0,
            promised: None,
            content,
            base,
            since,
            mode,
            modes: vec![mode],
        }
    }

    /// Is it this name's?
    pub fn is_named(&self, name: &str) -> bool {
        self.name() == name
    }

    /// Its name.
    pub fn name(&self) -> String {
        format!("{}.{}", self.stem, self.number)
    }

    /// A change returned.
    pub fn changed(&mut self, change: Change) {
        change.apply(&mut self.content);
        self.since.push(change);
    }

    /// fsync(2) or fdatasync(2) returned: what it has is durable. The latter promises neither names
    /// nor modes.
    pub fn synced(&mut self, datasync: bool) {
        self.base.clone_from(&self.content);
        self.since.clear();
        if !datasync {
            self.promised = Some(self.number);
            self.modes = vec![self.mode];
        }
    }

    /// chmod(2) returned, or may have been made.
    pub fn chmod(&mut self, mode: u32) {
        self.mode = mode;
        self.modes.push(mode);
    }

    /// What is wrong with the file in `dir`, of whose program `under_way` was not answered. After a
    /// death of the host (`cut`) it may be older, up to what was synced. What is there is what the
    /// program goes on with; it is durable after such a death.
    pub fn judge(&mut self, dir: &Path, cut: bool, under_way: Option<Pending>) -> Option<String> {
        let newest = self.number + u32::from(under_way == Some(Pending::Rename));
        let oldest = if cut { self.promised.unwrap_or(0) } else { self.number };
        let path = |number: u32| dir.join(format!("{}.{number}", self.stem));
        let there: Vec<u32> =
            (oldest..=newest).filter(|n| path(*n).symlink_metadata().is_ok()).collect();
        match there[..] {
            [] if self.promised.is_none() && (cut || !self.made) => {
                *self = Self::new(&self.stem);
                None
            }
            [number] => self.judge_content(&path(number), number, cut, under_way),
            _ => Some(format!("{}: names {there:?} of {oldest} to {newest} are there", self.stem)),
        }
    }

    fn judge_content(
        &mut self,
        path: &PathBuf,
        number: u32,
        cut: bool,
        under_way: Option<Pending>,
    ) -> Option<String> {
        let name = format!("{}.{number}", self.stem);
        let (found, mode) = match (std::fs::read(path), std::fs::metadata(path)) {
            (Ok(found), Ok(meta)) => (found, std::os::unix::fs::MetadataExt::mode(&meta) & 0o7777),
            (Err(e), _) | (_, Err(e)) => return Some(format!("{name}: {e}")),
        };
        if let Some(Pending::Chmod(mode)) = under_way {
            self.modes.push(mode);
        }
        let modes = if cut { &self.modes[..] } else { &[self.mode] };
        let asked = under_way == Some(Pending::Chmod(mode));
        if !modes.contains(&mode) && !asked {
            return Some(format!("{name}: mode {mode:o}, not one of {modes:?}"));
        }
        let pending = match under_way {
            Some(Pending::Change(change)) => Some(change),
            _ => None,
        };
        let (base, changes) =
            if cut { (&self.base, &self.since[..]) } else { (&self.content, &[][..]) };
        let changes: Vec<Change> = changes.iter().copied().chain(pending).collect();
        if let Some(why) = unexplained(base, &changes, &found) {
            let since = self.since.len();
            return Some(format!("{name}: {why}; {since} changes since the last sync"));
        }
        (self.number, self.content, self.mode) = (number, found, mode);
        self.made = true;
        self.since.extend(pending);
        if cut {
            self.synced(false);
        }
        None
    }
}

/// A call that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// To the file's content.
    Change(Change),
    /// To the next name.
    Rename,
    /// To this mode.
    Chmod(u32),
    /// One that changes nothing.
    Nothing,
}

/// Why `found` cannot be what was `base` once and then got some of these changes, each byte by
/// itself.
fn unexplained(base: &[u8], changes: &[Change], found: &[u8]) -> Option<String> {
    let (mut size, len) = (base.len() as u64, found.len() as u64);
    let (mut fits, mut zeros, mut shortest) = (len == size, None::<u64>, size);
    for change in changes {
        let next = change.size(size);
        // The kernel may divide a write where a page ends.
        fits |= len == next || (size < len && len < next && len.is_multiple_of(4096));
        // What is cut off, and what lies behind the end, is zero later.
        shortest = shortest.min(next);
        if next != size {
            zeros = Some(zeros.map_or(shortest, |from| from.min(shortest)));
        }
        size = next;
    }
    if !fits {
        return Some(format!(
            "{len} bytes, which it never had ({} once, {size} at last)",
            base.len()
        ));
    }
    let explained = |at: u64, is: u8| {
        base.get(at as usize) == Some(&is)
            || (is == 0 && zeros.is_some_and(|from| at >= from))
            || changes.iter().any(|change| match change {
                Change::Write { offset, len, tag } => {
                    (*offset..offset + len).contains(&at) && byte(*tag, at) == is
                }
                Change::Truncate(_) => false,
            })
    };
    let wrong = (0..).zip(found).find(|(at, is)| !explained(*at, **is));
    wrong.map(|(at, is)| {
        let was = base.get(at as usize);
        format!(
            "byte {at} of {len} is {is}, was {was:?} at the last sync, and no write explains it"
        )
    })
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
