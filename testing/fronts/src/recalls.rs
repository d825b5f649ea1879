//! Calls on a mount of files that the embedding program holds alone: each of them sees the bytes
//! that nobody else had seen before, or comes after them.

#![allow(unsafe_code)] // mappings have no safe way

use crate::stage::{Stage, said};
use memmap2::{Mmap, MmapOptions};
use siftfs_rig::place::{Failed, Result};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

const OLD: &[u8] = b"old bytes, which every front has in its cache";
const AT: u64 = 4;
const PRIVATE: &[u8] = b"PRIVATE";
/// Bytes beyond the old end.
const FAR: (u64, &[u8]) = (5000, b"far");

/// The file as its holder has it.
fn private() -> Vec<u8> {
    let mut bytes = OLD.to_vec();
    bytes[AT as usize..][..PRIVATE.len()].copy_from_slice(PRIVATE);
    bytes.resize(FAR.0 as usize, 0);
    bytes.extend_from_slice(FAR.1);
    bytes
}

/// What a mount has of the file since before the lease.
struct Known<'a> {
    path: &'a Path,
    file: File,
    appends: File,
    map: Mmap,
}

type Act = fn(&Known<'_>) -> std::io::Result<Vec<u8>>;

/// The calls, and what is to be there after them beyond what the holder had.
const CALLS: &[(&str, Act, &[u8])] = &[
    ("read", |known| fs::read(known.path), b""),
    (
        "pread of an older descriptor",
        |known| {
            let mut bytes = vec![0; 10_000];
            let len = known.file.read_at(&mut bytes, 0)?;
            bytes.truncate(len);
            Ok(bytes)
        },
        b"",
    ),
    (
        "stat",
        |known| {
            let len = fs::metadata(known.path)?.len();
            fs::read(known.path).map(|bytes| if bytes.len() as u64 == len { bytes } else { vec![] })
        },
        b"",
    ),
    (
        "append",
        |known| {
            (&known.appends).write_all(b"!")?;
            fs::read(known.path)
        },
        b"!",
    ),
    (
        "rename over",
        |known| {
            let other = known.path.with_extension("other");
            fs::write(&other, b"another file")?;
            fs::rename(&other, known.path)?;
            let mut bytes = vec![0; 10_000];
            let len = known.file.read_at(&mut bytes, 0)?;
            bytes.truncate(len);
            Ok(bytes)
        },
        b"",
    ),
    (
        "list",
        |known| {
            let mut len = 0;
            for entry in fs::read_dir(known.path.parent().expect("a directory"))? {
                let entry = entry?;
                if entry.path() == known.path {
                    len = entry.metadata()?.len();
                }
            }
            fs::read(known.path).map(|bytes| if bytes.len() as u64 == len { bytes } else { vec![] })
        },
        b"",
    ),
    (
        "load through a mapping",
        |known| {
            // Only the page that the file had before: the kernel knows of no other yet.
            let mut bytes = known.map[..OLD.len()].to_vec();
            bytes.extend_from_slice(fs::read(known.path)?.get(OLD.len()..).unwrap_or_default());
            Ok(bytes)
        },
        b"",
    ),
    (
        "chmod",
        |known| {
            fs::set_permissions(known.path, fs::Permissions::from_mode(0o600))?;
            fs::read(known.path)
        },
        b"",
    ),
    (
        "copy by the kernel",
        |known| {
            let copy = known.path.with_extension("copy");
            fs::copy(known.path, &copy)?;
            fs::read(copy)
        },
        b"",
    ),
];

/// Makes each call on each mount.
///
/// # Errors
/// What was not as the holder had it.
pub fn each_call(stage: &Stage) -> Result<u64> {
    let mut calls = 0;
    for (at, dir) in stage.dirs.iter().enumerate() {
        for (number, (call, act, more)) in CALLS.iter().enumerate() {
            let name = format!("f{at}-{number}");
            let path = dir.join(&name);
            fs::write(&path, OLD).map_err(said)?;
            let known = known(&path).map_err(said)?;
            let pieces = [(AT, PRIVATE.to_vec()), (FAR.0, FAR.1.to_vec())];
            stage.lease(move |leaser| leaser.keep_at_last(&name, &pieces)).map_err(said)?;
            let seen = act(&known).map_err(|e| Failed(format!("m{at}: {call}: {e}")))?;
            let wanted = [&*private(), more].concat();
            if seen != wanted {
                let other = seen.iter().zip(&wanted).position(|(a, b)| a != b);
                let (len, want) = (seen.len(), wanted.len());
                let found = format!("{len} bytes of {want}, the first other one at {other:?}");
                return Err(Failed(format!("m{at}: {call}: {found}")));
            }
            calls += 1;
        }
    }
    Ok(calls)
}

fn known(path: &Path) -> std::io::Result<Known<'_>> {
    let file = File::options().read(true).write(true).open(path)?;
    let appends = File::options().append(true).open(path)?;
    // SAFETY: only pages that the file has are touched, and nobody cuts them off.
    let map = unsafe { MmapOptions::new().len(4096).map(&file)? };
    let bytes = fs::read(path)?;
    match bytes == OLD && map[..OLD.len()] == *OLD {
        true => Ok(Known { path, file, appends, map }),
        false => Err(std::io::Error::other("the file is not as it was made")),
    }
}
