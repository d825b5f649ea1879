//! A line of the `authorized` file: a key and what its machine may do.

use super::{options, words};
use crate::ids::{IdMap, Ids, NOBODY, Squash};
use crate::public::{KEY_TYPE, PublicKey, PublicLine, shortened};
use std::str::FromStr;

/// What a machine is to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A Runtime that has its Service here. It vouches for all its users.
    Host,
    /// A front end, whose users are bounded by the line.
    Client,
    /// A front end that may also ask for what an administrator may.
    Admin,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The block protocol, between Runtime and Service.
    BlockProtocol,
    /// Blocks that a host has granted to a program, by a token.
    DirectPlane,
    /// The file protocol, between Frontend and Runtime.
    FileProtocol,
    /// Status, checkpoint, sync of everything, trim.
    Administration,
}

impl Role {
    /// May a machine of this role have such a connection?
    pub fn may(self, what: Use) -> bool {
        match what {
            Use::BlockProtocol => self == Role::Host,
            Use::DirectPlane => true,
            Use::FileProtocol => self != Role::Host,
            Use::Administration => self == Role::Admin,
        }
    }
}

/// The volumes that a line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volumes {
    /// All that the server has.
    All,
    /// These.
    Named(Vec<String>),
}

impl Volumes {
    /// Is a volume one of them that is called by these names?
    pub fn contain(&self, is_called: impl Fn(&str) -> bool) -> bool {
        match self {
            Volumes::All => true,
            Volumes::Named(names) => names.iter().any(|name| is_called(name)),
        }
    }
}

/// A key, and what its machine may do. [`FromStr`] reads a line that is neither empty nor a
/// comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizedLine {
    /// The key.
    pub key: PublicKey,
    /// What the key's owner calls it, at most 256 bytes.
    pub comment: String,
    /// What the machine is.
    pub role: Role,
    /// The volumes that it may reach.
    pub volumes: Volumes,
    /// The directory that it sees as the volume's root: `/`, or names that are each led in by a
    /// slash and none of which is `.` or `..`.
    pub subtree: String,
    /// What becomes of its users' ids. A host's are taken as they are.
    pub ids: Ids,
}

impl AuthorizedLine {
    /// May the machine have a connection for this, to a volume that is called by these names?
    ///
    /// # Errors
    /// A message: its role is another one, or the volume is not in its list.
    pub fn allow(&self, what: Use, is_called: impl Fn(&str) -> bool) -> Result<(), String> {
        let name = self.name();
        if !self.role.may(what) {
            return Err(match self.role {
                Role::Host => format!("the key {name} is a host's: it may reach a device process"),
                _ => format!("the key {name} is no host's: it may reach a server of files"),
            });
        }
        match self.volumes.contain(is_called) {
            true => Ok(()),
            false => Err(format!("the key {name} may not reach this volume")),
        }
    }

    /// Are its users who they are at the client, root included, and is the whole volume theirs?
    pub fn is_trusted(&self) -> bool {
        self.ids == Ids::as_they_are() && self.subtree == "/"
    }

    /// The machine in words: its key's fingerprint, and the comment if there is one.
    pub fn name(&self) -> String {
        let print = self.key.fingerprint();
        match self.comment.is_empty() {
            true => print.to_string(),
            false => format!("{print} ({})", self.comment),
        }
    }
}

/// The options, in the order of the page.
const OPTIONS: [&str; 7] = ["role", "volumes", "subtree", "uids", "gids", "squash", "anon"];
/// Those that a host may have.
const OF_HOSTS: [&str; 2] = ["role", "volumes"];

/// The options of a line as they were given.
#[derive(Default)]
struct Given([Option<String>; OPTIONS.len()]);

impl Given {
    fn add(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let place = OPTIONS.iter().position(|o| *o == name).and_then(|at| self.0.get_mut(at));
        let Some(place) = place else {
            return Err(format!(
                "unknown option `{}`; options are {}, and the key begins with {KEY_TYPE}",
                shortened(word),
                OPTIONS.map(|o| format!("{o}=")).join(", ")
            ));
        };
        if value.is_empty() {
            return Err(format!("{name}= has no value"));
        }
        match place.replace(value.to_string()) {
            None => Ok(()),
            Some(_) => Err(format!("{name}= stands twice")),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        let at = OPTIONS.iter().position(|o| *o == name)?;
        self.0.get(at)?.as_deref()
    }

    fn parse<T>(
        &self,
        name: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        self.get(name).map_or(Ok(default), parse)
    }

    fn ids(&self, role: Role) -> Result<Ids, String> {
        if role == Role::Host {
            let more = OPTIONS.into_iter().find(|o| !OF_HOSTS.contains(o) && self.get(o).is_some());
            return match more {
                Some(o) => Err(format!("{o}= means nothing for role=host, which writes blocks")),
                None => Ok(Ids::as_they_are()),
            };
        }
        Ok(Ids {
            uids: self.parse("uids", IdMap::identity(), |v| options::maps("uids", v))?,
            gids: self.parse("gids", IdMap::identity(), |v| options::maps("gids", v))?,
            squash: self.parse("squash", Squash::Root, options::squash)?,
            anon: self.parse("anon", (NOBODY, NOBODY), options::anon)?,
        })
    }
}

impl FromStr for AuthorizedLine {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err("it has a control character".into());
        }
        let (mut given, mut rest) = (Given::default(), line);
        let public = loop {
            let here = rest;
            match words::next(&mut rest)? {
                None => return Err(format!("it has no key: {KEY_TYPE} and its Base64")),
                Some(word) if word == KEY_TYPE => break here,
                Some(word) => given.add(&word)?,
            }
        };
        let PublicLine { key, comment } = public.parse()?;
        let role = given.get("role").ok_or("role= is missing: host, client or admin")?;
        let role = options::role(role)?;
        let ids = given.ids(role)?;
        let volumes = given.parse("volumes", Volumes::All, options::volumes)?;
        let subtree = given.parse("subtree", "/".to_string(), options::subtree)?;
        Ok(Self { key, comment, role, volumes, subtree, ids })
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
