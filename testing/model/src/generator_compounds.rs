//! Compounds in a sequence. Each step is tried on a copy of the model when it is drawn, so that its
//! operands can be results of the steps before, and few compounds are refused that were not to be.

use crate::generator::Generator;
use crate::model::{Effects, Fresh, Model};
use crate::op::{Action, FIRST_INO};
use crate::rng::pattern;
use siftfs_base::{InodeNr, Timestamp};
use siftfs_proto::compound::{
    Access, BytesArg, Checksum, Codec, Compound, Compounded, FileArg, NewAttributes, NumberArg,
    Step, StepNr, Value, Wanted, Width,
};
use siftfs_proto::{Credentials, FileKind, Level, Reply, Request, Rights, SetTime};

/// Most steps.
const STEPS: u64 = 10;

/// A compound that is being drawn: what its steps come to, and the files as they leave them.
struct Draft {
    cred: Credentials,
    compound: Compound,
    fresh: Fresh,
    values: Vec<Value>,
    after: Model,
}

impl Draft {
    /// One more step; is it refused?
    fn push(&mut self, model: &Model, step: Step) -> bool {
        self.compound.steps.push(step);
        let req = Request::Compound(Box::new(self.compound.clone()));
        let mut after = model.clone();
        match after.exec(&self.cred, &req, self.fresh) {
            (Ok(Reply::Compounded(Compounded::Done { values, .. })), Effects { .. }) => {
                (self.values, self.after) = (values, after);
                false
            }
            _ => true,
        }
    }

    /// Steps whose results are such.
    fn steps_where(&self, keep: impl Fn(&Value) -> bool) -> Vec<StepNr> {
        let all = (0..).map(StepNr).zip(&self.values);
        all.filter(|(_, value)| keep(value)).map(|(nr, _)| nr).collect()
    }

    /// The inode of an argument.
    fn inode(&self, file: &FileArg) -> Option<InodeNr> {
        match file {
            FileArg::Open(handle) => {
                self.after.handles().find(|(h, _)| *h == handle.0).map(|(_, ino)| ino)
            }
            FileArg::Step(StepNr(nr)) => match self.values.get(*nr as usize) {
                Some(Value::File { ino, .. }) => Some(*ino),
                _ => None,
            },
        }
    }

    /// How a step compresses, if it does.
    fn codec_of(&self, nr: StepNr) -> Option<Codec> {
        match self.compound.steps.get(nr.0 as usize) {
            Some(Step::Compress { codec, .. }) => Some(*codec),
            _ => None,
        }
    }

    fn size(&self, file: &FileArg) -> u64 {
        let node = self.inode(file).and_then(|ino| self.after.node(ino));
        node.map_or(0, |node| node.content.size())
    }
}

impl Generator {
    pub(crate) fn compound(&mut self, model: &Model) -> Option<Action> {
        let (cred, rights) = self.asker();
        let levels = [Level::Visible, Level::Atomic, Level::Durable];
        let level = *self.rng.pick(&levels)?;
        let base = self.dir(model);
        let wanted = Wanted::All;
        let compound = Compound { base, steps: Vec::new(), level, rights, wanted };
        let id = self.next - 1;
        let fresh = Fresh { ino: FIRST_INO + id, handle: u64::from(id) + 1 };
        let mut draft = Draft { cred, compound, fresh, values: Vec::new(), after: model.clone() };
        let (steps, may_be_refused) = (self.rng.between(1, STEPS + 1), self.rng.chance(12));
        for _ in 0..4 * steps {
            if draft.compound.steps.len() as u64 >= steps {
                break;
            }
            let Some(step) = self.step(model, &draft) else { continue };
            if !draft.push(model, step) {
                continue;
            }
            if may_be_refused && self.rng.chance(50) {
                break;
            }
            draft.compound.steps.pop();
        }
        let Draft { cred, mut compound, values, .. } = draft;
        if compound.steps.is_empty() {
            return None;
        }
        compound.wanted = self.wanted(&values);
        Some(Action::Call(cred, Request::Compound(Box::new(compound))))
    }

    /// Root; or a user, now and then one with a group, or with a right of root's.
    fn asker(&mut self) -> (Credentials, Rights) {
        if self.rng.chance(70) {
            return (Credentials::default(), Rights::all());
        }
        let umask = *self.rng.pick(&[0, 0o022, 0o077]).unwrap_or(&0);
        let gid = *self.rng.pick(&[100, 1000]).unwrap_or(&100);
        let groups = if self.rng.chance(30) { vec![100, 70_000] } else { Vec::new() };
        let rights = Rights {
            groups,
            overrides_access: self.rng.chance(40),
            owns_all: self.rng.chance(30),
            gives_away: self.rng.chance(20),
            keeps_set_id: self.rng.chance(20),
            ..Rights::default()
        };
        (Credentials { uid: 1000, gid, umask, ..Credentials::default() }, rights)
    }

