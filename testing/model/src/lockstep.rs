//! Runs one sequence on a file service and the model, operation by operation.

use crate::compare::{attr_difference, plain_difference, seek_is_sane};
use crate::model::{Model, Outcome};
use crate::op::{Action, Op};
use crate::tree::{Caller, Seen, Tree};
use siftfs_base::{Error, InodeNr};
use siftfs_proto::{
    Attr, Credentials, FileService, Handle, PublishSource, Reply, Request, SectionId, Target,
    Ticket,
};
use std::collections::BTreeMap;

/// What a sequence can do besides requests.
pub trait Control {
    /// A background journal transaction; everything unsynced goes along if `push`.
    fn commit(&self, push: bool) -> Result<(), Error>;
    /// A checkpoint of everything journaled.
    fn checkpoint(&self) -> Result<(), Error>;
    /// Moves the clock by `ns` nanoseconds.
    fn advance(&self, ns: u64);
}

/// A service without background (the model itself).
pub struct NoControl;

impl Control for NoControl {
    fn commit(&self, _push: bool) -> Result<(), Error> {
        Ok(())
    }
    fn checkpoint(&self) -> Result<(), Error> {
        Ok(())
    }
    fn advance(&self, _ns: u64) {}
}

/// Which inode of the service is which of the model. Entries stay for ever: number and
/// generation of a dead inode must not come back.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    to_service: BTreeMap<InodeNr, InodeNr>,
    to_model: BTreeMap<(InodeNr, u32), InodeNr>,
}

impl Ids {
    /// Notes that the model's `model` is the service's `attr`.
    pub fn learn(&mut self, model: InodeNr, attr: &Attr) -> Result<(), String> {
        self.to_service.insert(model, attr.ino);
        match self.to_model.insert((attr.ino, attr.generation), model) {
            Some(other) if other != model => Err(format!(
                "inode {} generation {} is in use as {other} and became {model}",
                attr.ino, attr.generation
            )),
            _ => Ok(()),
        }
    }

    /// The model's number of what the service shows.
    pub fn model_of(&self, attr: &Attr) -> Option<InodeNr> {
        self.to_model.get(&(attr.ino, attr.generation)).copied()
    }

    /// The service's number.
    pub fn service_of(&self, model: InodeNr) -> Option<InodeNr> {
        self.to_service.get(&model).copied()
    }
}

/// The pair under test.
pub struct Lockstep<'a> {
    pub(crate) service: &'a dyn FileService,
    control: &'a dyn Control,
    /// The prediction.
    pub model: Model,
    /// Numbers.
    pub ids: Ids,
    pub(crate) handles: BTreeMap<u64, Handle>,
    tickets: BTreeMap<u64, Ticket>,
    sections: BTreeMap<u64, SectionId>,
}

