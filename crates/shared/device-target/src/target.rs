//! A volume's storage at a target: the connection, what lasts longer than it, and the roles.

use crate::again::{self, Lost};
use crate::calls::Calls;
use crate::device::TargetDevice;
use crate::place::TargetPlace;
use crate::unflushed::Unflushed;
use crate::waits::Waits;
use siftfs_base::{Error, Result};
use siftfs_device::{Device, Role};
use siftfs_wire::{Access, PROTOCOL_VERSION, StorageAnswer, StorageCall, StorageDevice, Token};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Says whether storage that is reached again is still this host's: whether the header that these
/// devices show names its epoch (rule R9).
///
/// # Errors
/// Another host has had the volume since: it is given up. [`Error::Link`]: the storage was lost
/// again.
pub type Keeper = Box<dyn Fn(&Opened) -> Result<()> + Send + Sync>;

/// The devices of a volume.
#[derive(Clone)]
pub struct Opened {
    /// Holds the area, and all else where there is no other device.
    pub area: Arc<dyn Device>,
    /// Holds the log, if that has a device of its own.
    pub log: Option<Arc<dyn Device>>,
    /// Holds the record area, if the volume has one.
    pub record_area: Option<Arc<dyn Device>>,
}

/// A volume's storage at a target.
pub struct Target {
    pub(crate) place: TargetPlace,
    pub(crate) keeper: OnceLock<(Keeper, Waits)>,
    pub(crate) now: Mutex<Now>,
    pub(crate) changed: Condvar,
    pub(crate) parts: Parts,
    pub(crate) roles: Mutex<Vec<(u8, Role)>>,
    pub(crate) unflushed: Vec<Mutex<Unflushed>>,
    pub(crate) granted: Mutex<HashMap<u64, Token>>,
}

/// The connection now.
pub(crate) enum Now {
    /// Connection number `life`.
    Up { calls: Arc<Calls>, life: u64 },
    /// A thread connects again.
    Away,
    /// Nothing will come any more.
    Over(Error),
}

/// What devices there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub log: bool,
    pub record_area: bool,
    pub devices: Vec<StorageDevice>,
}

impl Parts {
    /// The devices that `make` makes of them.
    pub fn opened(&self, make: impl Fn(u8, StorageDevice) -> Arc<dyn Device>) -> Opened {
        let mut devices = (0..).zip(&self.devices).map(|(at, part)| make(at, *part));
        let mut next = || devices.next().expect("`greet` counts them");
        Opened {
            area: next(),
            log: self.log.then(&mut next),
            record_area: self.record_area.then(&mut next),
        }
    }
}

impl Target {
    /// Opens the storage: to write, with both roles, or only to read.
    ///
    /// # Errors
    /// No target is there, it does not admit this host, or the storage is not to be had so.
    pub fn open(place: TargetPlace, rw: bool) -> Result<Arc<Self>> {
        Self::open_for(place, if rw { Access::Alone } else { Access::ReadOnly })
    }

    /// As [`Target::open`], for any access: with [`Access::Shared`] there are no roles yet.
    pub fn open_for(place: TargetPlace, access: Access) -> Result<Arc<Self>> {
        let (calls, parts) = greet(&place, access)?;
        let roles = match access {
            Access::Alone => each_role(parts.devices.len()).collect(),
            Access::ReadOnly | Access::Shared => Vec::new(),
        };
        let unflushed = parts.devices.iter().map(|_| Mutex::default()).collect();
        let now = Mutex::new(Now::Up { calls: calls.into(), life: 0 });
        let (keeper, changed, granted) = Default::default();
        let roles = Mutex::new(roles);
        Ok(Arc::new(Self { place, keeper, now, changed, parts, roles, unflushed, granted }))
    }

    /// The volume's devices.
    pub fn devices(self: &Arc<Self>) -> Opened {
        self.parts.opened(|at, part| Arc::new(TargetDevice::new(self, at, part)))
    }

    /// From now on a lost target is waited for, and `keeper` asked when it is there again. The
    /// first one counts.
    pub fn keep(&self, keeper: Keeper) {
        let waits = Waits::default();
        waits.begin();
        self.keep_while(keeper, waits);
    }

    /// As [`Target::keep`], but a lost target is waited for only as long as `waits` has it. What is
    /// written from now on is written again where it is.
    pub fn keep_while(&self, keeper: Keeper, waits: Waits) {
        let _ = self.keeper.set((keeper, waits));
    }

    /// Ends the connection in order: everything that was asked has been answered. Later
    /// calls learn that it is closed.
    pub fn close(&self) {
        *self.now() = Now::Over(Error::Link(format!("{}: it was closed", self.place)));
        self.changed.notify_all();
    }

    /// Where it is.
    pub fn place(&self) -> &TargetPlace {
        &self.place
    }

