//! The first step: headers come out of the ring, and are checked.

use crate::counters::{Counters, Step};
use siftfs_base::Result;
use siftfs_lease::{Fetched, Headers, Words};

/// Fetches batches of headers.
pub(crate) struct Fetch<'a, H> {
    headers: Headers<'a, H>,
    batch: (usize, u64),
    counters: &'a Counters,
    /// The rule that the holder broke.
    fault: &'a mut Result<()>,
}

impl<'a, H: Words> Fetch<'a, H> {
    pub fn new(
        headers: Headers<'a, H>,
        batch: (usize, u64),
        (counters, fault): (&'a Counters, &'a mut Result<()>),
    ) -> Self {
        Self { headers, batch, counters, fault }
    }

    /// Is there more to fetch?
    pub fn has_more(&self) -> bool {
        self.headers.has_more()
    }

    /// The next batch; none, when all is fetched that can be believed.
    pub fn step(&mut self) -> Option<Fetched> {
        let _timed = self.counters.time(Step::Fetch);
        let (fetched, result) = self.headers.fetch(self.batch);
        if let Err(error) = result {
            *self.fault = Err(error);
        }
        let fetched = fetched?;
        let bytes = fetched.records.iter().map(|record| u64::from(record.len)).sum();
        self.counters.fetched(fetched.records.len() as u64, bytes);
        Some(fetched)
    }
}
