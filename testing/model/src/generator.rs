//! Seeded sequences of operations over a small set of names.
//!
//! Few names, files and directories, so that operations meet: replaced names, links of removed
//! files, ranges that overlap. Mostly valid; some are refused on purpose.

use crate::model::{Model, Node};
use crate::model_acl::{self, ACCESS, DEFAULT};
use crate::op::{Action, Op};
use crate::rng::{Rng, pattern};
use crate::scripts::Script;
use siftfs_base::{InodeNr, Timestamp};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Allocate, Credentials, FileKind, Handle, Level, PublishEntry, PublishSource, ROOT_INO,
    RenameMode, Request, Rights, Seek, SetAttr, SetTime, Ticket, WriteData, XattrMode,
};

/// What a sequence is made of: weights of groups of operations and sizes.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Creation, removal, links, renames.
    pub names: u64,
    /// Writes, truncation, allocation.
    pub data: u64,
    /// chmod, chown, utimes, xattrs.
    pub attrs: u64,
    /// fsync of one file or directory.
    pub sync: u64,
    /// Commits, checkpoints, the clock, sync of everything.
    pub background: u64,
    /// Patterns of several operations.
    pub scripts: u64,
    /// Reads, lookups and other questions.
    pub reads: u64,
    /// Publishes.
    pub publish: u64,
    /// Several inodes staged, one after the other, and often a wait for the last, or for all.
    pub tickets: u64,
    /// Sections: started, written, read, changed by others, committed, aborted or left.
    pub sections: u64,
    /// Compounds of one to ten steps.
    pub compounds: u64,
    /// Longest write in bytes.
    pub write_max: u64,
    /// Writes go to offsets below this (one in sixteen to 32 times as far).
    pub offset_max: u64,
    /// Most directories at once.
    pub dirs: usize,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            names: 26,
            data: 26,
            attrs: 8,
            sync: 16,
            background: 5,
            scripts: 9,
            reads: 10,
            publish: 0,
            tickets: 0,
            sections: 0,
            compounds: 0,
            write_max: 9000,
            offset_max: 24_000,
            dirs: 6,
        }
    }
}

impl Profile {
    /// For power cuts: questions change nothing on the device, so none is asked.
    pub fn crash() -> Self {
        Self { reads: 0, sync: 20, ..Self::default() }
    }
}

/// Makes one sequence; the model's present state says what exists.
pub struct Generator {
    pub(crate) rng: Rng,
    profile: Profile,
    pub(crate) next: u32,
    script: Option<Script>,
    /// What is left of a burst of tickets.
    burst: Option<Burst>,
}

/// Inodes are staged, and then perhaps there is a wait, for the last of them or for a barrier.
#[derive(Clone, Copy)]
enum Burst {
    /// This many are still to be staged.
    Stage(u64),
    /// For the ticket of the operation before.
    Wait,
}

const NAMES: [&[u8]; 8] =
    [b"a", b"b", b"c", b"d", b"e", b"f", b"longer-name.with.dots", b"\xff\xfe"];
const XATTRS: [&[u8]; 4] = [b"user.a", b"user.some-longer-name", b"trusted.b", b"security.c"];

impl Generator {
    /// The sequence of `seed`.
    pub fn new(seed: u64, profile: Profile) -> Self {
        Self { rng: Rng::new(seed), profile, next: 0, script: None, burst: None }
    }

    /// The next operation on a file system in state `model`.
    pub fn next(&mut self, model: &Model) -> Op {
        let id = self.next;
        self.next += 1;
        let action = loop {
            if let Some(action) = self.choose(model) {
                break action;
            }
        };
        Op { id, action }
    }

