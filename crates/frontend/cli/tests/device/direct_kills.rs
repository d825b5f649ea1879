//! Two programs under `siftfs accel --direct`, their mount's daemon and its target are killed at
//! any moment, again and again on one volume that has a redo lane. After each death both files are
//! judged by a ledger of what the programs were answered. It takes some fifteen seconds, and an
//! hour with `SIFTFS_LONG`; `SIFTFS_SEED` names the seed.

use crate::accel::{FILE, Program, Town, at_target, start};
use crate::{LIMIT, await_that, kill_daemon};
use rustix::process::{Pid, Signal, kill_process};
use siftfs_base::Rng;
use std::fs;
use std::io::{BufRead, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long the kills go on every day, and with `SIFTFS_LONG`.
const LENGTH: [Duration; 2] = [Duration::from_secs(12), Duration::from_secs(3600)];
/// Bytes that a program writes at once.
const SLOT: usize = 4096;
/// Slots of a file at the begin of a round, and at most.
const SLOTS: [usize; 2] = [FILE / SLOT, 2 * FILE / SLOT];
/// Slots that a section writes at most.
const SECTION: u64 = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Program,
    Host,
    Target,
    HostAndTarget,
}

const VICTIMS: [Victim; 4] = [Victim::Program, Victim::Host, Victim::Target, Victim::HostAndTarget];

impl Victim {
    /// Whether what a program was answered survives without a sync (`docs/design/target.md`,
    /// "Programs that are not changed": what is promised). A daemon takes with it the records
    /// that it was not asked to make durable.
    fn leaves_what_was_answered(self) -> bool {
        matches!(self, Self::Program | Self::Target)
    }
}

/// The bytes that a slot may have. The first is the oldest one that is possible, and each has a
/// mark that says whether its write was answered. The byte 0 stands for a slot behind the end.
#[derive(Clone, Debug)]
struct Slot(Vec<(u8, bool)>);

impl Slot {
    fn of(byte: u8) -> Self {
        Self(vec![(byte, true)])
    }

    /// Forgets what lies before the newest byte that was answered.
    fn keep_answered(&mut self) {
        let newest = self.0.iter().rposition(|(_, answered)| *answered);
        self.0.drain(..newest.unwrap_or(0));
    }
}

/// Why a program makes no further call.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Stopped {
    /// A call has failed, and may have been carried out in part.
    Failed(String),
    /// The program has died in a call.
    Died,
}

type Came = Result<(), Stopped>;

/// The program's file, and what its calls were answered.
struct Ledger {
    path: PathBuf,
    slots: Vec<Slot>,
    /// The section whose commit was asked for and not answered: slots, and their new bytes.
    doubtful: Vec<(usize, u8)>,
    rng: Rng,
    /// How many syncs and how many commits were answered.
    syncs: u64,
    commits: u64,
}

impl Ledger {
    fn new(path: PathBuf, seed: u64) -> Self {
        fs::write(&path, vec![1; FILE]).unwrap();
        let (slots, rng) = (vec![Slot::of(1); SLOTS[0]], Rng::new(seed));
        Self { path, slots, doubtful: Vec::new(), rng, syncs: 0, commits: 0 }
    }

    /// Makes calls until `over`, or until one is not answered as it has to be.
    fn work(&mut self, program: &mut Program, over: &AtomicBool) -> Came {
        while !over.load(Ordering::SeqCst) {
            match self.rng.below(10) {
                0..3 => self.section(program)?,
                3 => self.append(program)?,
                _ => self.overwrite(program)?,
            }
        }
        Ok(())
    }

    fn any_slot(&mut self) -> usize {
        self.rng.below(self.slots.len() as u64) as usize
    }

    /// Another byte than any that the slot may have, and below those that a C program takes for
    /// negative numbers.
    fn next_byte(&self, slot: usize) -> u8 {
        let may = &self.slots[slot].0;
        assert!(may.len() < 120, "a slot has had no sync for too long");
        may.last().map_or(1, |(byte, _)| byte % 120 + 1)
    }

    fn write(&mut self, program: &mut Program, slot: usize) -> Came {
        let byte = self.next_byte(slot);
        let came = write(program, slot, byte);
        self.slots[slot].0.push((byte, came.is_ok()));
        came
    }

    fn sync(&mut self, program: &mut Program) -> Came {
        call(program, if self.rng.chance(90) { "datasync" } else { "sync" }, "0")?;
        self.syncs += 1;
        self.slots.iter_mut().for_each(Slot::keep_answered);
        Ok(())
    }

