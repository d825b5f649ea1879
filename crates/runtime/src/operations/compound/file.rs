//! A file as the steps of a compound have it, and what they do to its bytes and attributes.

use crate::data::file::MAX_FILE_SIZE;
use crate::namespace::access::{Guard, READ, WRITE};
use crate::namespace::kinds::kind_of;
use crate::operations::compound::plan::{Outcome, Plan, Tried, refused};
use crate::state::State;
use crate::state::shadow::Shadow;
use crate::state::step::Step as Attempt;
use crate::state::tree::node::Node;
use siftfs_base::InodeNr;
use siftfs_proto::compound::{FileArg, NewAttributes, Step};
use siftfs_proto::{FileKind, SetAttr, SetTime, flags};

const S_ISGID: u16 = 0o2000;
const S_ISUID: u16 = 0o4000;

/// A file's place in [`Plan::files`].
pub type FileNr = usize;

/// What a file that the steps make inherits.
pub struct Made {
    pub mode: u16,
    pub gid: u32,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A file.
pub struct File {
    /// `None`: the steps made it.
    pub ino: Option<InodeNr>,
    pub made: Option<Made>,
    pub guard: Guard,
    pub flags: u32,
    pub nlink: u32,
    /// It has a name, or never had one.
    pub can_link: bool,
    /// In bytes, for the steps.
    pub size: u64,
    /// This many bytes of the volume's file are still the file's, but for `shadow`.
    pub kept: u64,
    pub shadow: Shadow,
    /// Its size was set.
    pub resized: bool,
    /// Its bytes were written.
    pub written: bool,
    /// Changes of attributes, in order, that come after the bytes.
    pub attributes: Vec<SetAttr>,
    /// It has capabilities, which go with a write.
    pub capable: bool,
}

impl File {
    /// A file of the volume.
    pub fn of(node: &Node, ino: InodeNr, guard: Guard) -> Self {
        let size = if node.inode.is_reg() { node.size } else { node.inode.size };
        Self {
            ino: Some(ino),
            made: None,
            guard,
            flags: node.inode.flags,
            nlink: node.inode.nlink,
            can_link: node.inode.nlink > 0 || node.linkable,
            size,
            kept: size,
            shadow: Shadow::default(),
            resized: false,
            written: false,
            attributes: Vec::new(),
            // A caller who may not keep them loses them; a file without them loses nothing.
            capable: true,
        }
    }

    /// A file that the steps made.
    pub fn new(guard: Guard, made: Made) -> Self {
        Self {
            ino: None,
            made: Some(made),
            guard,
            flags: 0,
            nlink: 1,
            can_link: true,
            size: 0,
            kept: 0,
            shadow: Shadow::default(),
            resized: false,
            written: false,
            attributes: Vec::new(),
            capable: false,
        }
    }

    pub fn kind(&self) -> FileKind {
        kind_of(self.guard.mode)
    }

    pub fn is_regular(&self) -> bool {
        self.kind() == FileKind::Regular
    }

    /// Is anything but its names changed?
    pub fn changed(&self) -> bool {
        self.written || self.resized || !self.attributes.is_empty()
    }

    /// Bytes `[offset, end)`, none behind its end.
    pub fn read(&self, st: &mut State, offset: u64, end: u64) -> Attempt<Vec<u8>> {
        let real = end.min(self.kept);
        let mut out = match self.ino {
            Some(ino) if offset < real => {
                let len = u32::try_from(real - offset).expect("results are bounded");
                st.read(ino, offset, len)?.data().expect("a read is answered by data")
            }
            _ => Vec::new(),
        };
        out.resize(usize::try_from(end.saturating_sub(offset)).unwrap_or(0), 0);
        self.shadow.lay_over(offset, &mut out);
        Ok(out)
    }

    fn refuse(&self, flags: u32) -> Tried<()> {
        if self.flags & flags == 0 { Ok(()) } else { refused(libc::EPERM) }
    }
}

/// What steps do to the bytes.
impl<'a> Plan<'a> {
    pub fn write(&mut self, st: &mut State, nr: FileNr, offset: u64, data: &[u8]) -> Tried<()> {
        let file = &self.files[nr];
        if !file.is_regular() {
            return refused(libc::EINVAL);
        }
        let inside = offset < file.size;
        file.refuse(if inside { flags::IMMUTABLE | flags::APPEND } else { flags::IMMUTABLE })?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= MAX_FILE_SIZE);
        let Some(end) = end else { return refused(libc::EFBIG) };
        if data.is_empty() {
            return Ok(());
        }
        self.may_reach(end)?;
        // More than a record takes, whatever else is in it.
        let Some(left) = self.writable.checked_sub(data.len() as u64) else {
            return refused(libc::E2BIG);
        };
        self.writable = left;
        let file = &mut self.files[nr];
        file.shadow.put_bytes(offset, data);
        file.size = file.size.max(end);
        file.written = true;
        self.data_changed(st, nr)
    }

    /// Does the caller's own bound let a file be so long?
    fn may_reach(&self, end: u64) -> Tried<()> {
        let within = self.caller.rights.file_size.is_none_or(|most| end <= most);
        if within { Ok(()) } else { refused(libc::EFBIG) }
    }

