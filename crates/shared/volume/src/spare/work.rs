//! The threads of a log with a spare one. None of them holds the lock while it is in a device.

use super::alone::stand_alone;
use super::pair::Shared;
use super::state::{Hold, Job, Mode, State};
use super::store::{Slot, encode};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error};
use siftfs_device::AlignedBuf;
use std::sync::MutexGuard;
use std::time::Instant;

/// Blocks that go to the first log at once, and that may lack when it is about to be gone back to.
const ROUND: usize = 256;
/// Rounds that are flushed together.
const MOST_OWED: u32 = 16;

type Work = fn(&Shared);

/// The threads: calls that the first device has at once, each in one of its own, the spare device's
/// one writer, and the one that brings home.
pub(super) const THREADS: [(&str, Work); 10] = [
    ("siftfs-log-0", keep),
    ("siftfs-log-1", keep),
    ("siftfs-log-2", keep),
    ("siftfs-log-3", keep),
    ("siftfs-log-4", keep),
    ("siftfs-log-5", keep),
    ("siftfs-log-6", keep),
    ("siftfs-log-7", keep),
    ("siftfs-spare", append),
    ("siftfs-home", bring_home),
];

/// Has calls of the first device carried out, one after the other, until it is stopped.
fn keep(shared: &Shared) {
    let mut st = shared.lock();
    while !st.stop {
        let Some(job) = st.next_job(Instant::now()) else {
            st = shared.wait(&shared.jobs, st);
            continue;
        };
        if st.has_jobs() {
            shared.jobs.notify_one();
        }
        st = carry_out(shared, st, &job);
        shared.changed.notify_all();
    }
}

fn carry_out<'a>(
    shared: &'a Shared,
    mut st: MutexGuard<'a, State>,
    job: &Job,
) -> MutexGuard<'a, State> {
    match *job {
        Job::Write(seq) => {
            let Some(write) = st.to_write(seq) else { return st };
            let (offset, data, durable) = (write.offset, write.data.clone(), write.durable);
            st.running += 1;
            drop(st);
            let result = shared.first.get().write(offset, &data, durable);
            st = shared.lock();
            st.running -= 1;
            st.written(seq, result);
        }
        Job::Flush(seq) => {
            let covered = st.answered();
            st.running += 1;
            drop(st);
            let result = shared.first.get().flush();
            st = shared.lock();
            st.running -= 1;
            st.flushed(seq, &covered, result);
        }
    }
    st
}

/// Writes batches to the spare device, each once the one before it is durable, until it is stopped.
fn append(shared: &Shared) {
    let mut st = shared.lock();
    while !st.stop {
        if !st.may_append() {
            st = shared.wait(&shared.queued, st);
            continue;
        }
        let Some((tail, parts)) = st.next_batch() else {
            shared.changed.notify_all();
            continue;
        };
        let header = st.slot.header;
        drop(st);
        let batch = encode(&header, tail, &parts);
        let result = shared.spare.write(tail.pos, &batch, true);
        st = shared.lock();
        match result {
            Ok(()) => st.appended(&parts),
            Err(error) => st.fail(error),
        }
        shared.changed.notify_all();
    }
}

/// Brings home what the spare device has, once the first one answers again, until it is stopped.
fn bring_home(shared: &Shared) {
    let mut st = shared.lock();
    // Rounds that owe a flush.
    let mut owed = 0u32;
    while !st.stop {
        let due = st.mode == Mode::Spare && st.running == 0 && st.failed.is_none();
        if !due {
            st = shared.wait(&shared.changed, st);
            continue;
        }
        if st.lost.is_some() {
            st = stand_alone(shared, st);
            owed = 0;
            shared.tell_all();
            continue;
        }
        let last = st.lacking() <= ROUND || st.full;
        st = match (last, owed) {
            // Others come meanwhile, so that the last flush has little to do.
            (true, 1..) | (false, MOST_OWED) => outside(shared, st, || shared.flush_first()),
            (false, _) => {
                let blocks = st.take_lacking(ROUND);
                outside(shared, st, || shared.copy(&blocks))
            }
            (true, 0) => the_rest(shared, st),
        };
        owed = match (last, owed) {
            (true, _) | (false, MOST_OWED) => 0,
            (false, rounds) => rounds + 1,
        };
        shared.tell_all();
    }
}

/// Does something in a device, while others come.
fn outside<'a>(
    shared: &'a Shared,
    st: MutexGuard<'a, State>,
    work: impl FnOnce() -> std::result::Result<(), Trouble>,
) -> MutexGuard<'a, State> {
    drop(st);
    let result = work();
    let mut st = shared.lock();
    if let Err(trouble) = result {
        trouble.tell(&mut st);
    }
    st
}

/// The last blocks, while no others come, and then the end of the generation. A caller that waits
/// for too long ends the hold: then nothing has been gained but that few blocks lack.
fn the_rest<'a>(shared: &'a Shared, mut st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    st.hold = Hold::Since(Instant::now());
    shared.changed.notify_all();
    while st.is_appending() && st.failed.is_none() {
        st = shared.wait(&shared.changed, st);
    }
    if st.hold == Hold::No || st.failed.is_some() {
        return st;
    }
    let blocks = st.take_lacking(usize::MAX);
    st = outside(shared, st, || shared.copy(&blocks).and_then(|()| shared.flush_first()));
    if st.hold == Hold::No || st.failed.is_some() || st.stop {
        return st;
    }
    st.hold = Hold::Closing;
    let Slot { header, .. } = st.slot;
    let slot = st.slot;
    drop(st);
    let next = slot.write_next(&*shared.spare, header.epoch, header.nonce);
    st = shared.lock();
    match next {
        Ok(next) => st.go_back(next, Instant::now()),
        Err(error) => st.fail(error),
    }
    st
}

/// Which of the two devices has failed.
pub(super) enum Trouble {
    First(Error),
    Spare(Error),
}

impl Trouble {
    fn tell(self, st: &mut State) {
        match self {
            Self::First(error) => st.lose(error),
            Self::Spare(error) => st.fail(error),
        }
    }

    /// What failed.
    pub fn error(self) -> Error {
        match self {
            Self::First(error) | Self::Spare(error) => error,
        }
    }
}

impl Shared {
    /// Copies blocks of the log's device, each with its place on the spare one and in ascending
    /// order, to the first one; volatile.
    pub fn copy(&self, blocks: &[(u64, u64)]) -> std::result::Result<(), Trouble> {
        let neighbours =
            |a: &(u64, u64), b: &(u64, u64)| b.0 == a.0 + 1 && b.1 == a.1 + BLOCK_BYTES;
        for run in blocks.chunk_by(neighbours).flat_map(|run| run.chunks(ROUND)) {
            let Some((block, place)) = run.first() else { continue };
            let mut bytes = AlignedBuf::zeroed(run.len() * BLOCK_SIZE);
            self.spare.read(*place, &mut bytes).map_err(Trouble::Spare)?;
            let written = self.first.get().write(block * BLOCK_BYTES, &bytes, false);
            written.map_err(Trouble::First)?;
        }
        Ok(())
    }

    /// Makes durable what was copied to the first device.
    pub fn flush_first(&self) -> std::result::Result<(), Trouble> {
        self.first.get().flush().map_err(Trouble::First)
    }
}
