//! Programs that know nothing of SiftFS, in processes of their own, with the library loaded that
//! takes leases for them on mounts with private logs (`siftfs accel`). Each says every call before
//! and after; what it was promised, and what it wrote, must be there after its own death, the
//! host's, and an unmount.

mod file;

use crate::process::LOOK;
use crate::signals::{Signals, is_gone};
use file::{Change, File, Pending};
use rustix::io::Errno;
use siftfs_model::{Rng, mix};
use siftfs_rig::descriptors::own_table;
use siftfs_rig::place::{Failed, Result, failed};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Programs at work.
pub const PROGRAMS: usize = 3;
/// Files of each.
const FILES: usize = 3;
/// What a program does, by its number.
const KINDS: [&str; PROGRAMS] = ["log", "pages", "mixed"];
const PROGRAM: &str = include_str!("program.py");
const LIBRARY: &str = "libsiftfs_preload.so";
/// A program that is to end has so long.
const END: Duration = Duration::from_secs(60);

/// One of the programs, from round to round.
pub struct Program {
    number: usize,
    files: Vec<File>,
    /// What was asked for and not answered when it ended.
    under_way: Option<(String, Pending)>,
    /// Its last calls.
    story: Vec<String>,
    /// Calls of fsync(2) and fdatasync(2) that returned.
    pub synced: u64,
    /// How often it was killed while the host lived.
    pub killed: u64,
}

/// What a program is started with.
#[derive(Clone)]
pub struct Start {
    /// The library.
    pub library: PathBuf,
    /// Where its directory lies.
    pub mount: PathBuf,
    /// Of what it does.
    pub seed: u64,
    /// It is killed, and started anew, about so often.
    pub killed_every: Option<Duration>,
    /// It dies with the host, and does not learn of its death.
    pub dies_with_host: bool,
}

/// The library beside the command; cargo has it one directory below for tests.
///
/// # Errors
/// It is not there.
pub fn library(siftfs: &Path) -> Result<PathBuf> {
    let dir = siftfs.parent().unwrap_or(Path::new("/"));
    let mut places = [dir.join(LIBRARY), dir.join("deps").join(LIBRARY)].into_iter();
    places
        .find(|path| path.is_file())
        .ok_or_else(|| Failed(format!("{}: no {LIBRARY}; build siftfs-preload", dir.display())))
}

impl Program {
    /// One that has nothing yet.
    pub fn new(number: usize) -> Self {
        let files = (0..FILES).map(|file| File::new(&format!("file-{file}"))).collect();
        Self { number, files, under_way: None, story: Vec::new(), synced: 0, killed: 0 }
    }

    /// What its directory and its story are called.
    pub fn name(&self) -> String {
        format!("program-{}", self.number)
    }

    /// Its directory on a mount.
    pub fn dir(&self, mount: &Path) -> PathBuf {
        mount.join(self.name())
    }

    /// Works until it is told to stop, or the host is gone, as [`crate::worker::Worker::run`].
    pub fn run(&mut self, start: &Start, signals: &Signals) {
        let mut rng = Rng::new(mix(start.seed ^ self.number as u64));
        let done = own_table().map_err(|e| Failed(format!("own descriptors: {e}")));
        let done = done.and_then(|()| {
            while !signals.stopped() && !signals.is_dying() {
                let seed = rng.below(u64::MAX);
                if !self.once(start, seed, &mut rng, signals)? {
                    break;
                }
            }
            Ok(())
        });
        if let Err(Failed(why)) = done {
            let last = self.story.iter().rev().take(12).rev();
            let story: Vec<_> = last.map(|line| format!("    {line}")).collect();
            signals.fail(format!("program {}: {why}\n{}", self.number, story.join("\n")));
        }
    }