    fn choose(&mut self, model: &Model) -> Option<Action> {
        let id = u64::from(self.next);
        if let Some(script) = &mut self.script {
            match script.next(model, id) {
                Some(req) => return Some(Action::Call(Credentials::default(), req)),
                None => self.script = None,
            }
        }
        if let Some(burst) = self.burst.take() {
            return self.staged(model, burst).map(|req| Action::Call(Credentials::default(), req));
        }
        let p = &self.profile;
        let weights = [
            p.names,
            p.data,
            p.attrs,
            p.sync,
            p.background,
            p.scripts,
            p.reads,
            p.publish,
            p.tickets,
            p.sections,
            p.compounds,
        ];
        let mut at = self.rng.below(weights.iter().sum());
        let group = weights.iter().position(|w| {
            let here = at < *w;
            at = at.saturating_sub(*w);
            here
        });
        let cred = if group == Some(0) { self.cred() } else { Credentials::default() };
        let req = match group {
            Some(0) => self.name_op(model),
            Some(1) => self.data_op(model),
            Some(2) => self.attr_op(model),
            Some(3) => self.sync_op(model),
            Some(4) => return Some(self.background()),
            Some(5) => {
                let dir = self.dir(model);
                let (a, b) = (self.name(), self.name());
                self.script = Some(Script::choose(&mut self.rng, dir, &a, &b));
                None
            }
            Some(6) => self.question(model),
            Some(7) => self.publish(model),
            Some(8) => {
                self.burst = Some(Burst::Stage(self.rng.between(1, 4)));
                None
            }
            Some(9) => self.section_op(model),
            _ => return self.compound(model),
        };
        req.map(|req| Action::Call(cred, req))
    }

    /// Names are also changed by a user without privileges. Rights to the object are the
    /// Frontend's business, so everything else is asked by root.
    fn cred(&mut self) -> Credentials {
        if self.rng.chance(85) {
            return Credentials::default();
        }
        let umask = self.rng.pick(&[0, 0o022, 0o077]).copied().unwrap_or(0);
        Credentials { uid: 1000, gid: 100, umask, ..Credentials::default() }
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(200) {
            0 => vec![b'n'; 255],
            1 => vec![b'n'; 256],
            _ => self.rng.pick(&NAMES).map(|n| n.to_vec()).unwrap_or_default(),
        }
    }

    pub(crate) fn nodes_where(&self, model: &Model, keep: impl Fn(&Node) -> bool) -> Vec<InodeNr> {
        model.nodes().filter(|(_, n)| keep(n)).map(|(ino, _)| ino).collect()
    }

    /// A directory that still has its name.
    pub(crate) fn dir(&mut self, model: &Model) -> InodeNr {
        let dirs = self.nodes_where(model, |n| n.is_dir() && n.nlink > 0);
        self.rng.pick(&dirs).copied().unwrap_or(ROOT_INO)
    }

    /// A regular file, open and unlinked ones included.
    fn file(&mut self, model: &Model) -> Option<InodeNr> {
        let files = self.nodes_where(model, |n| n.kind == FileKind::Regular);
        self.rng.pick(&files).copied()
    }

    fn any(&mut self, model: &Model) -> Option<InodeNr> {
        let all = self.nodes_where(model, |n| n.nlink > 0);
        self.rng.pick(&all).copied()
    }

    /// A name that exists, with its directory.
    fn existing(&mut self, model: &Model) -> Option<(InodeNr, Vec<u8>, InodeNr)> {
        let mut all = Vec::new();
        for (dir, node) in model.nodes() {
            all.extend(node.entries.iter().map(|(n, i)| (dir, n.clone(), *i)));
        }
        all.retain(|(_, name, _)| name != b"lost+found");
        self.rng.pick(&all).cloned()
    }

    fn name_op(&mut self, model: &Model) -> Option<Request> {
        match self.rng.below(100) {
            0..26 => Some(self.create(model)),
            26..36 => {
                if self.nodes_where(model, |n| n.is_dir() && n.nlink > 0).len() > self.profile.dirs
                {
                    return None;
                }
                let perm = *self.rng.pick(&[0o755, 0o700, 0o1777, 0o2775]).unwrap_or(&0o755);
                Some(Request::MakeDir { parent: self.dir(model), name: self.name(), perm })
            }
            36..46 => {
                let links = self.nodes_where(model, |n| !n.is_dir() && (n.nlink > 0 || n.linkable));
                let ino = *self.rng.pick(&links)?;
                Some(Request::Link { ino, parent: self.dir(model), name: self.name() })
            }
            46..60 => self.remove(model),
            60..64 => self.forget(model),
            _ => self.rename(model),
        }
    }

