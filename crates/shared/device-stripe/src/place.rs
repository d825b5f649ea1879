//! How a striped volume is named.

use crate::geometry::MAX_MEMBERS;
use siftfs_base::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the name of a striped volume begins with.
const SCHEME: &[u8] = b"stripe:";
/// What the name of a volume at a target begins with.
const TARGET: &[u8] = b"target:";

/// The members of a striped volume, in order: `stripe:MEMBER,MEMBER,...`. Each is a path of this
/// machine, or a device at a target: `target:ADDRESS/NAME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripePlace {
    members: Vec<PathBuf>,
}

impl StripePlace {
    /// The set of these members, in order.
    pub fn new(members: Vec<PathBuf>) -> Self {
        Self { members }
    }

    /// The members that `name` names; `None` for what does not begin with `stripe:`.
    ///
    /// # Errors
    /// Refused if it names fewer than 2 or more than 16 members, an empty one, or one of them
    /// twice.
    pub fn parse(name: &Path) -> Option<Result<Self>> {
        let rest = name.as_os_str().as_bytes().strip_prefix(SCHEME)?;
        let members: Vec<_> = rest.split(|byte| *byte == b',').collect();
        let refused = |what: &str| {
            Some(Err(Error::Refused(format!("{what}: stripe:MEMBER,MEMBER,... (2 to 16)"))))
        };
        if members.len() < 2 || members.len() > MAX_MEMBERS {
            return refused("name the members of a striped volume in their order");
        }
        if members.iter().any(|member| member.is_empty()) {
            return refused("a member of a striped volume has an empty name");
        }
        if (1..).zip(&members).any(|(at, member)| members.iter().skip(at).any(|m| m == member)) {
            return refused("a member of a striped volume is named twice");
        }
        let path = |member: &&[u8]| PathBuf::from(OsStr::from_bytes(member));
        Some(Ok(Self { members: members.iter().map(path).collect() }))
    }

    /// The members, in order: paths of this machine, and places at targets.
    pub fn members(&self) -> &[PathBuf] {
        &self.members
    }

    /// The volume's name.
    pub fn name(&self) -> PathBuf {
        let mut name = OsString::from("stripe:");
        for (at, member) in self.members.iter().enumerate() {
            if at > 0 {
                name.push(",");
            }
            name.push(member);
        }
        name.into()
    }
}

/// Is this member of a striped volume at a target?
pub fn is_at_target(member: &Path) -> bool {
    member.as_os_str().as_bytes().starts_with(TARGET)
}

/// The files or devices of this machine that the volume `name` lies on, its log not counted: the
/// members of a striped one that are not at targets, else the path itself.
pub fn parts_of(name: &Path) -> Vec<PathBuf> {
    match StripePlace::parse(name) {
        Some(Ok(place)) => place.members.into_iter().filter(|m| !is_at_target(m)).collect(),
        _ => vec![name.to_owned()],
    }
}

/// The name that stands for the volume `name`: that of a striped one's first member.
pub fn principal(name: &Path) -> PathBuf {
    match StripePlace::parse(name) {
        Some(Ok(place)) => place.members.into_iter().next().unwrap_or_else(|| name.to_owned()),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
