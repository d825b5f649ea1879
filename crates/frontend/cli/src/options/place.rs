//! Paths as a user gives them, and as a daemon needs them, which leaves the directory that a
//! relative path starts from.

use crate::options::target;
use crate::show::failure::{Failure, USAGE};
use siftfs_fuse::says_dead;
use siftfs_placement::{BytePlace, RbdPlace, RbdPool, StripePlace};
use std::path::{Path, PathBuf};

/// The place of a record area, by a path that holds everywhere.
///
/// # Errors
/// The path is not there.
pub fn absolute_place(place: &BytePlace) -> Result<BytePlace, Failure> {
    let full = |path: &Path| path.canonicalize().map_err(|e| Failure::about(path, e));
    Ok(match place {
        BytePlace::Path(path) => BytePlace::Path(full(path)?),
        BytePlace::Volatile(path) => BytePlace::Volatile(full(path)?),
        BytePlace::Pmr(address) => BytePlace::Pmr(*address),
    })
}

/// The name of the volume `given`, by a path, or by paths of its members, that hold everywhere.
///
/// # Errors
/// It is not there, or names no members of stripes. Whether a member at a target is there shows
/// when it is opened.
pub fn volume(given: &Path) -> Result<PathBuf, Failure> {
    let full = |path: &Path| device(path);
    let Some(stripes) = StripePlace::parse(given) else { return full(given) };
    let stripes = stripes.map_err(|e| Failure::about(given, e).with_code(USAGE))?;
    let each = |member: &PathBuf| target::named(member)?.map_or_else(|| full(member), Ok);
    let members = stripes.members().iter().map(each);
    Ok(StripePlace::new(members.collect::<Result<_, _>>()?).name())
}

/// The name of the pool `given`, by a path that holds everywhere; `None` if it names something
/// else.
///
/// # Errors
/// It names no pool. Whether one is there shows when it is asked for its images.
pub fn pool(given: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some(pool) = RbdPool::parse(given) else { return Ok(None) };
    let pool = pool.map_err(|e| Failure::plain(e).with_code(USAGE))?;
    let absolute = pool.absolute().map_err(|e| Failure::about(given, e))?;
    Ok(Some(absolute.to_string().into()))
}

/// The name of one device, by a path that holds everywhere.
///
/// # Errors
/// It is not there, or names no image. Whether an image is there shows when it is opened.
pub fn device(given: &Path) -> Result<PathBuf, Failure> {
    let Some(image) = RbdPlace::parse(given) else {
        return given.canonicalize().map_err(|e| Failure::about(given, e));
    };
    let image = image.map_err(|e| Failure::plain(e).with_code(USAGE))?;
    let absolute = image.absolute().map_err(|e| Failure::about(given, e))?;
    Ok(absolute.to_string().into())
}

/// As [`device`], of a log's device, which may be missing: where its volume's spare log is the log
/// alone, nobody looks at it. Else opening it says that it is not there.
///
/// # Errors
/// It names no image.
pub fn log_device(given: &Path) -> Result<PathBuf, Failure> {
    match given.try_exists() {
        Ok(false) if RbdPlace::parse(given).is_none() => {
            std::path::absolute(given).map_err(|e| Failure::about(given, e))
        }
        _ => device(given),
    }
}

/// An absolute path without links, also when the last part is a dead mount.
pub fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    path.canonicalize().or_else(|e| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if says_dead(&e) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => Err(e),
    })
}
