//! Hostile clients of a server, beside a canary that none of them may read.
//!
//! A volume is served by a unix socket, whose mode lets every user in, and over TCP with keys.
//! Hostile clients connect by both: as `nobody`, and with the key of a machine that is a client by
//! default (root squashed, a subtree). They speak the protocol by hand (`wire`), and do what no
//! client would (`attacks`). Beside them the honest work through a mount and a session of their own
//! (`ledger`), and a client that comes back has a session whose number the hostile ones know.
//!
//! All that a hostile client receives is searched for the text that is in the canaries alone: in
//! their names, bytes, attributes and links. At the end no canary has changed, the honest have all
//! that was acknowledged, none of their calls took longer than they are patient, the server's
//! memory is bounded, its log is short and tells of no panic, it ends in order, and the volume is
//! whole.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

mod attacks;
mod ground;
mod ledger;
#[path = "../../../crates/shared/calls/src/samples.rs"]
#[allow(dead_code, missing_docs)]
mod samples;
mod wire;

use attacks::Intruder;
use ground::{Ground, said};
use ledger::{Book, Connected, Mounted, Works, work};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use siftfs::Volume;
use siftfs_base::Rng;
use siftfs_calls::{Claim, FromServer, Leases, Opening, Returning, ToServer};
use siftfs_proto::{Credentials, ROOT_INO, Request};
use siftfs_rig::hostile::{NOBODY, become_user};
use siftfs_rig::place::{Failed, Place, Result};
use siftfs_users::watch::Watch;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::{Door, Needle, Wire};

/// Space needed in the temporary directory, in bytes.
const NEEDED: u64 = 3 << 30;
/// What the server may have at any time, in bytes: 1 GiB of calls and answers of all sessions, and
/// what it has by itself.
const MOST: u64 = 1536 << 20;
/// What it may have more than before when the hostile have gone.
const STAYS: u64 = 384 << 20;
/// How long it has to be rid of them.
const RID: Duration = Duration::from_secs(5);
/// Lines of the log that a second may add, and that a campaign may have anyway.
const LINES: (u64, u64) = (12, 300);
/// How often space is made for the honest.
const TIDY: Duration = Duration::from_millis(700);

/// A campaign.
#[derive(Clone, Debug)]
pub struct Options {
    /// What all decisions are drawn from.
    pub seed: u64,
    /// How long it goes on.
    pub length: Duration,
    /// How long a call of the honest may take.
    pub patience: Duration,
    /// Hostile clients at a time, by each of both ways.
    pub intruders: u64,
    /// The command under test.
    pub siftfs: PathBuf,
    /// Where the volume is made; default: `$TMPDIR`, or `/var/tmp`.
    pub dir: Option<PathBuf>,
}

/// What a campaign did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// How long it took.
    pub seconds: f64,
    /// Attacks, by their names.
    pub attacks: BTreeMap<String, u64>,
    /// Bytes that the hostile received.
    pub searched: u64,
    /// Calls of the honest.
    pub calls: u64,
    /// The longest of them, in milliseconds.
    pub longest_ms: u64,
    /// Memory of the server at first, at most, and at the end, in MiB.
    pub memory: [u64; 3],
    /// Lines of its log.
    pub lines: u64,
}

/// Lets hostile and honest clients work. `show` gets a line now and then.
///
/// # Errors
/// What was found, and by which seed.
pub fn campaign(options: &Options, show: &dyn Fn(&str)) -> Result<Summary> {
    let again =
        |Failed(why)| Failed(format!("{why}\nagain: siftfs-intruders --seed {}", options.seed));
    siftfs_rig::connection::prepare()?;
    raise_descriptors();
    let place = Place::new("siftfs-intruders", NEEDED, options.dir.as_deref())?;
    let ground = Ground::new(place, &options.siftfs, options.seed)?;
    run(options, ground, show).map_err(again)
}

/// Crowds have many connections.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map(|most| most.min(20_000));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: limit.maximum });
}

/// Attacks by their names.
type Tried = Arc<Mutex<BTreeMap<String, u64>>>;

