//! Owners and lists in the client's ids: those that it gives to files become the server's, and
//! those that it is shown become its own.

use super::Asked;
use siftfs_base::{Result, errno};
use siftfs_keys::{Ids, acl};
use siftfs_proto::compound::Step;
use siftfs_proto::{Attr, Reply};
use std::sync::Arc;

/// The user and the group that a file is to get, if it is.
pub(super) type Given<'a> = (&'a mut Option<u32>, &'a mut Option<u32>);

/// The name of the attribute that gives a program capabilities.
const CAPABILITY: &[u8] = b"security.capability";
/// The bits of its first word that say its form.
const FORM: u32 = 0xFF00_0000;
/// The form that ends with the user id of a name space's root.
const WITH_ROOT: u32 = 0x0300_0000;
/// Bytes of that form before the id.
const BEFORE_ROOT: usize = 20;

/// A value of an extended attribute that has ids in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Valued {
    /// An access control list.
    List,
    /// Capabilities, which may have the id of a name space's root.
    Capability,
}

impl Valued {
    /// Of the attribute with this name.
    pub fn of(name: &[u8]) -> Option<Self> {
        match name {
            CAPABILITY => Some(Self::Capability),
            _ => acl::is_list(name).then_some(Self::List),
        }
    }
}

/// The maps of a client's ids.
#[derive(Clone)]
pub(super) struct Owners(Arc<Ids>);

impl Owners {
    /// Those of a line; `None` if every id is itself.
    pub fn of(ids: &Ids) -> Option<Self> {
        let all = ids.uids.is_identity() && ids.gids.is_identity();
        (!all).then(|| Self(Arc::new(ids.clone())))
    }

    /// Ids that a file is to get become the server's.
    ///
    /// # Errors
    /// `EINVAL` for one that the client may not name.
    pub fn give(&self, (uid, gid): Given<'_>) -> Result<()> {
        for (id, map) in [(uid, &self.0.uids), (gid, &self.0.gids)] {
            if let Some(id) = id {
                *id = map.to_server(*id).ok_or(errno(libc::EINVAL))?;
            }
        }
        Ok(())
    }

    /// A value that a file is to get becomes the server's.
    ///
    /// # Errors
    /// `EINVAL` for one of another form, and for an id that the client may not name.
    pub fn take(&self, kind: Valued, value: &mut Vec<u8>) -> Result<()> {
        let invalid = || errno(libc::EINVAL);
        match kind {
            // An empty list takes the list away.
            Valued::List if value.is_empty() => {}
            Valued::List => *value = acl::to_server(value, &self.0).ok_or_else(invalid)?,
            Valued::Capability => {
                if let Some(root) = root_of(value) {
                    let id = self.0.uids.to_server(u32::from_le_bytes(*root));
                    *root = id.ok_or_else(invalid)?.to_le_bytes();
                }
            }
        }
        Ok(())
    }

    /// Owners in a reply become the client's.
    ///
    /// # Errors
    /// `EIO` for the list of a file that is no list.
    pub fn show(&self, asked: Asked, reply: &mut Reply) -> Result<()> {
        match reply {
            Reply::Entry(attr) | Reply::Attr(attr) | Reply::Created { attr, .. } => {
                self.show_attr(attr);
            }
            Reply::Dir(entries) => {
                entries.iter_mut().filter_map(|e| e.attr.as_mut()).for_each(|a| self.show_attr(a));
            }
            Reply::Data(value) => match asked {
                Asked::Value(kind) => self.show_value(kind, value)?,
                Asked::Entries(_) | Asked::Other => {}
            },
            Reply::Done
            | Reply::Opened { .. }
            | Reply::Blocks(_)
            | Reply::Written { .. }
            | Reply::WrittenLast { .. }
            | Reply::Located { .. }
            | Reply::Offset(_)
            | Reply::Names(_)
            | Reply::Statfs(_)
            | Reply::Flags(_)
            | Reply::Published { .. }
            | Reply::Ticket(_)
            | Reply::Durable(_)
            | Reply::Section(_)
            | Reply::Leased { .. }
            | Reply::Direct(_)
            | Reply::Extended(_)
            | Reply::Gone(_)
            | Reply::Lock(_)
            | Reply::Compounded(_)
            | Reply::Checkpoint(_)
            | Reply::Trimmed(_)
            | Reply::Status(_) => {}
        }
        Ok(())
    }

    fn show_attr(&self, attr: &mut Attr) {
        attr.uid = self.0.uids.to_client(attr.uid);
        attr.gid = self.0.gids.to_client(attr.gid);
    }

    fn show_value(&self, kind: Valued, value: &mut Vec<u8>) -> Result<()> {
        match kind {
            Valued::List => *value = acl::to_client(value, &self.0).ok_or(errno(libc::EIO))?,
            Valued::Capability => {
                if let Some(root) = root_of(value) {
                    *root = self.0.uids.to_client(u32::from_le_bytes(*root)).to_le_bytes();
                }
            }
        }
        Ok(())
    }
}

/// The id of a name space's root in capabilities that have one.
fn root_of(value: &mut [u8]) -> Option<&mut [u8; 4]> {
    let (before, root) = value.split_at_mut_checked(BEFORE_ROOT)?;
    let form = u32::from_le_bytes(*before.first_chunk()?);
    (form & FORM == WITH_ROOT).then_some(root.first_chunk_mut()?)
}

/// Ids that a step of a compound gives to a file.
pub(super) fn given(step: &mut Step) -> Option<Given<'_>> {
    match step {
        Step::SetAttributes { set, .. } => Some((&mut set.uid, &mut set.gid)),
        Step::Lookup { .. }
        | Step::Open { .. }
        | Step::Create { .. }
        | Step::Read { .. }
        | Step::Write { .. }
        | Step::Append { .. }
        | Step::Checksum { .. }
        | Step::Compress { .. }
        | Step::Decompress { .. }
        | Step::Join { .. }
        | Step::Patch { .. }
        | Step::Add { .. }
        | Step::CompareAndSet { .. }
        | Step::Rename { .. }
        | Step::Link { .. }
        | Step::Unlink { .. }
        | Step::SetSize { .. }
        | Step::Close { .. } => None,
    }
}

#[cfg(test)]
#[path = "ids_tests.rs"]
mod tests;
