//! The ways to a volume: the addresses at which a server may answer for it.

use crate::client::Client;
use crate::transport_to;
use siftfs_base::{Error, Result};
use siftfs_calls::{Claim, FileProtocol, Leases, Opening};
use siftfs_transport::{Address, Addresses, CallerEnd, Secured, TransportOptions, Trust, reach};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Makes a connection to the server at an address.
pub type Dial = Box<dyn Fn(&Address) -> Result<CallerEnd<FileProtocol>> + Send + Sync>;

/// How long a connection to one of several servers may take to be made, and until it is greeted. A
/// segment that got lost is sent again after a second; and the server that has the volume by now
/// waits for the clients of one that stands still no longer than the grace time.
pub const DIAL: [Duration; 2] = [Duration::from_millis(1500), Duration::from_secs(2)];

/// The addresses of a volume's servers, and how one is reached. At most one of them answers for the
/// volume at a time; which one that is, the storage decides, and the client finds out.
pub struct Ways {
    addresses: Addresses,
    dial: Dial,
    /// The place of the one that answered last, or that is tried next.
    last: AtomicUsize,
}

impl Ways {
    /// These addresses, each of which `dial` reaches.
    pub fn new(addresses: Addresses, dial: Dial) -> Self {
        Self { addresses, dial, last: AtomicUsize::new(0) }
    }

    /// One address, and what is shown to the server there.
    pub fn to(
        address: &Address,
        (options, secured): (&TransportOptions, Option<&Secured>),
    ) -> Self {
        let (options, secured) = (options.clone(), secured.cloned());
        let dial = move |to: &Address| reach::<FileProtocol>(to, &options, secured.as_ref());
        Self::new(Addresses::one(address.clone()), Box::new(dial))
    }

    /// These addresses, each with the key that is known for it when it is dialed. Nobody is asked
    /// about a server that is not known, or has another key by now.
    pub fn trusting(addresses: &Addresses, trust: &Trust) -> Self {
        let (all, trust) = (addresses.clone(), trust.clone());
        let dial = move |to: &Address| {
            let options = transport_to(&all);
            let secured = trust.secure(to, &options, None)?;
            reach::<FileProtocol>(to, &options, secured.as_ref())
        };
        Self::new(addresses.clone(), Box::new(dial))
    }

    /// Opens a session that ends with its connection.
    ///
    /// # Errors
    /// As [`Client::connect`], and [`Ways::first_that`].
    pub fn open(&self, volume: &str, claim: Claim) -> Result<Client> {
        let (volume, leases) = (volume.into(), Leases::None);
        let opening = Opening { volume, claim, caches: false, leases, returning: None };
        self.first_that(|address| Client::open(self.reach(address)?, opening.clone(), None))
    }

    /// The one that answered last says nothing any more: the next one is tried before it.
    pub fn pass_by(&self) {
        let next = |last: usize| Some((last + 1) % self.addresses.all().len());
        let _ = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// All of them.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The one that answered last, or that is tried next; the first, until one has answered.
    pub fn address(&self) -> &Address {
        let last = self.addresses.all().get(self.last.load(Ordering::Relaxed));
        last.unwrap_or_else(|| self.addresses.first())
    }

    /// A connection to the server at one of them.
    ///
    /// # Errors
    /// That of the dial: it is not reached.
    pub fn reach(&self, address: &Address) -> Result<CallerEnd<FileProtocol>> {
        (self.dial)(address)
    }

    /// Tries the addresses in turn, from the one that answered last on, until one answers. Each
    /// attempt is to end within a bounded time.
    ///
    /// # Errors
    /// None answers. Of one address it is that of the attempt; of several it is `Refused`, which
    /// names each of them with its reason.
    pub fn first_that<T>(&self, mut attempt: impl FnMut(&Address) -> Result<T>) -> Result<T> {
        let (all, last) = (self.addresses.all(), self.last.load(Ordering::Relaxed));
        let mut reasons = Vec::new();
        for (at, address) in all.iter().enumerate().cycle().skip(last).take(all.len()) {
            match attempt(address) {
                Ok(found) => {
                    self.last.store(at, Ordering::Relaxed);
                    return Ok(found);
                }
                Err(error) if !self.addresses.are_several() => return Err(error),
                Err(error) => {
                    tracing::debug!(%address, %error, "passed by");
                    reasons.push(about(address, &error));
                }
            }
        }
        let reasons = reasons.join("; ");
        Err(Error::Refused(format!("no server answers for the volume: {reasons}")))
    }
}

/// An address and why it does not answer; a reason that names it by itself is not told twice.
fn about(address: &Address, error: &Error) -> String {
    let (address, error) = (address.to_string(), error.to_string());
    if error.contains(&address) { error } else { format!("{address}: {error}") }
}

#[cfg(test)]
#[path = "ways_tests.rs"]
mod tests;
