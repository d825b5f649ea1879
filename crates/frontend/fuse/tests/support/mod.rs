//! A file service in memory: just enough of POSIX to exercise the mount, no durability.

use siftfs_base::{Clock, InodeNr, Result, SystemClock, Timestamp, errno};
use siftfs_proto::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

#[derive(Clone)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, InodeNr>,
    parent: InodeNr,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    lookups: u64,
    opens: u64,
}

pub struct State {
    nodes: HashMap<InodeNr, Node>,
    handles: HashMap<u64, InodeNr>,
    next_ino: InodeNr,
    next_handle: u64,
    /// Every request's name, for counting.
    pub log: Vec<&'static str>,
}

pub struct Mem {
    pub state: Mutex<State>,
    clock: SystemClock,
}

impl Mem {
    pub fn new() -> Self {
        let clock = SystemClock::default();
        let mut state = State {
            nodes: HashMap::new(),
            handles: HashMap::new(),
            next_ino: 11,
            next_handle: 1,
            log: Vec::new(),
        };
        let root = node(ROOT_INO, FileKind::Directory, 0o755, (0, 0), clock.now());
        state.nodes.insert(ROOT_INO, root);
        Self { state: Mutex::new(state), clock }
    }

    /// Inodes in memory, the root included.
    pub fn inodes(&self) -> usize {
        self.state.lock().unwrap().nodes.len()
    }
}

fn node(ino: InodeNr, kind: FileKind, perm: u16, owner: (u32, u32), now: Timestamp) -> Node {
    let nlink = if kind == FileKind::Directory { 2 } else { 1 };
    let attr = Attr {
        ino,
        generation: 7,
        kind,
        perm,
        nlink,
        uid: owner.0,
        gid: owner.1,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        held: false,
    };
    Node {
        attr,
        data: Vec::new(),
        names: BTreeMap::new(),
        parent: ROOT_INO,
        xattrs: BTreeMap::new(),
        lookups: 0,
        opens: 0,
    }
}

impl State {
    fn of(&mut self, file: Target) -> Result<&mut Node> {
        let ino = self.target(file)?;
        self.get(ino)
    }

    fn target(&self, file: Target) -> Result<InodeNr> {
        match file {
            Target::Inode(ino) => Ok(ino),
            Target::Open(handle) => self.handles.get(&handle.0).copied().ok_or(errno(libc::EBADF)),
        }
    }

