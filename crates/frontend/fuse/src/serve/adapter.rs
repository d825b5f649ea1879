//! The kernel's operations become requests of the file protocol, and their results answers.

use crate::kernel::convert::{
    allocate_mode, inode, kind_of_mode, perm_of_mode, rename_mode, seek, xattr_mode,
};
use crate::kernel::handler::Handler;
use crate::kernel::owing::{during, owe, owed_so_far};
use crate::kernel::reply::{Answer, DirBuffer, Flush, Token};
use crate::kernel::request::{Message, Operation};
use crate::locks;
use crate::mount::mountinfo::MountEntry;
use crate::pages::kernel_cache::DirectWrite;
use crate::pages::opener::Want;
use crate::pages::own_mount;
use crate::serve::open_files::{appends, reads_and_writes};
use crate::serve::server::{CopyRange, Dir, DirCursor, Place, Server};
use crate::serve::told::told;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::commands::is_commit_all;
use siftfs_proto::ioctl::compound::is_compound;
use siftfs_proto::ioctl::is_publish;
use siftfs_proto::{
    Attr, Completion, Credentials, DirEntry, Handle, RenameMode, Reply, Request, SetAttr, WriteData,
};
use std::sync::Arc;

/// Serves the kernel's operations with a [`Server`].
pub(crate) struct Adapter {
    server: Arc<Server>,
    entry: MountEntry,
}

impl Handler for Adapter {
    fn handle(&self, message: Message<'_>, token: Token) {
        let token = self.server.shares.shared(token, &message);
        match token.owing() {
            None => self.begin(message, token),
            owing => during(owing, || self.begin(message, token)),
        }
    }

    fn over(&self) {
        self.server.service.give_up();
        locks::over(&self.server);
    }
}

impl Adapter {
    fn begin(&self, message: Message<'_>, token: Token) {
        if let Some(answer) = self.server.unserved.answer(&message) {
            return token.send(answer);
        }
        let unique = message.unique;
        let (node, cred, op) = self.server.agreed.checked(message);
        match op {
            Operation::Forget { count } => {
                self.forget(&cred, node, count);
                token.none();
            }
            Operation::BatchForget(list) => {
                list.iter().for_each(|(node, count)| self.forget(&cred, node, count));
                token.none();
            }
            op @ (Operation::GetLock { .. }
            | Operation::SetLock { .. }
            | Operation::Interrupt { .. }) => {
                locks::serve(&self.server, (unique, cred), op, token);
            }
            Operation::Release { handle } => self.release(cred, node, Handle(handle), token),
            op if self.is_answered_later(node, &op) => match inode(node) {
                Err(e) => token.send(Err(e)),
                Ok(ino) => self.answer_later(cred, ino, op, token),
            },
            op => match self.names_dirty(&cred, node, &op) {
                Some((dirty, request)) => self.write_back_first(cred, dirty, request, token),
                None => self.answer(&cred, node, op, token),
            },
        }
    }
}

/// Requests that are answered when something else has been done.
impl Adapter {
    /// Carries out a request that is answered at once, or when other front ends know of it.
    fn answer(&self, cred: &Credentials, node: u64, op: Operation<'_>, token: Token) {
        let server = &self.server;
        let token = match (&op, inode(node)) {
            (Operation::Write { .. }, Ok(ino)) => server.shares.writes(ino, token),
            // The kernel writes no page of a file whose size is being set.
            (Operation::SetAttr { set }, Ok(ino)) if set.size.is_some() => {
                server.shares.writes(ino, token)
            }
            _ => token,
        };
        let told_of = server.shares.tells(node, &op);
        let (result, token) = told(told_of, self.carry_out(cred, node, op), token);
        send(server, result, token);
    }

    fn is_answered_later(&self, node: u64, op: &Operation<'_>) -> bool {
        match op {
            Operation::Fsync { .. }
            | Operation::Read { .. }
            | Operation::Flush { .. }
            | Operation::Write { direct: true, .. }
            | Operation::Ioctl { .. }
            | Operation::Seek { .. } => true,
            Operation::SetAttr { set } => self.dates_pages(node, set),
            _ => false,
        }
    }

