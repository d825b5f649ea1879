//! O12: there is a moment between two compounds that explains all that is found.
//!
//! Compounds have their places in the order of records: what is staged later, a compound or
//! anything else, never survives without them. So of those of a sequence the first few are there,
//! each in whole, and of the others, and of all that came after the first of these, nothing is.

use crate::history::{History, Time};
use crate::lockstep::Ids;
use crate::model::Effects;
use crate::oracle::{InodePast, Name, Oracle};
use crate::tree::Tree;
use siftfs_base::InodeNr;
use std::collections::BTreeSet;

/// A compound whose changes are there together or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    time: Time,
    files: BTreeSet<InodeNr>,
    names: BTreeSet<Name>,
    returned: bool,
}

/// The values before `time`; `None` if one that came later is durable.
fn before<T: Clone>(past: &History<T>, time: Time) -> Option<History<T>> {
    let mut values = past.iter().filter(|(at, _)| *at < time);
    let (first, value) = values.next()?;
    let mut out = History::new(first, value.clone());
    values.for_each(|(at, value)| out.push(at, value.clone()));
    Some(out)
}

/// Leaves the values before `time`; of what nobody finds, any if there is none.
fn cut<T: Clone>(past: &mut History<T>, time: Time, nameless: bool) -> Option<()> {
    match before(past, time) {
        Some(values) => *past = values,
        None if nameless => {}
        None => return None,
    }
    Some(())
}

impl InodePast {
    /// Was it made at `time` or later, and has no name that is durable?
    fn is_made_since(&self, time: Time) -> bool {
        self.names.iter().next().is_some_and(|(at, names)| at >= time && names.is_empty())
            && self.made >= time
    }

    fn before(&self, time: Time) -> Option<Self> {
        let mut out = self.clone();
        if self.is_made_since(time) {
            out.names = History::new(0, BTreeSet::new());
            return Some(out);
        }
        out.names = before(&self.names, time)?;
        // An fsync of a file that has no name any more stages nothing of what is in it.
        let nameless = self.names.last().is_empty();
        cut(&mut out.bytes, time, nameless)?;
        cut(&mut out.rights, time, nameless)?;
        cut(&mut out.mtime, time, nameless)?;
        out.xattrs.values_mut().try_for_each(|past| cut(past, time, nameless))?;
        Some(out)
    }
}

impl Oracle {
    pub(crate) fn note_compound(&mut self, fx: &Effects) {
        let Some(files) = &fx.compound else { return };
        let (now, names) = (self.now, fx.names.iter().cloned().collect());
        // Of a file that had no name before nothing is staged.
        let counts = |ino: &InodeNr| {
            let past = self.inodes.get(ino);
            self.has_name_or_may(*ino) || past.is_some_and(|past| past.names.changed() == now)
        };
        let files: BTreeSet<InodeNr> = files.iter().copied().filter(counts).collect();
        if !files.is_empty() {
            self.units.push(Unit { time: now, files, names, returned: false });
        }
    }

    fn has_name_or_may(&self, ino: InodeNr) -> bool {
        self.model.node(ino).is_some_and(|node| node.nlink > 0 || node.linkable)
    }

    /// The compound that began last has returned.
    pub(crate) fn compounded(&mut self, durable: bool) {
        let now = self.now;
        let Some(unit) = self.units.last_mut().filter(|unit| unit.time == now) else { return };
        unit.returned = true;
        let files = unit.files.clone();
        files.iter().for_each(|ino| self.names_are_staged(*ino));
        if durable {
            self.owe_compounds_before(now + 1);
            self.owe_commits_before(now);
            let named = files.into_iter().filter(|ino| self.has_name_or_may(*ino));
            let named: Vec<InodeNr> = named.collect();
            named.into_iter().for_each(|ino| self.synced(ino, false));
        }
    }

    /// All compounds that returned before `time` are durable.
    pub(crate) fn owe_compounds_before(&mut self, time: Time) {
        let owed: Vec<Unit> =
            self.units.iter().filter(|unit| unit.time < time && unit.returned).cloned().collect();
        owed.iter().for_each(|unit| self.raise_unit(unit));
    }

    fn raise_unit(&mut self, unit: &Unit) {
        for ino in &unit.files {
            let Some(past) = self.inodes.get_mut(ino) else { continue };
            past.bytes.raise(unit.time);
            past.mtime.raise(unit.time);
            past.raise_rights(unit.time, |_| true);
            past.raise_names(unit.time);
        }
        for name in &unit.names {
            self.names.entry(name.clone()).and_modify(|past| past.raise(unit.time));
        }
    }

    /// What may be found if the first `there` compounds are durable, and the next is not; `None` if
    /// something is durable that came after that.
    fn with_the_first(&self, there: usize) -> Option<Self> {
        let mut out = self.clone();
        let (first, others) = self.units.split_at(there);
        first.iter().for_each(|unit| out.raise_unit(unit));
        if let Some(last) = first.last() {
            out.owe_commits_before(last.time);
        }
        let Some(time) = others.first().map(|unit| unit.time) else { return Some(out) };
        for past in out.inodes.values_mut() {
            *past = past.before(time)?;
        }
        for past in out.names.values_mut() {
            *past = before(past, time)?;
        }
        out.commits.retain(|commit| commit.began() < time);
        out.groups.retain(|(at, _)| *at < time);
        Some(out)
    }

    /// O12.
    pub(crate) fn check_compounds(&self, tree: &Tree, ids: &Ids) -> Vec<String> {
        if self.units.is_empty() {
            return Vec::new();
        }
        let mut out = Vec::new();
        for there in (0..=self.units.len()).rev() {
            let Some(some) = self.with_the_first(there) else { break };
            let found = some.violations_but_of_compounds(tree, ids);
            match found.into_iter().next() {
                None => return Vec::new(),
                Some(first) => out.push(format!("with the first {there} of them: {first}")),
            }
        }
        vec![format!(
            "O12 compounds: no number of them explains this;\n      {}",
            out.join("\n      ")
        )]
    }
}

#[cfg(test)]
#[path = "oracle_compounds_tests.rs"]
mod tests;