    /// A few writes, each with a read behind it, and mostly a sync.
    fn overwrite(&mut self, program: &mut Program) -> Came {
        for _ in 0..self.rng.between(1, 4) {
            let slot = self.any_slot();
            let byte = self.next_byte(slot);
            self.write(program, slot)?;
            read(program, slot, byte)?;
        }
        if self.rng.chance(80) { self.sync(program) } else { Ok(()) }
    }

    /// A stream of appends, and a sync.
    fn append(&mut self, program: &mut Program) -> Came {
        let room = SLOTS[1] - self.slots.len();
        for _ in 0..room.min(self.rng.between(1, 40) as usize) {
            self.slots.push(Slot::of(0));
            self.write(program, self.slots.len() - 1)?;
        }
        self.sync(program)
    }

    /// A section of several writes, which is committed or aborted.
    fn section(&mut self, program: &mut Program) -> Came {
        call(program, "start", "0")?;
        let mut wrote: Vec<(usize, u8)> = Vec::new();
        for _ in 0..self.rng.between(1, SECTION) {
            let slot = self.any_slot();
            if wrote.iter().all(|(other, _)| *other != slot) {
                let byte = self.next_byte(slot);
                write(program, slot, byte)?;
                wrote.push((slot, byte));
            }
        }
        if self.rng.chance(15) {
            call(program, "abort", "0")?;
            let (slot, _) = wrote[0];
            return read(program, slot, self.slots[slot].0.last().unwrap().0);
        }
        self.doubtful = wrote;
        call(program, "commit", "0")?;
        self.commits += 1;
        for (slot, byte) in self.doubtful.drain(..) {
            self.slots[slot] = Slot::of(byte);
        }
        Ok(())
    }

    /// The file has what it must have. From then on it has what was found, durably.
    fn judge(&mut self, why: &str) {
        let file = fs::File::options().read(true).write(true).open(&self.path).unwrap();
        let mut found = Vec::new();
        (&file).read_to_end(&mut found).unwrap();
        file.sync_all().unwrap();
        let most = self.slots.len() * SLOT;
        let len = found.len();
        assert!(len.is_multiple_of(SLOT) && len <= most, "{why}: {len} bytes, at most {most}");
        let torn = found.chunks(SLOT).position(|slot| slot.iter().any(|byte| *byte != slot[0]));
        assert_eq!(torn, None, "{why}: a slot is torn");
        let found: Vec<u8> = found.chunks(SLOT).map(|slot| slot[0]).collect();
        let byte = |slot: usize| found.get(slot).copied().unwrap_or(0);
        let doubtful = std::mem::take(&mut self.doubtful);
        let committed = doubtful.first().is_some_and(|(slot, new)| byte(*slot) == *new);
        if committed {
            for (slot, new) in doubtful {
                self.slots[slot] = Slot::of(new);
            }
        }
        for (at, Slot(may)) in self.slots.iter().enumerate() {
            let is = byte(at);
            let right = may.iter().any(|(may, _)| *may == is);
            assert!(right, "{why}: slot {at} has {is}, and not one of {may:?}");
        }
        self.slots = found.iter().map(|byte| Slot::of(*byte)).collect();
        if self.rng.chance(50) {
            file.set_len(FILE as u64).unwrap();
            self.slots.truncate(SLOTS[0]);
            file.sync_all().unwrap();
        }
    }
}

/// Makes a call, which is to be answered so.
fn call(program: &mut Program, what: &str, answer: &str) -> Came {
    let mut line = String::new();
    let told = writeln!(program.told, "{what}").is_ok();
    // A line that breaks off is no answer.
    if !told || program.says.read_line(&mut line).is_err() || !line.ends_with('\n') {
        return Err(Stopped::Died);
    }
    match line.trim_end() {
        said if said == answer => Ok(()),
        said => {
            assert!(said.starts_with("errno"), "{what}: {said}, and not {answer}");
            Err(Stopped::Failed(format!("{what}: {said}")))
        }
    }
}

fn write(program: &mut Program, slot: usize, byte: u8) -> Came {
    call(program, &format!("write {} {SLOT} {byte}", slot * SLOT), &SLOT.to_string())
}

fn read(program: &mut Program, slot: usize, byte: u8) -> Came {
    call(program, &format!("read {} {SLOT}", slot * SLOT), &format!("{SLOT} of {byte}"))
}

/// A program for each ledger, both of which have blocks of their files granted.
fn programs(town: &Town, ledgers: &[Ledger; 2]) -> [Program; 2] {
    let mut both = ledgers.each_ref().map(|ledger| Program::start(&town.setup, &ledger.path));
    await_that("blocks of both files are granted", || {
        both.iter_mut().for_each(|program| assert_eq!(program.tell("datasync"), "0"));
        town.told("direct") == 2
    });
    both
}

