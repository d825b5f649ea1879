//! The addresses of one volume: that of its server, and those of the servers that may take its
//! place.

use crate::Address;
use siftfs_base::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// What addresses of their own begin with.
const KINDS: [&str; 3] = ["unix:", "tcp:", "rdma:"];
/// Longest name of a volume in bytes.
const NAME: usize = 255;

/// One address or several, each of which may be the one that answers for a volume, in the order in
/// which they were named. All are sockets of this machine, or all are on a network: a server knows
/// a client by the way that it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<Address>);

impl Addresses {
    /// Most addresses of a list.
    pub const MOST: usize = 8;

    /// A list of one.
    pub fn one(address: Address) -> Self {
        Self(vec![address])
    }

    /// Each of them; there is at least one.
    pub fn all(&self) -> &[Address] {
        &self.0
    }

    /// The first of them.
    ///
    /// # Panics
    /// Never: a list has an address.
    pub fn first(&self) -> &Address {
        self.0.first().expect("a list has an address")
    }

    /// Is there another one to go to?
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Are they on a network, and not sockets of this machine?
    pub fn are_remote(&self) -> bool {
        self.first().network().is_some()
    }

    fn new(text: &str, parts: Vec<String>) -> Result<Self> {
        let refused = |why: &str| Err(Error::Refused(format!("addresses '{text}': {why}")));
        if parts.len() > Self::MOST {
            return refused(&format!("{} are more than {}", parts.len(), Self::MOST));
        }
        if parts.len() > 1 && parts.iter().any(String::is_empty) {
            return refused("one of them is empty");
        }
        let list = parts.iter().map(|part| part.parse()).collect::<Result<Vec<Address>>>()?;
        for (at, address) in list.iter().enumerate() {
            if list.iter().take(at).any(|before| is_same(before, address)) {
                return refused(&format!("{address} is named twice"));
            }
            if address.network().is_some() != list.iter().any(|one| one.network().is_some()) {
                return refused(
                    "a server knows a client by the way that it comes: name sockets of this machine, or \
                     addresses on a network",
                );
            }
        }
        Ok(Self(list))
    }
}

/// Do two addresses lead to the same place? Names of hosts have no case.
fn is_same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp { host: a, port: p }, Address::Tcp { host: b, port: q })
        | (Address::Rdma { host: a, port: p }, Address::Rdma { host: b, port: q }) => {
            a.eq_ignore_ascii_case(b) && p == q
        }
        _ => one == other,
    }
}

impl FromStr for Addresses {
    type Err = Error;

    /// Addresses with commas between them. A comma in a socket's path is part of the path, unless
    /// an address begins behind it.
    fn from_str(text: &str) -> Result<Self> {
        let begins = |part: &str| KINDS.iter().any(|kind| part.starts_with(kind));
        let mut parts: Vec<String> = Vec::new();
        for part in text.split(',') {
            let too_many = parts.len() > Self::MOST;
            match parts.last_mut() {
                Some(last) if last.starts_with("unix:") && !begins(part) => {
                    last.push(',');
                    last.push_str(part);
                }
                // What is beyond that is refused by its number alone.
                _ if too_many => break,
                _ => parts.push(part.into()),
            }
        }
        Self::new(text, parts)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, address)| {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{address}")
        })
    }
}

/// What `HOSTS:/VOLUME` names: each of the hosts, with commas between them, is `HOST` or
/// `HOST:PORT`, and an IPv6 address stands in brackets. Where a port is not said it is `port`.
/// `None`: the text has another form, such as a path.
///
/// # Errors
/// It has this form, and a host, a port or the volume's name is wrong; the message says what.
pub fn served_by_hosts(text: &str, port: u16) -> Result<Option<(Addresses, String)>> {
    let Some((hosts, volume)) = text.split_once(":/") else { return Ok(None) };
    if hosts.is_empty() || hosts.contains('/') || KINDS.iter().any(|kind| text.starts_with(kind)) {
        return Ok(None);
    }
    if volume.is_empty() || volume.contains('/') || volume.len() > NAME {
        return Err(Error::Refused(format!(
            "{text}: a served volume is named as HOST:/VOLUME, without directories; a directory of \
             it is mounted by subdir=PATH"
        )));
    }
    let parts = hosts.split(',').take(Addresses::MOST + 1).map(|host| with_port(host, port));
    let list = Addresses::new(hosts, parts.collect());
    let list = list.map_err(|error| Error::Refused(format!("{text}: {error}")))?;
    Ok(Some((list, volume.into())))
}

/// A host as an address over TCP; an empty one stays empty.
fn with_port(host: &str, port: u16) -> String {
    // What is behind a bracket that closes is no part of an IPv6 address.
    let behind = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
    match host {
        "" => String::new(),
        _ if behind.contains(':') => format!("tcp:{host}"),
        _ => format!("tcp:{host}:{port}"),
    }
}

#[cfg(test)]
#[path = "addresses_tests.rs"]
mod tests;
