//! The same calls on files of two mounts and on files of the kernel's own: the same answers.
//!
//! Each program has a twin. The program calls on one of the mounts, the twin on files whose locks
//! the kernel keeps. A twin that sleeps in its call waits for a lock; then the program must not be
//! answered before the twin is. A map of single bytes says what is not to be compared: of several
//! waits for one file the kernel wakes any first, and it looks for a circle along one of several
//! locks that are in a wait's way.

use crate::pair::{Mount, Pair, loops};
use crate::puppet::{PATIENCE, Puppet};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const BYTES: u64 = 6;
const FILES: [&str; 2] = ["f", "g"];
/// Descriptors of each program: two of each file.
const SLOTS: [&str; 4] = ["f0", "f1", "g0", "g1"];
const KINDS: [&str; 3] = ["read", "write", "none"];

/// Numbers that look drawn.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Whose a lock is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Owner {
    Program(usize),
    File(usize, &'static str),
}

/// A call about bytes.
#[derive(Clone, Debug)]
struct Range {
    owner: Owner,
    file: u8,
    first: u64,
    len: u64,
    kind: &'static str,
}

/// Who has each byte of each file.
#[derive(Default)]
struct Model {
    held: BTreeMap<(u8, u64, Owner), &'static str>,
    waits: BTreeMap<usize, Range>,
}

impl Model {
    fn blockers(&self, r: &Range) -> BTreeSet<Owner> {
        let in_the_way = |((file, byte, owner), held): &(&(u8, u64, Owner), &&'static str)| {
            *file == r.file
                && (r.first..r.first + r.len).contains(byte)
                && *owner != r.owner
                && (**held == "write" || r.kind == "write")
        };
        if r.kind == "none" {
            return BTreeSet::new();
        }
        self.held.iter().filter(in_the_way).map(|((_, _, owner), _)| *owner).collect()
    }

    fn apply(&mut self, r: &Range) {
        for byte in r.first..r.first + r.len {
            match r.kind {
                "none" => drop(self.held.remove(&(r.file, byte, r.owner))),
                kind => drop(self.held.insert((r.file, byte, r.owner), kind)),
            }
        }
    }

    /// A descriptor is closed.
    fn close(&mut self, program: usize, slot: &str) {
        let file = slot.as_bytes()[0];
        self.held.retain(|(of, _, owner), _| match owner {
            Owner::Program(p) => *p != program || *of != file,
            Owner::File(p, s) => *p != program || *s != slot,
        });
    }

    /// Is it one lock at most that each of the programs waits for which this one would wait for?
    fn is_plain(&self, r: &Range) -> bool {
        let (mut open, mut seen) = (vec![r.clone()], BTreeSet::new());
        while let Some(wait) = open.pop() {
            let blockers = self.blockers(&wait);
            if blockers.len() > 1 {
                return false;
            }
            for owner in blockers.into_iter().filter(|owner| seen.insert(*owner)) {
                if let Owner::Program(program) = owner {
                    open.extend(self.waits.get(&program).cloned());
                }
            }
        }
        true
    }
}

/// A program and its twin, and the call that both are in.
struct Twins {
    ours: Puppet,
    theirs: Puppet,
    call: Option<Call>,
}

struct Call {
    line: String,
    /// What of it waits.
    place: (u8, bool),
    range: Option<Range>,
}

/// Everything of one run.
struct Run<'a> {
    pair: &'a Pair,
    mounts: &'a [Mount; 2],
    theirs: PathBuf,
    twins: Vec<Twins>,
    model: Model,
    log: Vec<String>,
}

fn twins(ours: &Path, theirs: &Path) -> Twins {
    let mut twins = Twins { ours: Puppet::new(), theirs: Puppet::new(), call: None };
    for slot in SLOTS {
        twins.ours.open(slot, &ours.join(&slot[..1]));
        twins.theirs.open(slot, &theirs.join(&slot[..1]));
    }
    twins
}

impl<'a> Run<'a> {
    fn new(pair: &'a Pair, theirs: &Path, name: &str) -> Self {
        let mounts = &pair.mounts;
        let theirs = theirs.join(name);
        for dir in [&theirs, &mounts[0].path(name)] {
            std::fs::create_dir(dir).expect("a directory");
            FILES.iter().for_each(|file| std::fs::write(dir.join(file), b"").expect("a file"));
        }
        let twins = (0..4).map(|n| twins(&mounts[n % 2].path(name), &theirs)).collect();
        Self { pair, mounts, theirs, twins, model: Model::default(), log: Vec::new() }
    }

    fn ours(&self, program: usize) -> PathBuf {
        self.mounts[program % 2].path(&self.theirs.file_name().expect("a name").to_string_lossy())
    }

    fn fail(&self, why: &str) -> ! {
        panic!("{why}:\n{}", self.log.join("\n"))
    }

