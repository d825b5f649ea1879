//! What a client's claim for one of its users is worth.

use super::map::{IdMap, NOBODY};

/// Whose claims are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// User 0's and group 0's; and nobody has a capability.
    Root,
    /// Everybody's.
    All,
    /// Nobody's, as far as ids are mapped.
    None,
}

/// What becomes of a client's ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// User ids.
    pub uids: IdMap,
    /// Group ids.
    pub gids: IdMap,
    /// Whose claims are not believed.
    pub squash: Squash,
    /// The server's user and group id of such callers; neither is 0.
    pub anon: (u32, u32),
}

/// A caller as the server sees it, in ids of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The capabilities that the client claims for the caller are believed.
    pub keeps_capabilities: bool,
}

impl Ids {
    /// All ids and claims as they are: a host's, which vouches for its users.
    pub fn as_they_are() -> Self {
        let (uids, gids) = (IdMap::identity(), IdMap::identity());
        Self { uids, gids, squash: Squash::None, anon: (NOBODY, NOBODY) }
    }

    /// What a claim in the client's ids is worth.
    ///
    /// A user whom the client may not name, or whose claim is not believed, is anonymous: without
    /// groups and capabilities. A group that it may not name is the anonymous one, or is left out
    /// among the supplementary ones. Capabilities count only where nothing is mapped: else they
    /// would give power over files whose owners the client cannot name.
    pub fn squash(&self, uid: u32, gid: u32, groups: &[u32]) -> Claimed {
        let (anon_uid, anon_gid) = self.anon;
        let Some(uid) = self.believed(&self.uids, uid) else {
            let groups = Vec::new();
            return Claimed { uid: anon_uid, gid: anon_gid, groups, keeps_capabilities: false };
        };
        let all = self.squash == Squash::None;
        Claimed {
            uid,
            gid: self.believed(&self.gids, gid).unwrap_or(anon_gid),
            groups: groups.iter().filter_map(|g| self.believed(&self.gids, *g)).collect(),
            keeps_capabilities: all && self.uids.is_identity() && self.gids.is_identity(),
        }
    }

    /// The server's id for one that is claimed, if that is believed. Zero is looked for at both
    /// ends.
    fn believed(&self, map: &IdMap, id: u32) -> Option<u32> {
        let there = map.to_server(id)?;
        match self.squash {
            Squash::All => None,
            Squash::Root if id == 0 || there == 0 => None,
            Squash::Root | Squash::None => Some(there),
        }
    }
}

#[cfg(test)]
#[path = "squash_tests.rs"]
mod tests;