    fn get(&mut self, ino: InodeNr) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(errno(libc::ESTALE))
    }

    fn find(&mut self, parent: InodeNr, name: &[u8]) -> Result<InodeNr> {
        self.get(parent)?.names.get(name).copied().ok_or(errno(libc::ENOENT))
    }

    fn add(&mut self, parent: InodeNr, name: &[u8], mut new: Node) -> Result<Attr> {
        if self.find(parent, name).is_ok() {
            return Err(errno(libc::EEXIST));
        }
        let ino = self.next_ino;
        self.next_ino += 1;
        new.attr.ino = ino;
        new.parent = parent;
        new.lookups = 1;
        let attr = new.attr.clone();
        self.nodes.insert(ino, new);
        let dir = self.get(parent)?;
        dir.names.insert(name.to_vec(), ino);
        dir.attr.mtime = attr.crtime;
        dir.attr.ctime = attr.crtime;
        dir.attr.nlink += u32::from(attr.kind == FileKind::Directory);
        Ok(attr)
    }

    fn drop_unused(&mut self, ino: InodeNr) {
        if let Some(n) = self.nodes.get(&ino)
            && n.attr.nlink == 0
            && n.lookups == 0
            && n.opens == 0
        {
            self.nodes.remove(&ino);
        }
    }

    fn remove(&mut self, parent: InodeNr, name: &[u8], now: Timestamp) -> Result<()> {
        let ino = self.find(parent, name)?;
        let dir = self.get(parent)?;
        dir.names.remove(name);
        dir.attr.mtime = now;
        dir.attr.ctime = now;
        let n = self.get(ino)?;
        n.attr.ctime = now;
        let is_dir = n.attr.kind == FileKind::Directory;
        n.attr.nlink = if is_dir { 0 } else { n.attr.nlink - 1 };
        if is_dir {
            self.get(parent)?.attr.nlink -= 1;
        }
        self.drop_unused(ino);
        Ok(())
    }

    fn open(&mut self, ino: InodeNr) -> Result<Handle> {
        self.get(ino)?.opens += 1;
        let h = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(h, ino);
        Ok(Handle(h))
    }

    /// A change after which mtime and ctime are as before, unless it is one of `times`.
    fn timed<T>(
        &mut self,
        ino: InodeNr,
        times: bool,
        change: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.get(ino)?.attr.clone();
        let changed = change(self)?;
        if !times {
            let attr = &mut self.get(ino)?.attr;
            (attr.mtime, attr.ctime) = (before.mtime, before.ctime);
        }
        Ok(changed)
    }

    fn resize(&mut self, ino: InodeNr, size: u64, now: Timestamp) -> Result<()> {
        let n = self.get(ino)?;
        n.data.resize(size as usize, 0);
        n.attr.size = size;
        n.attr.blocks = size.div_ceil(4096) * 8;
        n.attr.mtime = now;
        n.attr.ctime = now;
        Ok(())
    }

    fn kill(&mut self, ino: InodeNr) -> Result<()> {
        let n = self.get(ino)?;
        n.attr.perm &= !0o4000;
        if n.attr.perm & 0o10 != 0 {
            n.attr.perm &= !0o2000;
        }
        n.xattrs.remove(b"security.capability".as_slice());
        Ok(())
    }

    fn set_attr(&mut self, ino: InodeNr, set: &SetAttr, now: Timestamp) -> Result<Attr> {
        if set.kill_priv {
            self.kill(ino)?;
        }
        if let Some(size) = set.size {
            self.resize(ino, size, now)?;
        }
        let at = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::At(t) => t,
        };
        let a = &mut self.get(ino)?.attr;
        a.perm = set.perm.unwrap_or(a.perm);
        a.uid = set.uid.unwrap_or(a.uid);
        a.gid = set.gid.unwrap_or(a.gid);
        a.atime = set.atime.map_or(a.atime, at);
        a.mtime = set.mtime.map_or(a.mtime, at);
        a.ctime = set.ctime.unwrap_or(now);
        Ok(a.clone())
    }

    fn rename(&mut self, r: (InodeNr, &[u8], InodeNr, &[u8]), m: RenameMode) -> Result<()> {
        let (parent, name, new_parent, new_name) = r;
        let ino = self.find(parent, name)?;
        let target = self.find(new_parent, new_name).ok();
        match (m, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(errno(libc::EEXIST)),
            (RenameMode::Exchange, None) => return Err(errno(libc::ENOENT)),
            (RenameMode::Exchange, Some(t)) => {
                self.get(parent)?.names.insert(name.to_vec(), t);
            }
            (_, Some(t)) => {
                self.get(parent)?.names.remove(name);
                self.get(t)?.attr.nlink -= 1;
                self.drop_unused(t);
            }
            (_, None) => {
                self.get(parent)?.names.remove(name);
            }
        }
        self.get(new_parent)?.names.insert(new_name.to_vec(), ino);
        Ok(())
    }

    fn read_dir(&mut self, handle: Handle, cookie: u64, plus: bool) -> Result<Vec<DirEntry>> {
        let ino = *self.handles.get(&handle.0).ok_or(errno(libc::EBADF))?;
        let dir = self.get(ino)?.clone();
        let dots = [(b".".to_vec(), ino), (b"..".to_vec(), dir.parent)];
        let mut out = Vec::new();
        for (i, (name, ino)) in dots.into_iter().chain(dir.names).enumerate() {
            if i as u64 >= cookie && out.len() < 20 {
                let n = self.get(ino)?;
                n.lookups += u64::from(plus && i >= 2);
                let attr = plus.then(|| n.attr.clone());
                let kind = n.attr.kind;
                out.push(DirEntry { ino, cookie: i as u64 + 1, kind, name, attr });
            }
        }
        Ok(out)
    }

    fn write(&mut self, ino: InodeNr, offset: u64, data: &[u8], now: Timestamp) -> Result<Reply> {
        let end = offset + data.len() as u64;
        if end > self.get(ino)?.attr.size {
            self.resize(ino, end, now)?;
        }
        let n = self.get(ino)?;
        n.data[offset as usize..end as usize].copy_from_slice(data);
        n.attr.mtime = now;
        n.attr.ctime = now;
        Ok(Reply::Written { len: data.len() as u32 })
    }

    fn allocate(
        &mut self,
        ino: InodeNr,
        mode: Allocate,
        r: (u64, u64),
        t: Timestamp,
    ) -> Result<()> {
        let (start, end) = (r.0, r.0 + r.1);
        let size = self.get(ino)?.attr.size;
        if matches!(mode, Allocate::Grow | Allocate::ZeroRange) && end > size {
            self.resize(ino, end, t)?;
        }
        if !matches!(mode, Allocate::Grow | Allocate::KeepSize) {
            let n = self.get(ino)?;
            let end = end.min(n.attr.size) as usize;
            n.data[(start as usize).min(end)..end].fill(0);
        }
        Ok(())
    }
}

