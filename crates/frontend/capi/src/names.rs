//! Names and attributes in volumes that are opened in the process.

use crate::convert::{REPLACE, borrowed, give, io_error, refuse, status, text};
use siftfs::{Attr, File, FileKind, RenameMode, Volume};
use std::ffi::{CString, c_char, c_int, c_uchar, c_uint, c_void};
use std::io;

/// The type bits of `st_mode`, and `d_type`.
fn kind(kind: FileKind) -> (libc::mode_t, c_uchar) {
    match kind {
        FileKind::Regular => (libc::S_IFREG, libc::DT_REG),
        FileKind::Directory => (libc::S_IFDIR, libc::DT_DIR),
        FileKind::Symlink => (libc::S_IFLNK, libc::DT_LNK),
        FileKind::CharDevice => (libc::S_IFCHR, libc::DT_CHR),
        FileKind::BlockDevice => (libc::S_IFBLK, libc::DT_BLK),
        FileKind::Fifo => (libc::S_IFIFO, libc::DT_FIFO),
        FileKind::Socket => (libc::S_IFSOCK, libc::DT_SOCK),
    }
}

/// Attributes as stat(2) has them. `st_dev` is 0: a volume in the process has no device number.
fn stat(attr: &Attr) -> io::Result<libc::stat> {
    let large = |n: u64| i64::try_from(n).map_err(|_| refuse(libc::EOVERFLOW));
    // SAFETY: a structure of numbers, for each of which 0 is one.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_ino = attr.ino.into();
    stat.st_mode = kind(attr.kind).0 | libc::mode_t::from(attr.perm);
    stat.st_nlink = attr.nlink.into();
    (stat.st_uid, stat.st_gid) = (attr.uid, attr.gid);
    stat.st_rdev = attr.rdev.into();
    stat.st_size = large(attr.size)?;
    stat.st_blksize = 4096;
    stat.st_blocks = large(attr.blocks)?;
    (stat.st_atime, stat.st_atime_nsec) = (attr.atime.sec, attr.atime.nsec.into());
    (stat.st_mtime, stat.st_mtime_nsec) = (attr.mtime.sec, attr.mtime.nsec.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (attr.ctime.sec, attr.ctime.nsec.into());
    Ok(stat)
}

/// Does something with a volume and a path in it.
///
/// # Safety
/// The volume is null or open; the path is null or a string that ends with NUL.
unsafe fn at(
    volume: *const Volume,
    path: *const c_char,
    act: impl FnOnce(&Volume, &str) -> siftfs::Result<()>,
) -> c_int {
    // SAFETY: the caller's promise.
    let both = unsafe { borrowed(volume).and_then(|volume| Ok((volume, text(path)?))) };
    status(both.and_then(|(volume, path)| act(volume, path).map_err(io_error)))
}

/// `siftfs_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_stat(
    volume: *const Volume,
    path: *const c_char,
    into: *mut libc::stat,
) -> c_int {
    let ask = || {
        // SAFETY: the header asks for a volume that is open and a string that ends with NUL.
        let (volume, path) = unsafe { (borrowed(volume)?, text(path)?) };
        stat(&volume.stat(path).map_err(io_error)?)
    };
    // SAFETY: the header asks for room for a structure.
    status(unsafe { give(into, ask) })
}

/// `siftfs_fstat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_fstat(file: *const File, into: *mut libc::stat) -> c_int {
    // SAFETY: the header asks for a file that is open.
    let ask = || stat(&unsafe { borrowed(file) }?.stat().map_err(io_error)?);
    // SAFETY: the header asks for room for a structure.
    status(unsafe { give(into, ask) })
}

/// `siftfs_mkdir`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_mkdir(
    volume: *const Volume,
    path: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    // Twelve bits fit.
    let perm = u16::try_from(mode & 0o7777).unwrap_or_default();
    // SAFETY: the header asks for a volume that is open and a string that ends with NUL.
    unsafe { at(volume, path, |volume, path| volume.create_dir(path, perm).map(drop)) }
}

/// `siftfs_rmdir`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_rmdir(volume: *const Volume, path: *const c_char) -> c_int {
    // SAFETY: the header asks for a volume that is open and a string that ends with NUL.
    unsafe { at(volume, path, Volume::remove_dir) }
}

/// `siftfs_unlink`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_unlink(volume: *const Volume, path: *const c_char) -> c_int {
    // SAFETY: the header asks for a volume that is open and a string that ends with NUL.
    unsafe { at(volume, path, Volume::remove_file) }
}

/// `siftfs_rename`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_rename(
    volume: *const Volume,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let rename = || {
        let mode = match flags {
            0 => RenameMode::NoReplace,
            REPLACE => RenameMode::Replace,
            _ => return Err(refuse(libc::EINVAL)),
        };
        // SAFETY: the header asks for a volume that is open and strings that end with NUL.
        let (volume, from, to) = unsafe { (borrowed(volume)?, text(from)?, text(to)?) };
        volume.rename(from, to, mode).map_err(io_error)
    };
    status(rename())
}

/// `siftfs_link`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_link(
    volume: *const Volume,
    existing: *const c_char,
    to: *const c_char,
) -> c_int {
    let link = || {
        // SAFETY: the header asks for a volume that is open and strings that end with NUL.
        let (volume, existing, to) = unsafe { (borrowed(volume)?, text(existing)?, text(to)?) };
        volume.link(existing, to).map(drop).map_err(io_error)
    };
    status(link())
}

/// `siftfs_sync_dir`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_sync_dir(volume: *const Volume, path: *const c_char) -> c_int {
    // SAFETY: the header asks for a volume that is open and a string that ends with NUL.
    unsafe { at(volume, path, Volume::sync_dir) }
}

/// `siftfs_list`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_list(
    volume: *const Volume,
    path: *const c_char,
    then: Option<extern "C" fn(*mut c_void, *const c_char, u64, c_uchar)>,
    context: *mut c_void,
) -> c_int {
    let list = || {
        let then = then.ok_or_else(|| refuse(libc::EINVAL))?;
        // SAFETY: the header asks for a volume that is open and a string that ends with NUL.
        let (volume, path) = unsafe { (borrowed(volume)?, text(path)?) };
        let entries = volume.read_dir(path).map_err(io_error)?;
        let named = entries.into_iter().map(|entry| {
            // A name on storage that C cannot have is damage.
            let name = CString::new(entry.name).map_err(|_| refuse(libc::EUCLEAN))?;
            Ok((name, entry.ino.into(), kind(entry.kind).1))
        });
        let named = named.collect::<io::Result<Vec<_>>>()?;
        named.iter().for_each(|(name, ino, kind)| then(context, name.as_ptr(), *ino, *kind));
        Ok(())
    };
    status(list())
}