fn run(options: &Options, ground: Ground, show: &dyn Fn(&str)) -> Result<Summary> {
    let (watch, begun) = (Arc::new(Watch::default()), Instant::now());
    let mount = ground.mount()?;
    let first = ground.memory()?;
    let honest = [
        honest(Box::new(Mounted(mount.clone())), "a mount's program", options.seed, &watch),
        honest(Box::new(Connected(ground.owner())), "a client", options.seed + 1, &watch),
    ];
    let other = Rng::new(options.seed ^ 0x0007_4e7b).bits();
    let back = comes_back(ground.by_socket(), other, &watch);
    let tried = Tried::default();
    let hostile = hostile(options, &ground, (&watch, &tried), other);
    let ended = oversee(options, &ground, &watch, show);
    watch.end();
    let stuck = watch.stuck(options.patience);
    let most = ended.and_then(|most| match stuck.first() {
        None => Ok(most),
        Some(stuck) => Err(Failed(stuck.clone())),
    })?;
    let panicked = |_| Failed("a thread of the campaign panicked".into());
    for thread in hostile {
        thread.join().map_err(panicked)?;
    }
    back.join().map_err(panicked)?.map_err(|e| Failed(format!("a client that comes back: {e}")))?;
    let mut books = Vec::new();
    for thread in honest {
        books.push(thread.join().map_err(panicked)?.map_err(Failed)?);
    }
    let (found, searched) = ground.needle.found();
    if found > 0 {
        return Err(Failed(format!("a hostile client received of a canary, {found} times")));
    }
    std::thread::sleep(RID);
    let last = ground.memory()?;
    ground.judge(&ground.owner())?;
    ground.unmount(&mount)?;
    let lines = ground.log()?.len() as u64;
    let mut summary = Summary { seed: options.seed, searched, lines, ..Summary::default() };
    (summary.calls, summary.longest_ms) = (watch.count(), watch.longest().as_millis() as u64);
    summary.attacks = tried.lock().unwrap_or_else(PoisonError::into_inner).clone();
    summary.memory = [first, most, last].map(|bytes| bytes >> 20);
    ground.end(|volume| judge_books(volume, &books))?;
    summary.seconds = begun.elapsed().as_secs_f64();
    judge(options, &summary)?;
    Ok(summary)
}

fn judge(options: &Options, summary: &Summary) -> Result<()> {
    let [first, most, last] = summary.memory;
    if most > MOST >> 20 || last > first + (STAYS >> 20) {
        return Err(Failed(format!("the server had {first}, {most} and {last} MiB")));
    }
    let lines = LINES.1 + LINES.0 * options.length.as_secs();
    match summary.lines > lines {
        true => Err(Failed(format!("its log has {} lines, more than {lines}", summary.lines))),
        false => Ok(()),
    }
}

/// Looks after all until the time is over. Returns the most memory that the server had.
fn oversee(
    options: &Options,
    ground: &Ground,
    watch: &Arc<Watch>,
    show: &dyn Fn(&str),
) -> Result<u64> {
    let (begun, mut told, mut most) = (Instant::now(), Instant::now(), 0);
    let owner = ground.owner();
    let calls = watch.calls("the owner");
    while begun.elapsed() < options.length {
        std::thread::sleep(TIDY);
        let tidied = calls.call("tidy", || tidy(&owner));
        tidied.map_err(|e| Failed(format!("the owner tidies up: {e}")))?;
        most = most.max(ground.memory()?);
        if let Some(stuck) = watch.stuck(options.patience).first() {
            return Err(Failed(stuck.clone()));
        }
        if let Some(found) = watch.findings().first() {
            return Err(Failed(found.clone()));
        }
        if ground.needle.found().0 > 0 {
            return Err(Failed("a hostile client received of a canary".into()));
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let (calls, longest) = (watch.count(), watch.longest());
            show(&format!("{calls} calls, the longest {longest:?}; {} MiB", most >> 20));
        }
    }
    Ok(most)
}

/// Takes away what the hostile have made, so that there is room.
fn tidy(owner: &Volume) -> siftfs::Result<()> {
    for dir in ["/pen/open", "/pen"] {
        for entry in owner.read_dir(dir)? {
            let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            if ["/.", "/..", "/vault", "/shared", "/open", "/common"]
                .iter()
                .any(|end| path.ends_with(end))
            {
                continue;
            }
            // A directory with something in it stays: it is small.
            let _ = owner.remove_file(&path).or_else(|_| owner.remove_dir(&path));
        }
    }
    owner.open_or_create("/pen/open/common", 0o666).map(drop)
}

