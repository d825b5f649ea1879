//! setuid, setgid and file capabilities: which callers may take them away, and when.
//!
//! The kernel tells us in two ways of a change by a caller that may not keep them. WRITE, a
//! truncation and OPEN carry a flag. Before a write, fallocate(2) or copy_file_range(2) it also
//! sends a removal of the capabilities, and a SETATTR of nothing: an *announcement*. But the kernel
//! sends the same for chown(path, -1, -1) by any user, which ext4 refuses to all but the owner. So
//! what a caller announces that neither owns the file nor has it open for writing (it was passed a
//! descriptor) is carried out with the change itself, when that comes from the same thread.
//!
//! The kernel executes a file by the mode that it knows. The answer of SETATTR tells it, and so an
//! announcement is carried out at once where that can be. The answers of all other requests do not:
//! the kernel is told to forget the mode before they are sent
//! ([`Invalidator::forget_now`](crate::pages::invalidator::Invalidator::forget_now)).

use crate::serve::caller::{
    any_bits, has_bits, keeps_bits, may_set_capabilities, owns, takes_setgid,
};
use crate::serve::kernel_times::Sent;
use crate::serve::server::Server;
use siftfs_base::{Error, InodeNr, Result, Timestamp, errno};
use siftfs_proto::{Attr, Credentials, FileKind, Request, SetAttr};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Announcements kept; with more, the callers of new ones are to try again.
const MOST: usize = 4096;

/// The extended attribute with a file's capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Changes that were announced and have not come yet.
#[derive(Default)]
pub(crate) struct Announced {
    /// Each inode and the thread that announced a change of it, and whether setgid goes as well.
    list: Mutex<BTreeMap<(InodeNr, u32), bool>>,
    count: AtomicUsize,
}

impl Announced {
    fn list(&self) -> MutexGuard<'_, BTreeMap<(InodeNr, u32), bool>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Thread `pid` is about to change `ino`, whose privileges go then; `setgid` with them even
    /// where the group may not execute. Nothing else that the thread announced comes any more.
    ///
    /// # Errors
    /// `EAGAIN` when there are too many.
    pub(crate) fn note(&self, pid: u32, ino: InodeNr, setgid: bool) -> Result<()> {
        let mut list = self.list();
        // Threads of other process namespaces are all number 0.
        list.retain(|(file, thread), _| *thread != pid || pid == 0 || *file == ino);
        let noted = if list.len() < MOST || list.contains_key(&(ino, pid)) {
            *list.entry((ino, pid)).or_default() |= setgid;
            Ok(())
        } else {
            Err(errno(libc::EAGAIN))
        };
        self.count.store(list.len(), Ordering::SeqCst);
        noted
    }

    /// Thread `pid` changes `ino` now, or was refused: what it announced.
    pub(crate) fn take(&self, pid: u32, ino: InodeNr) -> Option<bool> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut list = self.list();
        let found = list.remove(&(ino, pid));
        self.count.store(list.len(), Ordering::SeqCst);
        found
    }

    /// What any thread announced of `ino`: its pages come, and their writer is unknown, or no
    /// thread can write it any more.
    pub(crate) fn take_all(&self, ino: InodeNr) -> Option<bool> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut list = self.list();
        let threads: Vec<_> = list.range((ino, 0)..=(ino, u32::MAX)).map(|(key, _)| *key).collect();
        let found = threads.iter().filter_map(|key| list.remove(key)).reduce(|a, b| a | b);
        self.count.store(list.len(), Ordering::SeqCst);
        found
    }
}

/// The answer to a thread of ours that has the kernel take a size or times. A kernel that takes
/// the present for its ctime shows that once it has the answer: so it is stored before, if it is
/// younger than ours. It is refused, and the kernel keeps its ctime, if that has become young
/// enough by itself: nothing but a change is to move it.
fn taken(server: &Server, cred: &Credentials, ino: InodeNr, set: &SetAttr) -> Result<Attr> {
    let present = set.ctime.filter(|_| server.agreed.writeback && set.size.is_none());
    present.map_or(Ok(()), |_| server.sections.takes_ctime(cred.pid))?;
    let _turn = present.map(|_| server.kernel_times.turn([ino]));
    let attr = server.entry(cred, Request::GetAttr { file: ino.into() })?;
    match present.filter(|present| *present > attr.ctime) {
        None => Ok(attr),
        ctime => {
            let set = SetAttr { ctime, ..SetAttr::default() };
            server.entry(cred, Request::SetAttr { file: ino.into(), set, times: true })
        }
    }
}

