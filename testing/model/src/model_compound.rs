//! Compounds: the steps are carried out one after the other on a copy of the file system, by the
//! same code as single operations. The first that is refused throws the copy away. So a compound is
//! its steps under one lock, which is what the Runtime promises.

use crate::model::{Effects, Fresh, Model, Outcome};
use crate::model_access::{Asker, READ};
use crate::model_compute::{checksum, compress, decompress};
use siftfs_base::InodeNr;
use siftfs_proto::compound::{
    Access, BytesArg, Compound, Compounded, FileArg, MOST_STEPS, NumberArg, Step, StepNr, Value,
    Wanted, Width,
};
use siftfs_proto::{Credentials, Handle, Level, Reply};
use std::collections::BTreeSet;

/// How a step has a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Found,
    Open(u64, Access),
    Closed,
}

/// What a step came to.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    None,
    File(InodeNr, How),
    Number(u64, Width),
    Bytes(Vec<u8>),
}

/// A compound under way.
pub(crate) struct Run<'a> {
    /// The copy.
    pub model: Model,
    pub asker: Asker<'a>,
    pub base: InodeNr,
    pub fresh: Fresh,
    used: u32,
    pub held: Vec<Held>,
    pub fx: Effects,
    /// Files that were changed in any way.
    pub files: BTreeSet<InodeNr>,
    /// Steps that changed something.
    pub changing: usize,
    /// Files that were read, whatever becomes of the compound.
    read: BTreeSet<InodeNr>,
}

impl Model {
    pub(crate) fn compound(
        &mut self,
        cred: &Credentials,
        compound: &Compound,
        fresh: Fresh,
        fx: &mut Effects,
    ) -> Outcome {
        match compound.steps.len() {
            0 => return Err(libc::EINVAL),
            len if len > MOST_STEPS => return Err(libc::E2BIG),
            _ => {}
        }
        let asker = Asker { cred, rights: &compound.rights };
        let mut run = Run::new(self.clone(), asker, compound.base, fresh);
        let outcome = run.carry_out(compound);
        if let Ok(Compounded::Done { .. }) = outcome {
            *self = run.model;
            *fx = run.fx;
        } else {
            // The copy's times are gone with it, but a read was one.
            for ino in run.read {
                self.nodes.entry(ino).and_modify(|node| node.atime = None);
            }
        }
        outcome.map(Reply::Compounded)
    }
}

impl<'a> Run<'a> {
    fn new(model: Model, asker: Asker<'a>, base: InodeNr, fresh: Fresh) -> Self {
        Self {
            model,
            asker,
            base,
            fresh,
            used: 0,
            held: Vec::new(),
            fx: Effects::default(),
            files: BTreeSet::new(),
            changing: 0,
            read: BTreeSet::new(),
        }
    }

    fn carry_out(&mut self, compound: &Compound) -> Result<Compounded, i32> {
        for (number, step) in (0..).zip(&compound.steps) {
            match self.step(step) {
                Ok(held) => self.held.push(held),
                Err(errno) => return Ok(Compounded::Refused { step: StepNr(number), errno }),
            }
        }
        self.forget_unwanted(&compound.wanted)?;
        if self.changing > 1 || self.changing == 1 && compound.level != Level::Visible {
            self.fx.compound = Some(self.files.clone());
            // Bytes and size come together.
            self.fx.extended = None;
        }
        let values = self.held.iter().map(|held| match held {
            Held::None => Value::None,
            Held::Number(value, width) => Value::Number { value: *value, width: *width },
            Held::Bytes(bytes) => Value::Bytes(bytes.clone()),
            Held::File(ino, how) => {
                let open = |(handle, _)| Handle(handle);
                // The model has no generations.
                Value::File { ino: *ino, generation: 0, handle: how.open().map(open) }
            }
        });
        let names: BTreeSet<_> = self.fx.names.iter().cloned().collect();
        Ok(Compounded::Done {
            values: values.collect(),
            names: names.into_iter().collect(),
            files: self.files.iter().copied().collect(),
            written: Vec::new(),
        })
    }

    /// Results that nobody wants; what they had open is closed.
    fn forget_unwanted(&mut self, wanted: &Wanted) -> Result<(), i32> {
        let Wanted::Some { steps, most } = wanted else { return Ok(()) };
        let mut bytes = 0;
        for number in 0..self.held.len() {
            if !steps.iter().any(|step| step.0 as usize == number) {
                if let Held::File(_, How::Open(handle, _)) = self.held[number] {
                    self.release(handle);
                }
                self.held[number] = Held::None;
            }
            bytes += match &self.held[number] {
                Held::None => 0,
                Held::File(..) | Held::Number(..) => 8,
                Held::Bytes(bytes) => bytes.len() as u64,
            };
        }
        if bytes > u64::from(*most) { Err(libc::EMSGSIZE) } else { Ok(()) }
    }