    fn create(&mut self, model: &Model) -> Request {
        let (parent, name) = (self.dir(model), self.name());
        let perm = *self.rng.pick(&[0o644, 0o600, 0o755, 0o4755]).unwrap_or(&0o644);
        match self.rng.below(12) {
            0 | 1 => {
                let len = if self.rng.chance(70) { self.rng.between(1, 59) } else { 300 };
                Request::Symlink { parent, name, target: pattern(u64::from(self.next), 0, len) }
            }
            2 => {
                let kinds =
                    [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];
                let kind = *self.rng.pick(&kinds).unwrap_or(&FileKind::Fifo);
                Request::MakeNode { parent, name, kind, perm: 0o600, rdev: 0x0103 }
            }
            3 => Request::MakeNode { parent, name, kind: FileKind::Regular, perm, rdev: 0 },
            4 => Request::TmpFile { parent, perm, exclusive: false },
            _ => Request::Create { parent, name, perm },
        }
    }

    fn remove(&mut self, model: &Model) -> Option<Request> {
        if self.rng.chance(8) {
            return Some(Request::Unlink { parent: self.dir(model), name: self.name() });
        }
        let (parent, name, ino) = self.existing(model)?;
        let as_dir = model.node(ino)?.is_dir() != self.rng.chance(5);
        Some(if as_dir {
            Request::RemoveDir { parent, name }
        } else {
            Request::Unlink { parent, name }
        })
    }

    fn rename(&mut self, model: &Model) -> Option<Request> {
        let (parent, name, ino) = self.existing(model)?;
        let (new_parent, new_name) = if self.rng.chance(50) {
            let (dir, name, _) = self.existing(model)?;
            (dir, name)
        } else {
            (self.dir(model), self.name())
        };
        let mode = match self.rng.below(10) {
            0..2 => RenameMode::Exchange,
            2 => RenameMode::NoReplace,
            _ => RenameMode::Replace,
        };
        // Two reasons to refuse at once have no one errno: file over its own ancestor.
        let old = model.child(new_parent, &new_name);
        let above =
            |o: InodeNr| model.node(o).is_some_and(Node::is_dir) && model.is_inside(parent, o);
        if !model.node(ino)?.is_dir() && old.is_some_and(above) {
            return None;
        }
        Some(Request::Rename { parent, name, new_parent, new_name, mode })
    }

    /// New names for one to three files; their data was written shortly before, or is old.
    fn publish(&mut self, model: &Model) -> Option<Request> {
        let base = self.dir(model);
        let entries = (0..self.rng.between(1, 3)).filter_map(|_| self.publish_entry(model, base));
        let entries: Vec<PublishEntry> = entries.collect();
        let level = *self.rng.pick(&[Level::Visible, Level::Atomic, Level::Durable])?;
        let rights = Rights::all();
        Some(Request::Publish { base, entries, level, rights })
    }

    fn publish_entry(&mut self, model: &Model, base: InodeNr) -> Option<PublishEntry> {
        let replace = self.rng.chance(80);
        let unnamed =
            model.handles().filter(|(_, ino)| model.node(*ino).is_some_and(|n| n.linkable));
        let unnamed: Vec<u64> = unnamed.map(|(handle, _)| handle).collect();
        // Files with names, too: what one entry replaces, another one may name.
        let opened: Vec<u64> = model.handles().map(|(handle, _)| handle).collect();
        let source = match (self.rng.pick(&unnamed), self.rng.pick(&opened)) {
            (Some(handle), _) if self.rng.chance(50) => PublishSource::Open(Handle(*handle)),
            (_, Some(handle)) if self.rng.chance(25) => PublishSource::Open(Handle(*handle)),
            _ => PublishSource::Path(self.path_in(model, base)),
        };
        Some(PublishEntry { source, to: self.path_in(model, base), replace })
    }