    /// Set-id bits and capabilities go, and times that were set before are over.
    fn data_changed(&mut self, st: &mut State, nr: FileNr) -> Tried<()> {
        self.changing += 1;
        let keeps = self.caller.rights.keeps_set_id;
        let file = &mut self.files[nr];
        let bits = file.guard.mode & (S_ISUID | S_ISGID) != 0;
        if !keeps && (bits || file.capable) {
            file.capable = false;
            // Alone it takes setgid away only where the group may execute.
            let kill_setgid = !self.caller.is_in(file.guard.gid);
            let kill = SetAttr { kill_priv: true, kill_setgid, ..SetAttr::default() };
            let ino = file.ino;
            let had =
                !bits && ino.map_or(Ok(false), |ino| st.metadata.tree.has_capabilities(ino))?;
            if bits || had {
                let file = &mut self.files[nr];
                file.guard.mode = without_privileges(file.guard.mode, kill_setgid);
                file.attributes.push(kill);
            }
        }
        let file = &mut self.files[nr];
        if file.attributes.iter().any(|set| set.mtime.is_some()) {
            file.attributes.push(SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() });
        }
        Ok(())
    }

    pub fn set_size(&mut self, st: &mut State, nr: FileNr, size: u64) -> Tried<Outcome> {
        let file = &mut self.files[nr];
        if !file.is_regular() {
            return refused(libc::EINVAL);
        }
        file.refuse(flags::IMMUTABLE | flags::APPEND)?;
        if size > MAX_FILE_SIZE {
            return refused(libc::EFBIG);
        }
        if size > file.size {
            self.may_reach(size)?;
        }
        let file = &mut self.files[nr];
        file.kept = file.kept.min(size);
        file.shadow.cut(size);
        file.size = size;
        file.resized = true;
        self.data_changed(st, nr)?;
        Ok(Outcome::None)
    }

    /// The steps that read, compute and write in one.
    pub fn modify(&mut self, st: &mut State, step: &'a Step) -> Tried<Outcome> {
        match step {
            Step::Patch { file, offset, data } => {
                let data = self.bytes(data)?;
                let (file, offset) = (self.both(st, file)?, self.number(offset)?);
                let old = self.there(st, file, offset, data.len())?;
                self.write(st, file, offset, &data)?;
                Ok(Outcome::Bytes(old))
            }
            Step::Add { file, offset, width, addend } => {
                let (file, offset) = (self.both(st, file)?, self.number(offset)?);
                let old = self.there(st, file, offset, width.bytes())?;
                let mut bytes = [0; 8];
                bytes[..width.bytes()].copy_from_slice(&old);
                let before = u64::from_le_bytes(bytes);
                let sum = before.wrapping_add(self.number(addend)?).to_le_bytes();
                self.write(st, file, offset, &sum[..width.bytes()])?;
                Ok(Outcome::Number(before, *width))
            }
            Step::CompareAndSet { file, offset, expected, new } => {
                let (expected, new) = (self.bytes(expected)?, self.bytes(new)?);
                if expected.len() != new.len() {
                    return refused(libc::EINVAL);
                }
                let (file, offset) = (self.both(st, file)?, self.number(offset)?);
                if self.there(st, file, offset, new.len())?[..] != *expected {
                    return refused(libc::ECANCELED);
                }
                self.write(st, file, offset, &new)?;
                Ok(Outcome::None)
            }
            _ => unreachable!("the other steps are others' work"),
        }
    }

    fn both(&mut self, st: &mut State, arg: &FileArg) -> Tried<FileNr> {
        self.file(st, arg, READ | WRITE)
    }

    /// This many bytes of a file that has them.
    fn there(
        &mut self,
        st: &mut State,
        file: FileNr,
        offset: u64,
        len: usize,
    ) -> Tried<std::sync::Arc<Vec<u8>>> {
        let bytes = self.read(st, file, offset, len as u64)?;
        if bytes.len() == len { Ok(bytes) } else { refused(libc::EINVAL) }
    }
}

/// What steps do to attributes.
impl Plan<'_> {
    pub fn set_attributes(
        &mut self,
        st: &mut State,
        nr: FileNr,
        new: &NewAttributes,
    ) -> Tried<Outcome> {
        self.may_set(nr, new)?;
        let (caller, file) = (self.caller, &mut self.files[nr]);
        if *new == NewAttributes::default() {
            return Ok(Outcome::None);
        }
        let set = caller.setting(&file.guard, new);
        if new.uid.is_some() || new.gid.is_some() {
            file.guard.mode = without_privileges(file.guard.mode, set.kill_setgid);
            file.guard.uid = new.uid.unwrap_or(file.guard.uid);
            file.guard.gid = new.gid.unwrap_or(file.guard.gid);
        }
        if let Some(perm) = set.perm {
            file.guard.mode = file.guard.mode & !0o7777 | perm;
            file.guard.acl = match &file.guard.acl {
                Some(list) => Some(st.metadata.tree.list_of_mode(list, perm)?),
                None => None,
            };
        }
        file.attributes.push(set);
        self.changing += 1;
        Ok(Outcome::None)
    }

    /// As chmod(2), chown(2) and utimensat(2) have it.
    fn may_set(&self, nr: FileNr, new: &NewAttributes) -> Tried<()> {
        let file = &self.files[nr];
        self.caller.may_set(&file.guard, new)?;
        let now = |time: Option<SetTime>| matches!(time, None | Some(SetTime::Now));
        let touch = new.perm.is_none() && new.uid.is_none() && new.gid.is_none();
        let fixed = if touch && now(new.atime) && now(new.mtime) {
            flags::IMMUTABLE
        } else {
            flags::IMMUTABLE | flags::APPEND
        };
        file.refuse(fixed)
    }
}

/// A mode after a change of the data, or of the owner, by a caller that may not keep set-id bits.
fn without_privileges(mode: u16, setgid: bool) -> u16 {
    let executable = mode & 0o0010 != 0;
    let setgid = if setgid || executable { S_ISGID } else { 0 };
    mode & !(S_ISUID | setgid)
}