impl Server {
    /// SETATTR. Clearing setuid, setgid and file capabilities is left to us: where the request says
    /// so, and when it changes nothing at all (this module's page). With the writeback cache such a
    /// request brings the kernel's ctime, alone: the times of a file that was written come with its
    /// mtime.
    pub(crate) fn set_attr(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        mut set: SetAttr,
    ) -> Result<Attr> {
        // A thread of ours has the kernel ask: nothing is to change. Its close(2) may send times
        // that a program has changed: those are as all others.
        if self.sections.resets(cred.pid) && (set.size.is_some() || set.mtime.is_none()) {
            return taken(self, cred, ino, &set);
        }
        if set.size.is_some() {
            self.sections.resized(ino);
        }
        let (left_out, _turn) = match self.agreed.writeback && set.ctime.is_some() {
            false => (false, None),
            true => match self.kernel_times.sent(ino) {
                // Times of the kernel's that may be older than ours.
                Sent::LeftOut => (true, None),
                Sent::All(turn) => (false, Some(turn)),
                Sent::Mtime(turn) => {
                    let attr = self.entry(cred, Request::GetAttr { file: ino.into() })?;
                    set.ctime = Some(attr.ctime);
                    (false, Some(turn))
                }
            },
        };
        if (SetAttr { ctime: None, ..set.clone() }) == SetAttr::default() {
            return self.set_nothing(cred, ino, set.ctime.filter(|_| !left_out));
        }
        let chmod =
            set.perm.is_some() && SetAttr { perm: None, ..set.clone() } == SetAttr::default();
        if left_out {
            (set.mtime, set.ctime) = (None, None);
            if set == SetAttr::default() {
                return self.entry(cred, Request::GetAttr { file: ino.into() });
            }
        }
        if self.copied_up.gets_owner(cred, ino, &set) {
            (set.kill_priv, set.keep_priv) = (false, true);
        }
        if set.kill_priv {
            let attr = self.entry(cred, Request::GetAttr { file: ino.into() })?;
            set.kill_setgid = takes_setgid(cred, &attr);
            self.announced.take(cred.pid, ino);
        }
        let emptied = set.size == Some(0);
        let times = !left_out || self.agreed.moves_times();
        let attr = self.entry(cred, Request::SetAttr { file: ino.into(), set, times })?;
        if emptied {
            self.open_files.emptied(ino);
        }
        if chmod && attr.kind == FileKind::Regular {
            self.copied_up.note_mode(cred, ino);
        }
        Ok(attr)
    }

    /// A SETATTR without a field: chown(path, -1, -1), or the announcement of a write. If the
    /// caller owns the file, either clears set-id bits and capabilities. For other callers chown
    /// fails, and an announced write clears the bits when it arrives. While the file is not open
    /// for writing the request is a chown; otherwise it may be either, and succeeds without a
    /// change. Directories keep their bits.
    fn set_nothing(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        ctime: Option<Timestamp>,
    ) -> Result<Attr> {
        let attr = self.entry(cred, Request::GetAttr { file: ino.into() })?;
        let mut set = SetAttr { ctime, ..SetAttr::default() };
        if attr.kind != FileKind::Directory {
            let bits = has_bits(cred, &attr);
            if (bits || self.has_capabilities(cred, &attr)?) && !owns(cred, &attr) {
                if !self.open_files.is_written(ino) {
                    self.announced.take(cred.pid, ino);
                    return Err(errno(libc::EPERM));
                }
                self.announce(cred, ino, takes_setgid(cred, &attr))?;
                return self.entry(cred, Request::GetAttr { file: ino.into() });
            }
            set.kill_priv = true;
            set.kill_setgid = takes_setgid(cred, &attr);
        }
        if ctime.is_some() {
            return self.entry(cred, Request::SetAttr { file: ino.into(), set, times: true });
        }
        self.take_away(cred, &attr, set)
    }

    /// Takes privileges of a file away. A kernel that owns its times does not see that, and sends
    /// its ctime with the change of the data: until then it stays.
    pub(crate) fn take_away(&self, cred: &Credentials, attr: &Attr, set: SetAttr) -> Result<Attr> {
        let times = attr.kind != FileKind::Regular || self.agreed.moves_times();
        self.entry(cred, Request::SetAttr { file: attr.ino.into(), set, times })
    }

