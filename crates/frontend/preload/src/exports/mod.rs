//! The functions that programs call instead of the C library's. Each looks at the table, and calls
//! the C library's function of its name if the library does not do the call.
//!
//! A thread may be cancelled in the C library's function, which unwinds the stack: nothing that
//! would have to be dropped is alive in these functions.

mod data;
mod descriptors;
mod others;
mod processes;
mod streams;

use crate::below::guard::set_errno;
use crate::state::process;
use crate::state::table;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    process::begin(streams::hooks());
}

/// Is something known of the descriptor? Then the call is one that a thread may be cancelled in, as
/// the C library's is.
#[inline(always)]
fn is_seen(fd: i32) -> bool {
    let seen = table::tag(fd) != table::NONE;
    if seen {
        // SAFETY: nothing is to be dropped in the function that calls this one.
        unsafe { pthread_testcancel() };
    }
    seen
}

/// A result as C has it.
fn answer(done: Result<isize, i32>) -> isize {
    done.unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

fn short(value: isize) -> i32 {
    i32::try_from(value).unwrap_or(-1)
}
