//! Tickets of volumes that are opened in the process.

use crate::convert::{borrowed, give, io_error, refuse, status, truth};
use siftfs::{File, Volume};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// A time in C's nanoseconds; none if it is negative.
pub(crate) fn timeout(nanoseconds: i64) -> Option<Duration> {
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// `siftfs_file_stage`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_file_stage(file: *const File, ticket: *mut u64) -> c_int {
    // SAFETY: the header asks for a file that is open, and for room for a ticket.
    let staged = unsafe { borrowed(file) }.and_then(|file| unsafe {
        give(ticket, || file.stage().map(|ticket| ticket.number()).map_err(io_error))
    });
    status(staged)
}

/// `siftfs_volume_barrier`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_barrier(volume: *const Volume, ticket: *mut u64) -> c_int {
    // SAFETY: the header asks for a volume that is open, and for room for a ticket.
    let drawn = unsafe { borrowed(volume) }.and_then(|volume| unsafe {
        give(ticket, || volume.barrier().map(|ticket| ticket.number()).map_err(io_error))
    });
    status(drawn)
}

/// `siftfs_volume_poll`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_poll(volume: *const Volume, ticket: u64) -> c_int {
    // SAFETY: the header asks for a volume that is open.
    let volume = unsafe { borrowed(volume) };
    truth(volume.and_then(|volume| volume.ticket(ticket).is_durable().map_err(io_error)))
}

/// `siftfs_volume_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_wait(
    volume: *const Volume,
    ticket: u64,
    nanoseconds: i64,
) -> c_int {
    // SAFETY: the header asks for a volume that is open.
    let volume = unsafe { borrowed(volume) };
    let wait = |volume: &Volume| match timeout(nanoseconds) {
        None => volume.ticket(ticket).wait(),
        Some(time) => volume.ticket(ticket).wait_timeout(time),
    };
    status(volume.and_then(|volume| wait(volume).map_err(io_error)))
}

/// `siftfs_callback` and what it is called with.
struct Callback {
    then: extern "C" fn(*mut c_void, c_int),
    context: *mut c_void,
}

// SAFETY: the header says that the call may come from another thread.
unsafe impl Send for Callback {}

impl Callback {
    fn call(self, error: c_int) {
        (self.then)(self.context, error);
    }
}

/// `siftfs_volume_when_durable`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_when_durable(
    volume: *const Volume,
    ticket: u64,
    then: Option<extern "C" fn(*mut c_void, c_int)>,
    context: *mut c_void,
) -> c_int {
    let ask = || {
        // SAFETY: the header asks for a volume that is open.
        let volume = unsafe { borrowed(volume) }?;
        let callback = Callback { then: then.ok_or_else(|| refuse(libc::EINVAL))?, context };
        volume
            .ticket(ticket)
            .when_durable(move |durable| callback.call(durable.map_or_else(|e| e.errno(), |()| 0)));
        Ok(())
    };
    status(ask())
}
