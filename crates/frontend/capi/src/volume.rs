//! Volumes that are opened in the process.

use crate::convert::{
    Name, REPLACE, borrowed, fill, give, given, io_error, length, path, refuse, slice, status, text,
};
use crate::mount::level;
use siftfs::{ConnectOptions, File, Volume};
use siftfs_client::Level;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};

/// `siftfs_volume_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_open(name: *const c_char) -> *mut Volume {
    // SAFETY: the header asks for a string that ends with NUL.
    let path = unsafe { path(name) };
    let there = path.and_then(|path| std::fs::metadata(path).map(|_| path));
    given(there.and_then(|path| Volume::open(path).map_err(told)))
}

/// `siftfs_volume_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_connect(
    address: *const c_char,
    name: *const c_char,
) -> *mut Volume {
    // SAFETY: the header asks for the same, and for options as well, or a null pointer.
    unsafe { siftfs_volume_connect_with(address, name, std::ptr::null()) }
}

/// `siftfs_volume_connect_with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_connect_with(
    address: *const c_char,
    name: *const c_char,
    options: *const c_char,
) -> *mut Volume {
    let connect = || {
        // SAFETY: the header asks for strings that end with NUL, or null pointers for the last two.
        let (address, name, options) = unsafe {
            let or_none = |words: *const c_char| if words.is_null() { Ok("") } else { text(words) };
            (text(address)?, or_none(name)?, or_none(options)?)
        };
        let options = options.parse::<ConnectOptions>();
        let connected = options.and_then(|by| Volume::connect_by(address, name, &by));
        connected.map_err(refused)
    };
    given(connect())
}

thread_local! {
    /// Why the thread's last volume could not be had.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Keeps an error's words for [`siftfs_volume_message`].
fn told(error: siftfs::Error) -> std::io::Error {
    let words = error.to_string().replace('\0', " ");
    MESSAGE.set(CString::new(words).unwrap_or_default());
    io_error(error)
}

/// Keeps a server's words for [`siftfs_volume_message`], too.
pub(crate) fn refused(error: siftfs::Error) -> std::io::Error {
    match error {
        siftfs::Error::Refused(_) => {
            told(error);
            refuse(libc::ECONNREFUSED)
        }
        other => told(other),
    }
}

/// `siftfs_volume_message`.
#[unsafe(no_mangle)]
pub extern "C" fn siftfs_volume_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// `siftfs_volume_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_close(volume: *mut Volume) -> c_int {
    if volume.is_null() {
        return status(Err(refuse(libc::EINVAL)));
    }
    // SAFETY: given by `siftfs_volume_open`, and the caller gives it back once.
    let volume = unsafe { Box::from_raw(volume) };
    status(volume.close().map_err(io_error))
}

/// `siftfs_volume_sync`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_sync(volume: *const Volume) -> c_int {
    // SAFETY: the header asks for a volume that is open.
    status(unsafe { borrowed(volume) }.and_then(|volume| volume.sync().map_err(io_error)))
}

/// `siftfs_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_open(
    volume: *const Volume,
    name: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> *mut File {
    let open = || {
        // SAFETY: the header asks for a volume that is open and a string that ends with NUL.
        let (volume, name) = unsafe { (borrowed(volume)?, text(name)?) };
        let perm = u16::try_from(mode & 0o7777).map_err(|_| refuse(libc::EINVAL))?;
        match flags & !libc::O_RDWR {
            0 => volume.open_file(name).map_err(io_error),
            libc::O_CREAT => volume.create(name, perm).map_err(io_error),
            _ => Err(refuse(libc::EINVAL)),
        }
    };
    given(open())
}

/// `siftfs_open_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_open_read(
    volume: *const Volume,
    name: *const c_char,
    into: *mut c_void,
    len: usize,
    offset: u64,
    count: *mut usize,
) -> *mut File {
    let open = || {
        // SAFETY: the header asks for a volume that is open and a string that ends with NUL.
        let (volume, name) = unsafe { (borrowed(volume)?, text(name)?) };
        if into.is_null() || count.is_null() {
            return Err(refuse(libc::EINVAL));
        }
        let most = u32::try_from(len).map_err(|_| refuse(libc::EINVAL))?;
        let (file, data) = volume.open_read(name, offset, most).map_err(io_error)?;
        // SAFETY: the header asks for room for `len` bytes and for their number.
        unsafe { give(count, || fill(into, len, &data)) }?;
        Ok(file)
    };
    given(open())
}

