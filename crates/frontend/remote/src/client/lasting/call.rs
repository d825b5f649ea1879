//! One call of a client that comes back: made until it is answered, and what is noted of it then.

use super::again::{Before, was_done};
use super::kind::{self, Kind};
use super::numbers::Covers;
use super::opens::How;
use super::places::Place;
use super::{Shared, Using, kept};
use crate::client::slots::{Noted, Said};
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::{Change, Done, Proof, Proven, ToServer};
use siftfs_proto::compound::{Access, Compounded, FileArg, Step, Value};
use siftfs_proto::{Credentials, Level, Owed, Reply, Request, Target};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a change waits for room before it looks whether the server is lost.
pub(super) const MOMENT: Duration = Duration::from_millis(100);

impl Shared {
    /// Makes a call until it is answered.
    pub(super) fn call(&self, cred: &Credentials, mut req: Request) -> Result<(Reply, Owed)> {
        let kind = Kind::of(&req);
        let is_loose = self.is_program && may_be_lost(&req);
        if !is_loose {
            make_final(&mut req);
        }
        let place = match kind {
            Kind::Once | Kind::Appends | Kind::Absolute => Some(self.places.take()),
            _ => None,
        };
        let change = match is_loose {
            true => Some(Change::Loose),
            false => change_of(kind, place.as_ref()),
        };
        if (kind == Kind::Final && !is_loose) || matches!(req, Request::SetFlags { .. }) {
            self.before_final(cred, &req)?;
        }
        let mut before: Option<Before> = None;
        let (mut sent, mut may_be_there) = (0, false);
        loop {
            if kind == Kind::GivesBack && !self.give_back(cred, &req) {
                return Ok((Reply::Done, Owed::default()));
            }
            if change.is_some() {
                self.make_room()?;
            }
            let using = self.using()?;
            if let Some(before) = before {
                may_be_there |= self.may_repeat(&using, (before, sent), (kind, cred), &mut req)?;
            }
            sent += 1;
            self.forgets(&req);
            let file = changes_file(&req).and_then(|file| self.opens.ino(file));
            let _under_way = file.map(|file| self.kept.begins(file));
            let ((result, noted), owed) = self.call_once(&using, cred, &req, change)?;
            match result {
                Err(Error::Link(_)) if using.client.lost().is_some() => {
                    // The connection's thread says so a moment later. Until then this connection
                    // would be taken for one that came back, and knows nothing of the call.
                    let lost = using.client.lost();
                    lost.iter().for_each(|why| self.lost(using.connection, why));
                    if kind == Kind::GivesBack {
                        return Ok((Reply::Done, Owed::default()));
                    }
                    before = Some(Before::of(&using));
                }
                // What was read may be older than a change that others do not wait with any more.
                Ok(_) if is_kept_by_kernels(&req) && !self.is_certain(&using) => {
                    before = Some(Before::of(&using));
                }
                Err(error) if may_be_there && was_done(&req, &error) => {
                    return Err(self.which_refusal(&using, cred, &req, error));
                }
                result => {
                    let links = matches!(req, Request::Link { .. });
                    let reply = self.answered(&using, (cred, req), (result, noted))?;
                    drop(using);
                    return match &reply {
                        Reply::Entry(attr) if links && attr.nlink == 1 => {
                            self.name_is_durable(cred, attr.ino).map(|()| (reply, owed))
                        }
                        _ => Ok((reply, owed)),
                    };
                }
            }
        }
    }

    /// Makes a call that changes nothing, by the connection that there is now.
    ///
    /// # Errors
    /// Those of the call, and that the server is lost.
    pub(super) fn call_now(&self, cred: &Credentials, req: Request) -> Result<(Reply, Owed)> {
        assert_eq!(Kind::of(&req), Kind::Reads, "a change is made until it is answered");
        let using = self.using_now()?;
        let ((result, noted), owed) = self.call_once(&using, cred, &req, None)?;
        if let (Err(Error::Link(_)), Some(why)) = (&result, using.client.lost()) {
            self.lost(using.connection, &why);
            return Err(why);
        }
        Ok((self.answered(&using, (cred, req), (result, noted))?, owed))
    }

    /// Waits until the server has said that the session is there. False if the connection is lost
    /// instead, or the session ends.
    fn is_certain(&self, using: &Using<'_>) -> bool {
        let is_over = || {
            let now = self.lock();
            now.leaving || now.unwanted
        };
        self.cache.is_none() || self.certain.wait(using.connection, is_over)
    }

