//! `siftfs accel`: this process becomes another program, with the library that catches its calls.

use super::{escapes, loaded};
use crate::options::args::Accel;
use crate::show::failure::{Failure, Outcome};
use crate::show::output;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libsiftfs_preload.so";
const PRELOAD: &str = "LD_PRELOAD";
const STREAMS: &str = "SIFTFS_ACCEL_STREAMS";
const DIRECT: &str = "SIFTFS_ACCEL_DIRECT";
/// Where this program was built to be installed, if that was said.
const LIBDIR: Option<&str> = option_env!("SIFTFS_LIBDIR");
/// As env(1) and shells have them.
const NO_PROGRAM: u8 = 127;
const NOT_RUN: u8 = 126;

/// Ends this process if it can: it becomes the command's.
pub fn accel(a: &Accel) -> Outcome {
    let Some((program, arguments)) = a.command.split_first() else {
        return Err(Failure::plain("no program is named"));
    };
    let exe = std::env::current_exe().map_err(|e| Failure::plain(format!("own path: {e}")))?;
    let library = find(&exe)?;
    let preload = preloaded(&library, std::env::var_os(PRELOAD).as_deref())?;
    let mut command = Command::new(program);
    command.args(arguments).env(PRELOAD, preload);
    if a.direct {
        command.env(DIRECT, "on");
    }
    if a.no_streams {
        command.env(STREAMS, "off");
    }
    let told = loaded::why_not(Path::new(program)).filter(|_| std::io::stderr().is_terminal());
    if let Some(why) = told {
        output::complain(Failure::about(Path::new(program), why).message);
    }
    let error = match a.count_escapes {
        true => match escapes::counted(&mut command) {
            Ok(code) => return Ok(code),
            Err(e) => e,
        },
        false => command.exec(),
    };
    let code = if error.kind() == ErrorKind::NotFound { NO_PROGRAM } else { NOT_RUN };
    Err(Failure::about(Path::new(program), error).with_code(code))
}

/// The library: beside this program, in the directory of libraries that belongs to it, or where it
/// was to be installed.
fn find(exe: &Path) -> Result<PathBuf, Failure> {
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let libraries = beside.parent().unwrap_or(Path::new("/")).join("lib");
    let dirs = [Some(beside.to_path_buf()), Some(libraries), LIBDIR.map(PathBuf::from)];
    let mut paths = dirs.into_iter().flatten().map(|dir| dir.join(LIBRARY));
    let looked: Vec<_> = paths.clone().map(|path| path.display().to_string()).collect();
    paths.find(|path| path.is_file()).ok_or_else(|| {
        let looked = looked.join(", ");
        Failure::plain(format!(
            "the library for programs is missing: there is none of {looked}; build or install it with \
             this program (`make install`)"
        ))
    })
}

/// What LD_PRELOAD is to say: the library comes before those that are there.
fn preloaded(library: &Path, before: Option<&OsStr>) -> Result<OsString, Failure> {
    if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        let why = "the loader takes no library whose path has a space or a colon";
        return Err(Failure::about(library, why));
    }
    let mut all = library.as_os_str().to_os_string();
    let is_library = |name: &[u8]| name == library.as_os_str().as_bytes();
    match before {
        Some(before) if before.as_bytes().split(|b| b": ".contains(b)).any(is_library) => {
            return Ok(before.to_os_string());
        }
        Some(before) if !before.is_empty() => {
            all.push(":");
            all.push(before);
        }
        _ => {}
    }
    Ok(all)
}

#[cfg(test)]
#[path = "accel_tests.rs"]
mod tests;
