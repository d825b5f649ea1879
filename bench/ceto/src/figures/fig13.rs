//! Figure 13: what filebench calls fileserver, varmail, webserver and webproxy, as mixes of our own
//! in the same proportions, by direct files and by the host alone.

use crate::Plan;
use crate::stage::{Stage, said};
use crate::ways::Way;
use siftfs::{Direct, Volume};
use siftfs_base::Rng;
use siftfs_rig::figure::Output;
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::Result;
use siftfs_rig::table::{Compared, Row, Side, show};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the volume, and of the host's page cache, which has a part of the files.
const VOLUME: u64 = 1 << 30;
const CACHE: u64 = 4 << 20;
/// Files of a thread, and the same with little work.
const FILES: [u64; 2] = [64, 8];
/// Bytes of an append, and of a whole file: of a file server, and of the others.
const APPEND: usize = 16 << 10;
const LARGE: usize = 128 << 10;
const SMALL: usize = 16 << 10;
/// A log that is appended to begins anew at this size.
const LOG: u64 = 4 << 20;
/// Threads.
const THREADS: [usize; 3] = [1, 2, 4];
/// The most of them.
const MOST: usize = THREADS[THREADS.len() - 1];

/// One round of a mix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mix {
    /// A file is removed and written anew whole, another one appended to, a third read, one asked
    /// for its attributes: one read for two writes.
    Fileserver,
    /// A message is removed and written anew with a sync, another one read and appended to with a
    /// sync, a third read: a read for each write.
    Varmail,
    /// Ten files are read, and a log is appended to.
    Webserver,
    /// A file is removed and written anew, and five are read.
    Webproxy,
}

const MIXES: [(Mix, &str, &str); 4] = [
    (Mix::Fileserver, "fileserver, 1 read to 2 writes", "1.75 ext4, 1.72 F2FS, 1.64 uFS"),
    (Mix::Varmail, "varmail, 1 to 1", "as F2FS, more than ext4"),
    (Mix::Webserver, "webserver, 10 to 1", "1.25 to 1.33"),
    (Mix::Webproxy, "webproxy, 5 to 1", "1.14 to 1.50"),
];

/// A session by one of the two ways.
enum Door {
    Direct(Direct),
    Host(Volume),
}

/// One thread's session and files.
struct Worker {
    door: Door,
    /// What its files are called.
    name: String,
    files: u64,
    log: Way,
    logged: u64,
    rng: Rng,
    data: Vec<u8>,
}

impl Door {
    fn names(&self) -> &Volume {
        match self {
            Self::Direct(direct) => direct.names(),
            Self::Host(volume) => volume,
        }
    }

    fn create(&self, path: &str) -> Result<Way> {
        match self {
            Self::Direct(direct) => direct.create(path, 0o600).map(Way::Direct),
            Self::Host(volume) => volume.create(path, 0o600).map(Way::Host),
        }
        .map_err(said)
    }

    fn open(&self, path: &str) -> Result<Way> {
        match self {
            Self::Direct(direct) => direct.open_file(path).map(Way::Direct),
            Self::Host(volume) => volume.open_file(path).map(Way::Host),
        }
        .map_err(said)
    }

    fn open_to_read(&self, path: &str) -> Result<Way> {
        match self {
            Self::Direct(direct) => direct.open_to_read(path).map(Way::Direct).map_err(said),
            Self::Host(_) => self.open(path),
        }
    }
}

impl Worker {
    fn new(door: Door, name: String, files: u64, len: usize) -> Result<Self> {
        let log = door.create(&format!("{name}-log"))?;
        let (rng, data) = (Rng::new(files), vec![0; LARGE]);
        let mut worker = Self { door, name, files, log, logged: 0, rng, data };
        (0..files).try_for_each(|at| worker.make(&worker.path(at), len, false))?;
        Ok(worker)
    }

    fn path(&self, at: u64) -> String {
        format!("{}-{at}", self.name)
    }

    fn any(&mut self) -> String {
        let at = self.rng.below(self.files);
        self.path(at)
    }

    /// A new file of this length.
    fn make(&mut self, path: &str, len: usize, sync: bool) -> Result<()> {
        let file = self.door.create(path)?;
        let bytes = refresh(&mut self.data[..len]);
        file.write(self.door.names(), (0, bytes), false)?;
        if sync { file.sync() } else { Ok(()) }
    }

    fn remade(&mut self, len: usize, sync: bool) -> Result<()> {
        let path = self.any();
        self.door.names().remove_file(&path).map_err(said)?;
        self.make(&path, len, sync)
    }

    /// Appends to a file behind `len` bytes, of which it has at least that many.
    fn append(&mut self, len: usize, (reads, sync): (bool, bool)) -> Result<()> {
        let path = self.any();
        let file = self.door.open(&path)?;
        if reads {
            file.read(0, len)?;
        }
        let bytes = refresh(&mut self.data[..APPEND]);
        file.write(self.door.names(), (len as u64, bytes), false)?;
        if sync { file.sync() } else { Ok(()) }
    }

