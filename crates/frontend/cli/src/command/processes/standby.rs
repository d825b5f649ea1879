//! Servers of one volume on a cluster, of which one has it and the others wait
//! (`docs/design/replicated.md`, "Takeover of a served volume").

use super::serve::open;
use crate::daemon::notify;
use crate::options::args::Serve;
use crate::show::failure::{Failure, Outcome, USAGE};
use crate::show::output;
use siftfs_placement::{Ear, LocalVolume, Passing, Standby, Whom, is_rbd, pass_on};
use siftfs_remote::{Listener, turn_away};
use siftfs_status::{State, StateCell};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long an administrator's command waits until a standby has the volume: the owner may have
/// much to bring home.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often a standby tries again to open a volume that nobody else has, and when.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(1);
/// What is said of a volume that another process has.
const IN_USE: &str = "is in use by";
/// Between two questions of an owner whether it is to give its volume up.
const LISTENS: Duration = Duration::from_millis(500);

/// Refuses what is for volumes on a cluster, of another one.
pub(super) fn check(a: &Serve) -> Result<(), Failure> {
    let (given, what) = match (&a.succession, &a.service) {
        (s, _) if !(s.standby || s.take_over || s.hand_over) => return Ok(()),
        (s, Some(_)) if s.standby || s.take_over => {
            ("--service", "does not go with a volume that another machine may take over")
        }
        _ if is_rbd(&a.volume) => return Ok(()),
        _ => (
            "--standby, --take-over and --hand-over",
            "are for a volume on a cluster (rbd:POOL/IMAGE), which keeps a fenced process from writing",
        ),
    };
    Err(Failure::about(&a.volume, format_args!("{given} {what}")).with_code(USAGE))
}

/// Has the process that has the volume give way to one that waits for it: what is said without
/// `--listen`.
pub(super) fn have_passed_on(a: &Serve) -> Outcome {
    let how = if a.succession.hand_over { Passing::HandOver } else { Passing::TakeOver };
    let done = pass_on(&a.volume, how, PATIENCE).map_err(|e| Failure::about(&a.volume, e))?;
    let seconds = done.took.as_secs_f64();
    if a.json {
        output::say(serde_json::json!({
            "volume": a.volume, "from": done.from, "to": done.to, "seconds": seconds,
        }))?;
    } else {
        let (volume, from, to) = (a.volume.display(), done.from, done.to);
        output::say(format!("{volume}: from {from} to {to} after {seconds:.1} s"))?;
    }
    Ok(0)
}

/// Waits at the addresses where the volume will be served until it is this server's turn, and opens
/// it then; `None` if `over` comes before. Clients are told meanwhile that it waits.
pub(super) fn wait_for_turn(
    a: &Serve,
    path: &Path,
    (listeners, state): (&[Listener], &StateCell),
    over: &(dyn Fn() -> bool + Sync),
) -> Result<Option<LocalVolume>, Failure> {
    let about = |e| Failure::about(&a.volume, e);
    let places: Vec<String> = listeners.iter().map(|l| l.address().to_string()).collect();
    let standby = Standby::begin(path, &places.join(" and ")).map_err(about)?;
    announce(a, &places)?;
    state.set(State::Standby);
    let says = || state.get().line();
    let done = AtomicBool::new(false);
    let done_or_over = || done.load(Ordering::Acquire) || over();
    thread::scope(|scope| {
        for listener in listeners {
            scope.spawn(|| turn_away(listener, &says, &done_or_over));
        }
        let opened = take(a, path, standby, (state, over));
        done.store(true, Ordering::Release);
        opened
    })
}

/// Takes the volume when it is this server's turn.
fn take(
    a: &Serve,
    path: &Path,
    mut standby: Standby,
    (state, over): (&StateCell, &dyn Fn() -> bool),
) -> Result<Option<LocalVolume>, Failure> {
    let mut failed = 0;
    loop {
        let Some(turn) = standby.wait(over) else { return Ok(None) };
        tracing::info!(?turn, owner = standby.owner(), "the volume is this server's to take");
        state.set(State::Recovering);
        match open(a, path, turn.take_over) {
            Ok(volume) => {
                standby.end();
                return Ok(Some(volume));
            }
            // Another one may be about to have it, and have no lock of the cluster's yet.
            Err(failure) if failure.message.contains(IN_USE) || standby.was_late(over) => {
                tracing::info!(why = failure.message, "another server was earlier");
                state.set(State::Standby);
                failed = 0;
            }
            // One that was earlier may have fenced this attempt, and given the volume up since.
            Err(failure) if failed < TRIES => {
                tracing::warn!(why = failure.message, "the volume was not opened: tried again");
                state.set(State::Standby);
                failed += 1;
                thread::sleep(AGAIN);
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn announce(a: &Serve, places: &[String]) -> Result<(), Failure> {
    let volume = a.volume.display();
    for place in places {
        if a.json {
            let pid = std::process::id();
            output::say(serde_json::json!({ "standby": place, "volume": a.volume, "pid": pid }))?;
        } else {
            output::say(format!("{volume}: a standby at {place}"))?;
        }
    }
    notify::ready();
    Ok(())
}

/// Whom a server fences that an administrator has told to take its volume over.
pub(super) fn whom(a: &Serve) -> Option<Whom> {
    a.succession.take_over.then_some(Whom::Anybody)
}

/// Hears when an administrator wants this server to give its volume up to one that waits, from now
/// on: what is returned becomes true.
pub(super) fn hear(path: &Path) -> Arc<AtomicBool> {
    let heard = Arc::new(AtomicBool::new(false));
    if !is_rbd(path) {
        return heard;
    }
    let (says, path) = (heard.clone(), path.to_owned());
    let listen = move || {
        let ear = match Ear::of(&path) {
            Ok(ear) => ear,
            Err(error) => {
                return tracing::warn!(%error, "this server cannot be told to hand its volume over");
            }
        };
        while Arc::strong_count(&says) > 1 {
            match ear.hears() {
                Ok(true) => return says.store(true, Ordering::Release),
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "is the volume to be handed over?"),
            }
            thread::sleep(LISTENS);
        }
    };
    if let Err(error) = thread::Builder::new().name("siftfs-ear".into()).spawn(listen) {
        tracing::warn!(%error, "this server cannot be told to hand its volume over");
    }
    heard
}
