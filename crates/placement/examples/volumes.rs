//! Fsyncs in a second over 1, 2, 4 and 8 volumes of one process, over one volume with as much going
//! on at a time, and over the same numbers of volumes of two processes: figures for
//! `docs/RESULTS.md`.
//!
//! `volumes DIRECTORY [SECONDS [ROUNDS]]` makes the volumes in the directory, which must not hold
//! them yet, measures for so long each, and removes them. Each round measures everything in turn.

use siftfs_base::{Error, Result};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, create_volume, remove_volume};
use siftfs_proto::{Credentials, FileService, ROOT_INO, Reply, Request, WriteData};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a volume.
const SIZE: u64 = 256 << 20;
/// Bytes that are written before each fsync.
const BYTES: usize = 4096;
/// Blocks of a file that are written in turn.
const BLOCKS: u64 = 1024;
/// The word by which this program starts itself.
const ONE_OF_TWO: &str = "one-of-two";

/// What is measured.
#[derive(Clone, Copy)]
struct Setting {
    processes: usize,
    /// Of all processes.
    volumes: usize,
    /// Of all volumes.
    programs: usize,
}

const fn setting(processes: usize, volumes: usize, programs: usize) -> Setting {
    Setting { processes, volumes, programs }
}

const SETTINGS: [Setting; 10] = [
    setting(1, 1, 1),
    setting(1, 2, 2),
    setting(1, 4, 4),
    setting(1, 8, 8),
    setting(1, 1, 2),
    setting(1, 1, 4),
    setting(1, 1, 8),
    setting(2, 2, 2),
    setting(2, 4, 4),
    setting(2, 8, 8),
];

fn refused(what: impl ToString) -> Error {
    Error::Refused(what.to_string())
}

/// A program: it writes a block of its file, makes it durable, and begins again.
fn program(service: &dyn FileService, nr: usize, until: Instant) -> Result<u64> {
    let root = Credentials::default();
    let name = format!("f{nr}").into_bytes();
    let made = service.call(&root, Request::Create { parent: ROOT_INO, name, perm: 0o600 })?;
    let Reply::Created { attr, .. } = made else {
        return Err(refused("a file was made, and another answer came"));
    };
    let mut done = 0;
    while Instant::now() < until {
        let offset = done % BLOCKS * BYTES as u64;
        let data = WriteData::copy_of(offset, &[done as u8; BYTES]);
        service.call(&root, Request::write(attr.ino, offset, data))?;
        service.call(&root, Request::Fsync { file: attr.ino.into(), datasync: false })?;
        done += 1;
    }
    Ok(done)
}

/// Fsyncs in a second of `programs` programs, spread over the volumes.
fn rate(services: &[Arc<dyn FileService>], programs: usize, time: Duration) -> Result<f64> {
    let begun = Instant::now();
    let until = begun + time;
    let done: Result<Vec<u64>> = std::thread::scope(|scope| {
        let each = services.iter().cycle().enumerate().take(programs);
        let running: Vec<_> =
            each.map(|(nr, service)| scope.spawn(move || program(&**service, nr, until))).collect();
        running.into_iter().map(|thread| thread.join().expect("no assertion failed")).collect()
    });
    Ok(done?.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64())
}

/// Makes and opens the volumes, measures when `begin` returns, closes and removes them.
fn measure(
    dir: &Path,
    Setting { volumes, programs, .. }: Setting,
    time: Duration,
    begin: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let paths: Vec<PathBuf> = (0..volumes).map(|nr| dir.join(format!("v{nr}"))).collect();
    let options = MkfsOptions { size: Some(SIZE), ..MkfsOptions::default() };
    let share = OpenOptions { page_cache: (256 << 20) / volumes as u64, ..OpenOptions::default() };
    let mut open = Vec::new();
    for path in &paths {
        create_volume(path, &options, &mut |_, _, _| {})?;
        open.push(LocalVolume::open(path, &share, &mut |_, _, _| {})?);
    }
    let services: Vec<_> = open.iter().map(LocalVolume::endpoint).collect();
    let rate = begin().and_then(|()| rate(&services, programs, time));
    drop(services);
    open.into_iter().try_for_each(LocalVolume::close)?;
    paths.iter().try_for_each(|path| remove_volume(path).map(drop))?;
    rate
}

