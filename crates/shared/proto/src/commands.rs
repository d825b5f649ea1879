//! The commands of a mount's ioctls that have an argument of one size, or none ("Bytes of the
//! ioctls" in `docs/design/operations.md`): as programs send them, and as the mount knows them.

/// The type of SiftFS's own.
const KIND: u8 = 0xE5;

const WRITE: u32 = 1;
const READ: u32 = 2;

/// Bytes of a ticket.
const TICKET: usize = size_of::<u64>();

/// Stages a file: a ticket comes back.
pub const STAGE: u32 = command(READ, 1, TICKET);
/// Is a ticket durable? 1 or 0 comes back in its place.
pub const POLL: u32 = command(READ | WRITE, 2, TICKET);
/// Waits for a ticket: ticket, and time in nanoseconds or [`NO_TIMEOUT`].
pub const WAIT: u32 = command(WRITE, 3, TICKET + size_of::<u64>());
/// A ticket of all that is staged so far comes back.
pub const BARRIER: u32 = command(READ, 4, TICKET);

/// As [`WAIT`]'s time: none.
pub const NO_TIMEOUT: u64 = u64::MAX;

/// F2FS's, as SQLite sends them: what is offered comes back, 4 bytes.
pub const FEATURES: u32 = 0x8004_f50c;
/// Starts an atomic section.
pub const START: u32 = 0xf501;
/// Commits it.
pub const COMMIT: u32 = 0xf502;
/// Aborts it.
pub const ABORT: u32 = 0xf505;

/// The number of an ioctl(2), the same on every machine that the kernel serves.
const fn command(direction: u32, number: u8, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (KIND as u32) << 8 | number as u32
}