    /// Carries out one of those, of a file that the kernel knows.
    fn answer_later(&self, cred: Credentials, ino: InodeNr, op: Operation<'_>, token: Token) {
        match op {
            Operation::Fsync { datasync } => {
                owe(self.server.shares.page_debts.of(ino));
                let answer = Box::new(move |result: Result<Reply>| {
                    token.send(result.map(|_| Answer::Done));
                });
                self.server.fsync(&cred, ino, datasync, answer);
            }
            Operation::Read { handle, offset, size, direct } => {
                let (file, part) = ((ino, Handle(handle)), (offset, size));
                let token = self.server.shares.reads(ino, token);
                self.server.read(&cred, file, part, direct, token_for_data(token));
            }
            Operation::Flush { handle, owner } => {
                owe(self.server.shares.page_debts.of(ino));
                let (server, handle) = (self.server.clone(), Handle(handle));
                let then = Box::new(move || {
                    let closed = locks::closed(&server, ino, handle, owner);
                    token.send(closed.map(|()| Answer::Done));
                });
                self.server.flush(ino, cred.pid, then);
            }
            Operation::Write { handle, offset, data, kill_priv, flags, .. } => {
                let data = WriteData::copy_of(offset, data);
                let file = (ino, Handle(handle));
                let token = self.server.shares.writes(ino, token);
                self.write_direct(&cred, file, (offset, data), (kill_priv, flags), token);
            }
            Operation::Ioctl { handle, command, input } => {
                let answer = Box::new(move |result: Result<Reply>| {
                    token.send(result.and_then(Reply::data).map(Answer::Ioctl));
                });
                self.ioctl(&cred, (ino, Handle(handle)), (command, input), answer);
            }
            Operation::Seek { offset, whence } => match seek(whence) {
                Err(e) => token.send(Err(e)),
                Ok(whence) => {
                    let answer = token_for_offset(token);
                    self.server.seek_written(&cred, (ino, offset), whence, answer);
                }
            },
            Operation::SetAttr { set } => {
                let server = self.server.clone();
                // Without room to wait it is done at once: a page may come later.
                let set = move |_| {
                    let done = server.set_attr(&cred, ino, set).map(Answer::Attr);
                    send(&server, done, token);
                };
                self.server.when_written(ino, Box::new(set));
            }
            _ => unreachable!("all others are answered at once"),
        }
    }

    /// WRITE past the kernel's cache.
    fn write_direct(
        &self,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        (offset, data): (u64, WriteData),
        (kill_priv, flags): (bool, u32),
        token: Token,
    ) {
        let append = self.server.agreed.appends(flags);
        let at = Place { offset, append };
        let written = self.server.write_by(cred, (ino, handle), at, data, kill_priv);
        let (len, in_section) = match written {
            Err(e) => return token.send(Err(e)),
            Ok(written) => written,
        };
        // A section is made durable by its commit, whatever the descriptor says.
        let flags = if in_section { 0 } else { flags };
        let answer = Box::new(move |result: Result<Reply>| {
            token.send(result.map(|_| Answer::Written(len)));
        });
        let write = DirectWrite { ino, handle, offset, len, flags };
        self.server.finish_direct(cred, write, answer);
    }

    /// RELEASE: a section of the handle ends first.
    fn release(&self, cred: Credentials, node: u64, handle: Handle, token: Token) {
        let server = self.server.clone();
        let release = move || {
            if let Ok(ino) = inode(node) {
                if let Some(known) = &server.shares.known {
                    known.closed(ino);
                }
                server.release_sections(ino, handle);
            }
            token.send(done(server.release(&cred, handle)));
        };
        match inode(node) {
            Ok(ino) if self.server.sections.has(ino, handle) => {
                self.server.end_section(ino, handle, Box::new(release));
            }
            _ => release(),
        }
    }
}

/// Answers with what the kernel is to know.
fn send(server: &Server, mut result: Result<Answer>, token: Token) {
    result.iter_mut().for_each(|answer| server.sections.show(answer));
    if result.as_ref().is_ok_and(Answer::may_have_attributes) {
        server.tell_attributes(Box::new(move || token.send(result)));
    } else {
        token.send(result);
    }
}