/// Kills what is to be killed, and starts a target anew.
fn kill(town: &mut Town, victim: Victim, program: Pid) {
    let host = matches!(victim, Victim::Host | Victim::HostAndTarget);
    let daemon = host.then(|| town.setup.daemon());
    if victim == Victim::Program {
        kill_process(program, Signal::KILL).unwrap();
    }
    if matches!(victim, Victim::Target | Victim::HostAndTarget) {
        town.target.take().unwrap().kill();
    }
    if let Some(daemon) = daemon {
        kill_daemon(&town.setup, &daemon);
    }
    if town.target.is_none() {
        town.target = Some(start(&town.setup));
    }
}

/// Waits until all have stopped. A call that is never answered ends with its program.
fn await_all(all: &[ScopedJoinHandle<'_, Came>; 2], programs: [Pid; 2]) {
    let begun = Instant::now();
    while !all.iter().all(ScopedJoinHandle::is_finished) {
        if begun.elapsed() > LIMIT {
            programs.iter().for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
            panic!("a call of a program is not answered");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Two programs work until one process is killed, and what is left of them for a while after it.
/// Their files are judged. What the programs ended by comes back.
fn round(town: &mut Town, ledgers: &mut [Ledger; 2], victim: Victim, rng: &mut Rng) -> [Came; 2] {
    let mut both = programs(town, ledgers);
    let pids = both.each_ref().map(|program| Pid::from_child(&program.child));
    let killed = rng.below(2) as usize;
    let over = AtomicBool::new(false);
    let ends = thread::scope(|scope| {
        let mut pairs = ledgers.iter_mut().zip(&mut both);
        let workers = [(); 2].map(|()| {
            let (ledger, program) = pairs.next().unwrap();
            scope.spawn(|| ledger.work(program, &over))
        });
        thread::sleep(Duration::from_micros(rng.below(150_000)));
        kill(town, victim, pids[killed]);
        thread::sleep(Duration::from_micros(rng.below(150_000)));
        over.store(true, Ordering::SeqCst);
        await_all(&workers, pids);
        workers.map(|worker| worker.join().unwrap())
    });
    for (at, mut program) in both.into_iter().enumerate() {
        match victim {
            Victim::Program if at == killed => drop(program.child.wait().unwrap()),
            _ => program.end(),
        }
    }
    if matches!(victim, Victim::Host | Victim::HostAndTarget) {
        town.mount("");
    }
    for (ledger, came) in ledgers.iter_mut().zip(&ends) {
        // A failed call may say that something was lost, once.
        if victim.leaves_what_was_answered() && !matches!(came, Err(Stopped::Failed(_))) {
            ledger.slots.iter_mut().for_each(Slot::keep_answered);
        }
        ledger.judge(&format!("{victim:?}, {came:?}"));
    }
    ends
}

/// What was answered as durable is there, a section is there as a whole or not at all, and what
/// was written by a program that dies, or whose target dies, is there without a sync.
#[test]
fn what_was_answered_outlives_kills() {
    let seed = std::env::var("SIFTFS_SEED").map_or(1, |text| text.parse().unwrap());
    let length = LENGTH[usize::from(std::env::var_os("SIFTFS_LONG").is_some())];
    let (mut town, mut rng) = (Town::with_lane("8M"), Rng::new(seed));
    let mut ledgers = ["f", "g"].map(|name| Ledger::new(town.setup.path(name), rng.bits()));
    let (begun, mut rounds, mut requests) = (Instant::now(), 0, 0);
    while begun.elapsed() < length || rounds < 2 * VICTIMS.len() {
        let victim = match VICTIMS.get(rounds) {
            Some(victim) => *victim,
            None => *rng.pick(&VICTIMS).unwrap(),
        };
        let ends = round(&mut town, &mut ledgers, victim, &mut rng);
        println!("{victim:?}: {ends:?}");
        rounds += 1;
        requests = at_target(&town.setup).max(requests);
    }
    let [syncs, commits] = [|ledger: &Ledger| ledger.syncs, |ledger: &Ledger| ledger.commits]
        .map(|of| ledgers.iter().map(of).sum::<u64>());
    println!("{rounds} rounds, {syncs} syncs, {commits} commits");
    assert!(syncs > rounds as u64 && commits > 3, "{syncs} syncs, {commits} commits");
    assert!(requests > 0, "nothing was written at the target");
    town.end();
}
