//! Publish: several names change together, or none.

use crate::model::{Effects, Model, Outcome};
use siftfs_base::InodeNr;
use siftfs_proto::{Credentials, FileKind, PublishEntry, PublishSource, RenameMode, Reply, Rights};
use std::collections::{BTreeMap, BTreeSet};

type Name = (InodeNr, Vec<u8>);

/// One entry, resolved.
struct Change {
    from: Option<Name>,
    file: InodeNr,
    to: Name,
    displaced: Option<InodeNr>,
}

/// A file that one change replaces gets the name that another one gives it first.
fn in_order(changes: &[Change]) -> impl Iterator<Item = &Change> {
    let replaced: BTreeSet<InodeNr> = changes.iter().filter_map(|c| c.displaced).collect();
    let keeps = move |c: &&Change| c.from.is_none() && replaced.contains(&c.file);
    let (first, then): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(keeps);
    first.into_iter().chain(then)
}

impl Model {
    /// Nothing gets a name that has lost its last one to another change.
    fn count_links(&self, changes: &[Change]) -> Result<(), i32> {
        let mut links: BTreeMap<InodeNr, u32> = BTreeMap::new();
        for Change { from, file, displaced, .. } in in_order(changes) {
            if *displaced == Some(*file) {
                continue;
            }
            if let Some(old) = displaced {
                let count = links.entry(*old).or_insert(self.get(*old)?.nlink);
                *count = count.saturating_sub(1);
            }
            if from.is_none() {
                let node = self.get(*file)?;
                let count = links.entry(*file).or_insert(node.nlink);
                if *count == 0 && !node.linkable {
                    return Err(libc::ENOENT);
                }
                *count += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn publish(
        &mut self,
        cred: &Credentials,
        rights: &Rights,
        base: InodeNr,
        entries: &[PublishEntry],
        fx: &mut Effects,
    ) -> Outcome {
        if entries.is_empty() {
            return Err(libc::EINVAL);
        }
        let changes: Vec<Change> = entries
            .iter()
            .map(|entry| self.resolve(cred, rights, base, entry))
            .collect::<Result<_, _>>()?;
        let names = || changes.iter().flat_map(|c| c.from.iter().chain([&c.to]));
        if names().collect::<BTreeSet<_>>().len() < names().count() {
            return Err(libc::EINVAL);
        }
        self.count_links(&changes)?;
        let root = Credentials::default();
        for Change { from, file, to, displaced } in in_order(&changes) {
            match from {
                Some(from) => {
                    let (from, to) = ((from.0, &*from.1), (to.0, &*to.1));
                    self.rename(&root, from, to, RenameMode::Replace, fx)?;
                }
                None if *displaced == Some(*file) => continue,
                None => {
                    if displaced.is_some() {
                        self.unlink(&root, to.0, &to.1, fx)?;
                    }
                    self.link(*file, to.0, &to.1, fx)?;
                    // No entry is answered.
                    self.get_mut(*file)?.refs -= 1;
                }
            }
            fx.replaced_by.push(*file);
        }
        fx.together = true;
        let files = changes.iter().flat_map(|c| std::iter::once(c.file).chain(c.displaced));
        Ok(Reply::Published { names: names().cloned().collect(), files: files.collect() })
    }

    fn resolve(
        &self,
        cred: &Credentials,
        rights: &Rights,
        base: InodeNr,
        entry: &PublishEntry,
    ) -> Result<Change, i32> {
        let from = match &entry.source {
            PublishSource::Path(path) => Some(self.walk(base, path)?),
            PublishSource::Open(_) => None,
        };
        let to = self.walk(base, &entry.to)?;
        let file = match (&entry.source, &from) {
            (PublishSource::Open(handle), _) => *self.handles.get(&handle.0).ok_or(libc::EBADF)?,
            (_, Some((dir, name))) => self.child(*dir, name).ok_or(libc::ENOENT)?,
            _ => return Err(libc::EINVAL),
        };
        let displaced = self.child(to.0, &to.1);
        if displaced.is_some() && !entry.replace {
            return Err(libc::EEXIST);
        }
        if self.get(file)?.is_dir() {
            return Err(libc::EISDIR);
        }
        if self.dir(to.0)?.nlink == 0 {
            return Err(libc::ENOENT);
        }
        if !rights.owns_all {
            if let Some(from) = &from {
                self.check_sticky(cred, from.0, file)?;
            }
            if let Some(old) = displaced.filter(|old| *old != file) {
                self.check_sticky(cred, to.0, old)?;
            }
        }
        let node = self.get(file)?;
        if from.is_none() && node.nlink == 0 && !node.linkable {
            return Err(libc::ENOENT);
        }
        if let Some(old) = displaced
            && self.get(old)?.is_dir()
        {
            return Err(libc::EISDIR);
        }
        Ok(Change { from, file, to, displaced })
    }

    fn walk(&self, base: InodeNr, path: &[u8]) -> Result<Name, i32> {
        let mut dir = base;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            self.dir(dir)?;
            crate::model_names::check_name(name)?;
            if names.peek().is_none() {
                return Ok((dir, name.to_vec()));
            }
            dir = self.child(dir, name).ok_or(libc::ENOENT)?;
            if self.get(dir)?.kind == FileKind::Symlink {
                return Err(libc::ELOOP);
            }
        }
        Err(libc::EINVAL)
    }
}