/// Answers a read.
fn token_for_data(token: Token) -> Completion {
    Box::new(move |result: Result<Reply>| {
        token.send(result.and_then(|reply| match reply {
            Reply::Blocks(blocks) => Ok(Answer::Blocks(blocks)),
            other => other.data().map(Answer::Data),
        }));
    })
}

/// Answers lseek(2).
fn token_for_offset(token: Token) -> Completion {
    Box::new(move |result: Result<Reply>| {
        token.send(result.and_then(Reply::offset).map(Answer::Offset));
    })
}

/// The caller with the umask that its request brought.
fn masked(cred: &Credentials, umask: u32) -> Credentials {
    Credentials { umask: perm_of_mode(umask), ..cred.clone() }
}

fn entry(result: Result<Attr>) -> Result<Answer> {
    result.map(Answer::Entry)
}

fn done(result: Result<()>) -> Result<Answer> {
    result.map(|()| Answer::Done)
}

/// getxattr and listxattr: size 0 asks for the size.
fn xattr(value: Vec<u8>, size: u32) -> Result<Answer> {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => Ok(Answer::XattrSize(len)),
        Ok(len) if len <= size => Ok(Answer::Data(value)),
        _ => Err(errno(libc::ERANGE)),
    }
}

impl Adapter {
    pub(crate) fn new(server: Arc<Server>, entry: MountEntry) -> Self {
        Self { server, entry }
    }

    /// Does this set the mtime of a file that may have been stored to through a mapping before? The
    /// pages move it when they come, so they must come first. (A kernel that owns the times has
    /// sent them, and while it changes a size it sends none.)
    fn dates_pages(&self, node: u64, set: &SetAttr) -> bool {
        let mapped = |ino| self.server.open_files.may_be_dirty(ino);
        let dates = set.mtime.is_some() && set.size.is_none() && !self.server.agreed.writeback;
        dates && inode(node).is_ok_and(mapped)
    }

    /// The inodes that this rename or link gives a name and of which the kernel may hold written
    /// pages back, if there are such, and the request: the name must not become durable without
    /// those pages (rule R20).
    fn names_dirty(
        &self,
        cred: &Credentials,
        node: u64,
        op: &Operation<'_>,
    ) -> Option<(Vec<InodeNr>, Request)> {
        if !self.server.agreed.writeback || !self.server.open_files.any() {
            return None;
        }
        let parent = inode(node).ok()?;
        let (mut named, request) = match *op {
            Operation::Rename { name, new_dir, new_name, flags } => {
                let (new_parent, mode) = (inode(new_dir).ok()?, rename_mode(flags).ok()?);
                let (name, new_name) = (name.to_vec(), new_name.to_vec());
                let mut named = vec![self.server.number_of(cred, parent, &name)?];
                if mode == RenameMode::Exchange {
                    named.extend(self.server.number_of(cred, new_parent, &new_name));
                }
                (named, Request::Rename { parent, name, new_parent, new_name, mode })
            }
            Operation::Link { node, name } => {
                let (ino, name) = (inode(node).ok()?, name.to_vec());
                (vec![ino], Request::Link { ino, parent, name })
            }
            _ => return None,
        };
        named.retain(|ino| self.server.open_files.may_be_dirty(*ino));
        (!named.is_empty()).then_some((named, request))
    }

    /// Has the kernel send what it holds of `dirty`, then carries `request` out. On a thread of its
    /// own: the kernel's pages come as requests, and must find a thread that is free.
    fn write_back_first(
        &self,
        cred: Credentials,
        dirty: Vec<InodeNr>,
        request: Request,
        token: Token,
    ) {
        let (server, entry) = (self.server.clone(), self.entry.clone());
        // The kernel's pages come as requests: one user's renames must not take all that could
        // carry these.
        let Ok(place) = server.calls.enter(cred.uid) else {
            return token.send(Err(errno(libc::EBUSY)));
        };
        let body = move || {
            let written: Result<Vec<_>> =
                dirty.into_iter().map(|ino| server.write_back(&entry, ino)).collect();
            let result = written.as_ref().map_err(Clone::clone);
            let result = result.and_then(|_| server.call(&cred, request));
            token.send(result.and_then(|reply| match reply {
                Reply::Entry(attr) => Ok(Answer::Entry(attr)),
                other => other.done().map(|()| Answer::Done),
            }));
            // The answer lets the kernel close the files.
            drop((written, place));
        };
        // Without a thread the token is dropped, which answers EIO: nothing was renamed.
        let started = std::thread::Builder::new().name("siftfs-rename".into()).spawn(body);
        if let Err(error) = started {
            tracing::error!(%error, "no thread for a rename of a file that is being written");
        }
    }

