//! Judging a recovered tree.

use crate::content::PAGE;
use crate::history::Time;
use crate::lockstep::Ids;
use crate::oracle::{Bytes, InodePast, Name, Oracle};
use crate::oracle_found::Found;
use crate::tree::{Seen, Tree, lossy};
use siftfs_proto::FileKind;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes by which one write may extend a file and still come back with its size or without it: on
/// the smallest log a record holds them, and on others more.
const WHOLE_GROWTH: u64 = 16 << 10;

impl Oracle {
    /// Every violation of the clauses by `tree`, what a recovery brought back; `ids` are those
    /// of the run before the cut.
    pub fn violations(&self, tree: &Tree, ids: &Ids) -> Vec<String> {
        let found = self.violations_but_of_compounds(tree, ids);
        if found.is_empty() { self.check_compounds(tree, ids) } else { found }
    }

    /// Those of O1 to O11: all but those about compounds.
    pub(crate) fn violations_but_of_compounds(&self, tree: &Tree, ids: &Ids) -> Vec<String> {
        let mut out = Vec::new();
        let found = translate(tree, ids, &mut out);
        self.check_names(&found, &mut out);
        self.check_groups(&found, &mut out);
        self.check_sections(&found, &mut out);
        for (ino, past) in &self.inodes {
            let names = found.names.get(ino).cloned().unwrap_or_default();
            if !past.names.iter().any(|(_, set)| *set == names) {
                let show = |set: &BTreeSet<Name>| set.iter().map(show_name).collect::<Vec<_>>();
                let allowed: Vec<_> = past.names.iter().map(|(_, set)| show(set)).collect();
                out.push(format!("O2 inode {ino}: names {:?}, allowed {allowed:?}", show(&names)));
            }
            if let Some(seen) = found.nodes.get(ino) {
                let mut bad = check_inode(past, seen, &names);
                out.extend(bad.drain(..).map(|b| format!("{b} (inode {ino}, {:?})", names)));
            }
        }
        out
    }

    /// O9. A name counts if it has not changed since, and if what it is bound to tells whether the
    /// group was applied.
    fn check_groups(&self, found: &Found<'_>, out: &mut Vec<String>) {
        for (time, names) in &self.groups {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for name in names {
                let Some(past) = self.names.get(name).filter(|p| p.changed() == *time) else {
                    continue;
                };
                let bound = found.bound.get(name).copied();
                let earlier = || past.iter().filter(|(t, _)| t < time).any(|(_, b)| *b == bound);
                if bound != *past.last() {
                    before.push(name);
                } else if !earlier() {
                    after.push(name);
                }
            }
            if !before.is_empty() && !after.is_empty() {
                let (before, after) = (show_names(&before), show_names(&after));
                out.push(format!("O9 changed together: {after} changed, {before} not"));
            }
        }
    }

    /// O2 for every name.
    fn check_names(&self, found: &Found<'_>, out: &mut Vec<String>) {
        for (name, past) in &self.names {
            let bound = found.bound.get(name).copied();
            if !past.iter().any(|(_, b)| *b == bound) {
                let allowed: Vec<_> = past.iter().map(|(_, b)| *b).collect();
                out.push(format!(
                    "O2 {}: bound to {bound:?}, allowed {allowed:?}",
                    show_name(name)
                ));
            }
        }
        for name in found.bound.keys().filter(|n| !self.names.contains_key(*n)) {
            out.push(format!("O8 {}: never made", show_name(name)));
        }
    }
}

fn show_names(names: &[&Name]) -> String {
    names.iter().map(|name| show_name(name)).collect::<Vec<_>>().join(", ")
}

fn show_name(name: &Name) -> String {
    format!("{}/{}", name.0, lossy(&name.1))
}

fn translate<'a>(tree: &'a Tree, ids: &Ids, out: &mut Vec<String>) -> Found<'a> {
    let mut numbers = BTreeMap::new();
    for (ino, seen) in &tree.nodes {
        match ids.model_of(&seen.attr) {
            Some(model) => {
                numbers.insert(*ino, model);
            }
            None => out.push(format!(
                "O8 {}: inode {ino} generation {} was never made",
                tree.path(*ino),
                seen.attr.generation
            )),
        }
    }
    let mut found =
        Found { nodes: BTreeMap::new(), bound: BTreeMap::new(), names: BTreeMap::new() };
    for (ino, seen) in &tree.nodes {
        let Some(own) = numbers.get(ino) else { continue };
        found.nodes.insert(*own, seen);
        let names = seen.names.iter().filter_map(|(d, n)| Some((*numbers.get(d)?, n.clone())));
        found.names.insert(*own, names.collect());
        for (name, child) in &seen.entries {
            if let Some(child) = numbers.get(child) {
                found.bound.insert((*own, name.clone()), *child);
            }
        }
    }
    found
}