impl FileService for Mem {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        use Request as R;
        let now = self.clock.now();
        let mut s = self.state.lock().unwrap();
        s.log.push(name_of(&req));
        match req {
            R::Lookup { .. }
            | R::Forget { .. }
            | R::ReadLink { .. }
            | R::MakeNode { .. }
            | R::MakeDir { .. }
            | R::Symlink { .. }
            | R::Link { .. }
            | R::Unlink { .. }
            | R::RemoveDir { .. }
            | R::Rename { .. }
            | R::Create { .. }
            | R::TmpFile { .. } => s.call_names(cred, now, req),
            R::GetAttr { .. }
            | R::SetAttr { .. }
            | R::GetXattr { .. }
            | R::ListXattr { .. }
            | R::SetXattr { .. }
            | R::RemoveXattr { .. }
            | R::GetFlags { .. } => s.call_attributes(now, req),
            R::Open { .. }
            | R::OpenDir { .. }
            | R::Release { .. }
            | R::Read { .. }
            | R::Write { .. }
            | R::Append { .. }
            | R::WriteBack { .. }
            | R::Allocate { .. }
            | R::Seek { .. }
            | R::ReadDir { .. } => s.call_data(now, req),
            other => call_other(&other),
        }
    }
}

impl State {
    fn call_names(&mut self, cred: &Credentials, now: Timestamp, req: Request) -> Result<Reply> {
        let owner = (cred.uid, cred.gid);
        let masked = |perm: u16| perm & !cred.umask;
        match req {
            Request::Lookup { parent, name } => {
                let ino = self.find(parent, &name)?;
                let n = self.get(ino)?;
                n.lookups += 1;
                Ok(Reply::Entry(n.attr.clone()))
            }
            Request::Forget { ino, count } => {
                let n = self.get(ino)?;
                n.lookups = n.lookups.checked_sub(count).expect("more forgets than lookups");
                self.drop_unused(ino);
                Ok(Reply::Done)
            }
            Request::ReadLink { ino } => Ok(Reply::Data(self.get(ino)?.data.clone())),
            Request::MakeNode { parent, name, kind, perm, rdev } => {
                let mut n = node(0, kind, masked(perm), owner, now);
                n.attr.rdev = rdev;
                self.add(parent, &name, n).map(Reply::Entry)
            }
            Request::MakeDir { parent, name, perm } => {
                let n = node(0, FileKind::Directory, masked(perm), owner, now);
                self.add(parent, &name, n).map(Reply::Entry)
            }
            Request::Symlink { parent, name, target } => {
                let mut n = node(0, FileKind::Symlink, 0o777, owner, now);
                n.attr.size = target.len() as u64;
                n.data = target;
                self.add(parent, &name, n).map(Reply::Entry)
            }
            Request::Link { ino, parent, name } => {
                self.get(parent)?.names.insert(name, ino);
                let n = self.get(ino)?;
                n.attr.nlink += 1;
                n.lookups += 1;
                Ok(Reply::Entry(n.attr.clone()))
            }
            Request::Unlink { parent, name } | Request::RemoveDir { parent, name } => {
                self.remove(parent, &name, now).map(|()| Reply::Done)
            }
            Request::Rename { parent, name, new_parent, new_name, mode } => {
                self.rename((parent, &name, new_parent, &new_name), mode).map(|()| Reply::Done)
            }
            Request::Create { parent, name, perm } => {
                let n = node(0, FileKind::Regular, masked(perm), owner, now);
                let attr = self.add(parent, &name, n)?;
                let handle = self.open(attr.ino)?;
                Ok(Reply::Created { attr, handle })
            }
            Request::TmpFile { parent, perm, .. } => {
                self.get(parent)?;
                let mut n = node(self.next_ino, FileKind::Regular, masked(perm), owner, now);
                self.next_ino += 1;
                (n.attr.nlink, n.lookups) = (0, 1);
                let attr = n.attr.clone();
                self.nodes.insert(attr.ino, n);
                let handle = self.open(attr.ino)?;
                Ok(Reply::Created { attr, handle })
            }
            other => unreachable!("not about names: {other:?}"),
        }
    }

