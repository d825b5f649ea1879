//! Access control lists: the form that Linux passes around, ext4's shorter one, and what
//! they mean for a file's mode.

use siftfs_base::{Error, Result, corrupt, errno};

/// Version of the form that Linux passes around.
const XATTR_VERSION: u32 = 2;
/// Version of ext4's own form, which leaves out ids that mean nothing.
const DISK_VERSION: u32 = 1;
/// The id of an entry that has none.
pub const ACL_ID_NONE: u32 = u32::MAX;

/// The user, group or class that an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AclTag {
    /// The file's owner.
    UserObj = 0x01,
    /// A named user.
    User = 0x02,
    /// The file's group.
    GroupObj = 0x04,
    /// A named group.
    Group = 0x08,
    /// The most that named users and all groups get.
    Mask = 0x10,
    /// All other users.
    Other = 0x20,
}

impl AclTag {
    fn parse(tag: u16) -> Option<Self> {
        Some(match tag {
            0x01 => Self::UserObj,
            0x02 => Self::User,
            0x04 => Self::GroupObj,
            0x08 => Self::Group,
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }
    fn is_named(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEntry {
    /// The user, group or class that the entry is about.
    pub tag: AclTag,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
    /// User or group; [`ACL_ID_NONE`] for entries that name none.
    pub id: u32,
}

/// A valid access control list: owner, named users, group, named groups, mask, others, in this
/// order, with a mask if a user or group is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// Reads fixed fields off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

impl Acl {
    /// From entries; EINVAL if they are not a valid list.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self> {
        let in_order =
            entries.is_sorted_by(|a, b| a.tag < b.tag || (a.tag == b.tag && a.tag.is_named()));
        let has = |tag| entries.iter().any(|e| e.tag == tag);
        let named = entries.iter().any(|e| e.tag.is_named());
        let whole = has(AclTag::UserObj) && has(AclTag::GroupObj) && has(AclTag::Other);
        let fields =
            entries.iter().all(|e| e.perm <= 7 && (e.id == ACL_ID_NONE) != e.tag.is_named());
        if in_order && whole && fields && (has(AclTag::Mask) || !named) {
            return Ok(Self { entries });
        }
        Err(errno(libc::EINVAL))
    }

    /// From the value that setxattr(2) gets. EOPNOTSUPP for another version, EINVAL for what
    /// is no valid list, or empty (which asks for the attribute's removal: the caller's case).
    pub fn from_xattr(mut bytes: &[u8]) -> Result<Self> {
        let version = take(&mut bytes).map(u32::from_le_bytes).ok_or(errno(libc::EINVAL))?;
        if version != XATTR_VERSION {
            return Err(errno(libc::EOPNOTSUPP));
        }
        Self::new(parse_entries(bytes, |_| true).ok_or(errno(libc::EINVAL))?)
    }

    /// From the value that ext4 stores; corrupt if it is no valid list.
    pub fn from_disk(mut bytes: &[u8]) -> Result<Self> {
        let bad = |detail: &str| corrupt("access control list", detail);
        if take(&mut bytes).map(u32::from_le_bytes) != Some(DISK_VERSION) {
            return Err(bad("unknown version"));
        }
        let entries = parse_entries(bytes, AclTag::is_named).ok_or_else(|| bad("bad entries"))?;
        Self::new(entries).map_err(|_: Error| bad("not a valid list"))
    }

    /// The value that getxattr(2) answers.
    pub fn to_xattr(&self) -> Vec<u8> {
        self.encode(XATTR_VERSION, |_| true)
    }

    /// The value that ext4 stores.
    pub fn to_disk(&self) -> Vec<u8> {
        self.encode(DISK_VERSION, AclTag::is_named)
    }

    fn encode(&self, version: u32, with_id: impl Fn(AclTag) -> bool) -> Vec<u8> {
        let mut out = version.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend((e.tag as u16).to_le_bytes());
            out.extend(e.perm.to_le_bytes());
            if with_id(e.tag) {
                out.extend(e.id.to_le_bytes());
            }
        }
        out
    }

    /// The entries in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    fn perm(&self, tag: AclTag) -> Option<u16> {
        self.entries.iter().find(|e| e.tag == tag).map(|e| e.perm)
    }

    fn set_perm(&mut self, tag: AclTag, perm: u16) {
        for e in self.entries.iter_mut().filter(|e| e.tag == tag) {
            e.perm = perm;
        }
    }

    /// The class that the mode's group bits stand for: the mask if there is one.
    fn group_class(&self) -> AclTag {
        if self.perm(AclTag::Mask).is_some() { AclTag::Mask } else { AclTag::GroupObj }
    }

    /// The nine permission bits that a file with this list shows.
    pub fn mode(&self) -> u16 {
        let bits = |tag| self.perm(tag).unwrap_or(0);
        bits(AclTag::UserObj) << 6 | bits(self.group_class()) << 3 | bits(AclTag::Other)
    }

    /// Says the list no more than the mode does? Then it need not be stored.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Brings the list in step with a new mode (chmod).
    pub fn set_mode(&mut self, mode: u16) {
        self.set_perm(AclTag::UserObj, mode >> 6 & 7);
        self.set_perm(self.group_class(), mode >> 3 & 7);
        self.set_perm(AclTag::Other, mode & 7);
    }

    /// The list of a file created with `mode` in a directory whose default list this is, and the
    /// mode that the file then has (file type and special bits as given). The list grants nothing
    /// that `mode` does not grant.
    pub fn inherit(&self, mode: u16) -> (Acl, u16) {
        let mut acl = self.clone();
        acl.set_mode(self.mode() & mode);
        let mode = mode & !0o777 | acl.mode();
        (acl, mode)
    }
}

fn parse_entries(mut bytes: &[u8], with_id: impl Fn(AclTag) -> bool) -> Option<Vec<AclEntry>> {
    let mut all = Vec::with_capacity(bytes.len() / 4);
    while !bytes.is_empty() {
        let tag = AclTag::parse(u16::from_le_bytes(take(&mut bytes)?))?;
        let perm = u16::from_le_bytes(take(&mut bytes)?);
        let stored = if with_id(tag) { u32::from_le_bytes(take(&mut bytes)?) } else { ACL_ID_NONE };
        // The stored id of an entry without a name means nothing.
        let id = if tag.is_named() { stored } else { ACL_ID_NONE };
        all.push(AclEntry { tag, perm, id });
    }
    Some(all)
}
