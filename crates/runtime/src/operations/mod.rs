//! Operations that change several things together (`docs/design/operations.md`).

pub mod compound;
pub mod group;
pub mod publish;
pub mod sections;

use crate::namespace::entries::check_name;
use siftfs_base::{Result, errno};

/// Does the path say that it is a directory's? No file has such a name.
fn ends_with_slash(path: &[u8]) -> bool {
    path.last() == Some(&b'/')
}

/// Is it a name, and not one that leads elsewhere?
pub(crate) fn is_plain(name: &[u8]) -> Result<()> {
    check_name(name).map_err(|e| if e.errno() == libc::EEXIST { errno(libc::EINVAL) } else { e })
}
