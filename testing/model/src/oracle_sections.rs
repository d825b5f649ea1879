//! O11: what one commit of sections brought is found all or not at all.

use crate::content::{Content, PAGE};
use crate::history::Time;
use crate::model_sections::Committed;
use crate::oracle::{Bytes, InodePast, Oracle};
use crate::oracle_found::Found;
use crate::tree::Seen;
use siftfs_base::InodeNr;
use std::collections::BTreeMap;

/// Sections that were committed together.
#[derive(Clone, Debug)]
pub(crate) struct SectionCommit {
    time: Time,
    /// Pieces of each file's bytes, none longer than a page: from and to, inside of one.
    files: BTreeMap<InodeNr, Vec<(u64, u64)>>,
    returned: bool,
    owed: bool,
}

impl SectionCommit {
    pub(crate) fn new(time: Time, committed: &Committed) -> Self {
        let inside = |(start, end): (u64, u64)| {
            (start / PAGE..end.div_ceil(PAGE))
                .map(move |nr| (start.max(nr * PAGE), end.min((nr + 1) * PAGE)))
        };
        let pieces = |ranges: &[(u64, u64)]| ranges.iter().copied().flat_map(inside).collect();
        let files = committed.iter().map(|(ino, ranges)| (*ino, pieces(ranges))).collect();
        Self { time, files, returned: false, owed: false }
    }

    pub(crate) fn began(&self) -> Time {
        self.time
    }
}

/// What was found of a commit, and where.
#[derive(Default)]
struct Evidence {
    there: Option<String>,
    missing: Option<String>,
}

impl Oracle {
    /// The commit that began last has returned.
    pub(crate) fn committed(&mut self, durable: bool) {
        let now = self.now;
        let Some(commit) = self.commits.last_mut().filter(|c| c.time == now) else { return };
        commit.returned = true;
        let files: Vec<InodeNr> = commit.files.keys().copied().collect();
        if durable {
            commit.owed = true;
            self.owe_commits_before(now);
            files.into_iter().for_each(|ino| self.synced(ino, false));
        }
    }

    /// All commits that returned before `time` are durable.
    pub(crate) fn owe_commits_before(&mut self, time: Time) {
        for commit in &mut self.commits {
            if commit.time >= time || !commit.returned || commit.owed {
                continue;
            }
            commit.owed = true;
            for ino in commit.files.keys() {
                if let Some(past) = self.inodes.get_mut(ino) {
                    past.bytes.raise(commit.time);
                }
            }
        }
    }

    /// All of `ino`'s bytes are durable: with the last change of them, all commits before it.
    pub(crate) fn owe_commits_before_changes_of(&mut self, ino: InodeNr) {
        let Some(past) = self.inodes.get(&ino) else { return };
        let versions: Vec<(Time, &Bytes)> = past.bytes.iter().collect();
        let changed = |pair: &&[(Time, &Bytes)]| matches!(pair, [(_, a), (_, b)] if a.content.first_difference(&b.content).is_some());
        let last = versions.windows(2).rfind(changed).and_then(|pair| pair.last());
        if let Some((time, _)) = last {
            self.owe_commits_before(*time);
        }
    }

    /// O11. A byte tells something if nothing changed it since the commit.
    pub(crate) fn check_sections(&self, found: &Found<'_>, out: &mut Vec<String>) {
        for commit in &self.commits {
            let mut evidence = Evidence::default();
            for (ino, pieces) in &commit.files {
                if let Some(past) = self.inodes.get(ino) {
                    let seen = found.nodes.get(ino).copied();
                    look_at_file((*ino, past), commit.time, pieces, seen, &mut evidence);
                }
            }
            if let Evidence { there: Some(there), missing: Some(missing) } = evidence {
                out.push(format!("O11 committed together: {there} is there, {missing} is not"));
            }
        }
    }
}

fn look_at_file(
    (ino, past): (InodeNr, &InodePast),
    time: Time,
    pieces: &[(u64, u64)],
    seen: Option<&Seen>,
    evidence: &mut Evidence,
) {
    let since: Vec<(Time, &Bytes)> = past.bytes.since(time).collect();
    if since.first().is_none_or(|(first, _)| *first != time) {
        evidence.there = Some(format!("inode {ino}, by a later change that is durable,"));
        return;
    }
    let Some(seen) = seen else {
        if past.names.since(time).all(|(_, names)| !names.is_empty()) {
            evidence.missing = Some(format!("inode {ino}, with its names,"));
        }
        return;
    };
    let before: Vec<&Bytes> =
        past.bytes.iter().filter(|(t, _)| *t < time).map(|(_, b)| b).collect();
    let since: Vec<&Bytes> = since.into_iter().map(|(_, b)| b).collect();
    for piece in pieces {
        look_at_piece(ino, *piece, (&before, &since), seen, evidence);
    }
}

/// Bytes of one page, as far as a version has them.
struct PageOf<'a> {
    bytes: &'a [u8; PAGE as usize],
    /// The file's end in it.
    end: u64,
}

impl<'a> PageOf<'a> {
    fn of(content: &'a Content, nr: u64) -> Self {
        static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
        Self { bytes: content.page(nr).unwrap_or(&ZEROS), end: content.size() }
    }

    fn has(&self, at: u64, byte: u8) -> bool {
        at < self.end && self.bytes[(at % PAGE) as usize] == byte
    }
}

fn look_at_piece(
    ino: InodeNr,
    (start, end): (u64, u64),
    (before, since): (&[&Bytes], &[&Bytes]),
    seen: &Seen,
    evidence: &mut Evidence,
) {
    let nr = start / PAGE;
    let before: Vec<PageOf<'_>> = before.iter().map(|v| PageOf::of(&v.content, nr)).collect();
    let since: Vec<PageOf<'_>> = since.iter().map(|v| PageOf::of(&v.content, nr)).collect();
    let found = PageOf::of(&seen.content, nr);
    let Some(committed) = since.first().map(|page| page.bytes) else { return };
    for at in start..end {
        let byte = committed[(at % PAGE) as usize];
        // A zero may have come by an extension.
        if byte == 0 || !since.iter().all(|page| page.has(at, byte)) {
            continue;
        }
        if !found.has(at, byte) {
            evidence.missing = Some(format!("byte {at} of inode {ino}"));
        } else if !before.iter().any(|page| page.has(at, byte)) {
            evidence.there = Some(format!("byte {at} of inode {ino}"));
        }
    }
}

#[cfg(test)]
#[path = "oracle_sections_tests.rs"]
mod tests;