    /// Both answers to a call that is over, without what differs in any case.
    fn same(&mut self, program: usize, theirs: &str) {
        let ours = self.twins[program].ours.answer();
        if ours != theirs {
            self.fail(&format!("program {program}: {ours}, and the kernel says {theirs}"));
        }
        self.log.push(format!("{program}: {ours}"));
    }

    /// Waits until every twin that is in a call is answered or sleeps, and holds the programs to
    /// what the twins were told.
    fn settle(&mut self) {
        let begin = Instant::now();
        let mut calm = false;
        while !calm {
            if begin.elapsed() > PATIENCE {
                self.fail("a twin neither sleeps nor is answered");
            }
            calm = true;
            for program in 0..self.twins.len() {
                let Twins { theirs, call, .. } = &mut self.twins[program];
                if call.is_none() {
                    continue;
                }
                let asleep = theirs.sleeps();
                if let Some(answer) = theirs.answered() {
                    let call = call.take().expect("it is in a call");
                    self.same(program, &answer);
                    self.model.waits.remove(&program);
                    if let Some(range) = call.range.filter(|_| answer == "ok") {
                        self.model.apply(&range);
                    }
                    // It may have let another one go on.
                    calm = false;
                } else if !asleep {
                    calm = false;
                    sleep(Duration::from_micros(200));
                }
            }
        }
        // A program may have been ahead of its twin until now, and of what that one waited for.
        for program in 0..self.twins.len() {
            let Twins { ours, call, .. } = &mut self.twins[program];
            if let Some(answer) = call.is_some().then(|| ours.answered()).flatten() {
                self.fail(&format!("program {program}: {answer}, and its twin waits"));
            }
        }
        self.pair.until_wait(self.twins.iter().filter(|t| t.call.is_some()).count() as u64);
    }

    /// Nothing is on its way to the mounts but the waits.
    fn settle_mounts(&self) {
        for (at, mount) in self.mounts.iter().enumerate() {
            let waits = self.twins.iter().skip(at).step_by(2).filter(|t| t.call.is_some());
            mount.settle(waits.count());
        }
    }

    fn call(&mut self, program: usize, call: Call) {
        self.log.push(format!("{program}: {}", call.line));
        if let Some(range) = &call.range {
            self.model.waits.insert(program, range.clone());
        }
        let twins = &mut self.twins[program];
        twins.theirs.tell(&call.line);
        twins.ours.tell(&call.line);
        twins.call = Some(call);
        self.settle();
    }

    /// Has a program for which another one waits wait for something of that one's: a circle.
    fn close_a_circle(&mut self, program: usize) -> bool {
        let me = Owner::Program(program);
        let behind = self.model.waits.iter().filter(|(_, r)| self.model.blockers(r).contains(&me));
        let behind: Vec<usize> = behind.map(|(other, _)| *other).collect();
        let theirs = |owner: &Owner| behind.iter().any(|other| *owner == Owner::Program(*other));
        let wanted = self.model.held.keys().find_map(|(file, first, owner)| {
            let range = Range { owner: me, file: *file, first: *first, len: 1, kind: "write" };
            let waits = self.twins.iter().flat_map(|t| &t.call).any(|c| c.place == (*file, false));
            (theirs(owner) && !waits && self.model.is_plain(&range)).then_some(range)
        });
        let Some(range) = wanted else { return false };
        let slot = if range.file == b'f' { "f0" } else { "g0" };
        let line = format!("posix {slot} write {} 1 wait", range.first);
        self.call(program, Call { line, place: (range.file, false), range: Some(range) });
        true
    }

    /// A step of a program that is in no call.
    fn step(&mut self, program: usize, draw: &mut Draw) {
        if draw.below(3) == 0 && self.close_a_circle(program) {
            return;
        }
        let slot = SLOTS[draw.below(SLOTS.len())];
        let file = slot.as_bytes()[0];
        let waits = |place| self.twins.iter().flat_map(|t| &t.call).any(|c| c.place == place);
        let how =
            |may: bool, draw: &mut Draw| if may && draw.below(3) > 0 { "wait" } else { "try" };
        match draw.below(12) {
            0 => {
                self.model.close(program, slot);
                let paths = [self.ours(program).join(&slot[..1]), self.theirs.join(&slot[..1])];
                let line = format!("close {slot}");
                self.call(program, Call { line, place: (0, false), range: None });
                self.settle_mounts();
                let twins = &mut self.twins[program];
                twins.ours.open(slot, &paths[0]);
                twins.theirs.open(slot, &paths[1]);
            }
            1 | 2 => self.get(program, slot, draw),
            3..=5 => {
                let place = (file, true);
                let line = format!("flock {slot} {} {}", draw.of(&KINDS), how(!waits(place), draw));
                self.call(program, Call { line, place, range: None });
            }
            n => {
                let (first, kind) = (draw.below(BYTES as usize) as u64, KINDS[draw.below(3)]);
                let len = 1 + draw.below((BYTES - first) as usize) as u64;
                let of_file = n == 11;
                let owner =
                    if of_file { Owner::File(program, slot) } else { Owner::Program(program) };
                let range = Range { owner, file, first, len, kind };
                let place = (file, false);
                let may = !waits(place) && (of_file || self.model.is_plain(&range));
                let (by, how) = (if of_file { "ofd" } else { "posix" }, how(may, draw));
                let line = format!("{by} {slot} {kind} {first} {len} {how}");
                self.call(program, Call { line, place, range: Some(range) });
            }
        }
    }

