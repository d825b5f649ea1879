//! Changes that were answered and that nobody knows to be durable.

use siftfs_base::InodeNr;
use siftfs_calls::{Done, Proven, data_of};
use siftfs_proto::{Attr, Credentials, FileKind, Reply, Request, SetAttr, SetTime, Target};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of data in changes that are kept.
const MOST_BYTES: u64 = 64 << 20;
/// Changes that are kept.
const MOST: usize = 16 << 10;

/// A change as it can be repeated.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The request; files are named by inode.
    pub request: Request,
    /// Who asked.
    pub credentials: Credentials,
    /// What was granted of the inodes that the request names.
    pub proofs: Vec<Proven>,
    /// The file whose bytes or attributes it changes; none for a change of names.
    pub file: Option<InodeNr>,
    /// The inode that it made or changed: number and generation.
    pub inode: Option<(InodeNr, u32)>,
    /// The server that answered it.
    pub instance: u64,
    /// What that server said of it.
    pub done: Done,
    /// The servers that have died since it was repeated there, and by which numbers, without an
    /// answer; the newest last.
    pub tried: Vec<(u64, u64)>,
}

/// A file that was changed by what nobody can repeat.
#[derive(Clone, Copy, Debug)]
struct Loose {
    /// The server that answered the newest such change, and its place in that one's order.
    newest: (u64, u64),
    /// The place of the change that was kept next.
    next: u64,
}

#[derive(Default)]
struct State {
    /// Files with changes that nobody can repeat.
    loose: BTreeMap<InodeNr, Loose>,
    changes: BTreeMap<u64, Change>,
    next: u64,
    bytes: u64,
    /// Of the newest server: what it said to be durable.
    durable: (u64, u64),
    /// The files of changes that were sent and that are not kept yet, in the order in which they
    /// were sent.
    under_way: BTreeMap<u64, InodeNr>,
    /// How many there have been.
    sent: u64,
}

/// All that a client keeps.
#[derive(Default)]
pub(super) struct Kept {
    state: Mutex<State>,
    less: Condvar,
    /// A change is not under way any more.
    ended: Condvar,
}

/// A change of a file that is under way: from before it is sent until it is kept, or has failed,
/// which is when this is dropped.
pub(super) struct UnderWay<'a> {
    kept: &'a Kept,
    number: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.kept.lock().under_way.remove(&self.number);
        self.kept.ended.notify_all();
    }
}

impl State {
    fn remove(&mut self, which: impl Fn(&Change) -> bool) {
        let mut bytes = 0;
        self.changes.retain(|_, change| {
            let gone = which(change);
            bytes += if gone { data_of(&change.request) } else { 0 };
            !gone
        });
        self.bytes -= bytes;
    }

    fn is_full(&self) -> bool {
        self.len() >= MOST || self.bytes >= MOST_BYTES
    }

