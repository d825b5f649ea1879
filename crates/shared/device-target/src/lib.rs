//! Storage whose other end is the process that has it open, the *target*
//! (`docs/design/target.md`): a volume's devices over a connection of the block protocol.
//!
//! Every call is one message there and one back; a durable write carries its demand with it, so an
//! fsync is one round trip. A connection that is lost is made again, if the volume has a keeper
//! that can say whether it is still this host's ([`Target::keep`]): what was written and not
//! flushed is written again first, so that a flush keeps its promise over the target's death.
//! Without one, every call fails from then on.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod again;
mod calls;
mod device;
mod grants;
mod place;
mod queues;
mod target;
mod unflushed;
mod waits;

pub use device::TargetDevice;
pub use grants::{Granted, Settled};
pub use place::{TargetPlace, dial, over_socket};
pub use queues::{
    Connects, Covered, Failed, Fate, Kept, Kind, Lines, Next, Outcome, Queue, RequestOrder,
    Sequence, Taken, Turn,
};
pub use siftfs_transport::Address;
pub use target::{Keeper, Opened, Target};
pub use waits::Waits;
