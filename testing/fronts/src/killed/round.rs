//! One round: the volume is opened and judged, all work, and the process dies or ends.

use super::Summary;
use super::book::{After, Book, PAGED, SEATS, shape};
use super::host::Host;
use super::judge::{agree, judge};
use super::plan::{End, Plan};
use super::writer::{self, Doors, LOG, NAMES, Writer, path_of_file};
use siftfs_base::mix;
use siftfs_fuse::Requests;
use siftfs_kills::calls;
use siftfs_kills::ledger::Ledger;
use siftfs_kills::plan::Geometry;
use siftfs_kills::process::LOOK;
use siftfs_kills::signals::Signals;
use siftfs_kills::tree::walk;
use siftfs_kills::worker::{Load, Worker};
use siftfs_placement::{MkfsOptions, mkfs};
use siftfs_rig::place::{Failed, Place, Result, failed};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::{self, sleep};
use std::time::Instant;

/// Complaints that are shown.
const SHOWN: usize = 12;

/// A volume from round to round.
pub struct Run<'a> {
    host: Host<'a>,
    seed: u64,
    umask: u16,
    /// None before the first round of a volume.
    past: Option<Past>,
    /// Counts.
    pub summary: Summary,
    /// What the writers of the last round did, by time, and what the workers did if one failed.
    pub story: Vec<String>,
}

/// What is known of a volume.
struct Past {
    book: Book,
    workers: Vec<Worker>,
    ledger: Ledger,
    after: After,
}

fn place_of(worker: usize, mount: &Path) -> calls::Place {
    // The command is not used: nothing is drawn that needs it.
    calls::Place { mount: mount.into(), worker, siftfs: PathBuf::new() }
}

impl<'a> Run<'a> {
    /// No volume yet.
    ///
    /// # Errors
    /// When the directories cannot be made.
    pub fn new(place: &'a Place, seed: u64, requests: Requests) -> Result<Self> {
        let host = Host::new(place, requests)?;
        let umask = siftfs_kills::umask().map_err(Failed)?;
        Ok(Self { host, seed, umask, past: None, summary: Summary::default(), story: Vec::new() })
    }

    /// What was ended because nothing went on.
    pub fn report(&self) -> Option<String> {
        self.host.watch.report()
    }

    /// Ends the process and its mounts.
    pub fn end_all(&mut self) {
        self.host.end_all();
    }

    /// A round; after the `last` one of a volume that is judged once more and closed.
    ///
    /// # Errors
    /// What went wrong.
    pub fn round(&mut self, plan: &Plan, last: bool) -> Result<()> {
        let mut past = match self.past.take() {
            Some(mut past) => {
                self.open(plan, &mut past)?;
                past
            }
            None => self.begin(plan)?,
        };
        writer::give_out(&past.book, plan.round);
        let left = self.load(plan, &mut past);
        past.after = left.inspect_err(|_| {
            let told = past.workers.iter().flat_map(Worker::story);
            self.story.extend(told.map(|line| format!("worker: {line}")));
        })?;
        self.summary.rounds += 1;
        if last {
            self.start_again(plan, past.after)?;
            self.judge(plan, &mut past)?;
            self.close()?;
        } else {
            self.past = Some(past);
        }
        Ok(())
    }

    /// A new volume with all that writers need, durable.
    fn begin(&mut self, plan: &Plan) -> Result<Past> {
        let geometry = Geometry::of(self.seed, plan.round);
        let (size, log_size) = (Some(geometry.size << 20), Some(geometry.log << 20));
        let lanes = geometry.lanes;
        let options = MkfsOptions { size, log_size, lanes, force: true, ..MkfsOptions::default() };
        mkfs(&self.host.volume(), &options, &mut |_, _, _| {})
            .map_err(|e| Failed(e.to_string()))?;
        self.host.start(plan.seed)?;
        self.host.ready()?;
        let root = self.host.mounts[0].clone();
        let make = |path: &str| File::create(root.join(path)).map(drop).map_err(failed(path));
        (0..PAGED.end).try_for_each(|file| make(&path_of_file(file)))?;
        for file in PAGED {
            // A page beyond the size that a kernel knows is no request.
            let (path, (slots, size)) = (root.join(path_of_file(file)), shape(file));
            let file = File::options().write(true).open(&path);
            let longer = file.and_then(|file| file.set_len((slots * size) as u64));
            longer.map_err(failed(path.display()))?;
        }
        make(LOG)?;
        let places = [0, 1].map(|worker| place_of(worker, &root));
        let dirs = places.iter().map(calls::Place::own).chain([places[0].shared()]);
        for dir in dirs.chain([root.join(NAMES)]) {
            fs::create_dir(&dir).map_err(failed(dir.display()))?;
        }
        let ledger = Ledger::make(&root).map_err(failed("ledger"))?;
        self.host.wire()?.ask(&["sync-all"], &[]).map_err(failed("sync"))?;
        let adopt = |place: calls::Place| Worker::adopt(place.clone(), &walk(&place)?, self.umask);
        let workers = places.into_iter().map(adopt).collect::<std::result::Result<_, _>>();
        let workers = workers.map_err(Failed)?;
        Ok(Past { book: Book::default(), workers, ledger, after: After::End })
    }

    /// Opens the volume and judges what the round before left.
    fn open(&mut self, plan: &Plan, past: &mut Past) -> Result<()> {
        self.start_again(plan, past.after)?;
        self.judge(plan, past)?;
        if plan.closed_first {
            self.close()?;
            past.after = After::End;
            self.host.start(plan.seed)?;
            self.host.ready()?;
            self.judge(plan, past)?;
        }
        Ok(())
    }

