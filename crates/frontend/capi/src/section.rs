//! Atomic sections of volumes that are opened in the process.

use crate::convert::{borrowed, fill, given, io_error, length, refuse, slice, status};
use crate::mount::level;
use siftfs::{File, Section, commit_all, commit_ordered};
use siftfs_client::Level;
use std::collections::HashSet;
use std::ffi::{c_int, c_void};

/// `siftfs_section_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_section_start(file: *const File) -> *mut Section {
    // SAFETY: the header asks for a file that is open.
    given(unsafe { borrowed(file) }.and_then(|file| file.section().map_err(io_error)))
}

/// `siftfs_section_pread`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_section_pread(
    section: *const Section,
    into: *mut c_void,
    len: usize,
    offset: u64,
) -> isize {
    let read = || {
        // SAFETY: the header asks for a section that has not ended, and for room for `len` bytes.
        unsafe {
            let data = borrowed(section)?.read_at(offset, len).map_err(io_error)?;
            fill(into, len, &data)
        }
    };
    length(read())
}

/// `siftfs_section_pwrite`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_section_pwrite(
    section: *const Section,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> isize {
    let write = || {
        // SAFETY: the header asks for a section that has not ended, and for `len` bytes.
        let (section, data) = unsafe { (borrowed(section)?, slice(from.cast::<u8>(), len)?) };
        section.write_at(offset, data).map_err(io_error).map(|()| len)
    };
    length(write())
}

/// `siftfs_section_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_section_commit(
    sections: *const *mut Section,
    count: usize,
    wanted: c_int,
) -> c_int {
    let commit = || {
        let level = level(wanted)?;
        // SAFETY: the header asks for `count` sections.
        let sections = unsafe { slice(sections, count) }?;
        let distinct: HashSet<_> = sections.iter().collect();
        if distinct.len() != count || sections.iter().any(|s| s.is_null()) {
            return Err(refuse(libc::EINVAL));
        }
        // SAFETY: given by `siftfs_section_start`, each is here once, and the caller gives it back
        // once.
        let sections = sections.iter().map(|s| *unsafe { Box::from_raw(*s) }).collect();
        let done = match level {
            Level::Durable => commit_all(sections),
            Level::Visible | Level::Atomic => commit_ordered(sections),
        };
        done.map_err(io_error)
    };
    status(commit())
}

/// `siftfs_section_abort`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_section_abort(section: *mut Section) {
    if !section.is_null() {
        // SAFETY: given by `siftfs_section_start`, and the caller gives it back once.
        drop(unsafe { Box::from_raw(section) });
    }
}
