//! Where the log of a volume is, if it lies elsewhere and the caller does not say where.
//!
//! The superblock names the log by UUID. Tried in this order: the place that was remembered, the
//! file of the volume's name with `.log` behind it, every block device. Only a header with the
//! right UUID is taken for the log; whether it is the right *state* of it is judged when it is read
//! (rule R16). What is remembered is a hint and never believed.

use crate::storage::{self, How};
use siftfs_base::{BLOCK_SIZE, Error, Result};
use siftfs_device::{BytePlace, Device};
use siftfs_device_rbd::{RbdPlace, is_rbd};
use siftfs_device_stripe::principal;
use siftfs_log::{AreaLink, HEADER_LEN, StaticHeader, show_uuid};
use siftfs_wire::Access;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where places are remembered, unless `SIFTFS_STATE_DIR` says otherwise.
const STATE_DIR: &str = "/var/lib/siftfs";
/// Longest path that is believed to be one.
const MAX_PATH: usize = 4096;
/// Sorts of places: of logs, of record areas, and of spare logs.
const LOGS: &str = "logs";
const AREAS: &str = "areas";
const SPARES: &str = "spares";
/// What stands before the path of a record area that promises nothing.
const VOLATILE: &[u8] = b"volatile:";

/// The link in the superblock of a volume; none if there is no superblock or no link.
pub(crate) fn link_of(area: &dyn Device) -> Result<Option<AreaLink>> {
    let mut bytes = [0; 1024];
    if area.size() < 2048 {
        return Ok(None);
    }
    area.read(1024, &mut bytes)?;
    let ext4 = bytes[56..58] == [0x53, 0xef];
    Ok(ext4.then(|| AreaLink::of_super(&bytes)).flatten())
}

/// The log that `link` names, of the volume at `volume`; `None` if it is nowhere.
///
/// # Errors
/// `Refused` if several devices hold it, as a copy does.
pub(crate) fn find_log(volume: &Path, link: &AreaLink) -> Result<Option<PathBuf>> {
    let wanted = |path: &PathBuf| holds_log(path, &link.volume);
    // Opening an image says more of what is wrong with it than that it is not found.
    if let Some(path) = remembered(link).filter(|path| is_rbd(path) || wanted(path)) {
        return Ok(Some(path));
    }
    let mut beside = OsString::from(principal(volume));
    beside.push(".log");
    let beside = PathBuf::from(beside);
    if wanted(&beside) {
        return Ok(Some(beside));
    }
    let mut found: Vec<PathBuf> = block_devices().into_iter().filter(wanted).collect();
    found.sort();
    if found.len() > 1 {
        let list: Vec<String> = found.iter().map(|p| p.display().to_string()).collect();
        return Err(Error::Refused(format!(
            "several devices hold its log {}: {}; say which one with --log",
            show_uuid(&link.volume),
            list.join(", ")
        )));
    }
    Ok(found.pop())
}

/// Is the log with this UUID there?
fn holds_log(path: &Path, uuid: &[u8; 16]) -> bool {
    if is_rbd(path) {
        return image_holds_log(path, uuid);
    }
    let usable = |t: fs::FileType| t.is_file() || t.is_block_device();
    if !fs::metadata(path).is_ok_and(|m| usable(m.file_type())) {
        return false;
    }
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else {
        return false;
    };
    let end = file.seek(SeekFrom::End(0)).ok().and_then(|size| size.checked_sub(HEADER_LEN));
    [Some(0), end].into_iter().flatten().any(|at| header_at(&file, at, uuid))
}

/// As [`holds_log`], for an image.
fn image_holds_log(path: &Path, uuid: &[u8; 16]) -> bool {
    let opened = storage::open(path, How::usual(Access::ReadOnly));
    let Ok(image) = opened.inspect_err(|error| tracing::debug!(%error, "no log here")) else {
        return false;
    };
    let end = image.size().checked_sub(HEADER_LEN);
    [Some(0), end].into_iter().flatten().any(|at| {
        let mut block = [0; BLOCK_SIZE];
        image.read(at, &mut block).is_ok() && is_header(&block, at, uuid)
    })
}

fn header_at(file: &File, offset: u64, uuid: &[u8; 16]) -> bool {
    let mut block = [0; BLOCK_SIZE];
    file.read_exact_at(&mut block, offset).is_ok() && is_header(&block, offset, uuid)
}

/// Is this the header, at this offset, of the log with this UUID?
fn is_header(block: &[u8; BLOCK_SIZE], offset: u64, uuid: &[u8; 16]) -> bool {
    matches!(StaticHeader::decode(block),
        Ok(h) if h.external_log() && h.volume == *uuid && h.header_offsets.contains(&offset))
}