    /// A name in `base`, or in a directory there; mostly one that exists.
    pub(crate) fn path_in(&mut self, model: &Model, base: InodeNr) -> Vec<u8> {
        let dirs: Vec<(Vec<u8>, InodeNr)> = model
            .node(base)
            .into_iter()
            .flat_map(|node| &node.entries)
            .filter(|(_, ino)| model.node(**ino).is_some_and(Node::is_dir))
            .map(|(name, ino)| (name.clone(), *ino))
            .collect();
        let (mut path, dir) = match self.rng.pick(&dirs).filter(|(name, _)| name != b"lost+found") {
            Some((name, dir)) if self.rng.chance(30) => ([name, &b"/"[..]].concat(), *dir),
            _ => (Vec::new(), base),
        };
        let there: Vec<Vec<u8>> = model
            .node(dir)
            .into_iter()
            .flat_map(|node| &node.entries)
            .filter(|(_, ino)| model.node(**ino).is_some_and(|node| !node.is_dir()))
            .map(|(name, _)| name.clone())
            .collect();
        let name = match self.rng.pick(&there) {
            Some(name) if self.rng.chance(70) => name.clone(),
            _ => self.name(),
        };
        path.extend(name);
        path
    }

    pub(crate) fn offset(&mut self) -> u64 {
        let far = if self.rng.chance(6) { 32 } else { 1 };
        let at = self.rng.below(self.profile.offset_max * far);
        if self.rng.chance(40) { at - at % 4096 } else { at }
    }

    /// Pages as the kernel's cache sends them: whole, with what the file says but for some bytes,
    /// the last as far as the file goes, which may have become longer.
    fn pages_back(&mut self, model: &Model, ino: InodeNr) -> Option<Request> {
        if model.sections().values().any(|section| section.ino == ino) {
            return None;
        }
        let content = &model.node(ino)?.content;
        let size = content.size();
        let begin = if self.rng.chance(60) { size.saturating_sub(1) } else { self.offset() };
        let offset = begin - begin % 4096;
        let end = if self.rng.chance(60) { size + self.rng.below(600) } else { size };
        let len = end.saturating_sub(offset).clamp(1, 4096 * self.rng.between(1, 3));
        let mut data = content.read(offset, len);
        let read = data.len() as u64;
        data.extend(pattern(u64::from(self.next), offset + read, len - read));
        for _ in 0..self.rng.below(3) {
            let at = self.rng.below(len);
            let some = self.rng.between(1, 700).min(len - at);
            let bytes = pattern(u64::from(self.next), offset + at, some);
            data[at as usize..(at + some) as usize].copy_from_slice(&bytes);
        }
        let (data, times) = (WriteData::copy_of(offset, &data), self.rng.chance(50));
        Some(Request::WriteBack { file: ino.into(), offset, data, times })
    }

