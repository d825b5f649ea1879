//! Names of attributes and the numbers that stand for their prefixes.

use siftfs_base::{Result, errno};

/// Longest name in bytes, prefix included.
pub const MAX_NAME: usize = 255;

/// Index of access control lists for access.
pub(super) const ACL_ACCESS: u8 = 2;
/// Index of default access control lists.
pub(super) const ACL_DEFAULT: u8 = 3;

/// (index, prefix, is it the whole name?); whole names before the prefixes that they have.
const PREFIXES: [(u8, &[u8], bool); 7] = [
    (ACL_ACCESS, b"system.posix_acl_access", true),
    (ACL_DEFAULT, b"system.posix_acl_default", true),
    (8, b"system.richacl", true),
    (1, b"user.", false),
    (4, b"trusted.", false),
    (6, b"security.", false),
    (7, b"system.", false),
];

/// Splits a full name into index and rest. EOPNOTSUPP for a name outside the known spaces,
/// EINVAL for a bare prefix or a NUL, ERANGE for a name that is too long.
pub fn split_name(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.len() > MAX_NAME {
        return Err(errno(libc::ERANGE));
    }
    if name.contains(&0) {
        return Err(errno(libc::EINVAL));
    }
    for (index, prefix, whole) in PREFIXES {
        match name.strip_prefix(prefix) {
            Some(b"") if !whole => return Err(errno(libc::EINVAL)),
            Some(rest) if rest.is_empty() == whole => return Ok((index, rest)),
            _ => {}
        }
    }
    Err(errno(libc::EOPNOTSUPP))
}

/// The full name, or `None` for what no caller can ask for: an index without a meaning here, or a
/// name that is too long with its prefix or has a NUL, as other programs may have written it.
pub fn full_name(index: u8, rest: &[u8]) -> Option<Vec<u8>> {
    let (_, prefix, whole) = PREFIXES.iter().find(|p| p.0 == index)?;
    let name = [prefix, rest].concat();
    (rest.is_empty() == *whole && name.len() <= MAX_NAME && !name.contains(&0)).then_some(name)
}