    pub(crate) fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn roles(&self) -> MutexGuard<'_, Vec<(u8, Role)>> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, waited for while it is made again.
    fn up(&self) -> Result<(Arc<Calls>, u64)> {
        let mut now = self.now();
        loop {
            match &*now {
                Now::Up { calls, life } => return Ok((calls.clone(), *life)),
                Now::Over(error) => return Err(error.clone()),
                Now::Away => {
                    now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Makes calls until they are answered, over another connection where one is lost. They
    /// may be carried out more than once.
    ///
    /// # Errors
    /// The storage is lost for good. What the target refused is an answer.
    pub(crate) fn calls(&self, calls: &[StorageCall]) -> Result<Vec<StorageAnswer>> {
        loop {
            let (connection, life) = self.up()?;
            match connection.all(calls.to_vec()) {
                Ok(answers) => return Ok(answers),
                Err(Error::Link(why)) => self.lost(life, why)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Why nothing will come any more, if that is so.
    pub(crate) fn over(&self) -> Option<Error> {
        match &*self.now() {
            Now::Over(error) => Some(error.clone()),
            Now::Up { .. } | Now::Away => None,
        }
    }

    /// Is the connection lost, and not there again?
    pub(crate) fn is_away(&self) -> bool {
        !matches!(&*self.now(), Now::Up { .. })
    }

    /// Makes one call over the connection that there is.
    pub(crate) fn once(&self, call: StorageCall) -> Option<StorageAnswer> {
        let connection = match &*self.now() {
            Now::Up { calls, .. } => calls.clone(),
            Now::Away | Now::Over(_) => return None,
        };
        connection.call(call).ok()
    }

    /// Makes one call, which is done or refused.
    pub(crate) fn done(&self, call: StorageCall) -> Result<()> {
        match self.calls(&[call])?.pop() {
            Some(StorageAnswer::Done) => Ok(()),
            Some(StorageAnswer::Failed { error }) => Err(error),
            other => Err(self.unfit(other.as_ref())),
        }
    }

    /// An answer that does not answer the call: nothing that comes from there is believed any more.
    pub(crate) fn unfit(&self, answer: Option<&StorageAnswer>) -> Error {
        let what = answer.map_or("nothing", |answer| match answer {
            StorageAnswer::Opened { .. } => "that it is open",
            StorageAnswer::Done => "that it is done",
            StorageAnswer::Data { .. } => "data of another length",
            StorageAnswer::Described { .. } => "what it is",
            StorageAnswer::Failed { .. } => "a failure",
            StorageAnswer::Granted { .. } => "that it is granted",
            StorageAnswer::Settled { .. } => "that it is settled",
            StorageAnswer::Attached { .. } => "that a queue is open",
            StorageAnswer::Ended { .. } => "that a grant has ended",
        });
        let error = Error::Link(format!("{}: it answered {what}, which was not asked", self.place));
        *self.now() = Now::Over(error.clone());
        self.changed.notify_all();
        error
    }

    /// Connection `life` is lost. Returns when there is another one, or the storage is over.
    fn lost(&self, life: u64, why: String) -> Result<()> {
        let mut now = self.now();
        if !matches!(&*now, Now::Up { life: current, .. } if *current == life) {
            // Another thread learnt it first: the next try waits for what that one does.
            return Ok(());
        }
        let Some((keeper, waits)) = self.keeper.get().filter(|(_, waits)| waits.are_on()) else {
            let error = Error::Link(why);
            *now = Now::Over(error.clone());
            return Err(error);
        };
        *now = Now::Away;
        drop(now);
        let restored = again::restore(self, keeper, &Lost { why, waits });
        let mut now = self.now();
        // It may have been closed meanwhile.
        if matches!(&*now, Now::Away) {
            *now = match restored {
                Ok(calls) => Now::Up { calls, life: life + 1 },
                Err(error) => Now::Over(error),
            };
        }
        drop(now);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes a role at the target, for as long as the connection and those after it.
    pub(crate) fn claim(&self, device: u8, role: Role, patience: Duration) -> Result<()> {
        let patience = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        self.done(StorageCall::Claim { device, role, patience })?;
        let mut roles = self.roles();
        if !roles.contains(&(device, role)) {
            roles.push((device, role));
        }
        Ok(())
    }

    /// Gives a role back.
    pub(crate) fn unclaim(&self, device: u8, role: Role) -> Result<()> {
        // A connection that is made from here on has no need of it.
        self.roles().retain(|held| *held != (device, role));
        self.done(StorageCall::Unclaim { device, role })
    }
}

fn each_role(devices: usize) -> impl Iterator<Item = (u8, Role)> {
    (0..).take(devices).flat_map(|device| Role::ALL.map(|role| (device, role)))
}

/// A connection on which the storage was opened.
pub(crate) fn greet(place: &TargetPlace, access: Access) -> Result<(Calls, Parts)> {
    let calls = Calls::new(place.connect()?);
    let volume = place.volume.clone();
    let answer = calls.call(StorageCall::Open { version: PROTOCOL_VERSION, volume, access })?;
    let unfit = || Error::Link(format!("{place}: no storage is open there"));
    match answer {
        StorageAnswer::Opened { log, record_area, devices } => {
            let parts = Parts { log, record_area, devices };
            let wanted = 1 + usize::from(log) + usize::from(record_area);
            if parts.devices.len() != wanted {
                return Err(unfit());
            }
            Ok((calls, parts))
        }
        StorageAnswer::Failed { error } => Err(error),
        _ => Err(unfit()),
    }
}