fn honest(
    works: Box<dyn Works + Send>,
    name: &str,
    seed: u64,
    watch: &Arc<Watch>,
) -> JoinHandle<std::result::Result<Book, String>> {
    let (calls, watch, name) = (watch.calls(name), watch.clone(), name.to_string());
    std::thread::spawn(move || {
        let worked = work(&*works, seed, &calls).map_err(|why| format!("{name}: {why}"));
        worked.inspect_err(|why| watch.find(why.clone()))
    })
}

/// What the honest were told is there, without a server.
fn judge_books(volume: &Volume, books: &[Book]) -> Result<()> {
    for (dir, book) in ["/honest", "/client"].iter().zip(books) {
        for (name, bytes) in book {
            let path = format!("{dir}/{name}");
            let file = volume.open_file(&path).map_err(|e| Failed(format!("{path}: {e}")))?;
            if file.read_at(0, bytes.len() + 1).map_err(said)? != *bytes {
                return Err(Failed(format!("{path} is not as it was acknowledged")));
            }
        }
    }
    Ok(())
}

fn hostile(
    options: &Options,
    ground: &Ground,
    (watch, tried): (&Arc<Watch>, &Tried),
    other: u64,
) -> Vec<JoinHandle<()>> {
    let doors = [(ground.by_key(), None), (ground.by_socket(), Some(NOBODY))];
    let all = (0..options.intruders)
        .flat_map(|number| doors.iter().map(move |(door, user)| (number, door.clone(), *user)));
    let start = |(number, door, user): (u64, Door, Option<u32>)| {
        let seed = options.seed.wrapping_mul(1000) + 2 * number + u64::from(user.is_some());
        let (rng, needle, over) = (Rng::new(seed), ground.needle.clone(), watch.clone());
        let (inodes, tried) = (ground.known.clone(), tried.clone());
        let is_over = Arc::new(move || over.is_over());
        let mut intruder = Intruder { door, needle, rng, inodes, user, other, is_over };
        std::thread::spawn(move || {
            become_user(user.unwrap_or_default()).expect("root may be anybody");
            while !(intruder.is_over)() {
                let name = intruder.attack();
                let mut tried = tried.lock().unwrap_or_else(PoisonError::into_inner);
                *tried.entry(name.into()).or_default() += 1;
            }
        })
    };
    all.map(start).collect()
}

/// A kernel's client that comes back, whose number others know. Its session stays its own: it calls
/// until the end, and is known to the server then.
fn comes_back(door: Door, client: u64, watch: &Arc<Watch>) -> JoinHandle<io::Result<()>> {
    let watch = watch.clone();
    std::thread::spawn(move || {
        let calls = watch.calls("a client that comes back");
        let returning = Some(Returning { client, instance: 0 });
        let (volume, claim) = (String::new(), Claim::Kernel);
        let opening = Opening { volume, claim, caches: false, leases: Leases::None, returning };
        let needle = Arc::new(Needle::new("nothing is searched for here"));
        let mut wire = Wire::greet(&door, &needle)?;
        wire.send(&ToServer::Open(Box::new(opening)))?;
        let mut number = 0;
        while !watch.is_over() {
            match wire.receive(Duration::from_millis(300))? {
                Some(FromServer::Ended { reason, .. } | FromServer::Refused { reason }) => {
                    watch.find(format!("the session of a client that comes back: {reason}"));
                    return Err(io::Error::other(reason));
                }
                Some(FromServer::Opened { .. } | FromServer::Durable { .. }) | None => {}
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
            let request = Box::new(Request::GetAttr { file: ROOT_INO.into() });
            let (slot, credentials, change, proofs) = (0, Credentials::default(), None, None);
            wire.send(&ToServer::Call { slot, number, credentials, request, change, proofs })?;
            number += 1;
            let answer = calls.call("getattr", || -> io::Result<_> {
                loop {
                    match wire.receive(Duration::from_secs(60))? {
                        Some(FromServer::Answer { result, .. }) => return Ok(result),
                        Some(FromServer::Durable { .. }) => {}
                        other => return Err(io::Error::other(format!("{other:?}"))),
                    }
                }
            });
            answer?.map_err(|e| io::Error::other(e.to_string()))?;
        }
        wire.send(&ToServer::Bye)
    })
}