    fn has_capabilities(&self, cred: &Credentials, attr: &Attr) -> Result<bool> {
        let get = Request::GetXattr { file: attr.ino.into(), name: CAPABILITY.to_vec() };
        match self.data(cred, get) {
            Ok(_) => Ok(attr.kind == FileKind::Regular),
            Err(Error::Posix(libc::ENODATA)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// removexattr(2). The kernel also sends the removal of a file's capabilities before a write or
    /// a chown, in the name of any user: what does not own the file announces it.
    pub(crate) fn remove_xattr(&self, cred: &Credentials, ino: InodeNr, name: &[u8]) -> Result<()> {
        self.agreed.check_xattr_name(name)?;
        if name == CAPABILITY {
            let attr = self.entry(cred, Request::GetAttr { file: ino.into() })?;
            if !owns(cred, &attr) && !may_set_capabilities(cred) {
                return self.announce(cred, ino, false);
            }
        }
        self.done(cred, Request::RemoveXattr { file: ino.into(), name: name.to_vec(), times: true })
    }

    /// A change by a caller who does not own the file. It is carried out at once if this user has
    /// the file open for writing: a user who may write may take the privileges away, and with the
    /// kernel's writeback cache the write has no caller any more. A user who was passed the
    /// descriptor cannot be told from a user who only calls chown(2): the change is carried out
    /// with the caller's write, or when pages come that say that the file was written
    /// ([`Self::carry_out_with_pages`]).
    fn announce(&self, cred: &Credentials, ino: InodeNr, setgid: bool) -> Result<()> {
        self.announced.note(cred.pid, ino, setgid)?;
        if self.agreed.user(cred).is_some_and(|uid| self.open_files.is_opened_by(ino, uid)) {
            return self.carry_out_announced(cred, ino);
        }
        Ok(())
    }

    /// The caller changes the data of `ino` now: what it announced comes first.
    pub(crate) fn carry_out_announced(&self, cred: &Credentials, ino: InodeNr) -> Result<()> {
        match self.announced.take(cred.pid, ino) {
            Some(setgid) => self.kill_privileges(cred, ino, setgid),
            None => Ok(()),
        }
    }

    /// fallocate(2) or copy_file_range(2) of `ino` comes, which does not say whether privileges go:
    /// what the caller announced, and set-id bits that the kernel does not know of yet, so that it
    /// announced nothing (a compound has set them). Or an append past the kernel's cache.
    pub(crate) fn before_change(&self, cred: &Credentials, ino: InodeNr) -> Result<()> {
        self.carry_out_announced(cred, ino)?;
        let attr = self.entry(cred, Request::GetAttr { file: ino.into() })?;
        if has_bits(cred, &attr) && !keeps_bits(cred) {
            self.kill_privileges(cred, ino, takes_setgid(cred, &attr))?;
        }
        Ok(())
    }

    /// The kernel sends written pages of `ino`: capabilities whose removal a thread announced go
    /// first. Set-id bits stay: a write that takes them away does not wait in the kernel's cache,
    /// and says so itself, while a chown(2) of nothing by a stranger takes no bits from a file that
    /// another user writes.
    pub(crate) fn carry_out_with_pages(&self, cred: &Credentials, ino: InodeNr) -> Result<()> {
        if self.announced.take_all(ino).is_none() {
            return Ok(());
        }
        let (name, times) = (CAPABILITY.to_vec(), self.agreed.moves_times());
        match self.done(cred, Request::RemoveXattr { file: ino.into(), name, times }) {
            Err(Error::Posix(libc::ENODATA)) => Ok(()),
            other => other,
        }
    }

    /// Takes away what the file has: the kernel knows before this returns.
    pub(crate) fn kill_privileges(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        kill_setgid: bool,
    ) -> Result<()> {
        let attr = self.entry(cred, Request::GetAttr { file: ino.into() })?;
        if !any_bits(&attr) && !self.has_capabilities(cred, &attr)? {
            return Ok(());
        }
        let set = SetAttr { kill_priv: true, kill_setgid, ..SetAttr::default() };
        self.take_away(cred, &attr, set)?;
        self.invalidator.forget_now(ino);
        Ok(())
    }
}

#[cfg(test)]
#[path = "privileges_tests.rs"]
mod tests;