    fn forget(&self, cred: &Credentials, node: u64, count: u64) {
        if let Ok(ino) = inode(node) {
            self.server.forget(cred, ino, count);
        }
    }

    /// Everything that is answered when it returns.
    fn carry_out(&self, cred: &Credentials, node: u64, op: Operation<'_>) -> Result<Answer> {
        use Operation as O;
        match op {
            O::ReleaseDir { handle } => {
                done(self.server.done(cred, Request::Release { handle: Handle(handle) }))
            }
            O::ReadDir { handle, cookie, size, plus } => {
                // A handle of 0 means that the directory was not opened: handles begin with 1.
                let dir = match handle {
                    0 => Dir::Node(inode(node)?),
                    handle => Dir::Open(Handle(handle)),
                };
                self.list(cred, inode(node)?, (dir, cookie), (size, plus))
            }
            // Nobody reads that answer (`kernel/ring`), and a server that is lost gives none: more
            // and more threads would wait for it, and keep the mount in use.
            O::StatFs if own_mount::is_apart(cred.pid) => Err(errno(libc::EAGAIN)),
            O::StatFs => self.server.call(cred, Request::StatFs)?.space().map(Answer::Statfs),
            O::Destroy => Ok(Answer::Done),
            // For most of these it also means: never ask again.
            O::Unknown { opcode } => {
                tracing::debug!(opcode, "not served");
                Err(errno(libc::ENOSYS))
            }
            O::Init { .. }
            | O::Forget { .. }
            | O::BatchForget(_)
            | O::Fsync { .. }
            | O::Read { .. }
            | O::Flush { .. }
            | O::GetLock { .. }
            | O::SetLock { .. }
            | O::Interrupt { .. }
            | O::Release { .. }
            | O::Ioctl { .. }
            | O::Seek { .. } => Err(errno(libc::EPROTO)),
            op => {
                let ino = inode(node)?;
                match op {
                    op @ (O::GetXattr { .. }
                    | O::ListXattr { .. }
                    | O::SetXattr { .. }
                    | O::RemoveXattr { .. }) => self.xattrs(cred, ino, op),
                    op @ (O::Write { .. }
                    | O::Open { .. }
                    | O::OpenDir
                    | O::Allocate { .. }
                    | O::Copy { .. }) => self.files(cred, ino, op),
                    op => self.names(cred, ino, op),
                }
            }
        }
    }

    /// Entries of directory `ino`, after `cookie`.
    fn list(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        (dir, cookie): (Dir, u64),
        (size, plus): (u32, bool),
    ) -> Result<Answer> {
        let server = &self.server;
        let valid = server.shares.lists(ino);
        let mut buffer = DirBuffer::new(size, plus, valid);
        let cursor = DirCursor { dir, cookie, plus, room: buffer.room() };
        let sections = &server.sections;
        let add = &mut |e: &DirEntry| sections.show_entry(e, |e| buffer.add(e));
        let listed = server.read_dir(cred, cursor, add);
        listed.map(|()| buffer.done())
    }

