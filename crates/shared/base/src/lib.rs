//! Types every role shares: numbers with units, errors, range sets, time.
//!
//! This crate does no I/O and knows no format.

mod block;
pub mod bounded;
mod checksum;
mod crc;
mod error;
mod num;
mod rangeset;
mod rng;
mod time;
mod turnstile;

pub use block::{LentBlock, SharedBlock};
pub use checksum::checksum;
pub use crc::{crc32c, crc32c_append};
pub use error::{Error, Result, corrupt, errno};
pub use num::*;
pub use rangeset::{Blocks, Bytes, RangeSet};
pub use rng::{Rng, mix};
pub use time::{Clock, ManualClock, SystemClock, Timestamp};
pub use turnstile::{Alone, Inside, Turnstile};