    fn data_op(&mut self, model: &Model) -> Option<Request> {
        let ino = self.file(model)?;
        let size = model.node(ino)?.content.size();
        let kill_priv = self.rng.chance(10);
        Some(match self.rng.below(100) {
            0..8 => self.pages_back(model, ino)?,
            8..48 => {
                let offset = self.offset();
                let len = match self.rng.below(4) {
                    0 => self.rng.between(1, 64),
                    1 => 4096,
                    _ => self.rng.between(1, self.profile.write_max),
                };
                let data = pattern(u64::from(self.next), offset, len);
                let data = WriteData::copy_of(offset, &data);
                let (file, append, times) = (ino.into(), false, true);
                Request::Write { file, offset, data, append, kill_priv, times }
            }
            48..62 => {
                let len = if self.rng.chance(50) { 512 } else { self.rng.between(1, 5000) };
                let data = pattern(u64::from(self.next), size, len).into();
                let (file, append, times) = (ino.into(), true, true);
                Request::Write { file, offset: 0, data, append, kill_priv, times }
            }
            62..78 => {
                let to = match self.rng.below(4) {
                    0 => 0,
                    1 => size / 2,
                    2 => size + self.rng.below(9000),
                    _ => self.offset(),
                };
                Request::SetAttr {
                    file: ino.into(),
                    set: SetAttr { size: Some(to), kill_priv, ..SetAttr::default() },
                    times: true,
                }
            }
            78..92 => {
                let modes = [
                    Allocate::Grow,
                    Allocate::KeepSize,
                    Allocate::PunchHole,
                    Allocate::ZeroRange,
                    Allocate::ZeroRangeKeepSize,
                ];
                let mode = *self.rng.pick(&modes)?;
                Request::Allocate {
                    file: ino.into(),
                    mode,
                    offset: self.offset(),
                    len: self.rng.below(20_000),
                    times: true,
                }
            }
            92..96 => Request::Open {
                ino,
                access: Access::Both,
                truncate: self.rng.chance(50),
                kill_priv: false,
                times: true,
                beside_lease: false,
            },
            _ => return self.release(model),
        })
    }

    fn release(&mut self, model: &Model) -> Option<Request> {
        let handles: Vec<_> = model.handles().map(|(h, _)| h).collect();
        Some(Request::Release { handle: Handle(*self.rng.pick(&handles)?) })
    }

    fn attr_op(&mut self, model: &Model) -> Option<Request> {
        let ino = self.any(model)?;
        let node = model.node(ino)?;
        let kind = node.kind;
        if self.rng.chance(45) && matches!(kind, FileKind::Regular | FileKind::Directory) {
            return self.xattr_op(ino);
        }
        let mut set = SetAttr::default();
        match self.rng.below(4) {
            0 | 1 if kind != FileKind::Symlink => {
                let perms = [0o600, 0o644, 0o755, 0o4711, 0o2755, 0o1777, 0];
                set.perm = Some(*self.rng.pick(&perms)?);
            }
            2 => {
                set.uid = Some(*self.rng.pick(&[0, 1000, 70_000])?);
                set.gid = self.rng.chance(50).then_some(100);
                set.kill_priv = kind == FileKind::Regular;
            }
            _ => {
                let sec = *self.rng.pick(&[-1000i64, 0, 1_000_000_000, 5_000_000_000])?;
                let nsec = u32::try_from(self.rng.below(1_000_000_000)).unwrap_or(0);
                set.mtime = Some(SetTime::At(Timestamp { sec, nsec }));
                set.atime = self.rng.chance(50).then_some(SetTime::At(Timestamp { sec, nsec: 7 }));
            }
        }
        Some(Request::SetAttr { file: ino.into(), set, times: true })
    }

