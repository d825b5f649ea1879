//! What a program that holds write leases of a mount's files and the mount's daemon share: two
//! pieces of memory, and a socket of packets (`docs/design/private-logs.md`).
//!
//! The program is the *holder*, the daemon the *grantor*. The holder publishes what it writes as
//! records of a ring in its memory ([`Writer`]); the grantor takes them in ([`Reader`]) and says in
//! its own memory which leases still last. Each word of memory has one writer. The algorithms know
//! nothing of where the words lie ([`Words`]), so that they run under a model checker as they are.
//!
//! Neither side believes the other: what is read is copied once and checked in the copy. Nothing
//! that the other side does causes a panic.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod batch;
mod granted;
mod layout;
mod medium;
mod memory;
mod message;
mod packets;
mod reader;
mod record;
mod words;
mod writer;

pub use batch::{
    BATCH_DATA, BATCH_UNIT, Batch, Batches, EachLogged, LOG_BYTES, LogShape, Logged, ReadLog,
    Scanned, scan,
};
pub use granted::{Granted, GrantedRun, MOST_GRANTED, MOST_NAME, MOST_RUNS};
pub use layout::{FULL, MOST_BYTES, SLOTS, Shape};
pub use medium::LogMedium;
pub use memory::{Created, ForkMark, Memory, View, create, open};
pub use message::{Answer, Ask, HEADER, MOST_DATA, TOKEN, Token, VERSION};
pub use packets::{Packet, Packets, high};
pub use reader::{
    Data, Fetched, Headers, Ingestion, Reader, Shown, Taken, order, recall, set_order, shown, vouch,
};
pub use record::Record;
pub use words::{Held, Own, State, Words};
pub use writer::{
    Place, Publish, Published, Settled, Writer, forgotten, is_vouched, lasts, log_promises,
};