    fn len(&self) -> usize {
        self.changes.len() + self.loose.len()
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is there no room for another change?
    pub fn is_full(&self) -> bool {
        self.lock().is_full()
    }

    /// Waits a moment for room.
    pub fn wait_for_room(&self, moment: Duration) {
        let state = self.lock();
        if state.is_full() {
            drop(self.less.wait_timeout(state, moment));
        }
    }

    /// Waits a moment for fewer changes.
    pub fn wait_for_less(&self, moment: Duration) {
        let state = self.lock();
        if state.len() > 0 {
            drop(self.less.wait_timeout(state, moment));
        }
    }

    /// Keeps a change that was answered.
    pub fn add(&self, change: Change) {
        let mut state = self.lock();
        if change.instance == state.durable.0 && change.done.order <= state.durable.1 {
            return;
        }
        state.bytes += data_of(&change.request);
        let at = state.next;
        state.next += 1;
        state.changes.insert(at, change);
    }

    /// A server has changed these files in a way that nobody can repeat.
    pub fn add_loose(&self, files: &[InodeNr], (instance, order): (u64, u64)) {
        let mut state = self.lock();
        if instance == state.durable.0 && order <= state.durable.1 {
            return;
        }
        let newest = (instance, order);
        // A sync that is sent from now on covers it.
        let next = state.next;
        state.next += 1;
        state.loose.extend(files.iter().map(|file| (*file, Loose { newest, next })));
    }

    /// Files that other servers than this one have changed in a way that nobody can repeat, and
    /// that were not durable: these changes are lost.
    pub fn take_loose_of_others(&self, instance: u64) -> Vec<InodeNr> {
        let mut state = self.lock();
        let of_others = |(file, loose): (&InodeNr, &Loose)| {
            let (of, _) = loose.newest;
            (of != instance).then_some(*file)
        };
        let lost: Vec<InodeNr> = state.loose.iter().filter_map(of_others).collect();
        state.loose.retain(|_, loose| loose.newest.0 == instance);
        self.less.notify_all();
        lost
    }

    /// The place of the change that will be kept next.
    pub fn next(&self) -> u64 {
        self.lock().next
    }

    /// A sync of a file has been answered, which began when `next` was next.
    pub fn synced(&self, file: InodeNr, next: u64) {
        let mut state = self.lock();
        let before: Vec<u64> = state
            .changes
            .range(..next)
            .filter(|(_, change)| change.file == Some(file))
            .map(|(at, _)| *at)
            .collect();
        if state.loose.get(&file).is_some_and(|loose| loose.next < next) {
            state.loose.remove(&file);
        }
        for at in before {
            if let Some(change) = state.changes.remove(&at) {
                state.bytes -= data_of(&change.request);
            }
        }
        self.less.notify_all();
    }

    /// Everything is durable that was answered before `next` was next.
    pub fn all_synced(&self, next: u64) {
        let mut state = self.lock();
        state.loose.retain(|_, loose| loose.next >= next);
        let later = state.changes.split_off(&next);
        state.changes = later;
        state.bytes = state.changes.values().map(|change| data_of(&change.request)).sum();
        self.less.notify_all();
    }

    /// A server says that all up to an order is durable.
    pub fn durable(&self, instance: u64, order: u64) {
        let mut state = self.lock();
        state.durable = (instance, order);
        state.remove(|change| change.instance == instance && change.done.order <= order);
        state.loose.retain(|_, loose| loose.newest.0 != instance || loose.newest.1 > order);
        self.less.notify_all();
    }

    /// Those that other servers than this one have answered, in the order in which they were made.
    pub fn of_others(&self, instance: u64) -> Vec<u64> {
        let state = self.lock();
        let others = state.changes.iter().filter(|(_, change)| change.instance != instance);
        let mut others: Vec<(u64, u64, u64)> =
            Vec::from_iter(others.map(|(at, change)| (change.instance, change.done.order, *at)));
        // What servers answered that died one after the other: the first one's first.
        let mut first: BTreeMap<u64, u64> = BTreeMap::new();
        for (of, _, at) in &others {
            let earliest = first.entry(*of).or_insert(*at);
            *earliest = (*earliest).min(*at);
        }
        others.sort_by_key(|(of, order, at)| (first.get(of).copied(), *order, *at));
        others.into_iter().map(|(_, _, at)| at).collect()
    }

    /// A change of this file's bytes or attributes is about to be sent.
    pub fn begins(&self, file: InodeNr) -> UnderWay<'_> {
        let mut state = self.lock();
        let number = state.sent;
        state.sent += 1;
        state.under_way.insert(number, file);
        UnderWay { kept: self, number }
    }