    /// An access control list: set, mostly a good one, or removed.
    fn acl_op(&mut self, ino: InodeNr) -> Option<Request> {
        let name = self.rng.pick(&[ACCESS, DEFAULT])?.to_vec();
        if self.rng.chance(25) {
            return Some(Request::RemoveXattr { file: ino.into(), name, times: true });
        }
        let none = u32::MAX;
        let perm = |g: &mut Self| u16::try_from(g.rng.below(8)).unwrap_or(0);
        let (owner, group, others) = (perm(self), perm(self), perm(self));
        let (user, team, mask) = (perm(self), perm(self), perm(self));
        let mut list = vec![(1, owner, none)];
        let named = self.rng.chance(70);
        if named {
            list.push((2, user, 1000));
        }
        list.push((4, group, none));
        if named {
            list.extend([(8, team, 100), (16, mask, none)]);
        }
        list.push((32, others, none));
        let mut value = model_acl::value(&list);
        if self.rng.chance(5) {
            value.truncate(value.len() - 3);
        }
        let (mode, kill_setgid) = (XattrMode::Set, self.rng.chance(20));
        Some(Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid })
    }

    fn xattr_op(&mut self, ino: InodeNr) -> Option<Request> {
        if self.rng.chance(35) {
            return self.acl_op(ino);
        }
        let name = self.rng.pick(&XATTRS)?.to_vec();
        if self.rng.chance(25) {
            return Some(Request::RemoveXattr { file: ino.into(), name, times: true });
        }
        let modes = [XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace];
        let mode = *self.rng.pick(&modes)?;
        let len = if self.rng.chance(70) { self.rng.below(40) } else { self.rng.below(700) };
        let value = pattern(u64::from(self.next), 0, len);
        Some(Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid: false })
    }

    fn sync_op(&mut self, model: &Model) -> Option<Request> {
        let datasync = self.rng.chance(35);
        let ino = match self.rng.below(10) {
            0..3 => self.dir(model),
            3 => self.any(model)?,
            _ => self.file(model)?,
        };
        Some(Request::Fsync { file: ino.into(), datasync })
    }

    /// The next operation of a burst.
    fn staged(&mut self, model: &Model, burst: Burst) -> Option<Request> {
        match burst {
            Burst::Stage(0) => match self.rng.below(4) {
                0 => self.staged(model, Burst::Wait),
                1 => {
                    self.burst = Some(Burst::Wait);
                    Some(Request::Barrier)
                }
                _ => None,
            },
            Burst::Stage(left) => {
                let Some(Request::Fsync { file, datasync }) = self.sync_op(model) else {
                    return None;
                };
                self.burst = Some(Burst::Stage(left - 1));
                Some(Request::Stage { file, datasync })
            }
            Burst::Wait => {
                let ticket = Ticket(u64::from(self.next) - 1);
                Some(Request::Wait { ticket, timeout: None })
            }
        }
    }

    fn background(&mut self) -> Action {
        match self.rng.below(10) {
            0..4 => Action::Commit { push: self.rng.chance(40) },
            4..6 => Action::Checkpoint,
            6..8 => Action::Advance(self.rng.between(1, 7000) * 1_000_000),
            8 => Action::Call(Credentials::default(), Request::SyncAll),
            _ => Action::Call(Credentials::default(), Request::Checkpoint),
        }
    }

    fn question(&mut self, model: &Model) -> Option<Request> {
        let ino = self.any(model)?;
        let kind = model.node(ino)?.kind;
        Some(match (self.rng.below(6), kind) {
            (0, _) => Request::GetAttr { file: ino.into() },
            (1, _) => Request::Lookup { parent: self.dir(model), name: self.name() },
            (2, FileKind::Regular | FileKind::Directory) => {
                let names = [XATTRS[0], XATTRS[1], XATTRS[2], XATTRS[3], ACCESS, DEFAULT];
                Request::GetXattr { file: ino.into(), name: self.rng.pick(&names)?.to_vec() }
            }
            (3, FileKind::Regular | FileKind::Directory) => Request::ListXattr { file: ino.into() },
            (4, FileKind::Regular) => {
                let whence = if self.rng.chance(50) { Seek::Data } else { Seek::Hole };
                Request::Seek { file: ino.into(), offset: self.offset(), whence }
            }
            (_, FileKind::Regular) => {
                let len = u32::try_from(self.rng.below(20_000)).unwrap_or(0);
                Request::Read { file: ino.into(), offset: self.offset(), len }
            }
            (_, FileKind::Symlink) => Request::ReadLink { ino },
            (_, FileKind::Directory) if self.rng.chance(20) => Request::StatFs,
            _ => return None,
        })
    }

    /// Gives back all references to an inode, so that removed ones can go.
    fn forget(&mut self, model: &Model) -> Option<Request> {
        let held = self.nodes_where(model, |n| n.refs > 0);
        let ino = *self.rng.pick(&held)?;
        Some(Request::Forget { ino, count: model.node(ino)?.refs })
    }
}
