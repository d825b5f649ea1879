//! Putting jumps into the C library's text.

use super::find::Text;
use super::relocate::{JUMP, Moved};
use super::{ALL, Entry};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// Memory for one entry: the trampoline, then the way to this library.
const SLOT: usize = 128;
const WAY: usize = 96;
/// `jmp [rip+0]`, behind which the address stands: it reaches everywhere.
const FAR: [u8; 6] = [0xFF, 0x25, 0, 0, 0, 0];
/// A jump of 32 bits reaches that far, from anywhere to anywhere in both ranges.
const NEAR: usize = (1 << 31) - (64 << 20);
/// Places that are tried where the kernel's own choice is too far away.
const STEP: usize = 16 << 20;

type Found = [Option<(*mut c_void, Moved)>; ALL.len()];

/// An entry that can be replaced.
pub struct Place {
    pub entry: Entry,
    pub begin: *mut c_void,
    pub trampoline: *mut c_void,
    at: *mut u8,
    jump: [u8; JUMP],
}

/// Everything but the jumps themselves.
pub struct Prepared {
    pub places: Vec<Place>,
    slots: *mut c_void,
}

/// Makes the trampolines of what was found. None: nothing can be replaced.
pub fn prepare(found: &Found, hooks: [*const c_void; ALL.len()]) -> Option<Prepared> {
    let around = found.iter().flatten().next()?.0.addr();
    let slots = near(around)?;
    let mut prepared = Prepared { places: Vec::new(), slots };
    for ((entry, found), hook) in ALL.into_iter().zip(found).zip(hooks) {
        let Some((begin, moved)) = found else { continue };
        let trampoline = slots.wrapping_byte_add(entry as usize * SLOT);
        let way = trampoline.wrapping_byte_add(WAY);
        let Some(code) = moved.trampoline(trampoline.addr() as u64).filter(|c| c.len() <= WAY)
        else {
            continue;
        };
        let Some(jump) = moved.jump(way.addr() as u64) else { continue };
        let at = begin.wrapping_byte_add(moved.at as usize - begin.addr()).cast();
        // SAFETY: both are inside of the new page, which is to be written, and in this slot alone.
        unsafe {
            copy(&code, trampoline.cast());
            copy(&FAR, way.cast());
            copy(&hook.expose_provenance().to_le_bytes(), way.cast::<u8>().add(FAR.len()));
        }
        prepared.places.push(Place { entry, begin: *begin, trampoline, at, jump });
    }
    let both = [Entry::Close, Entry::CloseNocancel];
    let all = both.iter().all(|e| prepared.places.iter().any(|place| place.entry == *e));
    // SAFETY: the page is this function's, and nothing runs there yet.
    let runs = all
        && unsafe { mprotect(slots, size(), MprotectFlags::READ | MprotectFlags::EXEC) }.is_ok();
    if runs {
        return Some(prepared);
    }
    prepared.forget();
    None
}

fn size() -> usize {
    (ALL.len() * SLOT).next_multiple_of(rustix::param::page_size())
}

/// New memory from which a jump reaches the text, and back.
fn near(around: usize) -> Option<*mut c_void> {
    let map = |at: usize, flags: MapFlags| {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let at = with_exposed_provenance_mut(at);
        // SAFETY: a new mapping, which takes nothing else's place.
        let new = unsafe { mmap_anonymous(at, size(), prot, MapFlags::PRIVATE | flags) }.ok()?;
        if new.addr().abs_diff(around) < NEAR {
            return Some(new);
        }
        // SAFETY: nobody has it.
        let _ = unsafe { munmap(new, size()) };
        None
    };
    map(0, MapFlags::empty()).or_else(|| {
        let page = around & !(rustix::param::page_size() - 1);
        let below = (1..NEAR / STEP).filter_map(|n| page.checked_sub(n * STEP));
        below.filter(|at| *at > 1 << 20).find_map(|at| map(at, MapFlags::FIXED_NOREPLACE))
    })
}

/// Copies without the C library, whose own code may be the one that changes.
///
/// # Safety
/// As much may be written there.
unsafe fn copy(bytes: &[u8], to: *mut u8) {
    for (n, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's promise. Such a store is not made a call of memcpy.
        unsafe { to.add(n).write_volatile(*byte) };
    }
}

/// Is this the only thread of the process?
fn is_alone() -> bool {
    // The directory has one entry per thread besides its own two.
    rustix::fs::stat("/proc/self/task").is_ok_and(|stat| stat.st_nlink == 3)
}

/// Runs without any signal's handler. This is the only thread.
fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let all = u64::MAX;
    let mut before = 0_u64;
    let len = size_of::<u64>();
    let change = |how: i32, set: *const u64, old: *mut u64| {
        // SAFETY: the kernel's set of signals is as long as that.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, len) == 0 }
    };
    let blocked = change(libc::SIG_SETMASK, &raw const all, &raw mut before);
    let done = work();
    if blocked {
        change(libc::SIG_SETMASK, &raw const before, null_mut());
    }
    done
}

impl Prepared {
    /// The pages of the text that change.
    fn pages(&self) -> Option<Range<usize>> {
        let page = rustix::param::page_size();
        let begin = self.places.iter().map(|place| place.at.addr()).min()? & !(page - 1);
        let end = self.places.iter().map(|place| place.at.addr() + JUMP).max()?;
        Some(begin..end.next_multiple_of(page))
    }

    /// Puts the jumps there. False: nothing was changed, because it must not be.
    pub fn replace(&self, text: &Text) -> bool {
        let inside = |place: &Place| text.range.contains(&(place.at.addr() + JUMP - 1));
        let pages = self.pages().filter(|_| self.places.iter().all(inside));
        let done = match pages {
            Some(pages) if is_alone() => undisturbed(|| self.put(pages)),
            _ => false,
        };
        if !done {
            self.forget();
        }
        done
    }

    fn put(&self, pages: Range<usize>) -> bool {
        let (at, len) = (with_exposed_provenance_mut(pages.start), pages.len());
        let runs = MprotectFlags::READ | MprotectFlags::EXEC;
        // Both at once: a system that forbids that says so here, and not when the text is to run
        // again. SAFETY: the pages are the C library's text, which stays what it is.
        if unsafe { mprotect(at, len, runs | MprotectFlags::WRITE) }.is_err() {
            return false;
        }
        for place in &self.places {
            // SAFETY: as much of the function may be written, and nothing runs there: this is the
            // only thread, no signal comes, and what is called here is the library's own.
            unsafe { copy(&place.jump, place.at) };
        }
        // SAFETY: as above. If it fails, the text runs all the same.
        let _ = unsafe { mprotect(at, len, runs) };
        true
    }

    fn forget(&self) {
        // SAFETY: nothing leads there.
        let _ = unsafe { munmap(self.slots, size()) };
    }
}

#[cfg(test)]
#[path = "put_tests.rs"]
mod tests;