/// O1, O5, O6, O8 for one inode.
fn check_inode(past: &InodePast, seen: &Seen, names: &BTreeSet<Name>) -> Vec<String> {
    let mut out = Vec::new();
    let attr = &seen.attr;
    if (attr.kind, attr.rdev) != (past.kind, past.rdev) || seen.target != past.target {
        out.push(format!("O8 type, device or target: {:?}", (attr.kind, attr.rdev)));
        return out;
    }
    let rights = (attr.perm, attr.uid, attr.gid);
    if !past.rights.iter().any(|(_, r)| *r == rights) {
        let allowed: Vec<_> = past.rights.iter().map(|(_, r)| *r).collect();
        out.push(format!("O1 mode and owner {rights:?}, allowed {allowed:?}"));
    }
    if !past.mtime.iter().any(|(_, t)| t.is_none_or(|t| t == attr.mtime)) {
        let allowed: Vec<_> = past.mtime.iter().map(|(_, t)| *t).collect();
        out.push(format!("O1 mtime {:?}, allowed {allowed:?}", attr.mtime));
    }
    check_xattrs(past, seen, &mut out);
    if past.kind == FileKind::Regular {
        let since = replaced_since(past, names);
        let versions: Vec<&Bytes> = past.bytes.since(since).map(|(_, b)| b).collect();
        if let Err(why) = check_bytes(&versions, seen) {
            out.push(why);
        }
    }
    out
}

fn check_xattrs(past: &InodePast, seen: &Seen, out: &mut Vec<String>) {
    for (name, history) in &past.xattrs {
        let value = seen.xattrs.get(name);
        if !history.iter().any(|(_, v)| v.as_ref() == value) {
            let allowed: Vec<_> = history.iter().map(|(_, v)| v.as_ref().map(Vec::len)).collect();
            let len = value.map(Vec::len);
            out.push(format!("O1 xattr {} of {len:?} bytes, allowed {allowed:?}", lossy(name)));
        }
    }
    for name in seen.xattrs.keys().filter(|n| !past.xattrs.contains_key(*n)) {
        out.push(format!("O8 xattr {} was never set", lossy(name)));
    }
}

/// O6: the newest replacing rename that the recovered names prove to have happened; 0 if none.
fn replaced_since(past: &InodePast, names: &BTreeSet<Name>) -> Time {
    let earliest = past.names.iter().find(|(_, set)| *set == names).map_or(0, |(t, _)| t);
    past.replaced_at.iter().copied().filter(|t| *t <= earliest).max().unwrap_or(0)
}

/// O5.
fn check_bytes(versions: &[&Bytes], seen: &Seen) -> Result<(), String> {
    let size = seen.attr.size;
    let sizes = || versions.iter().map(|v| v.content.size());
    if !sizes().any(|s| s == size) && !is_inside_large_write(versions, size) {
        return Err(format!("O5 size {size}, allowed {:?}", sizes().collect::<Vec<_>>()));
    }
    let mut pages: BTreeSet<u64> = seen.content.page_numbers().collect();
    for version in versions {
        pages.extend(version.content.page_numbers());
    }
    for page in pages.into_iter().take_while(|p| p * PAGE < size) {
        check_page(versions, seen, page)?;
    }
    Ok(())
}

/// Does one write that is too large to come back whole explain this size?
fn is_inside_large_write(versions: &[&Bytes], size: u64) -> bool {
    let steps = versions.iter().zip(versions.iter().skip(1));
    let mut steps = steps.map(|(a, b)| (a.content.size(), b.content.size()));
    steps.any(|(from, to)| (from..to).contains(&size) && to - from > WHOLE_GROWTH)
}

fn check_page(versions: &[&Bytes], seen: &Seen, page: u64) -> Result<(), String> {
    let zero = [0u8; PAGE as usize];
    let (start, end) = (page * PAGE, ((page + 1) * PAGE).min(seen.attr.size));
    let len = (end - start) as usize;
    let bytes = &seen.content.page(page).unwrap_or(&zero)[..len];
    let whole = |v: &&Bytes| {
        v.content.size() >= end && v.content.page(page).unwrap_or(&zero)[..len] == *bytes
    };
    if versions.iter().any(whole) {
        return Ok(());
    }
    for (at, byte) in (start..end).zip(bytes) {
        let was = |v: &&Bytes| v.content.size() > at && v.content.byte(at) == *byte;
        if versions.iter().any(was) || (*byte == 0 && zero_is_explained(versions, at)) {
            continue;
        }
        let allowed: Vec<_> =
            versions.iter().map(|v| (v.content.size(), v.content.byte(at))).collect();
        return Err(format!("O5 byte {at} is {byte:#x}, allowed (size, byte) {allowed:x?}"));
    }
    Ok(())
}

/// The byte lay behind the end of file, and an explicit extension covered it later.
fn zero_is_explained(versions: &[&Bytes], at: u64) -> bool {
    let outside = versions.iter().position(|v| v.content.size() <= at);
    outside.is_some_and(|from| versions[from..].iter().any(|v| v.extended && v.content.size() > at))
}