    fn read(&mut self, len: usize) -> Result<()> {
        let path = self.any();
        self.door.open_to_read(&path)?.read(0, len)
    }

    fn log(&mut self) -> Result<()> {
        let bytes = refresh(&mut self.data[..APPEND]);
        self.log.write(self.door.names(), (self.logged % LOG, bytes), false)?;
        self.logged += APPEND as u64;
        Ok(())
    }

    fn round(&mut self, mix: Mix) -> Result<()> {
        match mix {
            Mix::Fileserver => {
                self.remade(LARGE, false)?;
                self.append(LARGE, (false, false))?;
                self.read(LARGE)?;
                let path = self.any();
                self.door.names().stat(&path).map(drop).map_err(said)
            }
            Mix::Varmail => {
                self.remade(SMALL, true)?;
                self.append(SMALL, (true, true))?;
                self.read(SMALL)
            }
            Mix::Webserver => {
                (0..10).try_for_each(|_| self.read(SMALL))?;
                self.log()
            }
            Mix::Webproxy => {
                self.remade(SMALL, false)?;
                (0..5).try_for_each(|_| self.read(SMALL))?;
                self.log()
            }
        }
    }
}

/// Bytes of a whole file.
fn len_of(mix: Mix) -> usize {
    if mix == Mix::Fileserver { LARGE } else { SMALL }
}

/// Workers of both ways, for one mix.
fn workers(plan: &Plan<'_>, stage: &Stage, at: usize) -> Result<[Vec<Worker>; 2]> {
    let files = FILES[usize::from(plan.quick)];
    let of = |direct: bool| {
        let one = |thread: usize| {
            let door = match direct {
                true => Door::Direct(stage.direct()?),
                false => Door::Host(stage.volume()?),
            };
            let name = format!("/{}-{at}-{thread}", if direct { "direct" } else { "host" });
            Worker::new(door, name, files, len_of(MIXES[at].0))
        };
        (0..MOST).map(one).collect::<Result<Vec<_>>>()
    };
    Ok([of(true)?, of(false)?])
}

/// Rounds of the mix a second, of these workers together.
fn rate(workers: &mut [Worker], mix: Mix, time: Duration) -> Result<f64> {
    let begun = Instant::now();
    let one = |worker: &mut Worker| -> Result<u64> {
        let mut done = 0;
        while begun.elapsed() < time {
            worker.round(mix)?;
            done += 1;
        }
        Ok(done)
    };
    let done: Result<u64> = thread::scope(|scope| {
        let one = &one;
        let started: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(move || one(worker))).collect();
        started.into_iter().map(|t| t.join().expect("a thread asserts nothing")).sum()
    });
    Ok(done? as f64 / begun.elapsed().as_secs_f64())
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let mut rows = Vec::new();
    for (at, (mix, name, paper)) in MIXES.iter().enumerate() {
        let stage = Stage::host(plan, &format!("fig13-{at}"), VOLUME, CACHE)?;
        let mut ways = workers(plan, &stage, at)?;
        let mut rates: [[Vec<f64>; 2]; THREADS.len()] = Default::default();
        for round in plan.rounds() {
            for i in 0..THREADS.len() * 2 {
                let (threads, way) = (i / 2, (i + round) % 2);
                let workers = &mut ways[way][..THREADS[threads]];
                rates[threads][way].push(rate(workers, *mix, plan.time)?);
            }
        }
        drop(ways);
        stage.end()?;
        let row = |(threads, rates): (&usize, [Vec<f64>; 2])| row((name, paper), *threads, rates);
        rows.extend(THREADS.iter().zip(rates).map(row));
    }
    Ok(show(
        &rows,
        &plan.below(
            "Rounds of a mix. A file server removes a file and writes it anew (128 KiB), appends 16 KiB to another, reads \
             a third and asks for the attributes of one; varmail removes a message and writes it anew with a sync (16 \
             KiB), reads another and appends to it with a sync, and reads a third; a web server reads ten files and \
             appends to a log; a web proxy removes a file, writes it anew, reads five and appends to a log. Each file is \
             opened and closed each time. A thread has a session and 64 files of its own. The mixes are this project's, \
             with the paper's proportions of reads and writes; filebench does not run here",
        ),
    ))
}

fn row((name, paper): (&str, &'static str), threads: usize, rates: [Vec<f64>; 2]) -> Row {
    let [direct, host] = rates;
    let ratio = Compared::ratio("direct to by the host", &direct, &host, None).beside(paper);
    Row {
        name: format!("{name}: {threads} threads"),
        unit: "/s",
        sides: vec![Side::new("direct files", direct), Side::new("by the host", host)],
        compared: vec![ratio],
    }
}