impl<'a> Lockstep<'a> {
    /// Starts from what `service` holds now.
    pub fn new(service: &'a dyn FileService, control: &'a dyn Control) -> Result<Self, String> {
        let tree = Caller::root(service).walk().map_err(|e| format!("first walk: {e}"))?;
        let mut ids = Ids::default();
        for (ino, seen) in &tree.nodes {
            ids.learn(*ino, &seen.attr)?;
        }
        let model = Model::adopt(&tree);
        let (handles, tickets, sections) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { service, control, model, ids, handles, tickets, sections })
    }

    /// Carries out one operation on both; `Err` says how they differ. An operation on something
    /// that does not exist in the model is skipped (a sequence with parts taken out).
    pub fn step(&mut self, op: &Op) -> Result<Outcome, String> {
        let done = match &op.action {
            Action::Commit { push } => self.control.commit(*push),
            Action::Checkpoint => self.control.checkpoint(),
            Action::Advance(ns) => {
                self.control.advance(*ns);
                Ok(())
            }
            Action::Call(cred, req) => return self.call(op, cred, req),
        };
        done.map(|()| Ok(Reply::Done)).map_err(|e| format!("{op:?}: {e}"))
    }

    fn call(&mut self, op: &Op, cred: &Credentials, req: &Request) -> Result<Outcome, String> {
        let Some(sent) = self.translate(req) else { return Ok(Err(libc::ESTALE)) };
        let before = self.model.clone();
        let (want, _) = self.model.exec(cred, req, op.fresh());
        let found = self.service.call(cred, sent);
        self.judge(op, req, &before, &want, &found).map_err(|e| format!("{op:?}: {e}"))?;
        Ok(want)
    }

    fn judge(
        &mut self,
        op: &Op,
        req: &Request,
        before: &Model,
        want: &Outcome,
        found: &Result<Reply, Error>,
    ) -> Result<(), String> {
        if let Request::Seek { file, offset, whence } = req
            && let Ok(ino) = before.target(*file)
            && let Some(node) = before.node(ino)
        {
            return seek_is_sane(&node.content, *offset, *whence, found);
        }
        match (want, found) {
            // Of several reasons to refuse a user, the right to remove may be checked first.
            (Err(a), Err(Error::Posix(b)))
                if op.uid() != 0 && (*a == libc::EPERM || *b == libc::EPERM) =>
            {
                Ok(())
            }
            (Ok(Reply::Entry(a)), Ok(Reply::Entry(b))) => self.same_inode(a.ino, b),
            (Ok(Reply::Attr(a)), Ok(Reply::Attr(b))) => self.same_inode(a.ino, b),
            (Ok(Reply::Created { attr, .. }), Ok(Reply::Created { attr: b, handle })) => {
                self.handles.insert(op.fresh().handle, *handle);
                self.same_inode(attr.ino, b)
            }
            (Ok(Reply::Opened { handle }), Ok(Reply::Opened { handle: theirs })) => {
                self.handles.insert(handle.0, *theirs);
                Ok(())
            }
            (Ok(Reply::Ticket(ticket)), Ok(Reply::Ticket(theirs))) => {
                self.tickets.insert(ticket.0, *theirs);
                Ok(())
            }
            (Ok(Reply::Section(section)), Ok(Reply::Section(theirs))) => {
                self.sections.insert(section.0, *theirs);
                Ok(())
            }
            (Ok(Reply::Dir(_)), Ok(Reply::Dir(_))) => Ok(()),
            (
                Ok(Reply::Published { names, files }),
                Ok(Reply::Published { names: theirs, files: f }),
            ) => {
                let ours = names.iter().map(|(dir, name)| (self.ids.service_of(*dir), name));
                let same = ours.eq(theirs.iter().map(|(dir, name)| (Some(*dir), name)))
                    && files.iter().map(|i| self.ids.service_of(*i)).eq(f.iter().map(|i| Some(*i)));
                if same { Ok(()) } else { Err(format!("published {theirs:?}, not {names:?}")) }
            }
            (Ok(Reply::Compounded(want)), Ok(Reply::Compounded(found))) => {
                self.judge_compound(req, before, want, found)
            }
            _ => plain_difference(want, found).map_or(Ok(()), Err),
        }
    }

    pub(crate) fn same_inode(&mut self, model: InodeNr, found: &Attr) -> Result<(), String> {
        match self.ids.service_of(model) {
            None => self.ids.learn(model, found)?,
            Some(_) if self.ids.model_of(found) == Some(model) => {}
            Some(known) => {
                return Err(format!(
                    "inode {known} answers as {} generation {}",
                    found.ino, found.generation
                ));
            }
        }
        let node = self.model.node(model).ok_or("the model lost an inode")?;
        attr_difference(node, found).map_or(Ok(()), Err)
    }

    /// The request with the service's numbers, or `None` if it names something unknown.
    fn translate(&self, req: &Request) -> Option<Request> {
        let mut req = req.clone();
        let there = |ino: &mut InodeNr| -> Option<()> {
            self.model.node(*ino)?;
            *ino = self.ids.service_of(*ino)?;
            Some(())
        };
        match &mut req {
            Request::Lookup { parent, .. }
            | Request::MakeNode { parent, .. }
            | Request::MakeDir { parent, .. }
            | Request::Symlink { parent, .. }
            | Request::Unlink { parent, .. }
            | Request::RemoveDir { parent, .. }
            | Request::TmpFile { parent, .. }
            | Request::Create { parent, .. } => there(parent)?,
            Request::Link { ino, parent, .. } => {
                there(ino)?;
                there(parent)?;
            }
            Request::Rename { parent, new_parent, .. } => {
                there(parent)?;
                there(new_parent)?;
            }
            Request::Forget { ino, .. }
            | Request::ReadLink { ino }
            | Request::Open { ino, .. }
            | Request::Hold { ino }
            | Request::OpenDir { ino } => there(ino)?,
            Request::GetAttr { file }
            | Request::SetAttr { file, .. }
            | Request::Fsync { file, .. }
            | Request::Stage { file, .. }
            | Request::GetXattr { file, .. }
            | Request::ListXattr { file }
            | Request::GetFlags { file }
            | Request::SetFlags { file, .. }
            | Request::SetXattr { file, .. }
            | Request::RemoveXattr { file, .. }
            | Request::Read { file, .. }
            | Request::Write { file, .. }
            | Request::Append { file, .. }
            | Request::WriteBack { file, .. }
            | Request::SectionStart { file }
            | Request::Allocate { file, .. }
            | Request::Seek { file, .. } => match file {
                Target::Inode(ino) => there(ino)?,
                Target::Open(handle) => *handle = *self.handles.get(&handle.0)?,
            },
            Request::Publish { base, .. } => {
                there(base)?;
                self.translate_numbers(&mut req)?;
            }
            Request::Compound(compound) => {
                there(&mut compound.base)?;
                self.translate_steps(&mut compound.steps)?;
            }
            other => self.translate_numbers(other)?,
        }
        Some(req)
    }

    /// Handles, tickets and sections.
    fn translate_numbers(&self, req: &mut Request) -> Option<()> {
        match req {
            Request::Release { handle } | Request::ReadDir { handle, .. } => {
                *handle = *self.handles.get(&handle.0)?;
            }
            Request::Publish { entries, .. } => {
                for entry in entries {
                    if let PublishSource::Open(handle) = &mut entry.source {
                        *handle = *self.handles.get(&handle.0)?;
                    }
                }
            }
            Request::Poll { ticket } | Request::Wait { ticket, .. } => {
                *ticket = *self.tickets.get(&ticket.0)?;
            }
            Request::SectionWrite { section, .. }
            | Request::SectionRead { section, .. }
            | Request::SectionAbort { section } => *section = *self.sections.get(&section.0)?,
            Request::SectionCommit { sections, .. } => {
                for section in sections {
                    *section = *self.sections.get(&section.0)?;
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Walks the service's tree and compares all of it.
    pub fn check_tree(&mut self) -> Result<Tree, String> {
        let tree = Caller::root(self.service).walk().map_err(|e| format!("walk: {e}"))?;
        self.model.forget_access_times();
        self.same_tree(&tree)?;
        Ok(tree)
    }

    /// Compares the model with a tree seen elsewhere (after a remount).
    pub fn same_tree(&self, tree: &Tree) -> Result<(), String> {
        let number = |seen: &Seen| self.ids.model_of(&seen.attr);
        let found = self.model.tree_differences(tree, &number);
        if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
    }
}

#[cfg(test)]
#[path = "lockstep_tests.rs"]
mod tests;
