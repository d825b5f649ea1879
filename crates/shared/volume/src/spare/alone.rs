//! A log's device that fails: all that can be read of it is copied to the spare one, which is the
//! log alone from then on.

use super::pair::Shared;
use super::state::{Hold, State};
use super::store::Slot;
use siftfs_base::{Error, Result};
use siftfs_device::AlignedBuf;
use siftfs_log::SpareHeader;
use std::sync::MutexGuard;
use std::time::Instant;

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// Gives the first device up, as [`State::lose`] has decided, while nobody is answered. No call is
/// inside it, and none comes.
pub(super) fn stand_alone<'a>(
    shared: &'a Shared,
    mut st: MutexGuard<'a, State>,
) -> MutexGuard<'a, State> {
    while st.is_appending() && st.failed.is_none() {
        st = shared.wait(&shared.changed, st);
    }
    if st.failed.is_some() || st.stop {
        return st;
    }
    st.hold = Hold::Closing;
    let slot = st.slot;
    let why = st.lost.clone();
    drop(st);
    let since = Instant::now();
    let next = copy_log(shared, slot);
    st = shared.lock();
    match next {
        Ok(next) => {
            shared.first.give_up(&shared.spare, &next.header);
            st.stand_alone(next, Instant::now());
            tell(shared, why.as_ref(), since);
        }
        Err(error) => st.fail(error),
    }
    st
}

/// Tells the administrator that the log has one device less.
pub(super) fn tell(shared: &Shared, why: Option<&Error>, since: Instant) {
    let failed = shared.first.original().map(|device| device.describe().path);
    tracing::error!(
        log = failed.as_deref().unwrap_or_default(),
        spare = shared.spare.describe().path,
        error = why.map(ToString::to_string).unwrap_or_default(),
        copied_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        "the log's device failed and is not used any more: the spare log is the log alone"
    );
}

/// Copies all that can be read of the log to the image and makes that the log, durably. Returns the
/// header that says so.
///
/// # Errors
/// Something cannot be read, or the spare device cannot be written: the log is where it was.
pub(super) fn copy_log(shared: &Shared, slot: Slot) -> Result<Slot> {
    let SpareHeader { image, log_len, .. } = slot.header;
    if let Some(taken) = shared.first.original().and_then(|device| device.was_taken()) {
        return Err(Error::Latched(taken));
    }
    let mut buf = AlignedBuf::zeroed(CHUNK);
    for at in (0..log_len).step_by(CHUNK) {
        if shared.lock().stop {
            return Err(Error::Latched("the log was given up".into()));
        }
        let len = usize::try_from(log_len - at).map_or(CHUNK, |left| left.min(CHUNK));
        let bytes = buf.get_mut(..len).expect("a chunk has room");
        shared.read(at, bytes)?;
        shared.spare.write(image + at, bytes, false)?;
    }
    shared.spare.flush()?;
    slot.write_alone(&*shared.spare)
}

#[cfg(test)]
#[path = "alone_tests.rs"]
mod tests;
