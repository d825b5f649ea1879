//! Will the loader give a program the library? Told from the program's file, which is any bytes.

use std::env::{split_paths, var_os};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// So much of a file is looked at: headers are at its begin.
const HEADERS: u64 = 64 << 10;
const PT_INTERP: u32 = 3;
const SET_ID: u32 = 0o6000;
/// A program of 64 bits, in this machine's order.
const CLASS: u8 = 2;
const ORDER: u8 = 1;

/// Why a program is not accelerated. None: it is, as far as its file tells.
pub fn why_not(program: &Path) -> Option<&'static str> {
    let path = found(program)?;
    let bytes = begin(&path)?;
    let (path, bytes) = match interpreter(&bytes) {
        Some(interpreter) => (interpreter.clone(), begin(&interpreter)?),
        None => (path, bytes),
    };
    let metadata = path.metadata().ok()?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.permissions().mode() & SET_ID != 0 && metadata.uid() != own {
        return Some("it is not accelerated: it has more rights than its caller");
    }
    match needs_loader(&bytes)? {
        Loader::Own => None,
        Loader::None => Some("it is not accelerated: it is linked statically"),
        Loader::Other => Some("it is not accelerated: it is for another kind of machine"),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Loader {
    Own,
    None,
    Other,
}

/// The file, as execvp(3) finds it.
fn found(program: &Path) -> Option<PathBuf> {
    if program.as_os_str().is_empty() || program.components().count() > 1 {
        return Some(program.to_path_buf());
    }
    let runs = |path: &PathBuf| {
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    split_paths(&var_os("PATH")?).map(|dir| dir.join(program)).find(runs)
}

fn begin(path: &Path) -> Option<Vec<u8>> {
    // What is no file may have no end, or wait for somebody.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(HEADERS).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The program that a script names in its first line.
fn interpreter(bytes: &[u8]) -> Option<PathBuf> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    Some(PathBuf::from(name))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Which loader a program names in its headers. None: the file is no program, or its headers lead
/// nowhere.
fn needs_loader(bytes: &[u8]) -> Option<Loader> {
    if !bytes.starts_with(b"\x7FELF") {
        return None;
    }
    if number(bytes, 4)? != [CLASS, ORDER] {
        return Some(Loader::Other);
    }
    let at = usize::try_from(u64::from_le_bytes(number(bytes, 32)?)).ok()?;
    let (size, count) = (number(bytes, 54)?, number(bytes, 56)?);
    let (size, count) = (u16::from_le_bytes(size).into(), u16::from_le_bytes(count).into());
    let kind = |n: usize| {
        let place = at.checked_add(n.checked_mul(size)?)?;
        Some(u32::from_le_bytes(number(bytes, place)?))
    };
    let kinds: Vec<u32> = (0..count).map(kind).collect::<Option<_>>()?;
    Some(if kinds.contains(&PT_INTERP) { Loader::Own } else { Loader::None })
}

#[cfg(test)]
#[path = "loaded_tests.rs"]
mod tests;
