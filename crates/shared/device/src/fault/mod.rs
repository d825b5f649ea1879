//! A device that breaks on purpose.
//!
//! [`FaultDevice`] follows the crash model's medium to the letter: a write is volatile until a
//! flush, and at a power cut each write that was not flushed is kept, lost or torn at sectors,
//! independently of all others. From [`FaultDevice::with_bytes_from`] on it is memory that is
//! addressed by bytes, torn at words. It counts writes and flushes, so that a test can cut at each
//! of them, injects errors, wrong bytes and delays by rule, and stalls at a period.

mod cache;
mod device;
mod history;
mod rules;
mod stalls;

pub use cache::{Cut, Fate, PendingWrite, VolatileCache};
pub use device::{FaultDevice, FaultStats};
pub use history::{History, OpKind, OpRecord};
pub use rules::{Fault, FaultId, Gate, OpClass};
pub use stalls::Stalls;
