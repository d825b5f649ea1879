//! Ids in POSIX access control lists, as the extended attributes `system.posix_acl_access` and
//! `system.posix_acl_default` have them on Linux: a version of four bytes, then entries of a tag
//! and permissions of two bytes each and an id of four, all little-endian.

use super::squash::Ids;

const VERSION: [u8; 4] = [2, 0, 0, 0];
/// Bytes of an entry.
const ENTRY: usize = 8;
/// Longest value of an extended attribute, in bytes.
const MOST_BYTES: usize = 64 << 10;
/// The entry of the user whose id it has.
const USER: u16 = 0x02;
/// The entry of the group whose id it has.
const GROUP: u16 = 0x08;
/// Owner, owning group, mask and others, which have no id.
const WITHOUT_ID: [u16; 4] = [0x01, 0x04, 0x10, 0x20];

/// Is this the name of an extended attribute that holds a list?
pub fn is_list(name: &[u8]) -> bool {
    [b"system.posix_acl_access".as_slice(), b"system.posix_acl_default"].contains(&name)
}

/// The list of a client in the server's ids. `None` (EINVAL): it is no list, or names an id that
/// the client may not name.
pub fn to_server(list: &[u8], ids: &Ids) -> Option<Vec<u8>> {
    mapped(list, |tag, id| match tag {
        USER => ids.uids.to_server(id),
        _ => ids.gids.to_server(id),
    })
}

/// A list of the server in the client's ids, with [`super::NOBODY`] for those that the client has
/// no id for. `None`: it is no list.
pub fn to_client(list: &[u8], ids: &Ids) -> Option<Vec<u8>> {
    mapped(list, |tag, id| match tag {
        USER => Some(ids.uids.to_client(id)),
        _ => Some(ids.gids.to_client(id)),
    })
}

/// The list with other ids in the entries of users and groups.
fn mapped(list: &[u8], map: impl Fn(u16, u32) -> Option<u32>) -> Option<Vec<u8>> {
    let entries = list.strip_prefix(&VERSION)?;
    let (entries, rest) = entries.as_chunks::<ENTRY>();
    if !rest.is_empty() || list.len() > MOST_BYTES {
        return None;
    }
    let mut out = VERSION.to_vec();
    for [t0, t1, p0, p1, id @ ..] in entries {
        let (tag, id) = (u16::from_le_bytes([*t0, *t1]), u32::from_le_bytes(*id));
        let there = match tag {
            USER | GROUP => map(tag, id)?,
            _ if WITHOUT_ID.contains(&tag) => id,
            _ => return None,
        };
        out.extend([*t0, *t1, *p0, *p1]);
        out.extend(there.to_le_bytes());
    }
    Some(out)
}

#[cfg(test)]
#[path = "acl_tests.rs"]
mod tests;