    fn call_attributes(&mut self, now: Timestamp, req: Request) -> Result<Reply> {
        match req {
            Request::GetAttr { file } => Ok(Reply::Attr(self.of(file)?.attr.clone())),
            Request::SetAttr { file, set, times } => {
                let ino = self.target(file)?;
                self.timed(ino, times, |s| s.set_attr(ino, &set, now))?;
                Ok(Reply::Attr(self.get(ino)?.attr.clone()))
            }
            Request::GetXattr { file, name } => {
                let value = self.of(file)?.xattrs.get(&name).cloned();
                value.map(Reply::Data).ok_or(errno(libc::ENODATA))
            }
            Request::ListXattr { file } => {
                Ok(Reply::Names(self.of(file)?.xattrs.keys().cloned().collect()))
            }
            Request::SetXattr { file, name, value, mode, .. } => {
                let ino = self.target(file)?;
                let x = &mut self.get(ino)?.xattrs;
                match (mode, x.contains_key(&name)) {
                    (XattrMode::Create, true) => Err(errno(libc::EEXIST)),
                    (XattrMode::Replace, false) => Err(errno(libc::ENODATA)),
                    _ => {
                        x.insert(name, value);
                        Ok(Reply::Done)
                    }
                }
            }
            Request::RemoveXattr { file, name, .. } => {
                let old = self.of(file)?.xattrs.remove(&name);
                old.map(|_| Reply::Done).ok_or(errno(libc::ENODATA))
            }
            Request::GetFlags { .. } => Ok(Reply::Flags(0)),
            other => unreachable!("not about attributes: {other:?}"),
        }
    }