    /// Waits until the changes of this file that are under way now are kept, or have failed. False
    /// if that takes longer than `most`.
    pub fn have_ended(&self, file: InodeNr, most: Duration) -> bool {
        let mut state = self.lock();
        let (sent, until) = (state.sent, Instant::now() + most);
        while state.under_way.range(..sent).any(|(_, other)| *other == file) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.ended.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Is there any of this file?
    pub fn has_of(&self, file: InodeNr) -> bool {
        self.lock().changes.values().any(|change| change.file == Some(file))
    }

    /// Is there any of a file's bytes or attributes that was answered before `next` was next? Waits
    /// a moment for an end of that.
    pub fn waits_for_files(&self, next: u64, moment: Duration) -> bool {
        let is_there =
            |state: &State| state.changes.range(..next).any(|(_, change)| change.file.is_some());
        let state = self.lock();
        if !is_there(&state) {
            return false;
        }
        let waited = self.less.wait_timeout(state, moment);
        is_there(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// One of them.
    pub fn get(&self, at: u64) -> Option<Change> {
        self.lock().changes.get(&at).cloned()
    }

    /// It is about to be repeated at a server by this number.
    pub fn tries(&self, at: u64, instance: u64, number: u64) {
        if let Some(change) = self.lock().changes.get_mut(&at)
            && change.tried.last() != Some(&(instance, number))
        {
            change.tried.push((instance, number));
        }
    }

    /// It was repeated, at this server.
    pub fn repeated(&self, at: u64, instance: u64, done: Done) {
        if let Some(change) = self.lock().changes.get_mut(&at) {
            (change.instance, change.done) = (instance, done);
            change.tried.clear();
        }
    }

    /// It is kept no longer.
    pub fn drop(&self, at: u64) {
        let mut state = self.lock();
        if let Some(change) = state.changes.remove(&at) {
            state.bytes -= data_of(&change.request);
        }
        self.less.notify_all();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }
}

/// A request, the file whose bytes or attributes it changes, and what it makes.
pub(super) type Repeatable = (Request, Option<InodeNr>, Option<(InodeNr, u32)>);

/// A request that was answered, as it can be repeated; nothing if it need not be. `ino` is that of
/// the file that it names.
pub(super) fn repeatable(
    request: Request,
    ino: Option<InodeNr>,
    reply: &Reply,
    done: &Done,
) -> Option<Repeatable> {
    use Request as R;
    let file = || ino.map(Target::Inode);
    let of_file = |request| Some((request, ino, None));
    match request {
        R::SetAttr { mut set, times, .. } => {
            if let Reply::Attr(attr) = reply {
                fix_times(&mut set, attr);
            }
            of_file(R::SetAttr { file: file()?, set, times })
        }
        R::Open { ino, truncate: true, kill_priv, times, .. } => {
            let set = SetAttr { size: Some(0), kill_priv, ..SetAttr::default() };
            Some((R::SetAttr { file: ino.into(), set, times }, Some(ino), None))
        }
        R::Write { mut data, offset, append, kill_priv, times, .. } => {
            let offset = if append { done.at? } else { offset };
            data.move_to(offset);
            let file = file()?;
            of_file(R::Write { file, offset, data, append: false, kill_priv, times })
        }
        R::Append { mut data, kill_priv, times, .. } => {
            let offset = done.at?;
            data.move_to(offset);
            let file = file()?;
            of_file(R::Write { file, offset, data, append: false, kill_priv, times })
        }
        R::WriteBack { offset, data, times, .. } => {
            of_file(R::WriteBack { file: file()?, offset, data, times })
        }
        R::Allocate { mode, offset, len, times, .. } => {
            of_file(R::Allocate { file: file()?, mode, offset, len, times })
        }
        R::SetXattr { name, value, kill_setgid, .. } => {
            let mode = siftfs_proto::XattrMode::Set;
            of_file(R::SetXattr { file: file()?, name, value, mode, kill_setgid })
        }
        R::RemoveXattr { name, times, .. } => {
            of_file(R::RemoveXattr { file: file()?, name, times })
        }
        R::Create { parent, name, perm } => {
            let kind = FileKind::Regular;
            Some((R::MakeNode { parent, name, kind, perm, rdev: 0 }, None, made(reply)))
        }
        R::MakeNode { .. } | R::MakeDir { .. } | R::Symlink { .. } => {
            Some((request, None, made(reply)))
        }
        R::Link { .. } | R::Unlink { .. } | R::RemoveDir { .. } | R::Rename { .. } => {
            Some((request, None, None))
        }
        _ => None,
    }
}

fn made(reply: &Reply) -> Option<(InodeNr, u32)> {
    match reply {
        Reply::Entry(attr) | Reply::Created { attr, .. } => Some((attr.ino, attr.generation)),
        _ => None,
    }
}

/// Times that were "now" are what now was.
fn fix_times(set: &mut SetAttr, attr: &Attr) {
    let fix = |time: &mut Option<SetTime>, at| {
        if *time == Some(SetTime::Now) {
            *time = Some(SetTime::At(at));
        }
    };
    fix(&mut set.atime, attr.atime);
    fix(&mut set.mtime, attr.mtime);
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
