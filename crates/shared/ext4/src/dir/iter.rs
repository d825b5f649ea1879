//! Reading a directory in an order that changes to it do not disturb.
//!
//! With an index (or with one block that may get one) entries come by hash, and a cookie is
//! a place among the hashes: splitting a leaf moves entries between blocks and none among the
//! hashes. Without, entries never move, and a cookie is a place in the file.

use siftfs_base::{BLOCK_BYTES, Result, corrupt};

use super::hash::HashKind;
use super::index::{Fault, Walk};
use super::leaf::{self, Record};
use super::{Dir, DirBlocks, DirEntry, HashVersion};

/// Cookie of `.`; the one of `..` is next, and those of all others are above.
const DOT: u64 = 1;
const DOTDOT: u64 = 2;
/// Added to the place of a hash, so that it is above the cookies of `.` and `..`.
const SHIFT: u64 = 3;

/// A reference to an entry: small, because a run of leaves with one hash may be long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ref {
    place: u64,
    lblk: u32,
    at: u16,
}

/// The part of a place that its major hash decides.
fn major_place(major: u32) -> u64 {
    u64::from(major >> 1) << 32
}

impl<B: DirBlocks> Dir<'_, B> {
    /// Delivers entries after `cookie` (0: from the start) until `f` answers false, which
    /// leaves that entry undelivered.
    ///
    /// `.` and `..` come first. Going on from a delivered entry's cookie neither repeats nor
    /// misses a name that stayed, whatever was inserted and removed in between; for names that
    /// share one hash of 63 bits see [`DirEntry::tied`]. Cookies are below 2^63.
    pub fn iterate(&mut self, cookie: u64, f: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        let by_hash = self.ctx.indexed || (self.ctx.dir_index && self.blocks.block_count() == 1);
        if by_hash {
            if !self.dots(cookie, f)? {
                return Ok(());
            }
            match self.by_hash(cookie, f) {
                Err(Fault::Broken(_)) => {}
                other => return other.map_err(Fault::into_error),
            }
        }
        self.by_place(if by_hash { cookie.max(DOTDOT) } else { cookie }, f)
    }

    /// Delivers `.` and `..` as far as `cookie` lets; false when `f` had enough.
    fn dots(&mut self, cookie: u64, f: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<bool> {
        for (at, name) in [(DOT, &b"."[..]), (DOTDOT, &b".."[..])] {
            if cookie >= at {
                continue;
            }
            let Some(found) = self.lookup(name)? else {
                return Err(corrupt("directory block 0", "does not start with . and .."));
            };
            let (ino, ftype) = (found.ino, found.ftype);
            if !f(DirEntry { name, ino, ftype, cookie: at, tied: 0 }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn by_hash(&mut self, cookie: u64, f: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Walk<()> {
        if !self.ctx.indexed {
            self.check_leaf(0)?;
            let mut run = Vec::new();
            self.refs(0, self.ctx.hash_version, (0, None), &mut run)?;
            self.deliver(run, cookie, f)?;
            return Ok(());
        }
        let root = self.root()?;
        let place = cookie.saturating_sub(SHIFT);
        let mut low = u32::try_from(place >> 32).unwrap_or(u32::MAX).wrapping_shl(1);
        loop {
            // One leaf, and those that continue its last hash: what shares a hash comes
            // together. Its boundaries tell where the next run starts, so each step goes up.
            let mut path = self.probe(root, low)?;
            let mut run = Vec::new();
            let next = loop {
                self.check_leaf(path.leaf)?;
                let next = self.next_boundary(&path)?;
                let range = (self.boundary(&path)?, next);
                self.refs(path.leaf, root.version, range, &mut run)?;
                match next {
                    Some(h) if h & 1 == 1 => self.advance(&mut path)?,
                    other => break other,
                }
            };
            if !self.deliver(run, cookie, f)? {
                return Ok(());
            }
            match next {
                Some(h) if h > low => low = h,
                Some(_) => return Err(Fault::Broken("entries out of order")),
                None => return Ok(()),
            }
        }
    }

    /// Collects a checked leaf's entries, which must lie in the leaf's range of hashes: from
    /// the first number up to, and without, the second.
    fn refs(
        &mut self,
        lblk: u64,
        version: HashVersion,
        (low, next): (u32, Option<u32>),
        run: &mut Vec<Ref>,
    ) -> Result<()> {
        let (layout, end, seed) = (self.layout, self.layout.end(), self.ctx.hash_seed);
        let block = self.blocks.read(lblk)?;
        for r in leaf::records(block, end, layout) {
            let r = r?;
            let name = r.name(block);
            if r.ino == 0 || (lblk == 0 && (name == b"." || name == b"..")) {
                continue;
            }
            let hash = super::dir_hash(name, version, &seed);
            // A continued hash (marked, so one above it) may be on both sides.
            if hash.major < low || next.is_some_and(|n| hash.major >= n) {
                return Err(corrupt("directory index", "an entry is in the wrong block"));
            }
            // The legacy hash has no minor part; any function of the name will do for ours.
            let minor = match version.kind {
                HashKind::Legacy => crate::csum::crc32c_raw(!0, name),
                _ => hash.minor,
            };
            let place = major_place(hash.major) | u64::from(minor);
            let lblk = u32::try_from(lblk).map_err(|_| corrupt("directory", "too large"))?;
            let at = u16::try_from(r.at).expect("offsets in a block fit 16 bits");
            run.push(Ref { place, lblk, at });
        }
        Ok(())
    }

    /// Delivers a run in order; false when `f` had enough.
    fn deliver(
        &mut self,
        mut run: Vec<Ref>,
        cookie: u64,
        f: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<bool> {
        run.sort_unstable();
        let mut previous = 0;
        for tied in run.chunk_by_mut(|a, b| a.place == b.place) {
            if tied.len() > 1 {
                self.sort_by_name(tied)?;
            }
            for (entry, after) in tied.iter().zip((0..tied.len()).rev()) {
                // Names with one hash take the following places, up to the next major hash.
                let last = (entry.place | u64::from(u32::MAX)) + SHIFT;
                let own = (entry.place + SHIFT).max(previous + 1).min(last);
                previous = own;
                if own > cookie && !self.deliver_one(*entry, own, after, f)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn record_at(&mut self, r: Ref) -> Result<Record> {
        let (layout, end) = (self.layout, self.layout.end());
        leaf::record(self.blocks.read(u64::from(r.lblk))?, usize::from(r.at), end, layout)
    }

    fn deliver_one(
        &mut self,
        r: Ref,
        cookie: u64,
        tied: usize,
        f: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<bool> {
        let record = self.record_at(r)?;
        let name = record.name(self.blocks.read(u64::from(r.lblk))?);
        Ok(f(DirEntry { name, ino: record.ino, ftype: record.ftype, cookie, tied }))
    }

    /// Orders entries of one place by what does not depend on where they are.
    fn sort_by_name(&mut self, tied: &mut [Ref]) -> Result<()> {
        let mut named = Vec::with_capacity(tied.len());
        for r in tied.iter() {
            let record = self.record_at(*r)?;
            named.push((record.name(self.blocks.read(u64::from(r.lblk))?).to_vec(), *r));
        }
        named.sort();
        for (slot, (_, r)) in tied.iter_mut().zip(named) {
            *slot = r;
        }
        Ok(())
    }

    /// Delivers by place in the file. `.` and `..` are at bytes 0 and 12 and nothing else is
    /// below 24, so that small cookies are free for them.
    fn by_place(&mut self, cookie: u64, f: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        let first = if cookie <= DOTDOT { 0 } else { cookie / BLOCK_BYTES };
        for lblk in first..self.blocks.block_count() {
            let end = self.scan_end(lblk)?;
            let layout = self.layout;
            let block = self.blocks.read(lblk)?;
            for (i, r) in leaf::records(block, end, layout).enumerate() {
                let r = r?;
                let own = match (lblk, i) {
                    (0, 0) => DOT,
                    (0, 1) => DOTDOT,
                    _ => lblk * BLOCK_BYTES + r.at as u64,
                };
                if r.ino == 0 || own <= cookie {
                    continue;
                }
                let (name, ino, ftype) = (r.name(block), r.ino, r.ftype);
                if !f(DirEntry { name, ino, ftype, cookie: own, tied: 0 }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "iter_tests.rs"]
mod tests;