    fn call_data(&mut self, now: Timestamp, req: Request) -> Result<Reply> {
        match req {
            Request::Open { ino, truncate, kill_priv, times, .. } => {
                if truncate {
                    self.timed(ino, times, |s| s.resize(ino, 0, now))?;
                }
                if kill_priv {
                    self.kill(ino)?;
                }
                self.open(ino).map(|handle| Reply::Opened { handle })
            }
            Request::OpenDir { ino } => self.open(ino).map(|handle| Reply::Opened { handle }),
            Request::Release { handle } => {
                let ino = self.handles.remove(&handle.0).ok_or(errno(libc::EBADF))?;
                self.get(ino)?.opens -= 1;
                self.drop_unused(ino);
                Ok(Reply::Done)
            }
            Request::Read { file, offset, len } => {
                let ino = self.target(file)?;
                let data = &self.get(ino)?.data;
                let start = (offset as usize).min(data.len());
                let end = (start + len as usize).min(data.len());
                Ok(Reply::Data(data[start..end].to_vec()))
            }
            Request::Write { file, offset, data, append: false, kill_priv, times }
            | Request::Append { file, end: offset, data, kill_priv, times } => {
                let ino = self.target(file)?;
                if kill_priv {
                    self.kill(ino)?;
                }
                self.timed(ino, times, |s| s.write(ino, offset, &data.into_bytes(), now))
            }
            Request::WriteBack { file, offset, data, times } => {
                let ino = self.target(file)?;
                self.timed(ino, times, |s| s.write(ino, offset, &data.into_bytes(), now))
            }
            Request::Allocate { file, mode, offset, len, times } => {
                let ino = self.target(file)?;
                self.timed(ino, times, |s| s.allocate(ino, mode, (offset, len), now))
                    .map(|()| Reply::Done)
            }
            Request::Seek { file, offset, whence } => {
                let ino = self.target(file)?;
                let size = self.get(ino)?.attr.size;
                match whence {
                    _ if offset >= size => Err(errno(libc::ENXIO)),
                    Seek::Data => Ok(Reply::Offset(offset)),
                    Seek::Hole => Ok(Reply::Offset(size)),
                }
            }
            Request::ReadDir { handle, cookie, plus, .. } => {
                self.read_dir(handle, cookie, plus).map(Reply::Dir)
            }
            other => unreachable!("not about data: {other:?}"),
        }
    }
}

fn call_other(req: &Request) -> Result<Reply> {
    match req {
        Request::Fsync { .. } | Request::Wait { .. } | Request::EndSession => Ok(Reply::Done),
        Request::Stage { .. } | Request::Barrier => Ok(Reply::Ticket(Ticket(7))),
        Request::Poll { .. } => Ok(Reply::Durable(true)),
        Request::SetFlags { .. }
        | Request::GetLock { .. }
        | Request::SetLock { .. }
        | Request::CloseLocks { .. }
        | Request::CancelLock { .. }
        | Request::Compound(_)
        | Request::Publish { .. }
        | Request::SectionStart { .. }
        | Request::SectionWrite { .. }
        | Request::SectionRead { .. }
        | Request::SectionCommit { .. }
        | Request::SectionAbort { .. }
        | Request::Lease { .. }
        | Request::LeaseWrite { .. }
        | Request::LeaseLocate { .. }
        | Request::LeaseKeep { .. }
        | Request::LeaseReturn { .. }
        | Request::LeaseDirect { .. }
        | Request::LeaseExtend { .. }
        | Request::ReadDirect { .. }
        | Request::HoldMany { .. } => Err(errno(libc::EOPNOTSUPP)),
        Request::StatFs => Ok(Reply::Statfs(StatFs {
            block_size: 4096,
            blocks: 1000,
            free: 900,
            available: 850,
            files: 500,
            files_free: 400,
            name_max: 255,
        })),
        Request::SyncAll | Request::Trim { .. } => Ok(Reply::Done),
        Request::Checkpoint => Ok(Reply::Checkpoint(Box::default())),
        Request::Status => Ok(Reply::Status(Box::default())),
        other => unreachable!("of another kind: {other:?}"),
    }
}

fn name_of(req: &Request) -> &'static str {
    match req {
        Request::Lookup { .. } => "lookup",
        Request::Forget { .. } => "forget",
        Request::GetAttr { .. } => "getattr",
        Request::GetXattr { .. } => "getxattr",
        Request::SetAttr { .. } => "setattr",
        Request::Read { .. } => "read",
        Request::Write { .. } | Request::Append { .. } | Request::WriteBack { .. } => "write",
        Request::Open { .. } => "open",
        Request::Fsync { .. } => "fsync",
        _ => "other",
    }
}