    /// Names in directory `ino`, and the attributes of `ino`.
    fn names(&self, cred: &Credentials, ino: InodeNr, op: Operation<'_>) -> Result<Answer> {
        use Operation as O;
        let (server, parent) = (&self.server, ino);
        if let Some(refusal) =
            server.invalidator.asked.refusal(cred.pid, crate::kernel::convert::node(ino), &op)
        {
            return Err(errno(refusal));
        }
        match op {
            O::Lookup { name } => {
                match server.entry(cred, Request::Lookup { parent, name: name.to_vec() }) {
                    Err(Error::Posix(libc::ENOENT)) => Ok(Answer::Missing),
                    other => entry(other),
                }
            }
            O::GetAttr { by_handle } => {
                if by_handle && server.agreed.writeback {
                    server.open_files.refuse_write(ino)?;
                }
                server.entry(cred, Request::GetAttr { file: ino.into() }).map(Answer::Attr)
            }
            O::Statx => {
                server.entry(cred, Request::GetAttr { file: ino.into() }).map(Answer::Statx)
            }
            O::SetAttr { set } => server.set_attr(cred, ino, set).map(Answer::Attr),
            O::ReadLink => server.data(cred, Request::ReadLink { ino }).map(Answer::Data),
            O::Symlink { name, target } => {
                let (name, target) = (name.to_vec(), target.to_vec());
                entry(server.entry(cred, Request::Symlink { parent, name, target }))
            }
            O::MakeNode { name, mode, umask, rdev } => {
                let cred = &masked(cred, umask);
                let (kind, perm) = (kind_of_mode(mode)?, perm_of_mode(mode));
                let name = name.to_vec();
                entry(server.entry(cred, Request::MakeNode { parent, name, kind, perm, rdev }))
            }
            O::MakeDir { name, mode, umask } => {
                let cred = &masked(cred, umask);
                let (name, perm) = (name.to_vec(), perm_of_mode(mode));
                entry(server.entry(cred, Request::MakeDir { parent, name, perm }))
            }
            O::Unlink { name } => {
                done(server.done(cred, Request::Unlink { parent, name: name.to_vec() }))
            }
            O::RemoveDir { name } => {
                done(server.done(cred, Request::RemoveDir { parent, name: name.to_vec() }))
            }
            O::Rename { name, new_dir, new_name, flags } => {
                let (name, new_name) = (name.to_vec(), new_name.to_vec());
                let (new_parent, mode) = (inode(new_dir)?, rename_mode(flags)?);
                done(
                    server.done(cred, Request::Rename { parent, name, new_parent, new_name, mode }),
                )
            }
            O::Link { node, name } => {
                let (ino, name) = (inode(node)?, name.to_vec());
                entry(server.entry(cred, Request::Link { ino, parent, name }))
            }
            O::Create { name, mode, umask, flags } => {
                let (name, perm) = (name.to_vec(), perm_of_mode(mode));
                self.made(&masked(cred, umask), Request::Create { parent, name, perm }, flags)
            }
            O::TmpFile { mode, umask, flags } => {
                let exclusive = flags & libc::O_EXCL.cast_unsigned() != 0;
                let request = Request::TmpFile { parent, perm: perm_of_mode(mode), exclusive };
                self.created(&masked(cred, umask), request, flags)
            }
            _ => Err(errno(libc::ENOSYS)),
        }
    }

    /// Those that take an argument of any size, and then all others.
    fn ioctl(
        &self,
        cred: &Credentials,
        file: (InodeNr, Handle),
        (command, input): (u32, &[u8]),
        answer: Completion,
    ) {
        let on = self.server.operations.is_on();
        if on && is_publish(command) {
            return self.server.publish(cred, &self.entry, file.0, input, answer);
        }
        if on && is_compound(command) {
            return self.server.compound(cred, &self.entry, file.0, input, answer);
        }
        if on && is_commit_all(command) {
            return self.server.commit_all(cred, &self.entry, input, answer);
        }
        self.server.ioctl(cred, file, (command, input), answer);
    }

    /// Does close(2) of what is opened so send FLUSH?
    fn flush(&self, flags: u32) -> Flush {
        let shared = self.server.shares.may_be_more();
        match shared || reads_and_writes(flags) {
            true if shared && appends(flags) => Flush::Direct,
            true => Flush::Sent,
            false => Flush::Left,
        }
    }

    /// A new file. One that another front end has made meanwhile is not a program's business that
    /// did not ask for a new one: the kernel is to look the name up once more, and opens it.
    fn made(&self, cred: &Credentials, request: Request, flags: u32) -> Result<Answer> {
        let exclusive = flags & libc::O_EXCL.cast_unsigned() != 0;
        match self.created(cred, request, flags) {
            Err(e) if !exclusive && e.errno() == libc::EEXIST => Err(errno(libc::ESTALE)),
            created => created,
        }
    }

