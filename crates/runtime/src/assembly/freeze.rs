//! A hold at a checkpoint: everything is in the area, and changes wait until the hold ends
//! (`docs/design/replicated.md`, "Freeze").

use crate::runtime::{MAX_ROUNDS, Runtime};
use crate::session::recall::end_leases;
use crate::state::State;
use crate::state::log::hold::Hold;
use crate::state::log::running::Push;
use siftfs_base::{Error, Result, errno};
use siftfs_wire::Urgency;
use std::sync::MutexGuard;
use std::time::Duration;

/// Rounds for which removed files are waited for that something refers to: half a second.
const LATE_FORGETS: u32 = 500;
/// Sleep between two rounds.
const LOOK: Duration = Duration::from_millis(1);
/// Clients of other machines have made changes of which the log alone knows whose they were.
const CLIENTS: &str = "clients of other machines have changed names, and what is known of their calls is \
                       kept in the log: the volume cannot be held";
/// Files without a name are in ext4's list of orphans, which a clean file system does not have.
const REMOVED: &str =
    "a file that has no name any more is still open: close it (`lsof +L1` lists such files)";

/// Brings home what there is, before a [`hold`], so that the hold is short. Nobody
/// waits for it. Every write lease has ended when this returns, and none is granted until
/// [`let_go`].
///
/// # Errors
/// Something could not be made durable, or is in the way; leases are granted as before.
pub fn prepare_hold(runtime: &Runtime) -> Result<()> {
    in_the_way(&runtime.lock(), 0)?;
    end_leases(runtime);
    let home = bring_home(runtime).and_then(|()| runtime.finish_discards());
    if home.is_err() {
        let_go(runtime);
    }
    home
}

/// Has changes and fsyncs wait from now on, until [`let_go`]; reads go on. When this
/// returns, everything done before is durable and in the area, the log is empty, and nothing is
/// written any more. That takes `most` at most, and the step that is under way then.
///
/// # Errors
/// `EBUSY` if that was too short, `Refused` if something is in the way that its users have to
/// end, and those of making everything durable. Changes are taken as before.
pub fn hold(runtime: &Runtime, most: Duration) -> Result<()> {
    runtime.lock().metadata.log.hold = Hold::Callers;
    let held = hold_still(runtime, most);
    if held.is_err() {
        let_go(runtime);
    }
    held
}

/// Ends a hold: what waits goes on.
pub fn let_go(runtime: &Runtime) {
    let mut st = runtime.lock();
    st.metadata.log.hold = Hold::Open;
    let read_only = st.metadata.log.config.read_only;
    st.leases.close(read_only);
    runtime.progress.tell(st);
    runtime.wake();
}

fn hold_still(runtime: &Runtime, most: Duration) -> Result<()> {
    let start = runtime.clock.mono_ns();
    for round in 0..MAX_ROUNDS {
        bring_home(runtime)?;
        runtime.end_discards()?;
        // No other thread makes a transaction meanwhile.
        let assembly = runtime.assembly_lock();
        let mut st = runtime.lock();
        in_the_way(&st, round)?;
        let tidy = match st.metadata.log.config.read_only {
            true => Ok(true),
            false => st.metadata.tidy_trees(),
        };
        if matches!(tidy, Ok(true)) && is_home(&st) {
            st.metadata.log.hold = Hold::All;
            return Ok(());
        }
        drop((st, assembly));
        // One that failed half-way must never reach the journal.
        tidy.inspect_err(|error| runtime.fail(error))?;
        let passed = Duration::from_nanos(runtime.clock.mono_ns().saturating_sub(start));
        if passed >= most {
            break;
        }
        runtime.clock.sleep(LOOK);
    }
    Err(errno(libc::EBUSY))
}

fn bring_home(runtime: &Runtime) -> Result<()> {
    let _durable = runtime.sync_all()?;
    runtime.checkpoint(Urgency::Emergency).map(drop)
}

/// The state, when callers may change it. Waits for the end of a hold.
///
/// # Errors
/// The latched failure.
pub(crate) fn once_open(runtime: &Runtime) -> Result<MutexGuard<'_, State>> {
    loop {
        let st = runtime.lock();
        if !st.metadata.log.is_held() {
            return Ok(st);
        }
        drop(st);
        await_thaw(runtime)?;
    }
}

/// Waits for the end of a hold.
pub(crate) fn await_thaw(runtime: &Runtime) -> Result<()> {
    runtime.wait_until(|st| (!st.metadata.log.is_held()).then_some(()))
}

/// What keeps a held volume from being a clean one, and ends only when its users have ended it.
/// A removed file is waited for: the kernel sends its RELEASE and FORGET after close(2) and
/// unlink(2) have returned.
fn in_the_way(st: &State, round: u32) -> Result<()> {
    if st.metadata.log.replies.len() > 0 {
        return Err(Error::Refused(CLIENTS.into()));
    }
    if round >= LATE_FORGETS && st.metadata.tree.inodes.is_removed_in_use() {
        return Err(Error::Refused(REMOVED.into()));
    }
    Ok(())
}

/// Is everything in the area, and the log empty?
fn is_home(st: &State) -> bool {
    let log = &st.metadata.log;
    log.ledger.is_empty()
        && log.ledger.journal_used() == 0
        && log.staging.used() == 0
        && st.metadata.tree.inodes.orphans() == 0
        && st.discards.is_idle()
        && !st.has_work(&Push::All)
}
