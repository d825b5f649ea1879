//! Operations that change several things together (`docs/design/operations.md`).

pub mod compound;
pub mod publish;
pub mod sections;

use crate::namespace::entries::check_name;
use siftfs_base::{Result, errno};

/// Is it a name, and not one that leads elsewhere?
fn is_plain(name: &[u8]) -> Result<()> {
    check_name(name).map_err(|e| if e.errno() == libc::EEXIST { errno(libc::EINVAL) } else { e })
}
