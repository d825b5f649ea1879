//! The process that is killed: it has the volume, its mounts, a program that embeds it, and a
//! session that holds write leases with bytes that nobody else has seen.

use crate::leased::Leaser;
use crate::stage::{front_at, said};
use crate::view;
use crate::wire::Wire;
use siftfs::{RenameMode, Volume};
use siftfs_base::{Error, Result as Answer, Rng, mix};
use siftfs_fuse::Requests;
use siftfs_placement::{LocalVolume, OpenOptions};
use siftfs_rig::place::{Failed, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// One number for all that a front end shows.
#[must_use]
pub fn number_of(shown: &(view::View, view::Times)) -> u64 {
    let mut hasher = DefaultHasher::new();
    shown.hash(&mut hasher);
    hasher.finish()
}

/// What connections work on.
struct Fronts {
    volume: Volume,
    leaser: Leaser,
}

/// How the volume is opened.
fn settings(seed: u64) -> OpenOptions {
    let mut rng = Rng::new(mix(seed));
    let mut draw = |items: &[u64]| *rng.pick(items).expect("never an empty list");
    let words = ["auto", "shared", "parallel"];
    OpenOptions {
        commit_ms: draw(&[50, 300, 5000]),
        page_cache: draw(&[8, 256]) << 20,
        meta_cache: draw(&[8, 64]) << 20,
        group_wait_us: draw(&[0, 1000]),
        group: words[draw(&[0, 1, 2]) as usize].parse().unwrap_or_default(),
        low_watermark: draw(&[10, 50, 90]) as u8,
        // Nothing here depends on how fast the holder of a lease is.
        lease_term: Duration::from_secs(600),
        ..OpenOptions::default()
    }
}

/// Opens `volume`, mounts it on `dirs`, and does what the connections to `socket` ask for, until
/// one of them asks for the end.
///
/// # Errors
/// What cannot be opened, mounted or ended.
pub fn serve(
    (volume, seed): (&Path, u64),
    dirs: &[PathBuf],
    socket: &Path,
    requests: Requests,
) -> Result<()> {
    let options = settings(seed);
    let local = LocalVolume::open(volume, &options, &mut |_, _, _| {}).map_err(said)?;
    let volume = Volume::from_local(local).map_err(said)?;
    let leaser = Leaser::start(&volume).map_err(said)?;
    let mut servers = Vec::new();
    for dir in dirs {
        let open = |opening, cache| volume.front(opening, cache);
        servers.push(front_at(dir, requests, open)?);
    }
    let listener = UnixListener::bind(socket).map_err(said)?;
    println!("ready");
    std::io::stdout().flush().map_err(said)?;
    let fronts = Arc::new(Fronts { volume, leaser });
    let mut last = work(&listener, &fronts)?;
    for dir in dirs {
        siftfs_fuse::unmount(dir).map_err(|e| Failed(format!("{}: {e}", dir.display())))?;
    }
    for server in servers {
        server.join().map_err(|_| Failed("a server panicked".into()))?.map_err(said)?;
    }
    let fronts = Arc::into_inner(fronts).ok_or_else(|| Failed("a connection is open".into()))?;
    fronts.leaser.end().map_err(said)?;
    fronts.volume.close().map_err(said)?;
    last.send(&["0"], &[]).map_err(said)
}

/// Serves connections; returns the one that asks for the end, when all others have ended.
fn work(listener: &UnixListener, fronts: &Arc<Fronts>) -> Result<Wire> {
    let mut threads = Vec::new();
    for stream in listener.incoming() {
        let mut wire = Wire::new(stream.map_err(said)?);
        let first = wire.receive().map_err(said)?;
        if first.is_some_and(|(words, _)| words == ["end"]) {
            for thread in threads {
                std::thread::JoinHandle::join(thread)
                    .map_err(|_| Failed("a connection panicked".into()))?;
            }
            return Ok(wire);
        }
        let fronts = fronts.clone();
        threads.push(std::thread::spawn(move || answer_all(&mut wire, &fronts)));
    }
    Err(Failed("nobody asks any more".into()))
}

fn answer_all(wire: &mut Wire, fronts: &Fronts) {
    while let Ok(Some((words, bytes))) = wire.receive() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let sent = match answer(fronts, &words, &bytes) {
            Ok(Ok(bytes)) => wire.send(&["0"], &bytes),
            Ok(Err(Error::Posix(errno))) => wire.send(&[&errno.to_string()], &[]),
            Ok(Err(other)) => wire.send(&[&other.to_string()], &[]),
            Err(Failed(why)) => wire.send(&[&why], &[]),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Does what a message asks for.
fn answer(fronts: &Fronts, words: &[&str], bytes: &[u8]) -> Result<Answer<Vec<u8>>> {
    let Fronts { volume, leaser } = fronts;
    let number = |text: &str| text.parse::<u64>().map_err(|e| Failed(format!("{text}: {e}")));
    let path = |relative: &str| format!("/{relative}");
    let done = |answer: Answer<()>| Ok(answer.map(|()| Vec::new()));
    match *words {
        ["write", file, at] => {
            let at = number(at)?;
            done(volume.open_file(&path(file)).and_then(|file| file.write_at(at, bytes)))
        }
        ["append", file] => done(volume.open_file(&path(file)).and_then(|file| file.append(bytes))),
        ["read", file, at, len] => {
            let (at, len) = (number(at)?, number(len)? as usize);
            Ok(volume.open_file(&path(file)).and_then(|file| file.read_at(at, len)))
        }
        ["create", file] => done(volume.create(&path(file), 0o644).map(drop)),
        ["rename", from, to] => done(volume.rename(&path(from), &path(to), RenameMode::Replace)),
        ["remove", file] => done(volume.remove_file(&path(file))),
        ["sync", file] => done(volume.open_file(&path(file)).and_then(|file| file.sync_all())),
        ["sync-dir", dir] => done(volume.sync_dir(&path(dir))),
        ["sync-all"] => done(volume.sync()),
        ["view"] => {
            Ok(view::of_volume(volume).map(|shown| number_of(&shown).to_le_bytes().to_vec()))
        }
        ["keep", file, at] => done(leaser.keep(file, vec![(number(at)?, bytes.to_vec())])),
        ["keep-more", file, at] => done(leaser.keep_more(file, number(at)?, bytes.to_vec())),
        ["keep-sync", file] => done(leaser.sync(file)),
        ["give-back", file] => done(leaser.give(file)),
        _ => Err(Failed(format!("nobody knows: {words:?}"))),
    }
}
