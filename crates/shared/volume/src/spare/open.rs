//! Opening a log with a spare one: do both belong together (rule R16), and what does the spare one
//! have that the first one lacks?

use super::alone::{copy_log, tell};
use super::first::First;
use super::pair::{LogPair, Shared};
use super::state::State;
use super::store::{Slot, Tail, scan};
use super::work::Trouble;
use crate::header::{HeaderView, newest_host, read_log_header};
use siftfs_base::{BLOCK_SIZE, Error, Result, corrupt};
use siftfs_device::{AlignedBuf, Device};
use siftfs_log::{HostState, SpareHeader, show_uuid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

impl LogPair {
    /// The log on `first`, whose spare one is on `spare`. For a caller that may write both, what
    /// the first one lacks is brought home, durably; else it is read from where it is. A first
    /// device that cannot be written is given up, if the spare one can be the log alone. Where it
    /// is that already, `first` is not looked at, and may be missing.
    ///
    /// # Errors
    /// Refused if there is no log, no spare log, or they belong to different volumes; corrupt if
    /// one of both is an older copy, or the spare log has lost what was durable.
    pub fn open(
        first: Option<Arc<dyn Device>>,
        spare: Arc<dyn Device>,
        may_write: bool,
    ) -> Result<Arc<Self>> {
        // What a dead process left in a volatile cache is read below (rule R18).
        if may_write {
            spare.flush()?;
        }
        let slot = Slot::read(&*spare)?;
        if slot.header.alone {
            require_len("spare log", slot.header.len, spare.size())?;
            let image = First::image(&spare, &slot.header);
            check_pair(image.get(), &*spare, &slot.header)?;
            let state = State::new(slot, BTreeMap::new(), Tail::FIRST);
            return Ok(Arc::new(Self::of(Shared::new(image, spare, state))));
        }
        let first = first.ok_or_else(|| {
            Error::Refused(
                "the log's device is missing, and the spare one has not all of it".into(),
            )
        })?;
        let flushed = if may_write { first.flush() } else { Ok(()) };
        check_pair(&*first, &*spare, &slot.header)?;
        let mut held = BTreeMap::new();
        let tail = scan(&*spare, &slot.header, &mut |block, place| {
            held.insert(block, place);
        })?;
        if !held.is_empty() {
            check_times(&*first, &slot.header)?;
        }
        let shared = Shared::new(First::own(first), spare, State::new(slot, held, tail));
        if may_write {
            let flushed = flushed.map_err(Trouble::First);
            let usable = flushed.and_then(|()| try_first(&shared));
            match usable.and_then(|()| bring_home(&shared)) {
                // An older copy of one of both is refused by `check`, and nothing is written.
                Err(Trouble::First(error))
                    if slot.header.image > 0
                        && check_times(shared.first.get(), &slot.header).is_ok() =>
                {
                    give_up(&shared, &error)?;
                }
                done => done.map_err(Trouble::error)?,
            }
        }
        Ok(Arc::new(Self::of(shared)))
    }
}

/// Both are of one volume, and as long as they were.
fn check_pair(first: &dyn Device, spare: &dyn Device, header: &SpareHeader) -> Result<()> {
    let log = read_log_header(first)?;
    let volume = show_uuid(&log.volume);
    if header.volume != log.volume {
        let other = show_uuid(&header.volume);
        let what = format!("the spare log is that of volume {other}, this is volume {volume}");
        return Err(Error::Refused(what));
    }
    if !log.spare_log() {
        return Err(Error::Refused(format!("volume {volume} has no spare log: leave it out")));
    }
    require_len("spare log", header.len, spare.size())?;
    require_len("log", header.log_len, first.size())
}

fn require_len(what: &'static str, len: u64, now: u64) -> Result<()> {
    match now >= len {
        true => Ok(()),
        false => Err(corrupt(what, format!("truncated: it had {len} bytes, now there are {now}"))),
    }
}

/// The first log is left only in an epoch that its own header names already.
fn check_times(first: &dyn Device, header: &SpareHeader) -> Result<()> {
    let log = read_log_header(first)?;
    let host = newest_host(first, &log)?;
    match host.map(|host| host.lane_key.epoch) {
        Some(epoch) if epoch == header.epoch => Ok(()),
        epoch => Err(older(header, epoch.unwrap_or_default().0)),
    }
}

fn older(header: &SpareHeader, epoch: u64) -> Error {
    corrupt(
        "spare log",
        format!(
            "it is of mount {}, the log of mount {epoch}: an older copy of one of both; what was made \
             durable last is in the newer one",
            header.epoch.0
        ),
    )
}

/// Can the first device be written? It is given the block that it has already, so that a power cut
/// in the midst changes nothing. Only a device that may be given up is asked.
fn try_first(shared: &Shared) -> std::result::Result<(), Trouble> {
    if !shared.lock().can_lose_first() {
        return Ok(());
    }
    let (mut block, first) = (AlignedBuf::zeroed(BLOCK_SIZE), shared.first.get());
    let tried = first.read(0, &mut block).and_then(|()| first.write(0, &block, true));
    tried.map_err(Trouble::First)
}

/// What the spare log has goes to the first one, and then a new generation begins.
fn bring_home(shared: &Shared) -> std::result::Result<(), Trouble> {
    let mut st = shared.lock();
    if st.tail == Tail::FIRST {
        return Ok(());
    }
    let (slot, blocks) = (st.slot, st.take_lacking(usize::MAX));
    shared.copy(&blocks)?;
    shared.flush_first()?;
    let next = slot.write_next(&*shared.spare, slot.header.epoch, slot.header.nonce);
    st.forget_held(next.map_err(Trouble::Spare)?);
    Ok(())
}

/// The first device cannot be written: the spare one is the log from now on. What this process has
/// read is what is copied, so it does not matter what else the first device may come to have.
fn give_up(shared: &Shared, error: &Error) -> Result<()> {
    let (slot, since) = (shared.lock().slot, Instant::now());
    let next = copy_log(shared, slot)?;
    shared.first.give_up(&shared.spare, &next.header);
    shared.lock().forget_held(next);
    tell(shared, Some(error), since);
    Ok(())
}

/// Has the volume the spare log that its header demands, of the time of its lanes? `pair` is how
/// its log was opened; `made` says that the spare log is being made.
///
/// # Errors
/// Refused if it is missing, or there is one and the volume has none; corrupt if it is an older
/// copy.
pub fn check(view: &HeaderView, pair: Option<&LogPair>, made: bool) -> Result<()> {
    let volume = show_uuid(&view.header.volume);
    let pair = match (view.header.spare_log(), pair) {
        (false, None) => return Ok(()),
        (true, None) if made => return Ok(()),
        (true, Some(pair)) => pair,
        (false, Some(_)) => {
            return Err(Error::Refused(format!("volume {volume} has no spare log: leave it out")));
        }
        (true, None) => {
            return Err(Error::Refused(format!(
                "the spare log of volume {volume} was not found: it may hold what was made durable last; \
                 name it (--log-spare), or, if it is lost, give the log up (siftfs recover \
                 --discard-log)"
            )));
        }
    };
    let header = pair.header();
    let (host, lanes) = (&view.host, view.host.lane_key.epoch);
    // A damaged superblock says nothing against what the header says.
    let unmarked = view.area.is_some_and(|a| a.checksum_ok && !a.marker);
    let in_use = host.state != HostState::Clean && !unmarked;
    // A recovery that goes on to the logs of programs gives the spare log its next epoch first.
    let recovering = host.state == HostState::Recovering && host.registry.is_some();
    let ahead = recovering && header.epoch > lanes;
    match in_use && header.epoch != lanes && !ahead {
        true => Err(older(&header, lanes.0)),
        false => Ok(()),
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
