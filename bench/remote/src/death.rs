//! A server killed under load and started again at once: how long until the clients that come back
//! are answered again, beside recovery's own time; and how long somebody waits where another client
//! does not come back.

use crate::Plan;
use crate::stage::{Served, Stage, Way};
use siftfs::{Claim, Volume as Connected};
use siftfs_rig::figure::Output;
use siftfs_rig::fresh::fresh;
use siftfs_rig::place::{Failed, Result, failed};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use siftfs_rig::volume::Volume;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Files of a writer, one after the other.
const FILES: usize = 64;
/// Between the death and the next server: nothing of the old one is on its way any more.
const PAUSE: Duration = Duration::from_millis(50);
/// The same where the server is away for longer: its clients dial less often then.
const AWAY: Duration = Duration::from_secs(3);
/// How long a writer may wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// The grace time, in milliseconds (`docs/design/lost-server.md`, L5).
const GRACE: f64 = 5000.0;

/// A thread that writes files and makes every other one durable, until it is told to end.
struct Writer {
    over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Instant>>>,
}

fn write(dir: &std::path::Path, over: &AtomicBool) -> io::Result<Vec<Instant>> {
    let mut answered = Vec::new();
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let file = File::create(dir.join(format!("file-{}", number % FILES)))?;
        file.write_all_at(&fresh::<4096>(), 0)?;
        if number % 2 == 0 {
            file.sync_all()?;
        }
        answered.push(Instant::now());
        number += 1;
    }
    Ok(answered)
}

impl Writer {
    fn start(mount: &Volume) -> Result<Self> {
        let dir = mount.dir.join(mount.dir.file_name().unwrap_or_default());
        fs::create_dir_all(&dir).map_err(failed(dir.display()))?;
        let over = Arc::new(AtomicBool::new(false));
        let theirs = over.clone();
        let thread = thread::spawn(move || {
            // Servers are started meanwhile, which are to have no file of a mount open.
            siftfs_rig::descriptors::own_table()?;
            write(&dir, &theirs)
        });
        Ok(Self { over, thread })
    }

    /// Ends it; when it was first answered after `since`.
    fn first_after(self, since: Instant) -> Result<Instant> {
        let answered = self.end()?;
        let first = answered.into_iter().find(|at| *at > since);
        first.ok_or_else(|| Failed("a writer was not answered again".into()))
    }