/// Every block device that has a size; optical and floppy drives aside, which would spin up.
fn block_devices() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let slow = ["sr", "fd", "ram"].iter().any(|p| text.starts_with(p));
        let size = fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        if !slow && size.trim() != "0" && !size.is_empty() {
            found.push(Path::new("/dev").join(text.replace('!', "/")));
        }
    }
    found
}

/// Where places of this sort (`logs`, `areas`) are remembered.
fn registry(sort: &str) -> PathBuf {
    let base = std::env::var_os("SIFTFS_STATE_DIR").unwrap_or_else(|| STATE_DIR.into());
    PathBuf::from(base).join(sort)
}

/// Where servers of volumes write down what those after them have to know of clients: in a file for
/// each volume.
pub fn books_of_clients() -> PathBuf {
    registry("clients")
}

/// Where the secret is by which servers of this machine know again what they have granted.
pub(crate) fn secret_of_servers() -> PathBuf {
    books_of_clients().join("secret")
}

/// Where the spare log of the volume with this UUID was.
pub(crate) fn remembered_spare(volume: &[u8; 16]) -> Option<PathBuf> {
    absolute(fs::read(registry(SPARES).join(show_uuid(volume))).ok()?)
}

fn remembered(link: &AreaLink) -> Option<PathBuf> {
    absolute(fs::read(registry(LOGS).join(show_uuid(&link.volume))).ok()?)
}

fn absolute(bytes: Vec<u8>) -> Option<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(bytes));
    ((path.is_absolute() || is_rbd(&path)) && path.as_os_str().len() <= MAX_PATH).then_some(path)
}

/// Where the record area of the volume with this UUID was.
pub(crate) fn remembered_area(volume: &[u8; 16]) -> Option<BytePlace> {
    let bytes = fs::read(registry(AREAS).join(show_uuid(volume))).ok()?;
    if bytes.starts_with(b"pmr:") {
        return String::from_utf8(bytes).ok()?.parse().ok();
    }
    match bytes.strip_prefix(VOLATILE) {
        Some(path) => absolute(path.to_vec()).map(BytePlace::Volatile),
        None => absolute(bytes).map(BytePlace::Path),
    }
}

/// Remembers where the log with this UUID (as text) is. A hint for later: that it cannot be written
/// is no error.
pub(crate) fn remember(uuid: &str, log: &Path) {
    remember_in(LOGS, uuid, log);
}

/// The same of the spare log.
pub(crate) fn remember_spare(uuid: &str, spare: &Path) {
    remember_in(SPARES, uuid, spare);
}

fn remember_in(sort: &str, uuid: &str, log: &Path) {
    let path = match RbdPlace::parse(log) {
        Some(Ok(place)) => place.absolute().map(|place| PathBuf::from(place.to_string())),
        _ => log.canonicalize(),
    };
    let written = path.and_then(|path| note(sort, uuid, path.as_os_str().as_bytes()));
    if let Err(error) = written {
        tracing::debug!(%error, "the log's place is not remembered; it will have to be named");
    }
}

/// Remembers where the record area of the volume with this UUID (as text) is, as [`remember`] does.
pub(crate) fn remember_area(uuid: &str, place: &BytePlace) {
    let named = || -> std::io::Result<Vec<u8>> {
        let full = |path: &Path| Ok(path.canonicalize()?.into_os_string().into_vec());
        match place {
            BytePlace::Path(path) => full(path),
            BytePlace::Volatile(path) => Ok([VOLATILE, &full(path)?].concat()),
            BytePlace::Pmr(_) => Ok(place.to_string().into_bytes()),
        }
    };
    if let Err(error) = named().and_then(|name| note(AREAS, uuid, &name)) {
        tracing::debug!(%error, "the record area's place is not remembered");
    }
}

fn note(sort: &str, uuid: &str, name: &[u8]) -> std::io::Result<()> {
    let dir = registry(sort);
    let entry = dir.join(uuid);
    if fs::read(&entry).is_ok_and(|old| old == name) {
        return Ok(());
    }
    fs::create_dir_all(&dir)?;
    let mut file = tempfile::NamedTempFile::new_in(&dir)?;
    file.write_all(name)?;
    file.persist(entry).map_err(|e| e.error)?;
    Ok(())
}

/// Forgets where the logs and the record area of the volume with this UUID (as text) are.
pub(crate) fn forget(uuid: &str) {
    for sort in [LOGS, AREAS, SPARES] {
        let _ = fs::remove_file(registry(sort).join(uuid));
    }
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
