//! `siftfs bench`: the benches are programs of their own, which an installation need not have.
//! `NAME` is the program `siftfs-NAME-bench` beside this one, and `NAME-FIGURE` its `FIGURE`.

use crate::options::args::{Bench, NamedBench};
use crate::show::failure::{Failure, Outcome};
use crate::show::output;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Ends this process if there is such a bench: it becomes the bench's.
pub fn bench(a: &Bench) -> Outcome {
    let exe = std::env::current_exe().map_err(|e| Failure::plain(format!("own path: {e}")))?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let Some((name, arguments)) =
        a.bench.as_ref().and_then(|NamedBench::Named(all)| all.split_first())
    else {
        return list(dir);
    };
    let name = name.to_string_lossy();
    let (program, figure) = find(dir, &name).ok_or_else(|| unknown(&name, dir))?;
    let error = Command::new(&program).args(figure).args(arguments).exec();
    Err(Failure::about(&program, error))
}

/// The program of that name, and what of it.
fn find(dir: &Path, name: &str) -> Option<(PathBuf, Option<String>)> {
    let program = |prefix: &str| {
        let path = dir.join(format!("siftfs-{prefix}-bench"));
        (!prefix.contains('/') && path.is_file()).then_some(path)
    };
    if let Some(program) = program(name) {
        return Some((program, None));
    }
    let (prefix, figure) = name.split_once('-')?;
    Some((program(prefix)?, Some(figure.to_owned())))
}

fn list(dir: &Path) -> Outcome {
    let there = benches(dir);
    if there.is_empty() {
        return Err(none(dir));
    }
    for prefix in there {
        output::say(format!("{prefix} (`siftfs bench {prefix} --help`)"))?;
    }
    Ok(0)
}

/// The prefixes of the programs that are there.
fn benches(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let prefix = |name: std::ffi::OsString| {
        let name = name.into_string().ok()?;
        let prefix = name.strip_prefix("siftfs-")?.strip_suffix("-bench")?;
        Some(prefix.to_owned())
    };
    let mut all: Vec<String> = names.filter_map(prefix).collect();
    all.sort();
    all
}

fn none(dir: &Path) -> Failure {
    Failure::plain(format!(
        "no bench is beside this program, in {}: build one, such as `cargo build --release -p \
         siftfs-coinpurse-bench`, and run the siftfs that is built with it",
        dir.display()
    ))
}

fn unknown(name: &str, dir: &Path) -> Failure {
    let there = benches(dir);
    match there.is_empty() {
        true => none(dir),
        false => Failure::plain(format!(
            "{name}: there is no such bench; there are {}",
            there.join(", ")
        )),
    }
}
