//! Operations that change several things together (`docs/design/operations.md`).

pub mod compound;
pub mod publish;
pub mod sections;

use crate::namespace::entries::check_name;
use siftfs_base::{Result, errno};

/// How often what keeps such an operation out of one record is cleared, without the lock, before
/// the caller is told to come back later. Others may bring it back each time: a round is lost only
/// if they do so in the moment between the commit and the next try.
const ROUNDS: u32 = 64;

/// Does the path say that it is a directory's? No file has such a name.
fn ends_with_slash(path: &[u8]) -> bool {
    path.last() == Some(&b'/')
}

/// Is it a name, and not one that leads elsewhere?
fn is_plain(name: &[u8]) -> Result<()> {
    check_name(name).map_err(|e| if e.errno() == libc::EEXIST { errno(libc::EINVAL) } else { e })
}
