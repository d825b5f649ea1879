//! The registry of private logs of an open volume.

use crate::mount::open::Pair;
use crate::mount::remount::{Mark, Remounter};
use siftfs_base::{Error, Result, errno};
use siftfs_device::Origin;
use siftfs_log::HostRecord;
use siftfs_registry::{Directory, LogsPlace};
use siftfs_volume::HostSlots;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes the volume's registry, from any thread, until the volume is closed. There is one at most,
/// whatever number of mounts the volume has.
pub struct PrivateLogs {
    host: Arc<Mutex<HostSlots>>,
    volume: [u8; 16],
    remounter: Arc<Remounter>,
    made: Mutex<Option<Made>>,
}

struct Made {
    directory: Directory,
    /// The newest host record names it, durably.
    named: bool,
}

impl PrivateLogs {
    pub(crate) fn new(pair: &Pair, volume: [u8; 16], remounter: Arc<Remounter>) -> Self {
        Self { host: pair.host.clone(), volume, remounter, made: Mutex::new(None) }
    }

    fn made(&self) -> MutexGuard<'_, Option<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The volume's registry, which is made in that place if the volume has none. The host record
    /// names it durably: its logs may be handed over.
    ///
    /// # Errors `EROFS` on a volume that was never writable; `EBUSY` if the registry is to be made
    /// and the volume is frozen; `Refused` if the registry lies in another place already, or this
    /// one cannot serve; the storage's, and from then on `Latched`.
    pub fn directory(&self, place: impl Into<LogsPlace>) -> Result<Directory> {
        let place = place.into();
        let mark = self.remounter.mark();
        if matches!(*mark, Mark::Unmarked { .. }) {
            return Err(errno(libc::EROFS));
        }
        let mut made = self.made();
        if let Some(Made { directory, named }) = &*made {
            return match named {
                false => Err(Error::Latched("the registry of private logs was not named".into())),
                true if directory.is_at(&place) => Ok(directory.clone()),
                true => {
                    let there = directory.name().dir().display();
                    Err(Error::Refused(format!("the volume's private logs lie in {there} already")))
                }
            };
        }
        if matches!(*mark, Mark::Frozen { .. }) {
            return Err(errno(libc::EBUSY));
        }
        let directory = Directory::create(place, self.volume)?;
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        let record =
            HostRecord { registry: Some(directory.name().clone()), ..host.newest().clone() };
        let named = host.write(Origin::Admin, &record);
        // After an error either record may be found: the registry stays until one says clean.
        *made = Some(Made { directory: directory.clone(), named: named.is_ok() });
        named.map(|()| directory)
    }

    /// Does no program's log count at present, so that the volume has all that was acknowledged?
    pub(crate) fn is_idle(&self) -> bool {
        self.made().as_ref().is_none_or(|made| made.directory.is_idle())
    }

    /// From now on no program's log counts that does not yet. False: some do, so nothing may say
    /// that the volume is clean.
    pub(crate) fn seal(&self) -> bool {
        self.made().as_ref().is_none_or(|made| made.directory.seal())
    }

    /// The newest host record says clean: the registry is removed, with all of its logs.
    pub(crate) fn remove(&self) {
        if let Some(made) = self.made().take() {
            made.directory.remove();
        }
    }
}