    /// Opens the volume; a recovery may be killed a few times.
    fn start_again(&mut self, plan: &Plan, after: After) -> Result<()> {
        if after == After::Death {
            self.host.copy()?;
            for pause in &plan.recoveries {
                self.host.start(plan.seed)?;
                sleep(*pause);
                self.host.kill()?;
                self.host.bury()?;
                self.summary.recoveries += 1;
            }
        }
        self.host.start(plan.seed)?;
        self.host.ready()
    }

    fn close(&mut self) -> Result<()> {
        self.summary.checks += 1;
        self.host.close()
    }

    /// What is there is right, and the same for all; the next round starts from it.
    fn judge(&mut self, plan: &Plan, past: &mut Past) -> Result<()> {
        self.host.watch.alive();
        let root = self.host.mounts[plan.judge].clone();
        let mut wrong = judge(&past.book, &root, past.after).map_err(failed("reading"))?;
        wrong.extend(past.ledger.judge(&root, past.after == After::Death));
        for worker in &mut past.workers {
            let home = place_of(worker.place.worker, &root);
            let tree = walk(&home).map_err(Failed)?;
            let found = match past.after {
                After::Death => worker.violations(&tree),
                After::End => worker.differences(&tree),
            };
            if found.is_empty() {
                *worker = Worker::adopt(home.clone(), &tree, self.umask).map_err(Failed)?;
            }
            wrong.extend(found.iter().map(|why| format!("worker {}: {why}", home.worker)));
        }
        wrong.extend(agree(&self.host.mounts, &mut self.host.wire()?).err());
        self.summary.lost += past.book.take_lost();
        self.host.watch.alive();
        if wrong.is_empty() {
            return Ok(());
        }
        let count = wrong.len();
        wrong.truncate(SHOWN);
        let judged = format!("by mount {} after {:?}", plan.judge, past.after);
        Err(Failed(format!("{count} complaints {judged}:\n  {}", wrong.join("\n  "))))
    }

    /// All work until the round ends.
    fn load(&mut self, plan: &Plan, past: &mut Past) -> Result<After> {
        let signals = Signals::default();
        let doors = Doors { mounts: self.host.mounts.clone(), socket: self.host.socket() };
        let host = &mut self.host;
        let Past { book, workers, ledger, .. } = past;
        let begun = Instant::now();
        let (killed, story) = thread::scope(|scope| {
            let mut stories = Vec::new();
            for seat in 0..SEATS {
                let (signals, doors, book) = (&signals, &doors, &*book);
                let seed = mix(plan.seed ^ (0x5ea7 + seat as u64));
                let mut writer = Writer::new(seat, plan.round, seed, book, begun);
                stories.push(scope.spawn(move || {
                    writer.run(doors, signals);
                    writer.story
                }));
            }
            for worker in workers.iter_mut() {
                let number = worker.place.worker;
                worker.place.mount = doors.mounts[(number + plan.round as usize) % 2].clone();
                let (seed, profile) = (mix(plan.seed ^ (1 + number as u64)), plan.profile.clone());
                let synchronous = plan.synchronous;
                let load = Load {
                    seed,
                    profile,
                    synchronous,
                    writeback: false,
                    served: false,
                    nameless: true,
                    keeps_answered: false,
                };
                let signals = &signals;
                scope.spawn(move || worker.run(&load, signals));
            }
            if plan.sections {
                let (mount, seed, signals) = (&doors.mounts[1 - plan.judge], plan.seed, &signals);
                scope.spawn(move || ledger.run(mount, mix(seed), signals));
            }
            let killed = work_until(host, plan, &signals);
            let stories = stories.into_iter().flat_map(|writer| writer.join().unwrap_or_default());
            (killed, stories.collect())
        });
        self.story = story;
        self.story.sort();
        self.summary.calls += signals.calls.load(Ordering::SeqCst);
        self.summary.acknowledged += signals.acknowledged.load(Ordering::SeqCst);
        self.summary.kept += past.book.take_kept();
        if let Some(why) = signals.failure() {
            return Err(Failed(format!("{why}\n{}", self.host.said())));
        }
        let killed = killed?;
        self.end(plan, killed)
    }

    /// What of the end comes when all have stopped.
    fn end(&mut self, plan: &Plan, killed: bool) -> Result<After> {
        let killed = match plan.end {
            End::Kill => killed,
            End::KillInEnd(pause) => {
                let wire = self.host.ask_to_end()?;
                sleep(pause);
                let killed = self.host.kill()?;
                drop(wire);
                killed
            }
            End::InOrder => {
                self.close()?;
                return Ok(After::End);
            }
        };
        self.host.bury()?;
        self.summary.kills += u64::from(killed);
        Ok(if killed { After::Death } else { After::End })
    }
}

/// All work until it is time, and then the process is killed, or they are told to stop. True if it
/// was killed.
fn work_until(host: &mut Host<'_>, plan: &Plan, signals: &Signals) -> Result<bool> {
    let passed = pass(host, plan, signals);
    let killed = if passed.is_err() || plan.end == End::Kill {
        signals.host_dies();
        host.kill()
    } else {
        Ok(false)
    };
    signals.stop();
    passed.and(killed)
}

/// Waits until it is time, while the load goes on.
fn pass(host: &mut Host<'_>, plan: &Plan, signals: &Signals) -> Result<()> {
    let (start, mut seen) = (Instant::now(), 0);
    host.watch.alive();
    loop {
        host.look()?;
        if let Some(why) = signals.failure() {
            return Err(Failed(why));
        }
        let calls = signals.calls.load(Ordering::SeqCst);
        if calls > seen {
            host.watch.alive();
            seen = calls;
        }
        let late = start.elapsed() >= plan.time && calls >= super::plan::LEAST;
        if late || calls >= plan.calls {
            return Ok(());
        }
        sleep(LOOK);
    }
}
