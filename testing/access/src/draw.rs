//! Callers, guards and calls, drawn from a seed.

use siftfs_base::Rng;
use siftfs_proto::flags;

/// The directories of the tree, those above first.
pub const DIRS: [&str; 4] = ["a", "b", "a/b", "a/b/c"];
/// The names that each directory may have.
pub const NAMES: [&str; 6] = ["f", "g", "new", "link", "pipe", "sub"];

/// A capability: its number, and whether it decides anything here.
pub const CAPABILITIES: [u32; 9] = [
    0,  // CAP_CHOWN
    1,  // CAP_DAC_OVERRIDE
    2,  // CAP_DAC_READ_SEARCH
    3,  // CAP_FOWNER
    4,  // CAP_FSETID
    9,  // CAP_LINUX_IMMUTABLE
    21, // CAP_SYS_ADMIN
    27, // CAP_MKNOD
    31, // CAP_SETFCAP
];

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Capabilities, by number.
    pub capabilities: Vec<u32>,
}

impl Who {
    /// May it do this?
    pub fn can(&self, capability: u32) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// An entry of an access control list: tag, permissions, id.
pub type AclEntry = (u16, u16, u32);

/// What guards a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Access control list.
    pub acl: Vec<AclEntry>,
    /// Inode flags.
    pub flags: u32,
}

/// How a rename treats a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is replaced.
    Replace,
    /// It must not be there.
    NoReplace,
    /// Both names change places.
    Exchange,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are the calls' arguments
pub enum Ask {
    Stat(String),
    ReadLink(String),
    Open {
        path: String,
        read: bool,
        write: bool,
        truncate: bool,
    },
    List(String),
    Write(String),
    Create(String, u16),
    MakeDir(String, u16),
    MakePipe(String, u16),
    MakeDevice(String),
    Symlink(String),
    Unnamed(String),
    Link(String, String),
    Unlink(String),
    RemoveDir(String),
    Rename(String, String, Mode),
    Chmod(String, u16),
    Chown(String, Option<u32>, Option<u32>),
    /// The times are set to now, or to others.
    Times(String, bool),
    Truncate(String, u64),
    GetXattr(String, &'static str),
    SetXattr(String, &'static str),
    /// An access control list is set.
    SetAcl(String, Vec<AclEntry>),
    RemoveXattr(String, &'static str),
    ListXattr(String),
    /// The file is opened by root, and its flags are set by the caller.
    SetFlags(String, u32),
}

impl Ask {
    /// The paths that it names.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Link(from, to) | Self::Rename(from, to, _) => vec![from, to],
            Self::Open { path, .. }
            | Self::Stat(path)
            | Self::ReadLink(path)
            | Self::List(path)
            | Self::Write(path)
            | Self::Create(path, _)
            | Self::MakeDir(path, _)
            | Self::MakePipe(path, _)
            | Self::MakeDevice(path)
            | Self::Symlink(path)
            | Self::Unnamed(path)
            | Self::Unlink(path)
            | Self::RemoveDir(path)
            | Self::Chmod(path, _)
            | Self::Chown(path, ..)
            | Self::Times(path, _)
            | Self::Truncate(path, _)
            | Self::GetXattr(path, _)
            | Self::SetXattr(path, _)
            | Self::SetAcl(path, _)
            | Self::RemoveXattr(path, _)
            | Self::ListXattr(path)
            | Self::SetFlags(path, _) => vec![path],
        }
    }
}

/// Attributes of every kind that there is a rule for.
pub const XATTRS: [&str; 4] = ["user.x", "trusted.x", "security.x", "security.capability"];

fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    *rng.pick(of).expect("there is one")
}

fn id(rng: &mut Rng) -> u32 {
    one(rng, &[0, 1000, 1001, 1002])
}

fn perm(rng: &mut Rng) -> u16 {
    let low = [0o777, 0o755, 0o700, 0o644, 0o600, 0o070, 0o007, 0o000, 0o711, 0o733, 0o555, 0o666];
    let high = if rng.chance(25) { one(rng, &[0o1000, 0o2000, 0o4000, 0o6000]) } else { 0 };
    one(rng, &low) | high
}

/// A list that Linux takes: owner, users, group, groups, mask, others.
fn list(rng: &mut Rng) -> Vec<AclEntry> {
    let none = u32::MAX;
    let bits = |rng: &mut Rng| rng.below(8) as u16;
    let mut list = vec![(0x01, bits(rng), none)];
    for user in [1000, 1001] {
        if rng.chance(50) {
            list.push((0x02, bits(rng), user));
        }
    }
    list.push((0x04, bits(rng), none));
    for group in [1000, 1002] {
        if rng.chance(50) {
            list.push((0x08, bits(rng), group));
        }
    }
    list.push((0x10, bits(rng), none));
    list.push((0x20, bits(rng), none));
    list
}

