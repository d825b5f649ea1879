//! Memory for a window.

use memmap2::{Advice, MmapMut};
use std::ops::{Deref, DerefMut};

/// Bytes on page boundaries, zero at first. Their pages are taken when they are first used, large
/// ones where the system has them: a window of 64 MiB in small pages costs more of a processor's
/// time than verifying what is read into it.
#[derive(Default)]
pub(crate) struct Memory(Option<MmapMut>);

impl Memory {
    /// `len` bytes.
    ///
    /// # Panics
    /// When they cannot be had; the caller bounds `len`.
    pub fn new(len: usize) -> Self {
        let map = MmapMut::map_anon(len.max(1));
        let map = map.unwrap_or_else(|e| panic!("cannot have {len} bytes of memory: {e}"));
        // Where the system has none, small ones do.
        let _ = map.advise(Advice::HugePage);
        Self(Some(map))
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}
