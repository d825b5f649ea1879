//! Files that a program reads and writes at the target which has their volume's storage.

use crate::convert::{borrowed, fill, given, io_error, length, refuse, slice, status, text};
use crate::volume::refused;
use siftfs::{Direct, DirectFile, Volume};
use std::ffi::{c_char, c_int, c_void};

/// `struct siftfs_piece`.
#[repr(C)]
pub struct Piece {
    /// What is written.
    pub from: *const c_void,
    /// How many bytes it is.
    pub length: usize,
    /// Where in the file.
    pub offset: u64,
}

/// `siftfs_direct_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_connect(
    address: *const c_char,
    name: *const c_char,
) -> *mut Direct {
    let connect = || {
        // SAFETY: the header asks for strings that end with NUL, or a null pointer for the name.
        let (address, name) = unsafe {
            let name = if name.is_null() { Ok("") } else { text(name) };
            (text(address)?, name?)
        };
        Direct::connect(address, name).map_err(refused)
    };
    given(connect())
}

/// `siftfs_direct_disconnect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_disconnect(direct: *mut Direct) {
    if !direct.is_null() {
        // SAFETY: given by `siftfs_direct_connect`, and the caller gives it back once.
        drop(unsafe { Box::from_raw(direct) });
    }
}

/// `siftfs_direct_volume`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_volume(direct: *const Direct) -> *const Volume {
    // SAFETY: the header asks for a session that has not ended.
    match unsafe { borrowed(direct) } {
        Ok(direct) => std::ptr::from_ref(direct.names()),
        Err(error) => {
            status(Err(error));
            std::ptr::null()
        }
    }
}

/// `siftfs_direct_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_open(
    direct: *const Direct,
    name: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> *mut DirectFile {
    let open = || {
        // SAFETY: the header asks for a session that lasts and a string that ends with NUL.
        let (direct, name) = unsafe { (borrowed(direct)?, text(name)?) };
        let perm = u16::try_from(mode & 0o7777).map_err(|_| refuse(libc::EINVAL))?;
        let opened = match flags {
            libc::O_RDONLY => direct.open_to_read(name),
            libc::O_RDWR => direct.open_file(name),
            flags if flags == libc::O_RDWR | libc::O_CREAT => direct.create(name, perm),
            _ => return Err(refuse(libc::EINVAL)),
        };
        opened.map_err(io_error)
    };
    given(open())
}

/// `siftfs_direct_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_close(file: *mut DirectFile) {
    if !file.is_null() {
        // SAFETY: given by `siftfs_direct_open`, and the caller gives it back once.
        drop(unsafe { Box::from_raw(file) });
    }
}

/// `siftfs_direct_pread`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_pread(
    file: *const DirectFile,
    into: *mut c_void,
    len: usize,
    offset: u64,
) -> isize {
    let read = || {
        // SAFETY: the header asks for a file that is open, and for room for `len` bytes.
        unsafe {
            let data = borrowed(file)?.read_at(offset, len).map_err(io_error)?;
            fill(into, len, &data)
        }
    };
    length(read())
}

/// `siftfs_direct_pwrite`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_pwrite(
    file: *const DirectFile,
    from: *const c_void,
    len: usize,
    offset: u64,
    durable: c_int,
) -> isize {
    let write = || {
        // SAFETY: the header asks for a file that is open, and for `len` bytes.
        let (file, data) = unsafe { (borrowed(file)?, slice(from.cast::<u8>(), len)?) };
        let written = match durable {
            0 => file.write_at(offset, data),
            _ => file.write_durable_at(offset, data),
        };
        written.map_err(io_error).map(|()| len)
    };
    length(write())
}

/// `siftfs_direct_write_together`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_write_together(
    file: *const DirectFile,
    pieces: *const Piece,
    count: usize,
) -> c_int {
    let write = || {
        // SAFETY: the header asks for a file that is open, and for `count` pieces.
        let (file, pieces) = unsafe { (borrowed(file)?, slice(pieces, count)?) };
        let mut section = file.atomic_start();
        for piece in pieces {
            // SAFETY: ... whose pointers lead to that number of bytes.
            let data = unsafe { slice(piece.from.cast::<u8>(), piece.length) }?;
            section.write_at(piece.offset, data).map_err(io_error)?;
        }
        section.commit().map_err(io_error)
    };
    status(write())
}

/// `siftfs_direct_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_size(file: *const DirectFile, into: *mut u64) -> c_int {
    // SAFETY: the header asks for a file that is open, and for room for a number.
    status(unsafe {
        borrowed(file).and_then(|file| crate::convert::give(into, || file.len().map_err(io_error)))
    })
}

/// `siftfs_direct_ftruncate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_ftruncate(file: *const DirectFile, size: u64) -> c_int {
    // SAFETY: the header asks for a file that is open.
    status(unsafe { borrowed(file) }.and_then(|file| file.set_len(size).map_err(io_error)))
}

/// `siftfs_direct_fsync`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_fsync(file: *const DirectFile) -> c_int {
    // SAFETY: the header asks for a file that is open.
    status(unsafe { borrowed(file) }.and_then(|file| file.sync_all().map_err(io_error)))
}

/// `siftfs_direct_fdatasync`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_fdatasync(file: *const DirectFile) -> c_int {
    // SAFETY: the header asks for a file that is open.
    status(unsafe { borrowed(file) }.and_then(|file| file.sync_data().map_err(io_error)))
}

/// `siftfs_direct_is_direct`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_direct_is_direct(file: *const DirectFile) -> c_int {
    // SAFETY: the header asks for a file that is open.
    crate::convert::truth(unsafe { borrowed(file) }.map(|file| file.is_direct()))
}