    fn step(&mut self, step: &Step) -> Result<Held, i32> {
        match step {
            Step::Lookup { path } => self.lookup(path),
            Step::Open { path, access, truncate } => self.open(path, *access, *truncate),
            Step::Create { path, perm } => self.create(path, *perm),
            Step::Read { file, offset, len } => {
                let ino = self.file(file, READ)?;
                let offset = self.number(offset)?;
                self.regular(ino)?;
                self.bytes_of(ino, offset, u64::from(*len)).map(Held::Bytes)
            }
            Step::Checksum { kind, data } => {
                let (value, width) = checksum(*kind, &self.bytes(data)?);
                Ok(Held::Number(value, width))
            }
            Step::Compress { codec, data } => compress(*codec, &self.bytes(data)?).map(Held::Bytes),
            Step::Decompress { codec, data, most } => {
                decompress(*codec, &self.bytes(data)?, *most).map(Held::Bytes)
            }
            Step::Join { first, second } => {
                let joined = [self.bytes(first)?, self.bytes(second)?].concat();
                Ok(Held::Bytes(joined))
            }
            Step::Write { .. } | Step::Append { .. } | Step::SetSize { .. } => {
                self.change_bytes(step)
            }
            Step::Patch { .. } | Step::Add { .. } | Step::CompareAndSet { .. } => {
                self.change_in_place(step)
            }
            Step::Rename { from, to, replace } => self.rename(from, to, *replace),
            Step::Link { file, to } => self.link(file, to),
            Step::Unlink { path } => self.unlink(path),
            Step::SetAttributes { file, set } => self.set_attributes(file, set),
            Step::Close { file } => self.close(file),
        }
    }

    /// Numbers for one more thing that is made.
    pub(crate) fn next_fresh(&mut self) -> Fresh {
        self.used += 1;
        self.fresh.nth(self.used - 1)
    }

    /// Bytes of a file as the steps before left it.
    pub(crate) fn bytes_of(&mut self, ino: InodeNr, offset: u64, len: u64) -> Result<Vec<u8>, i32> {
        self.read.insert(ino);
        let node = self.model.get_mut(ino)?;
        node.atime = None;
        Ok(node.content.read(offset, len))
    }

    fn earlier(&self, step: StepNr) -> Result<&Held, i32> {
        self.held.get(step.0 as usize).ok_or(libc::EINVAL)
    }

    /// The file of an argument. How it was opened says whether it is read and written; of one that
    /// was only looked up, its mode.
    pub(crate) fn file(&self, arg: &FileArg, wanted: u16) -> Result<InodeNr, i32> {
        let (ino, how) = match arg {
            FileArg::Open(Handle(handle)) => {
                let ino = *self.model.handles.get(handle).ok_or(libc::EBADF)?;
                if self.model.get(ino)?.is_dir() {
                    return Err(libc::EISDIR);
                }
                let access = self.model.accesses.get(handle).copied().unwrap_or(Access::Both);
                (ino, How::Open(*handle, access))
            }
            FileArg::Step(step) => match self.earlier(*step)? {
                Held::File(ino, how) => (*ino, *how),
                _ => return Err(libc::EINVAL),
            },
        };
        match how {
            How::Closed => return Err(libc::EBADF),
            How::Found => self.asker.may(self.model.get(ino)?, wanted)?,
            How::Open(_, access) => {
                let reads = wanted & READ == 0 || access.reads();
                let writes = wanted & crate::model_access::WRITE == 0 || access.writes();
                if !reads || !writes {
                    return Err(libc::EBADF);
                }
            }
        }
        Ok(ino)
    }

    pub(crate) fn number(&self, arg: &NumberArg) -> Result<u64, i32> {
        match arg {
            NumberArg::Given(number) => Ok(*number),
            NumberArg::Step(step) => match self.earlier(*step)? {
                Held::Number(number, _) => Ok(*number),
                Held::Bytes(bytes) => Ok(bytes.len() as u64),
                _ => Err(libc::EINVAL),
            },
        }
    }

    pub(crate) fn bytes(&self, arg: &BytesArg) -> Result<Vec<u8>, i32> {
        let of = |step: &StepNr| match self.earlier(*step)? {
            Held::Bytes(bytes) => Ok(bytes.clone()),
            Held::Number(number, width) => {
                Ok(number.to_le_bytes().into_iter().take(width.bytes()).collect())
            }
            _ => Err(libc::EINVAL),
        };
        match arg {
            BytesArg::Given(bytes) => Ok(bytes.clone()),
            BytesArg::Step(step) => of(step),
            BytesArg::Part { step, start, len } => {
                let bytes = of(step)?;
                let (start, len) = (*start as usize, *len as usize);
                if start + len > bytes.len() {
                    return Err(libc::EINVAL);
                }
                Ok(bytes[start..start + len].to_vec())
            }
        }
    }

    fn close(&mut self, arg: &FileArg) -> Result<Held, i32> {
        let handle = match arg {
            FileArg::Open(Handle(handle)) => *handle,
            FileArg::Step(step) => match self.earlier(*step)? {
                Held::File(ino, How::Open(handle, _)) => {
                    let (ino, handle) = (*ino, *handle);
                    self.held[step.0 as usize] = Held::File(ino, How::Closed);
                    handle
                }
                Held::File(..) => return Err(libc::EBADF),
                _ => return Err(libc::EINVAL),
            },
        };
        if !self.model.handles.contains_key(&handle) {
            return Err(libc::EBADF);
        }
        self.release(handle);
        Ok(Held::None)
    }

    fn release(&mut self, handle: u64) {
        if let Some(ino) = self.model.handles.remove(&handle)
            && let Ok(node) = self.model.get_mut(ino)
        {
            node.opens -= 1;
        }
    }
}

impl How {
    fn open(self) -> Option<(u64, Access)> {
        match self {
            Self::Open(handle, access) => Some((handle, access)),
            _ => None,
        }
    }
}