    fn end(self) -> Result<Vec<Instant>> {
        self.over.store(true, Ordering::Relaxed);
        let start = Instant::now();
        while !self.thread.is_finished() {
            if start.elapsed() > PATIENCE {
                return Err(Failed("a writer is not answered".into()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let answered = self.thread.join().map_err(|_| Failed("a writer failed".into()))?;
        answered.map_err(failed("a writer"))
    }
}

/// A server's death after which both mounts come back, a number for each round, in milliseconds.
#[derive(Default)]
struct Both {
    /// From the start of the server until it says that it listens.
    recovery: Vec<f64>,
    /// From there to the first answer to each of the mounts; the later one.
    returned: Vec<f64>,
}

/// All that is measured, a number for each round, in milliseconds.
#[derive(Default)]
struct Times {
    /// The server is there again at once.
    at_once: Both,
    /// It was away for longer.
    away: Both,
    /// Recovery where one client does not come back.
    recovery_alone: Vec<f64>,
    /// From there to the first answer to the mount that came back.
    waited: Vec<f64>,
    /// From there until a new client has made a file.
    stranger: Vec<f64>,
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1000.0
}

/// Another server in the place of one that was killed; when it was started, and when it listened.
fn again(stage: &Stage<'_>, served: &mut Served) -> Result<(Instant, Instant)> {
    let started = Instant::now();
    stage.start(served, &[])?;
    Ok((started, Instant::now()))
}

fn both_return(
    plan: &Plan<'_>,
    (stage, served): (&Stage<'_>, &mut Served),
    mounts: &[Volume; 2],
    (times, away): (&mut Both, Duration),
) -> Result<()> {
    let [one, other] = [Writer::start(&mounts[0])?, Writer::start(&mounts[1])?];
    thread::sleep(plan.time);
    served.kill()?;
    thread::sleep(away);
    let (started, listens) = again(stage, served)?;
    thread::sleep(Duration::from_millis(1500));
    let first = [one.first_after(started)?, other.first_after(started)?];
    times.recovery.push(milliseconds(started, listens));
    let later = first.map(|at| milliseconds(listens, at));
    times.returned.push(later[0].max(later[1]));
    Ok(())
}

/// A program that connects anew, and makes a file.
fn stranger(address: String, number: usize) -> JoinHandle<siftfs::Result<Instant>> {
    thread::spawn(move || {
        let address = address.parse()?;
        let reached = (&siftfs::transport(), None);
        let volume = Connected::connect_with(&address, reached, "", Claim::Owner)?;
        drop(volume.create(&format!("/stranger-{number}"), 0o600)?);
        let made = Instant::now();
        volume.close()?;
        Ok(made)
    })
}

/// One of two mounts dies with the server, and does not come back.
fn one_returns(
    plan: &Plan<'_>,
    (stage, served): (&Stage<'_>, &mut Served),
    mounts: &[Volume; 2],
    (times, round): (&mut Times, usize),
) -> Result<()> {
    let [stays, gone] = mounts;
    let (one, other) = (Writer::start(stays)?, Writer::start(gone)?);
    thread::sleep(plan.time);
    gone.kill_daemon_and(|| served.kill())?;
    // Its calls ended with its daemon.
    let _ = other.end();
    thread::sleep(PAUSE);
    let (started, listens) = again(stage, served)?;
    let stranger = stranger(served.address()?.to_owned(), round);
    let start = Instant::now();
    while !stranger.is_finished() && start.elapsed() < PATIENCE {
        plan.place.go_on()?;
        thread::sleep(Duration::from_millis(5));
    }
    if !stranger.is_finished() {
        return Err(Failed("a new client is not answered".into()));
    }
    thread::sleep(Duration::from_millis(500));
    let first = one.first_after(started)?;
    let made = stranger.join().map_err(|_| Failed("a new client failed".into()))?;
    let made = made.map_err(|e| Failed(format!("a new client: {e}")))?;
    times.recovery_alone.push(milliseconds(started, listens));
    times.waited.push(milliseconds(listens, first));
    times.stranger.push(milliseconds(listens, made));
    Ok(())
}

fn rows(times: Times) -> Vec<Row> {
    let target = |most| Some(Target::AtMost(most));
    let plain = |what: &str, rounds: &[f64], target| Compared {
        what: what.into(),
        rounds: rounds.iter().map(|ms| ms / 1000.0).collect(),
        target,
        paper: None,
    };
    let waited = plain("the mount's seconds after recovery", &times.waited, target(GRACE / 1000.0));
    let stranger =
        plain("the new client's seconds after recovery", &times.stranger, target(GRACE / 1000.0));
    let sides = |recovery: Vec<f64>, after: Vec<(&str, Vec<f64>)>| {
        let first = Side::new("recovery: server started to listening", recovery);
        let after = after.into_iter().map(|(name, times)| Side::new(name, times));
        std::iter::once(first).chain(after).collect()
    };
    let both = |name: &str, times: Both| Row {
        name: name.into(),
        unit: "ms",
        compared: vec![plain("seconds after recovery", &times.returned, target(1.0))],
        sides: sides(times.recovery, vec![("then, to a mount's first answer", times.returned)]),
    };
    vec![
        both(
            "a server killed under load and started at once; both mounts come back",
            times.at_once,
        ),
        both("... and started after 3 s", times.away),
        Row {
            name: "... and started at once; the daemon of one of the mounts killed with it".into(),
            unit: "ms",
            sides: sides(
                times.recovery_alone,
                vec![
                    ("then, to the other mount's first", times.waited),
                    ("then, to a new client's new file", times.stranger),
                ],
            ),
            compared: vec![waited, stranger],
        },
    ]
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let mut served = stage.serve(&stage.make("served", "512M")?, Way::Unix, &[])?;
    let stays = stage.mount_served(&served, "stays")?;
    let mut times = Times::default();
    let mut mounts = [stays, stage.mount_served(&served, "other-0")?];
    for round in plan.rounds() {
        for (times, away) in [(&mut times.at_once, PAUSE), (&mut times.away, AWAY)] {
            both_return(plan, (&stage, &mut served), &mounts, (times, away))?;
        }
        one_returns(plan, (&stage, &mut served), &mounts, (&mut times, round))?;
        detach(&mounts[1].dir)?;
        mounts[1] = stage.mount_served(&served, &format!("other-{}", round + 1))?;
    }
    crate::stage::unmount(&mounts)?;
    served.end()?;
    Ok(show(
        &rows(times),
        "two mounts by a unix socket, a writer each that makes files and syncs every other one. Recovery is all that \
         a new server does before it listens. A mount's first answer is the later one of both. Where a client does \
         not come back, the others wait for it for the grace time, 5 s after the server has begun to answer",
    ))
}

/// Takes a mount away whose daemon is dead.
fn detach(dir: &PathBuf) -> Result<()> {
    rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH)
        .map_err(|e| Failed(format!("{}: {e}", dir.display())))
}