    fn created(&self, cred: &Credentials, request: Request, flags: u32) -> Result<Answer> {
        let (attr, handle) = self.server.call(cred, request)?.created()?;
        self.server.opened_by(cred, handle, attr.ino, flags);
        Ok(Answer::Created(attr, handle, self.flush(flags)))
    }

    /// The data of file `ino`.
    fn files(&self, cred: &Credentials, ino: InodeNr, op: Operation<'_>) -> Result<Answer> {
        use Operation as O;
        let server = &self.server;
        match op {
            // The kernel's offset counts for O_APPEND too: it takes it from the size it knows while
            // it holds the inode's lock, no other thread writes, and a large direct append arrives
            // as several requests in any order.
            O::Write { handle, offset, data, kill_priv, cached, flags, .. } => {
                server.open_files.note_cached(ino, offset, data.len() as u64);
                server.shares.note_pages(ino);
                let data = WriteData::copy_of(offset, data);
                if cached {
                    let written = server.write_pages(cred, ino, offset, data);
                    server.shares.page_debts.add(ino, owed_so_far());
                    return written.inspect_err(|e| server.lost_pages(ino, e)).map(Answer::Written);
                }
                let file = (ino, Handle(handle));
                let at = Place { offset, append: server.agreed.appends(flags) };
                let (len, _) = server.write_by(cred, file, at, data, kill_priv)?;
                server.shares.wrote(ino, (offset, offset + u64::from(len)));
                if at.append {
                    self.drop_moved(ino, offset + u64::from(len));
                }
                Ok(Answer::Written(len))
            }
            O::Open { flags, kill_priv } => {
                let anew = server.invalidator.drops(cred.pid) || server.sections.resets(cred.pid);
                let handle = server.open(cred, ino, flags, kill_priv)?;
                Ok(match anew {
                    true => Answer::OpenedAnew(handle),
                    false => Answer::Opened(handle, self.flush(flags)),
                })
            }
            // The kernel then opens directories without asking, and caches what it reads of them.
            O::OpenDir if server.agreed.no_opendir => Err(errno(libc::ENOSYS)),
            O::OpenDir => server.opened(cred, Request::OpenDir { ino }).map(Answer::OpenedDir),
            O::Allocate { handle, offset, len, mode } => {
                let mode = allocate_mode(mode)?;
                done(server.allocate(cred, (ino, Handle(handle)), mode, (offset, len)))
            }
            O::Copy { offset, to_node, to_handle, to_offset, len, flags } => {
                if flags != 0 {
                    return Err(errno(libc::EINVAL));
                }
                let to = inode(to_node)?;
                let to_handle = Handle(to_handle);
                let range = CopyRange { from: ino, offset, to, to_handle, to_offset, len };
                server.copy(cred, &range).map(Answer::Written)
            }
            _ => Err(errno(libc::ENOSYS)),
        }
    }

    /// An append went to an end that the kernel does not know: what it wrote into its own pages
    /// lies elsewhere, and is dropped when the kernel has the answer.
    fn drop_moved(&self, ino: InodeNr, end: u64) {
        let attr =
            self.server.entry(&Credentials::default(), Request::GetAttr { file: ino.into() });
        if attr.is_ok_and(|attr| attr.size != end) {
            self.server.pages(ino, Want::Drop, Box::new(|| {}));
        }
    }

    /// The extended attributes of `ino`.
    fn xattrs(&self, cred: &Credentials, ino: InodeNr, op: Operation<'_>) -> Result<Answer> {
        use Operation as O;
        match op {
            O::GetXattr { name, size } => {
                self.server.copied_up.note_question(cred, name);
                xattr(self.server.get_xattr(cred, ino, name.to_vec())?, size)
            }
            O::ListXattr { size } => xattr(self.server.list_xattr(cred, ino)?, size),
            O::SetXattr { name, value, flags, kill_setgid } => {
                self.server.agreed.check_xattr_name(name)?;
                let (name, value, mode) = (name.to_vec(), value.to_vec(), xattr_mode(flags)?);
                let request =
                    Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid };
                done(self.server.done(cred, request))
            }
            O::RemoveXattr { name } => done(self.server.remove_xattr(cred, ino, name)),
            _ => Err(errno(libc::ENOSYS)),
        }
    }
}