    /// Makes the first name of a file durable that had none. What was synced of it goes with its
    /// last reference, and so with a server that dies, unless it has a name by then.
    fn name_is_durable(&self, cred: &Credentials, ino: InodeNr) -> Result<()> {
        let sync = Request::Fsync { file: ino.into(), datasync: false };
        self.call(cred, sync).map(drop)
    }

    /// One attempt, by a connection.
    fn call_once(
        &self,
        using: &Using<'_>,
        cred: &Credentials,
        req: &Request,
        change: Option<Change>,
    ) -> Result<(Said, Owed)> {
        let mut sent = req.clone();
        if Kind::of(req) != Kind::GivesBack && self.names_gone(req) {
            return Err(errno(libc::ESTALE));
        }
        let lost = match req {
            Request::Fsync { file, .. } | Request::Stage { file, .. } => {
                self.opens.take_failed(*file)
            }
            // A kernel asks for its files one by one.
            Request::SyncAll | Request::Checkpoint if self.is_program => self.opens.take_any_lost(),
            _ => false,
        };
        if lost {
            return Err(errno(libc::EIO));
        }
        kind::exchange(&mut sent, |own| self.opens.server(own))?;
        if let Request::Release { handle } = req {
            self.opens.closed(*handle);
        }
        self.own_numbers(&mut sent, using.connection)?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let next = self.kept.next();
        let (mut said, owed) = using.client.call_change(cred, (sent, Vec::new()), change);
        if let Ok(reply) = &mut said.0 {
            self.note_durable(using, (req, next), reply);
        }
        Ok((said, owed))
    }

    /// A request was answered that promises that changes are durable, or will be, of those that
    /// were kept before `next` was the next.
    fn note_durable(&self, using: &Using<'_>, (req, next): (&Request, u64), reply: &mut Reply) {
        let covers = match req {
            Request::Fsync { file, .. } | Request::Stage { file, .. } => {
                self.opens.ino(*file).map(|file| Covers { file, next })
            }
            _ => None,
        };
        match (req, reply) {
            (_, Reply::Ticket(ticket)) => {
                ticket.0 = self.tickets.add_ticket(ticket.0, using.connection, covers);
            }
            (Request::Poll { ticket }, Reply::Durable(true))
            | (Request::Wait { ticket, .. }, Reply::Done) => self.is_durable(ticket.0),
            (Request::SyncAll | Request::Checkpoint, _) => self.kept.all_synced(next),
            _ => covers.iter().for_each(|it| self.kept.synced(it.file, it.next)),
        }
    }

    /// The ticket is durable that has this number of the client's own.
    pub(super) fn is_durable(&self, ticket: u64) {
        for Covers { file, next } in self.tickets.take_covered(ticket) {
            self.kept.synced(file, next);
        }
    }

    /// Does a request name an inode that is gone? The kernel itself refuses what names one whose
    /// number it knows to be another file's, but for the file of a link(2), and a directory in
    /// which a file without a name is made. Of these nobody can say which of both is meant.
    fn names_gone(&self, req: &Request) -> bool {
        let either = match req {
            Request::Link { ino, .. } => self.opens.is_shared(*ino),
            Request::TmpFile { parent, .. } => self.opens.is_shared(*parent),
            _ => false,
        };
        either || kind::names_one(req, |ino| self.opens.is_gone(ino))
    }

    /// The kernel gives references back: does it refer to nothing more of that number? The server
    /// is told behind this, and may give the number to another file at once.
    pub(super) fn forgets(&self, req: &Request) {
        if let Request::Forget { ino, count } = req
            && self.looked_up.references(*ino) <= *count
        {
            self.opens.is_forgotten(*ino);
        }
    }

