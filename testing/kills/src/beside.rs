//! A program that has the volume by its server, without a mount, beside the workers. It makes files
//! and reads them again: no call of it fails, whatever becomes of the server, and what it synced is
//! there in the next round.

use crate::signals::Signals;
use siftfs::{Error, Result, Volume};
use siftfs_model::Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

/// How often it looks whether the round ends.
const LOOK: Duration = Duration::from_millis(20);
/// How long a call may take when the round ends, before nobody waits for the server any more.
const LAST: Duration = Duration::from_secs(2);
/// Files that it has at a time.
const FILES: usize = 24;
/// Longest file in bytes.
const LONGEST: u64 = 20_000;

/// The program, from round to round of a volume.
#[derive(Default)]
pub struct Beside {
    /// What is durable, by path.
    synced: BTreeMap<String, Vec<u8>>,
    /// Files that it has made.
    pub made: u64,
}

/// What it knows of one round.
struct Work<'a> {
    volume: &'a Volume,
    rng: Rng,
    dir: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl Beside {
    /// Works until the round ends. What is wrong ends the round.
    pub fn run(&mut self, address: &str, seed: u64, signals: &Signals) {
        let volume = loop {
            match Volume::connect(address) {
                Ok(volume) => break volume,
                Err(_) if signals.stopped() => return,
                // The server is dead just now.
                Err(_) => sleep(LOOK),
            }
        };
        let (volume, over) = (&volume, AtomicBool::new(false));
        let all = scope(|scope| {
            scope.spawn(|| give_up(volume, signals, &over));
            let dir = format!("/beside-{seed:x}");
            let rng = Rng::new(seed);
            let work = Work { volume, rng, dir, files: BTreeMap::new() };
            let all = self.work(work, signals).and_then(|files| volume.sync().map(|()| files));
            over.store(true, Ordering::SeqCst);
            all
        });
        match all {
            Ok(files) => self.synced.extend(files),
            // A server that has died for good is waited for no longer.
            Err(_) if signals.stopped() => {}
            Err(error) => signals.fail(format!("the program beside: {error}")),
        }
    }

    fn work(&mut self, mut work: Work<'_>, signals: &Signals) -> Result<BTreeMap<String, Vec<u8>>> {
        work.volume.create_dir(&work.dir, 0o755)?;
        while let Some((path, bytes)) = self.synced.pop_first() {
            work.is_there(&path, &bytes)?;
            work.volume.remove_file(&path)?;
        }
        while !signals.stopped() {
            match work.step(self.made) {
                Ok(Some((path, bytes))) => drop(self.synced.insert(path, bytes)),
                Ok(None) => {}
                // The workers fill the volume now and then.
                Err(Error::Posix(libc::ENOSPC)) => sleep(LOOK),
                Err(error) => return Err(error),
            }
            while work.files.len() > FILES {
                let Some((path, _)) = work.files.pop_first() else { break };
                self.synced.remove(&path);
                work.volume.remove_file(&path)?;
            }
            self.made += 1;
        }
        Ok(work.files)
    }
}

impl Work<'_> {
    /// One more file, which is read again, as is another one. What of it is durable.
    fn step(&mut self, number: u64) -> Result<Option<(String, Vec<u8>)>> {
        let path = format!("{}/{number:08}", self.dir);
        let mut bytes = vec![self.rng.below(256) as u8; self.rng.below(LONGEST) as usize];
        let file = self.volume.create(&path, 0o644)?;
        file.write_at(0, &bytes)?;
        let tail = vec![self.rng.below(256) as u8; 100];
        // An append whose answer did not come is EIO: nobody can say whose bytes are at the end.
        file.write_at(bytes.len() as u64, &tail)?;
        bytes.extend(tail);
        self.files.insert(path.clone(), bytes.clone());
        let is_durable = self.rng.chance(50);
        if is_durable {
            file.sync_all()?;
        }
        let at = self.rng.below(self.files.len() as u64) as usize;
        for (path, bytes) in self.files.iter().skip(at).take(1).chain([(&path, &bytes)]) {
            self.is_there(path, bytes)?;
        }
        Ok(is_durable.then_some((path, bytes)))
    }

    /// # Errors
    /// It is not, or not as it was written.
    fn is_there(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let found = self.volume.open_file(path)?.read_at(0, bytes.len() + 1)?;
        match found == bytes {
            true => Ok(()),
            false => {
                let (found, wanted) = (found.len(), bytes.len());
                let why = format!("{path} is not as written: {found} bytes, of {wanted}");
                Err(Error::Refused(why))
            }
        }
    }
}

/// When the round has ended, nobody waits any more for a server that is dead.
fn give_up(volume: &Volume, signals: &Signals, over: &AtomicBool) {
    while !signals.stopped() && !over.load(Ordering::SeqCst) {
        sleep(LOOK);
    }
    let mut left = LAST;
    while !left.is_zero() && !over.load(Ordering::SeqCst) {
        sleep(LOOK);
        left = left.saturating_sub(LOOK);
    }
    volume.endpoint().give_up();
}
