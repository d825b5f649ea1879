//! The C library's streams. They call write(2) and its kin by hidden names, so the entries of six
//! functions become jumps to the library (`docs/design/private-logs.md`, "Streams").
//!
//! What is here runs once, before `main`; afterwards its words are only read.

#[cfg(target_arch = "x86_64")]
mod find;
#[cfg(target_arch = "x86_64")]
mod known;
#[cfg(target_arch = "x86_64")]
mod put;
#[cfg(target_arch = "x86_64")]
mod relocate;

#[cfg(target_arch = "x86_64")]
pub use find::segment;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// A function of the C library whose entry is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    Write,
    Read,
    Open,
    Close,
    CloseNocancel,
    Seek,
}

/// All of them, in the order of their bits.
pub const ALL: [Entry; 6] =
    [Entry::Write, Entry::Read, Entry::Open, Entry::Close, Entry::CloseNocancel, Entry::Seek];

/// Which entries are replaced: one bit each.
static REPLACED: AtomicU8 = AtomicU8::new(0);
/// Where each function began, and what does the same as it did there.
static BEGINS: [AtomicPtr<c_void>; ALL.len()] = [const { AtomicPtr::new(null_mut()) }; ALL.len()];
static TRAMPOLINES: [AtomicPtr<c_void>; ALL.len()] =
    [const { AtomicPtr::new(null_mut()) }; ALL.len()];

impl Entry {
    /// The bit of the entry.
    pub fn bit(self) -> u8 {
        1 << self as u8
    }

    /// What does the same as the function did before its entry was replaced. Null: it was not.
    pub fn trampoline(self) -> *mut c_void {
        TRAMPOLINES.get(self as usize).map_or(null_mut(), |at| at.load(Ordering::Relaxed))
    }
}

/// Which entries are replaced: the bits of [`ALL`].
pub fn replaced() -> u8 {
    REPLACED.load(Ordering::Acquire)
}

/// Does the library see each descriptor that the C library closes by itself? If not, nothing may be
/// known of a stream's descriptor.
pub fn closes_are_seen() -> bool {
    let both = Entry::Close.bit() | Entry::CloseNocancel.bit();
    replaced() & both == both
}

/// What is to be called for a function of the C library: what does the same without a way back into
/// this library, if its entry was replaced.
pub fn instead(function: *mut c_void) -> *mut c_void {
    let bits = replaced();
    let of = |entry: &&Entry| {
        let begin = BEGINS.get(**entry as usize).map(|at| at.load(Ordering::Relaxed));
        bits & entry.bit() != 0 && begin == Some(function)
    };
    ALL.iter().find(of).map_or(function, |entry| entry.trampoline())
}

/// Replaces what can be replaced by jumps to these functions, in the order of [`ALL`]. Before
/// `main`, and inside the library.
#[cfg(target_arch = "x86_64")]
pub fn begin(hooks: [*const c_void; ALL.len()]) {
    let Some(text) = find::text() else { return };
    let found = ALL.map(|entry| find::function(&text, entry));
    let all = [Entry::Close, Entry::CloseNocancel];
    if all.iter().any(|entry| found.get(*entry as usize).is_none_or(Option::is_none)) {
        return;
    }
    if let Some(prepared) = put::prepare(&found, hooks) {
        for place in &prepared.places {
            let at = place.entry as usize;
            if let (Some(begin), Some(trampoline)) = (BEGINS.get(at), TRAMPOLINES.get(at)) {
                begin.store(place.begin, Ordering::Relaxed);
                trampoline.store(place.trampoline, Ordering::Relaxed);
            }
        }
        if prepared.replace(&text) {
            let bits = prepared.places.iter().fold(0, |bits, place| bits | place.entry.bit());
            REPLACED.store(bits, Ordering::Release);
        }
    }
}

/// Nothing is replaced on other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub fn begin(_: [*const c_void; ALL.len()]) {}