    /// Puts the server's numbers of tickets and sections in place of the client's.
    pub(super) fn own_numbers(&self, req: &mut Request, connection: u64) -> Result<()> {
        match req {
            Request::Poll { ticket } | Request::Wait { ticket, .. } => {
                ticket.0 = self.tickets.server(ticket.0, connection)?;
            }
            Request::SectionWrite { section, .. }
            | Request::SectionRead { section, .. }
            | Request::SectionAbort { section } => {
                section.0 = self.sections.server(section.0, connection)?;
            }
            Request::SectionCommit { sections, .. } => {
                for section in sections {
                    section.0 = self.sections.server(section.0, connection)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A call was answered: notes what has to outlive its server.
    fn answered(
        &self,
        using: &Using<'_>,
        (cred, req): (&Credentials, Request),
        (result, noted): Said,
    ) -> Result<Reply> {
        let mut reply = result?;
        let Noted { done, proofs } = noted;
        let proven = |ino, generation, how: How| {
            let proof = *proofs.last()?;
            Some(Proven { ino, generation, grant: how.grant(), proof })
        };
        match &mut reply {
            Reply::Entry(attr) => self.opens.is_there(attr.ino, attr.generation),
            Reply::Dir(entries) => {
                let attrs = entries.iter().filter_map(|entry| entry.attr.as_ref());
                attrs.for_each(|attr| self.opens.is_there(attr.ino, attr.generation));
            }
            Reply::Created { attr, handle } => {
                self.opens.is_there(attr.ino, attr.generation);
                let how = How::File(Access::Both);
                let proven = proven(attr.ino, attr.generation, how);
                *handle = self.opens.opened((attr.ino, how), *handle, proven);
            }
            Reply::Opened { handle } => {
                if let Some((ino, how)) = How::of(&req) {
                    let generation = self.looked_up.generation(ino).unwrap_or_default();
                    let proven = proven(ino, generation, how);
                    *handle = self.opens.opened((ino, how), *handle, proven);
                }
            }
            Reply::Compounded(compounded) => self.opened_by(&req, compounded, &proofs),
            Reply::Section(section) => {
                let file = match &req {
                    Request::SectionStart { file } => Some(*file),
                    _ => None,
                };
                section.0 = self.sections.add(section.0, using.connection, file);
            }
            _ => {}
        }
        if let Request::SetLock { file: Target::Open(own), ask } = &req {
            self.opens.locked(*own, *ask);
        }
        if let Some(done) = done.filter(|done| done.order != 0) {
            self.keep(using, (cred, req), (&reply, done));
        }
        Ok(reply)
    }

    /// Keeps a change that was answered, until it is known to be durable.
    fn keep(
        &self,
        using: &Using<'_>,
        (cred, req): (&Credentials, Request),
        (reply, done): (&Reply, Done),
    ) {
        let instance = using.instance;
        if let Reply::Compounded(Compounded::Done { files, .. }) = reply {
            return self.kept.add_loose(files, (instance, done.order));
        }
        let ino = file_of(&req).and_then(|file| self.opens.ino(file));
        let Some((request, file, made)) = kept::repeatable(req, ino, reply, &done) else { return };
        let generation = |ino| {
            let looked_up = self.looked_up.generation(ino);
            looked_up.or_else(|| self.opens.proves(ino).map(|proven| proven.generation))
        };
        let changed = |ino| generation(ino).map(|generation| (ino, generation));
        let inode = made.or_else(|| file.and_then(changed));
        let (credentials, tried) = (cred.clone(), Vec::new());
        let proofs = self.proofs_of(&request, (file, made));
        let change =
            kept::Change { request, credentials, proofs, file, inode, instance, done, tried };
        self.kept.add(change);
    }

    /// What a server that checks callers has granted of what a change names, that changes this file
    /// or has made this inode.
    fn proofs_of(
        &self,
        request: &Request,
        (file, made): (Option<InodeNr>, Option<(InodeNr, u32)>),
    ) -> Vec<Proven> {
        let named = request.names().inodes.into_iter().flatten().copied();
        let named = named.chain(file).chain(made.map(|(ino, _)| ino));
        let referred = named.filter_map(|ino| self.looked_up.known(ino)?.proven());
        let opened = file.and_then(|ino| self.opens.proves(ino));
        referred.chain(opened).collect()
    }

    /// What the steps of a compound have opened is known by the client's own numbers.
    fn opened_by(&self, req: &Request, compounded: &mut Compounded, proofs: &[Proof]) {
        let Request::Compound(compound) = req else { return };
        let Compounded::Done { values, .. } = compounded else { return };
        let mut proofs = proofs.iter().copied();
        for value in values {
            if let Value::File { ino, generation, open: Some((handle, access)) } = value {
                let file = (*ino, *generation, *access);
                *handle = self.opens.opened_only(file, *handle, proofs.next());
            }
        }
        let closed = compound.steps.iter().filter_map(|step| match step {
            Step::Close { file: FileArg::Open(own) } => Some(*own),
            _ => None,
        });
        closed.for_each(|own| self.opens.closed(own));
    }

    /// What a request gives back is given back here. Must the server know now? A program that ends
    /// or closes something while the server is lost does not wait for it.
    fn give_back(&self, cred: &Credentials, req: &Request) -> bool {
        {
            let mut now = self.lock();
            if now.client.is_none() && !now.leaving {
                now.given.push((cred.clone(), req.clone()));
                drop(now);
                if let Request::CancelLock { number } = req {
                    self.waits.cancel(*number);
                }
                return false;
            }
        }
        match req {
            Request::Release { handle } => {
                let is_open = self.opens.server(*handle).is_ok();
                if !is_open {
                    self.opens.closed(*handle);
                }
                is_open
            }
            // Each close(2) asks. A lock that is granted just now is noted before its caller knows
            // of it, and the kernel gives up what it took while it closed.
            Request::CloseLocks { ino, owner, .. } => self.opens.close_locks(*ino, *owner),
            _ => true,
        }
    }

    /// Waits until another change may be kept.
    fn make_room(&self) -> Result<()> {
        while self.kept.is_full() {
            let using = self.using()?;
            using.client.say(ToServer::Full);
            drop(using);
            self.kept.wait_for_room(MOMENT);
        }
        Ok(())
    }
}

/// The file that a request names.
fn file_of(req: &Request) -> Option<Target> {
    match req {
        Request::SetAttr { file, .. }
        | Request::Write { file, .. }
        | Request::Append { file, .. }
        | Request::WriteBack { file, .. }
        | Request::Allocate { file, .. }
        | Request::SetXattr { file, .. }
        | Request::RemoveXattr { file, .. } => Some(*file),
        _ => None,
    }
}

/// The file of which a request changes bytes or attributes, if it is one that is kept.
fn changes_file(req: &Request) -> Option<Target> {
    match req {
        Request::Open { ino, truncate: true, .. } => Some(Target::Inode(*ino)),
        req => file_of(req),
    }
}

/// Is it a compound that changes bytes and attributes alone, and of which nothing is promised but
/// that all of it is there after a crash or nothing?
fn may_be_lost(req: &Request) -> bool {
    let Request::Compound(compound) = req else { return false };
    let names = |step: &Step| {
        matches!(
            step,
            Step::Create { .. } | Step::Rename { .. } | Step::Link { .. } | Step::Unlink { .. }
        )
    };
    compound.level == Level::Visible && !compound.steps.iter().any(names)
}

/// Does a kernel keep what such a request reads until it is told to drop it?
fn is_kept_by_kernels(req: &Request) -> bool {
    matches!(
        req,
        Request::Read { .. } | Request::ReadLink { .. } | Request::ReadDir { plus: false, .. }
    )
}

/// What several files share cannot be repeated: it is durable when it is answered.
fn make_final(req: &mut Request) {
    match req {
        Request::Publish { level, .. } => *level = Level::Durable,
        Request::SectionCommit { durable, .. } => *durable = true,
        Request::Compound(compound) => compound.level = Level::Durable,
        _ => {}
    }
}

fn change_of(kind: Kind, place: Option<&Place<'_>>) -> Option<Change> {
    match (kind, place) {
        (Kind::Once | Kind::Appends, Some(place)) => {
            Some(Change::Once { place: place.place, number: place.number })
        }
        (Kind::Absolute, Some(place)) => {
            Some(Change::Absolute { place: place.place, number: place.number })
        }
        _ => None,
    }
}

/// A request in a word, for the log.
pub(super) fn name(req: &Request) -> String {
    let text = format!("{req:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().into()
}

/// A request that was kept, for the log: without its data.
pub(super) fn brief(req: &Request) -> String {
    match req {
        Request::Write { offset, data, .. } => format!("Write {} at {offset}", data.len()),
        Request::SetAttr { set, .. } => format!("SetAttr, size {:?}", set.size),
        Request::Unlink { name, .. } | Request::MakeNode { name, .. } => {
            format!("{} {}", self::name(req), String::from_utf8_lossy(name))
        }
        req => name(req),
    }
}
