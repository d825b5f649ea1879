//! This mount as one of several front ends of a volume: what the others change is taken back from
//! its kernel.
//!
//! `cache` is what the Runtime tells; `teller` does at once what takes no lock, and sees to it that
//! nobody waits longer than what the kernel knew counts; `asker` has the threads that call the own
//! mount. What the kernel may know stands in `pages::known`. `rights` tells a server that checks
//! callers what each of them may do.

mod asker;
pub(crate) mod cache;
pub(crate) mod rights;
mod teller;
