//! Accesses of an image that are under way, and the wait for their end.
#![allow(unsafe_code)]

use crate::functions::{Completion, Functions, RawImage};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that one call has under way at most.
const WINDOW: u64 = 4 << 20;

/// One access of an image, inside one of its objects.
pub(crate) enum Job<'a> {
    /// Fills the buffer.
    Read { offset: u64, buf: &'a mut [u8] },
    /// Writes the bytes.
    Write { offset: u64, data: &'a [u8] },
    /// Gives the space back.
    Discard { offset: u64, len: u64 },
    /// Waits for all writes that were begun before.
    Flush,
}

impl Job<'_> {
    /// Bytes that it has under way.
    fn weight(&self) -> u64 {
        match self {
            Job::Read { buf, .. } => buf.len() as u64,
            Job::Write { data, .. } => data.len() as u64,
            Job::Discard { .. } | Job::Flush => 0,
        }
    }

    /// What the library answers when all of it was done.
    fn whole(&self) -> isize {
        match self {
            Job::Read { buf, .. } => buf.len().cast_signed(),
            Job::Write { .. } | Job::Discard { .. } | Job::Flush => 0,
        }
    }
}

/// What is under way of one call.
#[derive(Default)]
struct Flight {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: u64,
    bytes: u64,
    /// The first errno.
    error: Option<i32>,
}

impl Flight {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is under way, or, with `room`, until this number of bytes has room
    /// beside what is. Returns the first error.
    fn wait(&self, room: Option<u64>) -> Option<i32> {
        let busy = |state: &mut State| match room {
            Some(bytes) => state.jobs > 0 && state.bytes + bytes > WINDOW,
            None => state.jobs > 0,
        };
        let waited = self.changed.wait_while(self.state(), busy);
        waited.unwrap_or_else(PoisonError::into_inner).error
    }

    fn begins(&self, bytes: u64) {
        let mut state = self.state();
        state.jobs += 1;
        state.bytes += bytes;
    }

    fn ends(&self, bytes: u64, error: Option<i32>) {
        let mut state = self.state();
        state.jobs -= 1;
        state.bytes -= bytes;
        state.error = state.error.or(error);
        // Under the lock: the one that waits may be gone as soon as the lock is free, and this
        // reference is the callback's own.
        self.changed.notify_all();
    }
}

/// Waits for what is under way, also when its thread unwinds: buffers are borrowed until then.
struct Landing<'a>(&'a Flight);

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.0.wait(None);
    }
}

/// What the library carries for an access, and hands to [`ended`].
struct Ticket {
    flight: Arc<Flight>,
    functions: &'static Functions,
    bytes: u64,
    whole: isize,
}

/// An access has ended. A thread of the library calls this: it must neither block nor panic.
extern "C" fn ended(completion: Completion, ticket: *mut c_void) {
    // SAFETY: the ticket was leaked for this one call by `begin`.
    let ticket = unsafe { Box::from_raw(ticket.cast::<Ticket>()) };
    // SAFETY: the access has ended, and the completion is released once, here.
    let result = unsafe {
        let result = (ticket.functions.rbd_aio_get_return_value)(completion);
        (ticket.functions.rbd_aio_release)(completion);
        result
    };
    let error = match result {
        _ if result == ticket.whole => None,
        ..0 => Some(i32::try_from(-result).unwrap_or(libc::EIO)),
        // A short read.
        _ => Some(libc::EIO),
    };
    ticket.flight.ends(ticket.bytes, error);
}

/// Carries the accesses out, 4 MiB of them at once, in no order. None is under way any more when
/// this returns. After an error none is begun.
///
/// # Errors
/// The first errno.
pub(crate) fn run<'a>(
    functions: &'static Functions,
    image: RawImage,
    jobs: impl IntoIterator<Item = Job<'a>>,
) -> Result<(), i32> {
    let flight = Arc::new(Flight::default());
    let landing = Landing(&flight);
    for job in jobs {
        if flight.wait(Some(job.weight())).is_some() {
            break;
        }
        begin(functions, image, job, &flight);
    }
    drop(landing);
    flight.wait(None).map_or(Ok(()), Err)
}

/// Begins one access. That it cannot be begun is noted as its end.
fn begin(functions: &'static Functions, image: RawImage, job: Job<'_>, flight: &Arc<Flight>) {
    let (bytes, whole) = (job.weight(), job.whole());
    flight.begins(bytes);
    let ticket = Box::new(Ticket { flight: flight.clone(), functions, bytes, whole });
    let ticket = Box::into_raw(ticket).cast::<c_void>();
    let mut completion = std::ptr::null_mut();
    // SAFETY: the callback has the type that the library calls, and the call fills in the handle.
    let made = unsafe { (functions.rbd_aio_create_completion)(ticket, ended, &mut completion) };
    if made < 0 {
        take_back(ticket, made);
        return;
    }
    // SAFETY: the image is open, and the buffers are borrowed until the flight has landed.
    let begun = unsafe {
        match job {
            Job::Read { offset, buf } => (functions.rbd_aio_read)(
                image,
                offset,
                buf.len(),
                buf.as_mut_ptr().cast(),
                completion,
            ),
            Job::Write { offset, data } => (functions.rbd_aio_write)(
                image,
                offset,
                data.len(),
                data.as_ptr().cast(),
                completion,
            ),
            Job::Discard { offset, len } => {
                (functions.rbd_aio_discard)(image, offset, len, completion)
            }
            Job::Flush => (functions.rbd_aio_flush)(image, completion),
        }
    };
    if begun < 0 {
        // SAFETY: the access was not begun, so that nothing else releases its completion.
        unsafe { (functions.rbd_aio_release)(completion) };
        take_back(ticket, begun);
    }
}

/// An access that was never begun ends with this error, minus an errno.
fn take_back(ticket: *mut c_void, error: c_int) {
    // SAFETY: the library has not taken the ticket.
    let ticket = unsafe { Box::from_raw(ticket.cast::<Ticket>()) };
    ticket.flight.ends(ticket.bytes, Some(-error));
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