    /// Mostly all results; else some, and seldom more bytes than the caller takes.
    fn wanted(&mut self, values: &[Value]) -> Wanted {
        if self.rng.chance(80) {
            return Wanted::All;
        }
        let all: Vec<StepNr> = (0..).map(StepNr).take(values.len()).collect();
        let steps = all.into_iter().filter(|_| self.rng.chance(50)).collect();
        Wanted::Some { steps, most: if self.rng.chance(15) { 8 } else { 1 << 20 } }
    }

    fn step(&mut self, model: &Model, draft: &Draft) -> Option<Step> {
        match self.rng.below(100) {
            0..30 => self.name_step(draft),
            30..78 => self.data_step(model, draft),
            78..90 => self.computing_step(draft),
            90..96 => self.attribute_step(draft),
            _ => Some(Step::Close { file: self.file_arg(draft)? }),
        }
    }

    fn name_step(&mut self, draft: &Draft) -> Option<Step> {
        let (model, base) = (&draft.after, draft.compound.base);
        let path = self.path_in(model, base);
        Some(match self.rng.below(20) {
            0..2 => Step::Lookup { path },
            2..6 => {
                let all = [Access::Both, Access::Both, Access::Write, Access::Read];
                let access = *self.rng.pick(&all)?;
                Step::Open { path, access, truncate: access.writes() && self.rng.chance(20) }
            }
            6..11 => Step::Create { path, perm: *self.rng.pick(&[0o644, 0o600, 0o4755])? },
            11..15 => {
                let to = self.path_in(model, base);
                Step::Rename { from: path, to, replace: self.rng.chance(80) }
            }
            15..17 => Step::Link { file: self.file_arg(draft)?, to: path },
            _ => Step::Unlink { path },
        })
    }

    /// A file that a step found, or one that is open.
    fn file_arg(&mut self, draft: &Draft) -> Option<FileArg> {
        let found = draft.steps_where(|value| matches!(value, Value::File { .. }));
        if !found.is_empty() && self.rng.chance(80) {
            return self.rng.pick(&found).copied().map(FileArg::Step);
        }
        let open = draft.after.handles();
        let regular = |ino| draft.after.node(ino).is_some_and(|n| n.kind == FileKind::Regular);
        // Handles of this compound's are no argument of its steps.
        let mine = (draft.fresh.handle & 0xFFFF_FFFF, u64::from(u32::MAX));
        let open: Vec<u64> = open
            .filter(|(handle, ino)| handle & mine.1 != mine.0 && regular(*ino))
            .map(|(handle, _)| handle)
            .collect();
        self.rng.pick(&open).map(|handle| FileArg::Open(siftfs_proto::Handle(*handle)))
    }

    /// Where in a file of this size: inside, at the end, behind; or what a step says.
    fn place(&mut self, draft: &Draft, size: u64) -> NumberArg {
        let numbers = draft
            .steps_where(|value| matches!(value, Value::Number { value, .. } if *value < 60_000));
        match self.rng.below(10) {
            0..2 if !numbers.is_empty() => {
                NumberArg::Step(self.rng.pick(&numbers).copied().unwrap_or(StepNr(0)))
            }
            0..5 => NumberArg::Given(self.rng.below(size.max(1))),
            5 => NumberArg::Given(size),
            6 => NumberArg::Given(size + self.rng.below(6000)),
            _ => NumberArg::Given(self.offset() % 40_000),
        }
    }

    /// Bytes: new ones, the result of a step, or a part of one.
    fn some_bytes(&mut self, draft: &Draft, at: u64) -> BytesArg {
        let mut results = draft.steps_where(|value| match value {
            Value::Bytes(bytes) => bytes.len() < 20_000,
            Value::Number { .. } => true,
            _ => false,
        });
        results.retain(|nr| draft.codec_of(*nr).is_none());
        let result = self.rng.pick(&results).copied().filter(|_| self.rng.chance(45));
        let Some(step) = result else {
            let len = match self.rng.below(4) {
                0 => self.rng.between(1, 64),
                1 => 4096,
                _ => self.rng.between(1, 7000),
            };
            let seed = u64::from(self.next) << 8 | draft.values.len() as u64;
            return BytesArg::Given(pattern(seed, at, len));
        };
        let len = match &draft.values[step.0 as usize] {
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::Number { width, .. } => width.bytes() as u64,
            _ => 0,
        };
        if len == 0 || self.rng.chance(60) {
            return BytesArg::Step(step);
        }
        let start = self.rng.below(len);
        let part = self.rng.between(1, len - start + 1);
        let small = |n: u64| u32::try_from(n).unwrap_or(0);
        BytesArg::Part { step, start: small(start), len: small(part) }
    }

