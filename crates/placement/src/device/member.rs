//! The storage of this process as a member of a striped volume, for the process that puts the
//! members together (`docs/design/stripes.md`, "Members at targets").
//!
//! A member has a label and no header: there is nothing here to grant, to replay or to journal.
//! Either role writes data, because which of the two may write which part of the area is checked
//! where the area is whole.

use crate::device::calls::{self, Answers, Carried, Line, Taken};
use crate::device::storage::OpenStorage;
use siftfs_base::{Error, Result, SharedBlock};
use siftfs_device::{Device, Role};
use siftfs_device_stripe::{DATA_BEGIN, Standing, stamp_range};
use siftfs_wire::{Access, StorageAnswer, StorageCall, StorageDevice, ToService};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// Bytes of a label.
const LABEL: u64 = 4096;
/// A role is waited for so long at most, whatever is asked.
const MOST_PATIENCE: Duration = Duration::from_secs(5);
/// What a caller is told that asks for more than storage.
pub(crate) const NO_VOLUME: &str = "this process serves one member of a striped volume, and no volume: name all members, \
     stripe:target:ADDRESS/NAME,... with the log, or the process that serves that";

/// The member as one caller has it.
pub(crate) struct MemberSession {
    device: Arc<dyn Device>,
    access: Access,
    /// The member was of no set when it was opened: `siftfs mkfs` may write its label.
    free: bool,
    roles: RwLock<Vec<Role>>,
}

impl MemberSession {
    /// Opens the member. What is answered lists its one device.
    ///
    /// # Errors
    /// What `open` says; refused if it is no member any more.
    pub fn open(open: &OpenStorage, access: Access) -> Result<(Self, StorageAnswer)> {
        let device = open(access)?.area;
        let standing = Standing::of(&*device)?;
        let standing = standing.ok_or_else(|| Error::Refused("it is no member any more".into()))?;
        let part = StorageDevice {
            size: device.size(),
            medium: device.medium(),
            discards: device.discards(),
        };
        let roles = if access == Access::Alone { Role::ALL.to_vec() } else { Vec::new() };
        let answer = StorageAnswer::Opened { log: false, record_area: false, devices: vec![part] };
        let free = standing == Standing::Free && access == Access::Alone;
        Ok((Self { device, access, free, roles: RwLock::new(roles) }, answer))
    }

    /// One call. [`Error::Refused`]: the caller may not ask for this.
    fn carry_out(&self, call: StorageCall) -> Result<StorageAnswer> {
        let done = |()| StorageAnswer::Done;
        match call {
            StorageCall::Open { .. } => Err(Error::Refused("the storage is open already".into())),
            StorageCall::Claim { device, role, patience } => {
                only(device)?;
                self.claim(role, Duration::from_millis(patience.into())).map(done)
            }
            StorageCall::Unclaim { device, role } => {
                only(device)?;
                self.unclaim(role).map(done)
            }
            StorageCall::Read { device, offset, len } => {
                only(device)?;
                calls::read(&*self.device, offset, len)
            }
            StorageCall::Write { device, offset, len, durable, blocks } => {
                only(device)?;
                self.write(offset, (len, &blocks), durable).map(done)
            }
            StorageCall::Flush { device } => {
                only(device)?;
                self.device.flush().map(done)
            }
            StorageCall::Discard { device, offset, len } => {
                only(device)?;
                let rights = self.may_write(offset, len)?;
                let discarded = self.device.discard(offset, len).map(done);
                drop(rights);
                discarded
            }
            StorageCall::Describe { device } => {
                only(device)?;
                Ok(StorageAnswer::Described { info: self.device.describe() })
            }
            _ => Err(Error::Refused(NO_VOLUME.into())),
        }
    }

    fn write(
        &self,
        offset: u64,
        (len, blocks): (u32, &[SharedBlock]),
        durable: bool,
    ) -> Result<()> {
        let carried = Carried::of(len, blocks)?;
        let data = carried.data()?;
        // The right is held until the write has ended: what takes it away waits.
        let rights = self.may_write(offset, len.into())?;
        let written = self.device.write(offset, data, durable);
        drop(rights);
        written
    }

    /// The right to write these bytes, as long as it is held.
    fn may_write(&self, offset: u64, len: u64) -> Result<RwLockReadGuard<'_, Vec<Role>>> {
        let roles = self.roles.read().unwrap_or_else(PoisonError::into_inner);
        if self.allows(&roles, offset, len) {
            return Ok(roles);
        }
        let held: Vec<_> = roles.iter().map(|role| format!("{role:?}")).collect();
        let held = if held.is_empty() { "no role".into() } else { held.join(", ") };
        Err(Error::Refused(format!(
            "a write of {len} bytes at byte {offset} of a member, by a session with {held}"
        )))
    }

    fn allows(&self, roles: &[Role], offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        let own = |role: &Role| {
            let stamp = stamp_range(*role);
            stamp.start <= offset && end <= stamp.end
        };
        match roles {
            [] => false,
            _ if offset >= DATA_BEGIN => true,
            _ if end <= LABEL => self.free,
            roles => roles.iter().any(own),
        }
    }

    fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::Refused("the member was opened to be read".into()));
        }
        self.device.claim(role, patience.min(MOST_PATIENCE))?;
        let mut roles = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        if !roles.contains(&role) {
            roles.push(role);
        }
        Ok(())
    }

    fn unclaim(&self, role: Role) -> Result<()> {
        // Every write that had begun has ended when this lock is had.
        let mut roles = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        roles.retain(|held| *held != role);
        self.device.unclaim(role)
    }
}

/// A member is one device.
fn only(device: u8) -> Result<()> {
    match device {
        0 => Ok(()),
        other => Err(Error::Refused(format!("no device {other}: a member is one"))),
    }
}

impl Answers for MemberSession {
    const WORKERS: usize = 8;

    fn take(&self, message: ToService, line: &Line<'_>) -> Taken {
        match message {
            ToService::Storage { id, call } => line.answer(id, self.carry_out(call)),
            _ => Err(calls::out_of_place()),
        }
    }
}