/// What guards a file, or a directory that is to be gone through now and then.
pub fn guarded(rng: &mut Rng, dir: bool) -> Guarded {
    let fixed = if dir { 3 } else { 8 };
    let flags = if rng.chance(fixed) { one(rng, &[flags::IMMUTABLE, flags::APPEND]) } else { 0 };
    let acl = if rng.chance(30) { list(rng) } else { Vec::new() };
    let open = if dir && rng.chance(50) { 0o111 } else { 0 };
    Guarded { perm: perm(rng) | open, uid: id(rng), gid: id(rng), acl, flags }
}

/// A caller.
pub fn who(rng: &mut Rng) -> Who {
    let mut groups: Vec<u32> = (0..rng.below(3)).map(|_| id(rng)).collect();
    groups.sort_unstable();
    groups.dedup();
    let each = one(rng, &[0, 0, 0, 15, 100]);
    let mut capabilities: Vec<u32> = CAPABILITIES.to_vec();
    capabilities.retain(|_| rng.chance(each));
    Who { uid: id(rng), gid: id(rng), groups, capabilities }
}

fn path(rng: &mut Rng) -> String {
    let dir = one(rng, &["", "a/", "b/", "a/b/", "a/b/c/"]);
    format!("{dir}{}", one(rng, &NAMES))
}

/// A path that is most likely a directory's.
fn dir(rng: &mut Rng) -> String {
    if rng.chance(70) { one(rng, &DIRS).to_owned() } else { path(rng) }
}

fn either(rng: &mut Rng) -> String {
    if rng.chance(25) { dir(rng) } else { path(rng) }
}

/// A call.
pub fn ask(rng: &mut Rng) -> Ask {
    match rng.below(27) {
        0 => Ask::Stat(either(rng)),
        1 => Ask::ReadLink(path(rng)),
        2 | 3 => {
            let (read, write) = one(rng, &[(true, false), (false, true), (true, true)]);
            Ask::Open { path: path(rng), read, write, truncate: rng.chance(25) }
        }
        4 => Ask::List(dir(rng)),
        5 => Ask::Write(path(rng)),
        6 => Ask::Create(path(rng), perm(rng)),
        7 => Ask::MakeDir(path(rng), perm(rng) & 0o1777),
        8 => Ask::MakePipe(path(rng), perm(rng) & 0o777),
        9 => Ask::MakeDevice(path(rng)),
        10 => Ask::Symlink(path(rng)),
        11 => Ask::Unnamed(dir(rng)),
        12 => Ask::Link(path(rng), path(rng)),
        13 => Ask::Unlink(either(rng)),
        14 => Ask::RemoveDir(either(rng)),
        15 | 16 => {
            let mode = one(rng, &[Mode::Replace, Mode::Replace, Mode::NoReplace, Mode::Exchange]);
            Ask::Rename(either(rng), either(rng), mode)
        }
        17 => Ask::Chmod(either(rng), perm(rng)),
        18 => {
            // With neither it is no request.
            let (uid, gid) = one(rng, &[(true, false), (false, true), (true, true)]);
            Ask::Chown(either(rng), uid.then(|| id(rng)), gid.then(|| id(rng)))
        }
        19 => Ask::Times(either(rng), rng.chance(50)),
        20 => Ask::Truncate(path(rng), rng.below(9000)),
        21 => Ask::GetXattr(either(rng), one(rng, &XATTRS)),
        22 => Ask::SetXattr(either(rng), one(rng, &XATTRS)),
        23 => Ask::SetAcl(either(rng), list(rng)),
        24 => Ask::RemoveXattr(either(rng), one(rng, &XATTRS)),
        25 => Ask::ListXattr(either(rng)),
        _ => {
            let wanted = one(rng, &[0, flags::IMMUTABLE, flags::APPEND, flags::NODUMP]);
            // Root finds the file for the caller, which could find only these by itself.
            Ask::SetFlags(one(rng, &["f", "g", "sub", "a", "b"]).to_owned(), wanted)
        }
    }
}

/// A list in Linux's form of an extended attribute.
pub fn acl_bytes(list: &[AclEntry]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in list {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// A value that the attribute takes.
pub fn value_of(name: &str) -> Vec<u8> {
    match name {
        // VFS_CAP_REVISION_2, no capability.
        "security.capability" => [0x0200_0000u32, 0, 0, 0, 0].map(u32::to_le_bytes).concat(),
        _ => b"value".to_vec(),
    }
}
