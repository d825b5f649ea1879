//! Which machine is at the other end of a connection, and what it may do there
//! (`docs/design/keys.md`).
//!
//! A machine has a key pair ([`KeyPair`]). A server admits the keys of its `authorized` file
//! ([`Authorized`]), each with what it may do; a client keeps its servers' keys ([`known`]).
//! Connections are TLS 1.3 with raw public keys ([`ServerTls`], [`ClientTls`]). What a client
//! claims for its users is bounded by its key's line ([`Ids`]).
//!
//! Files and peers are hostile until checked. Errors are messages for administrators: they name
//! file, line, what is wrong and what to do.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod authorized;
mod files;
mod ids;
pub mod known;
mod pair;
pub mod paths;
mod public;
mod seals;
mod tls;

pub use authorized::{Authorized, AuthorizedFile, AuthorizedLine, Role, Use, Volumes};
pub use ids::acl;
pub use ids::{Claimed, IdMap, IdRange, Ids, NOBODY, Squash};
pub use known::{Expect, KnownServer};
pub use pair::KeyPair;
pub use public::{Fingerprint, KEY_TYPE, PublicKey, PublicLine, own_number};
pub use seals::{SECRET_BYTES, Seal, Seals};

pub use tls::{ALPN, ClientTls, Peer, ServerTls};
