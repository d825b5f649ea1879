//! Which rows count, at the end of a mount: as long as one does, what its program has acknowledged
//! by its log alone may be there, and the volume must not be closed as clean.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The number of rows with leases, and whether there may be more.
#[derive(Default)]
pub(crate) struct Counting {
    rows: AtomicUsize,
    sealed: AtomicBool,
}

impl Counting {
    /// One more row is to have leases. False: there may be no more, and it does not count.
    pub fn begin(&self) -> bool {
        self.rows.fetch_add(1, Ordering::SeqCst);
        // Either this sees the seal, or `seal` sees the row.
        let may = !self.sealed.load(Ordering::SeqCst);
        if !may {
            self.end();
        }
        may
    }

    /// A row has none any more, durably.
    pub fn end(&self) {
        let before = self.rows.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a row that ends has begun");
    }

    /// Has no row leases at present?
    pub fn is_idle(&self) -> bool {
        self.rows.load(Ordering::SeqCst) == 0
    }

    /// No row gets leases from now on that has none. False: some have.
    pub fn seal(&self) -> bool {
        self.sealed.store(true, Ordering::SeqCst);
        self.rows.load(Ordering::SeqCst) == 0
    }
}