    /// F_GETLK: which of several locks is told is anyone's choice, and so is the process of an open
    /// file's lock.
    fn get(&mut self, program: usize, slot: &'static str, draw: &mut Draw) {
        let (first, kind) = (draw.below(BYTES as usize) as u64, KINDS[draw.below(2)]);
        let owner = Owner::Program(program);
        let range = Range { owner, file: slot.as_bytes()[0], first, len: 1, kind };
        let line = format!("get {slot} posix {kind} {first} 1");
        let pids = |of: fn(&Twins) -> u32| self.twins.iter().map(of).collect::<Vec<_>>();
        let (our_pids, their_pids) = (pids(|t| t.ours.pid()), pids(|t| t.theirs.pid()));
        let twins = &mut self.twins[program];
        let (ours, theirs) = (twins.ours.call(&line), twins.theirs.call(&line));
        self.log.push(format!("{program}: {line}: {ours}, {theirs}"));
        let told = |answer: &str, pids: &[u32]| {
            let (lock, pid) = answer.rsplit_once(' ')?;
            let place = pids.iter().position(|p| pid == p.to_string());
            Some((lock.to_string(), place))
        };
        let (ours, theirs) = (told(&ours, &our_pids), told(&theirs, &their_pids));
        let blockers: Vec<Owner> = self.model.blockers(&range).into_iter().collect();
        let same = match blockers[..] {
            [] => ours.is_none() && theirs.is_none(),
            [Owner::Program(_)] => ours == theirs,
            [Owner::File(..)] => ours.map(|o| o.0) == theirs.map(|t| t.0),
            _ => ours.is_some() && theirs.is_some(),
        };
        if !same {
            self.fail("the other lock is another one");
        }
    }

    /// A step for a program that waits: a signal, or its end.
    fn disturb(&mut self, program: usize, draw: &mut Draw) {
        if draw.below(3) > 0 {
            self.log.push(format!("{program}: a signal"));
            let Twins { ours, theirs, .. } = &self.twins[program];
            ours.until_it_sleeps();
            theirs.signal(libc::SIGUSR1);
            ours.signal(libc::SIGUSR1);
            // The twin may be about to wake.
            let theirs = self.twins[program].theirs.answer();
            self.twins[program].call = None;
            self.model.waits.remove(&program);
            self.same(program, &theirs);
        } else {
            self.kill(program);
        }
        self.settle();
    }

    fn kill(&mut self, program: usize) {
        self.log.push(format!("{program}: killed"));
        self.twins[program].theirs.kill();
        self.twins[program].ours.kill();
        self.twins[program].call = None;
        self.model.waits.remove(&program);
        SLOTS.iter().for_each(|slot| self.model.close(program, slot));
        // What it had may let others go on.
        self.settle();
        self.settle_mounts();
        self.twins[program] = twins(&self.ours(program), &self.theirs);
    }
}

#[test]
fn answers_are_those_of_the_kernels_own_locks() {
    let dir = tempfile::tempdir().expect("a directory");
    let steps = if std::env::var_os("SIFTFS_LONG").is_some() { 5000 } else { 400 };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for requests in loops() {
        Pair::by(requests, |pair| {
            let name = format!("{requests:?}");
            let mut draw = Draw(requests as u64 + 1);
            let mut run = Run::new(pair, dir.path(), &name);
            for _ in 0..steps {
                let program = draw.below(run.twins.len());
                match run.twins[program].call {
                    None if draw.below(60) == 0 => run.kill(program),
                    None => run.step(program, &mut draw),
                    Some(_) if draw.below(4) == 0 => run.disturb(program, &mut draw),
                    Some(_) => {}
                }
            }
            for program in 0..run.twins.len() {
                run.kill(program);
            }
            let answers = run.log.iter().filter_map(|line| line.split_once(": "));
            answers.filter(|(_, what)| !what.contains(' ')).for_each(|(_, what)| {
                *seen.entry(what.to_string()).or_default() += 1;
            });
        });
    }
    println!("{seen:?}");
    for answer in ["ok", "EAGAIN", "EDEADLK", "EINTR", "killed"] {
        assert!(seen.contains_key(answer), "{answer} was drawn: {seen:?}");
    }
}
