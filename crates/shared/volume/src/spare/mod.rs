//! A log that fails over: the log's device and a spare one behind it, as one device
//! (`docs/design/log-spare.md`).
//!
//! While the first device answers, it has all writes. When its oldest call is older than a bound,
//! what is not durable there goes to the spare one as batches (`siftfs-log`), and so does what
//! comes. Callers are answered when that is durable. When the first device answers again, it is
//! given all that it lacks, and then a new generation ends the batches. A process that opens the
//! log brings home what the spare device has before it reads anything.
//!
//! When the first device *fails*, all that can be read of it is copied to an image on the spare
//! one, which is the first device from then on, and alone.
//!
//! So what this is above the two is a device as any other: each promise of [`Device`] holds, at a
//! power cut of each of the two by itself.
//!
//! [`Device`]: siftfs_device::Device

mod alone;
mod first;
mod open;
mod pair;
mod state;
mod store;
#[cfg(test)]
#[path = "test_util.rs"]
mod test_util;
mod work;

pub use open::check;
pub use pair::{LogPair, SpareReport, SpareState};
pub use store::{MIN_SPARE, erase_spare, format_spare, read_spare_header, require_room_for_spare};