    fn data_step(&mut self, model: &Model, draft: &Draft) -> Option<Step> {
        let file = self.file_arg(draft)?;
        let node = draft.after.node(draft.inode(&file)?)?;
        if node.kind != FileKind::Regular && self.rng.chance(90) {
            return None;
        }
        let size = draft.size(&file);
        let offset = self.place(draft, size);
        Some(match self.rng.below(20) {
            0..4 => {
                let len = u32::try_from(self.rng.below(9000)).unwrap_or(0);
                Step::Read { file, offset, len }
            }
            4..9 => Step::Write { file, offset, data: self.some_bytes(draft, size) },
            9..12 => Step::Append { file, data: self.some_bytes(draft, size) },
            12..14 => {
                let len = self.rng.between(1, 2 + size.min(5000));
                let offset = NumberArg::Given(self.rng.below(size.saturating_sub(len) + 1));
                let seed = u64::from(self.next) << 8 | draft.values.len() as u64;
                Step::Patch { file, offset, data: BytesArg::Given(pattern(seed, 7, len)) }
            }
            14..16 => {
                let width = *self.rng.pick(&[Width::U32, Width::U64])?;
                let offset = NumberArg::Given(self.rng.below(size.saturating_sub(8).max(1)));
                let addend = match self.rng.below(3) {
                    0 => NumberArg::Given(u64::MAX - 2),
                    _ => self.place(draft, 1000),
                };
                Step::Add { file, offset, width, addend }
            }
            16..18 => self.compare_and_set(draft, file, size)?,
            _ => {
                let of_model = model.node(draft.inode(&file)?).map_or(0, |n| n.content.size());
                let size = match self.rng.below(4) {
                    0 => NumberArg::Given(of_model / 2),
                    1 => NumberArg::Given(size + self.rng.below(9000)),
                    2 => NumberArg::Given(0),
                    _ => offset,
                };
                Step::SetSize { file, size }
            }
        })
    }

    /// With what is there, mostly.
    fn compare_and_set(&mut self, draft: &Draft, file: FileArg, size: u64) -> Option<Step> {
        let node = draft.after.node(draft.inode(&file)?)?;
        let at = self.rng.below(size.max(1));
        let len = self.rng.between(1, (size - at.min(size)).clamp(1, 100) + 1);
        let mut expected = node.content.read(at, len);
        if self.rng.chance(5) {
            expected.iter_mut().for_each(|byte| *byte ^= 1);
        }
        let new = pattern(u64::from(self.next) << 8, at, expected.len() as u64);
        let (expected, new) = (BytesArg::Given(expected), BytesArg::Given(new));
        Some(Step::CompareAndSet { file, offset: NumberArg::Given(at), expected, new })
    }

    /// Frames are only decompressed: what they are is the encoder's business.
    fn computing_step(&mut self, draft: &Draft) -> Option<Step> {
        let codec = *self.rng.pick(&[Codec::Zstd, Codec::Lz4Frame])?;
        let all = draft.steps_where(|_| true).into_iter();
        let mut compressed = all.filter_map(|nr| Some((nr, draft.codec_of(nr)?)));
        if let Some((nr, codec)) = compressed.next_back() {
            let most = if self.rng.chance(90) { 1 << 20 } else { 3 };
            return Some(Step::Decompress { codec, data: BytesArg::Step(nr), most });
        }
        let data = self.some_bytes(draft, 0);
        Some(match self.rng.below(4) {
            0 => Step::Compress { codec, data },
            1 => Step::Join { first: data, second: self.some_bytes(draft, 1) },
            _ => {
                let kinds = [Checksum::Crc32c, Checksum::MaskedCrc32c, Checksum::Xxh3];
                Step::Checksum { kind: *self.rng.pick(&kinds)?, data }
            }
        })
    }

    fn attribute_step(&mut self, draft: &Draft) -> Option<Step> {
        let file = self.file_arg(draft)?;
        let mut set = NewAttributes::default();
        match self.rng.below(5) {
            0 | 1 => set.perm = Some(*self.rng.pick(&[0o600, 0o644, 0o4711, 0o2755, 0])?),
            2 => {
                set.uid = Some(*self.rng.pick(&[0, 1000, 70_000])?);
                set.gid = self.rng.chance(50).then_some(100);
            }
            3 => set.mtime = Some(SetTime::Now),
            _ => {
                let sec = *self.rng.pick(&[-1000i64, 0, 1_000_000_000])?;
                set.mtime = Some(SetTime::At(Timestamp { sec, nsec: 5 }));
                set.atime = self.rng.chance(50).then_some(SetTime::At(Timestamp { sec, nsec: 7 }));
            }
        }
        Some(Step::SetAttributes { file, set })
    }
}

#[cfg(test)]
#[path = "generator_compounds_tests.rs"]
mod tests;