/// `siftfs_write_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_write_close(
    volume: *const Volume,
    file: *mut File,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> c_int {
    if file.is_null() {
        return status(Err(refuse(libc::EINVAL)));
    }
    // SAFETY: given by `siftfs_open`, and the caller gives it back once.
    let file = *unsafe { Box::from_raw(file) };
    let write = || {
        // SAFETY: the header asks for a volume that is open, and for `len` bytes.
        let (volume, data) = unsafe { (borrowed(volume)?, slice(from.cast::<u8>(), len)?) };
        volume.write_close(file, offset, data).map_err(io_error)
    };
    status(write())
}

/// `siftfs_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_close(file: *mut File) {
    if !file.is_null() {
        // SAFETY: given by `siftfs_open`, and the caller gives it back once.
        drop(unsafe { Box::from_raw(file) });
    }
}

/// `siftfs_pread`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_pread(
    file: *const File,
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

/// `siftfs_pwrite`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_pwrite(
    file: *const File,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> isize {
    let write = || {
        // SAFETY: the header asks for a file that is open, and for `len` bytes.
        let (file, data) = unsafe { (borrowed(file)?, slice(from.cast::<u8>(), len)?) };
        file.write_at(offset, data).map_err(io_error).map(|()| len)
    };
    length(write())
}

/// `siftfs_ftruncate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_ftruncate(file: *const File, size: u64) -> c_int {
    // SAFETY: the header asks for a file that is open.
    status(unsafe { borrowed(file) }.and_then(|file| file.set_len(size).map_err(io_error)))
}

/// `siftfs_fsync`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_fsync(file: *const File) -> c_int {
    // SAFETY: the header asks for a file that is open.
    status(unsafe { borrowed(file) }.and_then(|file| file.sync_all().map_err(io_error)))
}

/// `siftfs_fdatasync`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_fdatasync(file: *const File) -> c_int {
    // SAFETY: the header asks for a file that is open.
    status(unsafe { borrowed(file) }.and_then(|file| file.sync_data().map_err(io_error)))
}

/// `siftfs_flock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_flock(file: *const File, operation: c_int) -> c_int {
    // SAFETY: the header asks for a file that is open.
    let locked = unsafe { borrowed(file) }.and_then(|file| {
        let tried = match (operation & !libc::LOCK_NB, operation & libc::LOCK_NB != 0) {
            (libc::LOCK_EX, true) => file.try_lock(),
            (libc::LOCK_SH, true) => file.try_lock_shared(),
            (libc::LOCK_EX, false) => file.lock().map(|()| true),
            (libc::LOCK_SH, false) => file.lock_shared().map(|()| true),
            (libc::LOCK_UN, _) => file.unlock().map(|()| true),
            _ => return Err(refuse(libc::EINVAL)),
        };
        match tried.map_err(io_error)? {
            true => Ok(()),
            false => Err(refuse(libc::EWOULDBLOCK)),
        }
    });
    status(locked)
}

/// `siftfs_volume_publish`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_volume_publish(
    volume: *const Volume,
    names: *const Name,
    count: usize,
    wanted: c_int,
) -> c_int {
    let publish = || {
        let level = level(wanted)?;
        // SAFETY: the header asks for a volume that is open, and `count` names.
        let (volume, names) = unsafe { (borrowed(volume)?, slice(names, count)?) };
        let mut all = volume.publish();
        for name in names {
            // SAFETY: ... whose strings end with NUL.
            let (from, to) = unsafe { (text(name.from)?, text(name.to)?) };
            all = match name.flags {
                0 => all.name(from, to),
                REPLACE => all.replace(from, to),
                _ => return Err(refuse(libc::EINVAL)),
            };
        }
        let done = match level {
            Level::Visible => all.visible(),
            Level::Atomic => all.atomic(),
            Level::Durable => all.durable(),
        };
        done.map_err(io_error)
    };
    status(publish())
}
