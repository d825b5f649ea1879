//! Opening a log with a spare one: do both belong together (rule R16), and what does the spare one
//! have that the first one lacks?

use super::pair::{LogPair, Shared};
use super::state::State;
use super::store::{Slot, scan};
use crate::header::{HeaderView, newest_host, read_log_header};
use siftfs_base::{Error, Result, corrupt};
use siftfs_device::Device;
use siftfs_log::{HostState, SpareHeader, show_uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

impl LogPair {
    /// The log on `first`, whose spare one is on `spare`. For a caller that may write both, what
    /// the first one lacks is brought home, durably; else it is read from where it is.
    ///
    /// # Errors
    /// Refused if there is no log, no spare log, or they belong to different volumes; corrupt if
    /// one of both is an older copy, or the spare log has lost what was durable.
    pub fn open(
        first: Arc<dyn Device>,
        spare: Arc<dyn Device>,
        may_write: bool,
    ) -> Result<Arc<Self>> {
        if may_write {
            // What a dead process left in a volatile cache is read below (rule R18).
            first.flush()?;
            spare.flush()?;
        }
        let slot = Slot::read(&*spare)?;
        check_pair(&*first, &*spare, &slot.header)?;
        let mut held = BTreeMap::new();
        let tail = scan(&*spare, &slot.header, &mut |block, place| {
            held.insert(block, place);
        })?;
        if !held.is_empty() {
            check_times(&*first, &slot.header)?;
        }
        let shared = Shared::new(first, spare, State::new(slot, held, tail));
        if may_write {
            bring_home(&shared)?;
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
    if header.len > spare.size() || header.log_len > first.size() {
        return Err(corrupt(
            "spare log",
            format!(
                "truncated: it had {} bytes, of a log of {}; now there are {} and {}",
                header.len,
                header.log_len,
                spare.size(),
                first.size()
            ),
        ));
    }
    Ok(())
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

/// What the spare log has goes to the first one, and then a new generation begins.
fn bring_home(shared: &Shared) -> Result<()> {
    let mut st = shared.lock();
    if st.tail == super::store::Tail::FIRST {
        return Ok(());
    }
    let (slot, blocks) = (st.slot, st.take_lacking(usize::MAX));
    shared.copy(&blocks)?;
    shared.first.flush()?;
    let next = slot.write_next(&*shared.spare, slot.header.epoch, slot.header.nonce)?;
    st.forget_held(next);
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
