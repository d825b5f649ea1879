//! What a recovery, or an end in order, left: judged by the book, and seen alike by all doors.

use super::book::{After, Book, PAGED, SEATS, SMALL, log, name_of, names, shape, slot};
use super::record::{Found, read};
use super::serve::number_of;
use super::writer::{LOG, NAMES, path_of_file};
use crate::view;
use crate::wire::Wire;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Everything that is wrong below the mount at `root`. What was found is where the next round
/// begins.
///
/// # Errors
/// What cannot be read.
pub fn judge(book: &Book, root: &Path, after: After) -> io::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for file in 0..PAGED.end {
        let path = path_of_file(file);
        let (slots, size) = shape(file);
        let mut bytes = fs::read(root.join(&path))?;
        if bytes.len() > slots * size {
            wrong.push(format!("{path}: {} bytes", bytes.len()));
        }
        bytes.resize(slots * size, 0);
        for (at, bytes) in bytes.chunks(size).enumerate() {
            let judged = book.found(slot(file, at), read(bytes), after);
            wrong.extend(judged.err().map(|why| format!("{path} slot {at}: {why}")));
        }
    }
    wrong.extend(judge_log(book, &fs::read(root.join(LOG))?, after));
    wrong.extend(judge_names(book, root, after)?);
    Ok(wrong)
}

fn judge_log(book: &Book, bytes: &[u8], after: After) -> Vec<String> {
    let (mut found, mut wrong) = (vec![Vec::new(); SEATS], Vec::new());
    for (number, bytes) in bytes.chunks(SMALL).enumerate() {
        let stamp = match read(bytes) {
            Found::Whole(stamp) if bytes.len() == SMALL => Some(stamp),
            _ => None,
        };
        let seat = stamp.and_then(|s| (0..SEATS).find(|seat| log(*seat) as u64 == s.item));
        match (stamp, seat) {
            (Some(stamp), Some(seat)) => found[seat].push(stamp),
            _ => wrong.push(format!("{LOG}: record {number} is torn, or nobody's")),
        }
    }
    for (seat, found) in found.iter().enumerate() {
        let judged = book.found_log(seat, found, after);
        wrong.extend(judged.err().map(|why| format!("{LOG} of seat {seat}: {why}")));
    }
    wrong
}

fn judge_names(book: &Book, root: &Path, after: After) -> io::Result<Vec<String>> {
    let (mut found, mut wrong) = (BTreeMap::new(), Vec::new());
    for entry in fs::read_dir(root.join(NAMES))? {
        let entry = entry?.file_name().to_string_lossy().into_owned();
        let Some((name, version)) = name_of(&entry) else {
            wrong.push(format!("{NAMES}/{entry}: nobody made this"));
            continue;
        };
        let bytes = fs::read(root.join(NAMES).join(&entry))?;
        let inside = match bytes.len() {
            0 => Found::Nothing,
            SMALL => read(&bytes),
            _ => Found::Broken,
        };
        if found.insert(name, (version, inside)).is_some() {
            wrong.push(format!("{NAMES}/{entry}: a file has two names"));
        }
    }
    for name in names() {
        let judged = book.found_name(name, found.get(&name).copied(), after);
        wrong.extend(judged.err().map(|why| format!("{NAMES} {name}: {why}")));
    }
    Ok(wrong)
}

/// Both mounts and the program that embeds the volume show the same.
///
/// # Errors
/// What differs, or cannot be read.
pub fn agree(mounts: &[PathBuf], wire: &mut Wire) -> Result<(), String> {
    let shown =
        |dir: &PathBuf| view::of_directory(dir).map_err(|e| format!("{}: {e}", dir.display()));
    let [one, other] = [shown(&mounts[0])?, shown(&mounts[1])?];
    if let Some(difference) = view::difference(&one.0, &other.0) {
        return Err(format!("the mounts differ: {difference}"));
    }
    if one.1 != other.1 {
        let times = one.1.iter().find(|(path, times)| other.1.get(*path) != Some(*times));
        return Err(format!("the mounts show other times: {times:?}"));
    }
    let embedded = wire.ask(&["view"], &[]).map_err(|e| format!("the program: {e}"))?;
    match embedded == number_of(&one).to_le_bytes() {
        true => Ok(()),
        false => Err("the program that embeds the volume sees another tree".into()),
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