/// A process of its own that measures half of a setting, when it is told to.
struct Half {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Half {
    fn start(dir: &Path, half: Setting, time: Duration) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(refused)?;
        let program = std::env::current_exe().map_err(refused)?;
        let numbers = [half.volumes as u64, half.programs as u64, time.as_secs()];
        let mut child = Command::new(program)
            .arg(ONE_OF_TWO)
            .arg(dir)
            .args(numbers.map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(refused)?;
        let says = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Self { child, says })
    }

    /// The next line that it says.
    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.says.read_line(&mut line).map_err(refused)? {
            0 => Err(refused("one of two processes has ended")),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// What it has measured.
    fn ended(mut self) -> Result<f64> {
        let rate = self.hear()?.parse().map_err(refused)?;
        self.child.wait().map_err(refused)?;
        Ok(rate)
    }
}

/// Two processes at a time, each with half of the volumes and programs.
fn measure_two(dir: &Path, all: Setting, time: Duration) -> Result<f64> {
    let half = setting(1, all.volumes / 2, all.programs / 2);
    let start = |nr| Half::start(&dir.join(format!("process{nr}")), half, time);
    let mut halves = [start(0)?, start(1)?];
    halves.iter_mut().try_for_each(|half| half.hear().map(drop))?;
    for half in &mut halves {
        let begin = half.child.stdin.as_mut().expect("it is piped");
        begin.write_all(b"begin\n").map_err(refused)?;
    }
    halves.into_iter().map(Half::ended).sum()
}

/// This process is one of two.
fn one_of_two(given: &[String]) -> Result<()> {
    let [dir, volumes, programs, seconds] = given else {
        return Err(refused("one of two processes is started by the other"));
    };
    let number = |text: &String| text.parse::<usize>().map_err(refused);
    let half = setting(1, number(volumes)?, number(programs)?);
    let time = Duration::from_secs(number(seconds)? as u64);
    let begin = || {
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).map(drop).map_err(refused)
    };
    println!("{}", measure(Path::new(dir), half, time, begin)?);
    Ok(())
}

fn run(dir: &Path, time: Duration, rounds: usize) -> Result<()> {
    let mut rates = [const { Vec::new() }; SETTINGS.len()];
    for _ in 0..rounds {
        for (setting, rates) in SETTINGS.iter().zip(&mut rates) {
            rates.push(match setting.processes {
                1 => measure(dir, *setting, time, || Ok(()))?,
                _ => measure_two(dir, *setting, time)?,
            });
        }
    }
    println!(
        "processes  volumes  programs  fsyncs in a second: median (least to most of {rounds})"
    );
    for (setting, mut rates) in SETTINGS.iter().zip(rates) {
        let Setting { processes, volumes, programs } = setting;
        rates.sort_by(f64::total_cmp);
        let [Some(least), Some(median), Some(most)] =
            [rates.first(), rates.get(rates.len() / 2), rates.last()]
        else {
            return Err(refused("a round at least"));
        };
        println!("{processes:9}  {volumes:7}  {programs:8}  {median:.0} ({least:.0} to {most:.0})");
    }
    Ok(())
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number = |nr: usize, usual: u64| {
        given.get(nr).and_then(|text| text.parse().ok()).filter(|n| *n > 0).unwrap_or(usual)
    };
    let done = match given.split_first() {
        Some((first, rest)) if first == ONE_OF_TWO => one_of_two(rest),
        Some((dir, _)) => {
            let rounds = usize::try_from(number(2, 5)).unwrap_or(5);
            run(Path::new(dir), Duration::from_secs(number(1, 5)), rounds)
        }
        None => {
            eprintln!("volumes DIRECTORY [SECONDS [ROUNDS]]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
