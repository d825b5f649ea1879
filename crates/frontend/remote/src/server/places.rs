//! Which volumes' clients have the connections of a listener where those of several connect.
//!
//! Each volume has some for itself. What is left is for those that come first, so that the clients
//! of one volume may have many, and keep no other volume's out.

use super::CONNECTIONS;
use siftfs_base::{Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Volumes that one process serves at most.
pub const MOST_VOLUMES: usize = 64;
/// Connections that each volume has for itself.
const OWN: usize = 2;
/// Connections that volumes have beyond their own, all together.
const SHARED: usize = CONNECTIONS - OWN * MOST_VOLUMES;

/// The connections of a listener that have a volume.
#[derive(Default)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    /// Those of each volume, by its UUID; none for a volume without any.
    of: HashMap<[u8; 16], usize>,
    /// Those beyond the volumes' own.
    shared: usize,
}

/// A connection's place, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    volume: [u8; 16],
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection of this volume.
    ///
    /// # Errors
    /// Refused: the volume has its own already, and all that is shared is taken.
    pub fn take(places: &Arc<Self>, volume: [u8; 16]) -> Result<Place> {
        let mut taken = places.taken();
        let have = taken.of.get(&volume).copied().unwrap_or_default();
        if have >= OWN {
            if taken.shared >= SHARED {
                return Err(Error::Refused(format!(
                    "too many connections: the volume has {have}, and the {SHARED} that volumes share are taken"
                )));
            }
            taken.shared += 1;
        }
        taken.of.insert(volume, have + 1);
        Ok(Place { places: places.clone(), volume })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        let have = taken.of.remove(&self.volume).expect("this place is one of the volume's");
        if have > OWN {
            taken.shared -= 1;
        }
        if have > 1 {
            taken.of.insert(self.volume, have - 1);
        }
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
