//! Which pool of free blocks the new blocks of a file come from (`docs/design/private-logs.md`,
//! "Free lists and pools").

use crate::config::Pools;
use crate::state::tree::Tree;
use crate::state::tree::references::SessionId;
use siftfs_base::InodeNr;
use siftfs_ext4::PoolId;

/// The file, which is in memory, gets bytes out of the private log of `session`: its new blocks
/// come from that session's pool from now on, or from the one of all sessions, if `pools` says so.
pub fn note(tree: &mut Tree, pools: Pools, session: SessionId, ino: InodeNr) {
    let id = match pools {
        Pools::None => return,
        Pools::Shared => PoolId::Shared,
        Pools::PerSession => PoolId::Of(session.0),
    };
    tree.fs.begin_pool(id);
    tree.node_mut(ino).pool = Some(id);
}

/// The session has ended: what is left of its pool is anybody's.
pub fn end(tree: &mut Tree, session: SessionId) {
    tree.fs.end_pool(PoolId::Of(session.0));
}
