//! Where the C library's functions are.

use super::Entry;
use super::relocate::{self, Moved};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::slice;

/// A function that is longer is not the one that is looked for.
const MOST: u64 = 4096;
/// As much of a function is looked at whose length is not known.
const BEGINNING: usize = 16;

/// The executable memory of the C library, and the C library.
pub struct Text {
    pub range: Range<usize>,
    pub(super) handle: *mut c_void,
}

/// Looks for it. None: there is no C library of that name, or its memory is not as expected.
pub fn text() -> Option<Text> {
    // SAFETY: the name ends with NUL; nothing is loaded that is not there.
    let handle =
        unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let range = segment(symbol(handle, c"fclose")?.addr())?;
    Some(Text { range, handle })
}

/// The executable memory of the loaded object that has this address, if it is not to be written.
pub fn segment(inside: usize) -> Option<Range<usize>> {
    let mut search = Search { inside, found: None };
    // SAFETY: `each` gets the pointer as it is, and is called before this function returns.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut search).cast()) };
    search.found
}

struct Search {
    inside: usize,
    found: Option<Range<usize>>,
}

/// One loaded object: does one of its segments, executable and not to be written, have the address?
unsafe extern "C" fn each(
    object: *mut libc::dl_phdr_info,
    _len: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader's own description, and the caller's `search`, for this call.
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search>()) };
    if object.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object has that number of headers there, for as long as it is loaded.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let begin = (object.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let range = begin..begin.saturating_add(header.p_memsz as usize);
        if range.contains(&search.inside) {
            let flags = header.p_flags & (libc::PF_R | libc::PF_W | libc::PF_X);
            search.found = (flags == libc::PF_R | libc::PF_X).then_some(range);
            return 1;
        }
    }
    0
}

fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with NUL.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The length of the function that begins there, if its symbol says so.
fn length(function: *mut c_void) -> Option<u64> {
    const SYMBOL: c_int = 1; // RTLD_DL_SYMENT
    let mut about = libc::Dl_info {
        dli_fname: null_mut(),
        dli_fbase: null_mut(),
        dli_sname: null_mut(),
        dli_saddr: null_mut(),
    };
    let mut symbol: *mut libc::Elf64_Sym = null_mut();
    // SAFETY: both are there to be written for this call.
    let found = unsafe { dladdr1(function, &raw mut about, (&raw mut symbol).cast(), SYMBOL) };
    if found == 0 || symbol.is_null() || about.dli_saddr != function {
        return None;
    }
    // SAFETY: the loader has just found it in the object's table, which stays.
    Some(unsafe { (*symbol).st_size }).filter(|len| (1..=MOST).contains(len))
}

unsafe extern "C" {
    fn dladdr1(
        at: *const c_void,
        about: *mut libc::Dl_info,
        more: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

impl Text {
    /// The code at an address, as far as it is the C library's.
    fn code(&self, at: *mut c_void, len: usize) -> Option<&[u8]> {
        let end = at.addr().checked_add(len)?;
        if !self.range.contains(&at.addr()) || end > self.range.end {
            return None;
        }
        // SAFETY: the range is the text of a library that stays loaded, and is not written before
        // everything is found.
        Some(unsafe { slice::from_raw_parts(at.cast(), len) })
    }

    /// The function that `_IO_file_close` ends in: it closes without being a cancellation point.
    fn close_nocancel(&self) -> Option<*mut c_void> {
        let from = symbol(self.handle, c"_IO_file_close")?;
        let code = self.code(from, length(from)? as usize)?;
        let to = usize::try_from(relocate::goes_on_at(code, from.addr() as u64)?).ok()?;
        let to = std::ptr::with_exposed_provenance_mut(to);
        let closes = relocate::calls_the_kernel(
            self.code(to, BEGINNING)?,
            to.addr() as u64,
            libc::SYS_close as u32,
        );
        closes.then_some(to)
    }
}

/// A function, and how its beginning can be moved. None: it is not to be found for sure, or its
/// code is not understood.
pub fn function(text: &Text, entry: Entry) -> Option<(*mut c_void, Moved)> {
    let begin = match entry {
        Entry::Write => symbol(text.handle, c"write")?,
        Entry::Read => symbol(text.handle, c"read")?,
        Entry::Open => symbol(text.handle, c"open64")?,
        Entry::Close => symbol(text.handle, c"close")?,
        Entry::CloseNocancel => text.close_nocancel()?,
        Entry::Seek => symbol(text.handle, c"lseek64")?,
    };
    let len = length(begin);
    let code = text.code(begin, len.map_or(BEGINNING, |len| len as usize))?;
    Some((begin, relocate::understood(code, begin.addr() as u64, len.is_some())?))
}