    /// One process of it. False: the host is gone.
    fn once(&mut self, start: &Start, seed: u64, rng: &mut Rng, signals: &Signals) -> Result<bool> {
        let kind = KINDS.get(self.number).copied().unwrap_or("mixed");
        let files = self.files.iter().map(|f| format!("{}={}", f.name(), f.content.len()));
        let mut child = Command::new("python3")
            .args(["-c", PROGRAM])
            .arg(self.dir(&start.mount))
            .args([seed.to_string(), kind.to_string()])
            .args(files)
            .env("LD_PRELOAD", &start.library)
            .env("SIFTFS_ACCEL", if seed.is_multiple_of(4) { "usual" } else { "eager" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("python3"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| Failed("python3 without a pipe".into()))?;
        let life = start.killed_every.map(|every| {
            let most = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1);
            Duration::from_millis(rng.below(2 * most) + 1)
        });
        let fate = Fate::default();
        let listened = thread::scope(|scope| {
            let (fate, child) = (&fate, &mut child);
            let ender = scope.spawn(move || end(child, input, (start, life), signals, fate));
            let listened = BufReader::new(output).lines().try_for_each(|line| {
                fate.begun.get_or_init(Instant::now);
                self.hear(&line.map_err(failed("a line"))?, signals)
            });
            let ended = ender.join().unwrap_or_else(|_| Err(Failed("its end panicked".into())));
            listened.and(ended)
        });
        match (listened, fate.is_killed.load(Ordering::Acquire)) {
            (Err(Failed(why)), _) if why == GONE && signals.is_dying() => return Ok(false),
            (Err(e), _) => return Err(e),
            (Ok(()), false) => return Ok(false),
            (Ok(()), true) => {}
        }
        if signals.is_dying() {
            return Ok(false);
        }
        self.killed += 1;
        match self.judge(&start.mount, false) {
            complaints if complaints.is_empty() => Ok(true),
            // The host may have died meanwhile.
            _ if signals.is_dying() => Ok(false),
            complaints => Err(Failed(format!("killed alone: {}", complaints.join("; ")))),
        }
    }

    /// A line of the program's. `Err(GONE)`: its call found that the host is gone.
    fn hear(&mut self, line: &str, signals: &Signals) -> Result<()> {
        self.story.push(line.to_string());
        if self.story.len() > 2000 {
            self.story.drain(..1000);
        }
        let odd = || Failed(format!("it says {line:?}"));
        let (kind, rest) = line.split_at_checked(2).map_or((line, ""), |(k, r)| (k.trim_end(), r));
        let answered = |under_way: &mut Option<(String, Pending)>| under_way.take().ok_or_else(odd);
        match kind {
            "b" => {
                self.under_way = Some((rest.to_string(), pending(rest).ok_or_else(odd)?));
                Ok(())
            }
            "d" => {
                let (call, pending) = answered(&mut self.under_way)?;
                self.returned(&call, pending, rest, signals)
            }
            "e" => {
                let errno = rest.parse().map_err(|_| odd())?;
                match is_gone(Errno::from_raw_os_error(errno)) || errno == libc::EIO {
                    true => Err(Failed(GONE.into())),
                    false => Err(Failed(format!("{:?}: errno {errno}", self.under_way))),
                }
            }
            _ => Err(odd()),
        }
    }

    fn returned(
        &mut self,
        call: &str,
        pending: Pending,
        answer: &str,
        signals: &Signals,
    ) -> Result<()> {
        let words: Vec<&str> = call.split(' ').collect();
        let name = words.get(1).copied().unwrap_or_default();
        let file = self.files.iter_mut().find(|file| file.is_named(name));
        let file = file.ok_or_else(|| Failed(format!("{call}: no such file")))?;
        let mut syncs = false;
        match (words.first().copied(), pending) {
            (_, Pending::Change(change)) => file.changed(change),
            (_, Pending::Rename) => file.number += 1,
            (_, Pending::Chmod(mode)) => file.chmod(mode),
            (Some("fsync"), _) => (syncs, _) = (true, file.synced(false)),
            (Some("fdatasync"), _) => (syncs, _) = (true, file.synced(true)),
            (Some("open"), _) => file.made = true,
            (Some("read"), _) => read(file, &words, answer)?,
            _ => {}
        }
        self.synced += u64::from(syncs);
        signals.returned(syncs);
        Ok(())
    }

    /// What is wrong with its files below `mount`, after a death of the host or (not `cut`) while
    /// one lives, or after an unmount.
    pub fn judge(&mut self, mount: &Path, cut: bool) -> Vec<String> {
        let dir = self.dir(mount);
        let under_way = self.under_way.take();
        let of = |file: &File| {
            let (call, pending) = under_way.as_ref()?;
            let name = call.split(' ').nth(1)?;
            file.is_named(name).then_some(*pending)
        };
        let complaints = self.files.iter_mut().filter_map(|file| {
            let pending = of(file);
            file.judge(&dir, cut, pending)
        });
        let complaints: Vec<_> =
            complaints.map(|why| format!("program {}: {why}", self.number)).collect();
        if complaints.is_empty() {
            self.story.clear();
        } else {
            self.under_way = under_way;
        }
        complaints
    }

    /// Its last calls.
    pub fn story(&self) -> &[String] {
        &self.story
    }
}

/// What a program's end says if the host is gone.
const GONE: &str = "the host is gone";

/// What becomes of a process.
#[derive(Default)]
struct Fate {
    /// When its first call began. Before that it does nothing that could be lost.
    begun: OnceLock<Instant>,
    is_killed: AtomicBool,
}

/// Ends the process when it is to end, one way or the other.
fn end(
    child: &mut Child,
    input: Option<ChildStdin>,
    (start, life): (&Start, Option<Duration>),
    signals: &Signals,
    fate: &Fate,
) -> Result<()> {
    let kill = |child: &mut Child| {
        fate.is_killed.store(true, Ordering::Release);
        child.kill().map_err(failed("kill"))
    };
    while child.try_wait().map_err(failed("python3"))?.is_none() {
        let lived = fate.begun.get().map(Instant::elapsed).unwrap_or_default();
        if signals.is_dying() && start.dies_with_host || life.is_some_and(|life| lived > life) {
            kill(child)?;
            break;
        }
        if signals.stopped() {
            break;
        }
        sleep(LOOK);
    }
    drop(input);
    let asked = Instant::now();
    loop {
        match child.try_wait().map_err(failed("python3"))? {
            // 3: a call failed, which the program has said.
            Some(status) if status.success() || status.code() == Some(3) => return Ok(()),
            Some(_) if fate.is_killed.load(Ordering::Acquire) => return Ok(()),
            Some(status) => return Err(Failed(format!("it ended with {status}"))),
            None if asked.elapsed() > END => {
                kill(child)?;
                return Err(Failed(format!("it does not end within {END:?}")));
            }
            None => sleep(LOOK),
        }
    }
}

/// What a call that begins may change.
fn pending(call: &str) -> Option<Pending> {
    let mut words = call.split(' ');
    let name = words.next()?;
    let numbers: Vec<u64> = words.skip(1).map_while(|word| word.parse().ok()).collect();
    Some(match (name, &numbers[..]) {
        ("write", [offset, len, tag]) => {
            let tag = u32::try_from(*tag).ok()?;
            Pending::Change(Change::Write { offset: *offset, len: *len, tag })
        }
        ("truncate", [size]) => Pending::Change(Change::Truncate(*size)),
        ("chmod", [mode]) => Pending::Chmod(u32::try_from(*mode).ok()?),
        ("rename", []) => Pending::Rename,
        ("open" | "fsync" | "fdatasync", []) | ("read", [_, _]) => Pending::Nothing,
        _ => return None,
    })
}

/// A read found what the file has.
fn read(file: &File, words: &[&str], answer: &str) -> Result<()> {
    let numbers = words.iter().skip(2).copied().chain(answer.split(' '));
    let numbers: Vec<usize> = numbers.map_while(|word| word.parse().ok()).collect();
    let [offset, len, got, sum] = numbers[..] else {
        return Err(Failed(format!("{words:?}: {answer}")));
    };
    let rest = file.content.get(offset..).unwrap_or_default();
    let wanted = rest.get(..len).unwrap_or(rest);
    if (wanted.len(), crc32(wanted) as usize) == (got, sum) {
        return Ok(());
    }
    Err(Failed(format!("{words:?}: other bytes, {got} instead of {}", wanted.len())))
}

/// As zlib has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |s, _| if s & 1 == 1 { s >> 1 ^ 0xedb8_8320 } else { s >> 1 },
        )
    })
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
