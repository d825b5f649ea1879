//! The storage of this process for a host that has no other way to it (`docs/design/target.md`).
//!
//! A session has the volume open by itself, with its own locks: so its roles are free when the
//! connection has ended and the calls that had begun have, and not before (rule R9). It writes only
//! what the roles that it has may write.

use crate::device::calls::{self, Answers, Carried, Line, Taken, lock};
use crate::device::lane::OpenLane;
use crate::device::programs::{HostGrants, Report, Settled, Tokens};
use crate::volume::files::nonce;
use siftfs_base::{Error, Result, SharedBlock};
use siftfs_device::{Device, RegionKind, Role};
use siftfs_service::{RedoLane, RedoParts, replay_redo};
use siftfs_volume::{HEADER_HOST, HEADER_SERVICE, Media, region_descs};
use siftfs_wire::{
    Access, GrantRun, STORAGE_MAX_DEVICES, StorageAnswer, StorageCall, StorageDevice, ToService,
    Token,
};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// Opens the volume's devices for a host that has no other way to them.
pub type OpenStorage = Arc<dyn Fn(Access) -> Result<Media> + Send + Sync>;

/// A role is waited for so long at most, whatever a host asks.
const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// The storage as one host has it.
pub(crate) struct StorageSession {
    devices: Vec<Arc<dyn Device>>,
    media: Media,
    access: Access,
    rights: RwLock<Rights>,
    grants: HostGrants,
    /// Opened with the first grant to write, and as long as the host has its role.
    redo: Mutex<Option<OpenLane>>,
}

/// What the session may write now.
#[derive(Default)]
struct Rights {
    roles: Vec<(u8, Role)>,
    /// Of each device, what one role alone may write; empty with both roles or none.
    ranges: Vec<Vec<Range<u64>>>,
    /// The redo lane, and its device: this process writes it, and no host (rule R34).
    redo: Option<(u8, Range<u64>)>,
}

impl StorageSession {
    /// Opens the storage. What is answered lists its devices.
    pub fn open(
        open: &OpenStorage,
        access: Access,
        tokens: &Arc<Tokens>,
    ) -> Result<(Self, StorageAnswer)> {
        let media = open(access)?;
        let (log, record_area) = (media.log.is_some(), media.bytes.is_some());
        let devices: Vec<Arc<dyn Device>> =
            [Some(&media.area), media.log.as_ref(), media.bytes.as_ref()]
                .into_iter()
                .flatten()
                .cloned()
                .collect();
        assert!(devices.len() <= STORAGE_MAX_DEVICES, "a volume has an area, a log, a record area");
        let of = |device: &Arc<dyn Device>| StorageDevice {
            size: device.size(),
            medium: device.medium(),
            discards: device.discards(),
        };
        let listed = devices.iter().map(of).collect();
        let both = (0..).take(devices.len()).flat_map(|at| Role::ALL.map(|role| (at, role)));
        let roles = if access == Access::Alone { both.collect() } else { Vec::new() };
        let rights = RwLock::new(Rights { roles, ..Rights::default() });
        let answer = StorageAnswer::Opened { log, record_area, devices: listed };
        let grants = HostGrants::new(tokens);
        let session = Self { devices, media, access, rights, grants, redo: Mutex::default() };
        if access == Access::Alone {
            session.bring_home()?;
        }
        Ok((session, answer))
    }
}

impl Answers for StorageSession {
    const WORKERS: usize = 8;

    fn take(&self, message: ToService, line: &Line<'_>) -> Taken {
        match message {
            ToService::Storage { id, call } => line.answer(id, self.carry_out(call)),
            _ => Err(calls::out_of_place()),
        }
    }
}

impl StorageSession {
    /// One call. [`Error::Refused`]: the host may not ask for this.
    fn carry_out(&self, call: StorageCall) -> Result<StorageAnswer> {
        let done = |()| StorageAnswer::Done;
        match call {
            StorageCall::Open { .. } | StorageCall::Attach { .. } => {
                Err(Error::Refused("the storage is open already".into()))
            }
            StorageCall::Claim { device, role, patience } => {
                self.claim(device, role, Duration::from_millis(patience.into())).map(done)
            }
            StorageCall::Unclaim { device, role } => self.unclaim(device, role).map(done),
            StorageCall::Read { device, offset, len } => {
                calls::read(self.device(device)?, offset, len)
            }
            StorageCall::Write { device, offset, len, durable, blocks } => {
                self.write(device, offset, (len, &blocks), durable).map(done)
            }
            StorageCall::Flush { device } => self.device(device)?.flush().map(done),
            StorageCall::Discard { device, offset, len } => {
                let rights = self.may_write(device, offset, len)?;
                let done_so = self.device(device)?.discard(offset, len).map(done);
                drop(rights);
                done_so
            }
            StorageCall::Describe { device } => {
                let info = self.device(device)?.describe();
                Ok(StorageAnswer::Described { info })
            }
            StorageCall::Grant { lease, file, write, runs } => {
                let token = self.grant((lease, file), write, runs)?;
                Ok(StorageAnswer::Granted { token, programs: self.grants.programs() })
            }
            StorageCall::Extend { lease, token, runs } => self.with_hosts_role(|_| {
                self.grants.extend((lease, &token), runs, &self.area()?).map(done)
            }),
            StorageCall::AtomicWrite { .. } | StorageCall::AtomicAbort { .. } => {
                Err(Error::Refused("a call that is a program's".into()))
            }
            StorageCall::Settle { lease, token } => self.grants.settle(lease, &token).map(settled),
            StorageCall::Revoke { lease, token } => self.grants.revoke(lease, &token).map(settled),
        }
    }

    /// Blocks of the area for a program.
    fn grant(&self, named: (u64, u64), write: bool, runs: Vec<GrantRun>) -> Result<Token> {
        self.with_hosts_role(|rights| {
            if let (true, Some(_)) = (write, &rights.redo) {
                self.grants.set_redo(Some(self.redo_lane()?));
            }
            let area = self.devices.first().ok_or_else(|| Error::Refused("no device".into()))?;
            self.grants.grant(named, (write, runs), area, self.area()?)
        })
    }

    /// Does what is for the host's role, which is held meanwhile.
    fn with_hosts_role<T>(&self, grants: impl FnOnce(&Rights) -> Result<T>) -> Result<T> {
        let rights = self.rights();
        if !rights.held(0).any(|role| role == Role::Host) {
            return Err(Error::Refused("a grant by a session without the host's role".into()));
        }
        grants(&rights)
    }

    /// The volume's redo lane, by a key of its own since the host has its role.
    fn redo_lane(&self) -> Result<Arc<RedoLane>> {
        let mut redo = lock(&self.redo);
        if let Some(lane) = &*redo {
            return Ok(lane.lane());
        }
        let parts = RedoParts::of(&self.media, &self.media.read()?);
        let parts = parts.ok_or_else(|| Error::Refused("the volume has no redo lane".into()))?;
        let (lane, _) = RedoLane::open(parts, nonce()?)?;
        Ok(redo.insert(OpenLane::new(lane.into())?).lane())
    }

    /// Where the area lies on its device.
    fn area(&self) -> Result<Range<u64>> {
        if self.media.log.is_some() {
            return Ok(0..self.media.area.size());
        }
        let view = self.media.read()?;
        let area = region_descs(&view.header).into_iter().find(|d| d.kind == RegionKind::Area);
        let area = area.ok_or_else(|| Error::Refused("the volume has no area".into()))?;
        Ok(area.offset..area.offset.saturating_add(area.len))
    }

    fn device(&self, at: u8) -> Result<&dyn Device> {
        let device = self.devices.get(usize::from(at));
        device.map(|device| &**device).ok_or_else(|| Error::Refused(format!("no device {at}")))
    }

    fn write(
        &self,
        device: u8,
        offset: u64,
        (len, blocks): (u32, &[SharedBlock]),
        durable: bool,
    ) -> Result<()> {
        let carried = Carried::of(len, blocks)?;
        let data = carried.data()?;
        // The right is held until the write has ended: what takes it away waits.
        let rights = self.may_write(device, offset, len.into())?;
        let written = self.device(device)?.write(offset, data, durable);
        drop(rights);
        written
    }

    fn rights(&self) -> RwLockReadGuard<'_, Rights> {
        self.rights.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to write these bytes, as long as it is held.
    fn may_write(&self, device: u8, offset: u64, len: u64) -> Result<RwLockReadGuard<'_, Rights>> {
        let rights = self.rights();
        if rights.allow(device, offset, len) {
            return Ok(rights);
        }
        let roles: Vec<_> = rights.held(device).map(|role| format!("{role:?}")).collect();
        Err(Error::Refused(format!(
            "a write of {len} bytes at byte {offset} of device {device}, by a session with {}",
            if roles.is_empty() {
                "no role".into()
            } else {
                format!("the role {}", roles.join(""))
            }
        )))
    }

    /// The host's role is here: what the redo lane has goes to its blocks before the host hears of
    /// that (rule R33). A volume whose header cannot be read has no lane that anybody could use.
    fn bring_home(&self) -> Result<()> {
        let Ok(view) = self.media.read() else { return Ok(()) };
        let Some(redo) = view.header.redo else { return Ok(()) };
        let device = u8::from(self.media.log.is_some());
        let mut rights = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        rights.redo = Some((device, redo.offset..redo.offset + redo.len));
        // A process that died may have left something in a volatile cache that can be read.
        self.media.flush()?;
        let transactions = replay_redo(&self.media, &view)?;
        if transactions > 0 {
            tracing::info!(transactions, "the redo lane was replayed");
        }
        Ok(())
    }

    fn claim(&self, device: u8, role: Role, patience: Duration) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::Refused("the storage was opened to be read".into()));
        }
        self.device(device)?.claim(role, patience.min(MOST_PATIENCE))?;
        let had = self.rights().held(device).any(|held| held == role);
        if (device, role, had) == (0, Role::Host, false)
            && let Err(error) = self.bring_home()
        {
            drop(self.device(device)?.unclaim(role));
            return Err(error);
        }
        let mut rights = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        if !rights.roles.contains(&(device, role)) {
            rights.roles.push((device, role));
        }
        self.look(&mut rights);
        Ok(())
    }

    fn unclaim(&self, device: u8, role: Role) -> Result<()> {
        if (device, role) == (0, Role::Host) {
            self.grants.revoke_all();
            self.grants.set_redo(None);
            *lock(&self.redo) = None;
        }
        // Every write that had begun has ended when this lock is had.
        let mut rights = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        rights.roles.retain(|held| *held != (device, role));
        let done = self.device(device)?.unclaim(role);
        self.look(&mut rights);
        done
    }

    /// What one role alone may write follows from the header; without one, that is nothing.
    fn look(&self, rights: &mut Rights) {
        let one = (0..).take(self.devices.len()).any(|at| rights.held(at).count() == 1);
        rights.ranges.clear();
        if !one {
            return;
        }
        let Ok(view) = self.media.read() else { return };
        let mut descs = vec![Vec::new(); self.devices.len()];
        let header = usize::from(self.media.log.is_some());
        if let Some(own) = descs.get_mut(header) {
            own.extend(region_descs(&view.header).into_iter().filter_map(|d| {
                let service = match (d.kind, d.index) {
                    (RegionKind::Area | RegionKind::Journal, _) => true,
                    (RegionKind::Header, HEADER_SERVICE) => true,
                    (RegionKind::Header, HEADER_HOST) | (RegionKind::Staging, _) => false,
                    // What never changes is written with both roles.
                    (RegionKind::Header, _) => return None,
                };
                Some((service, d.offset..d.offset + d.len))
            }));
        }
        if let (1, Some(area)) = (header, descs.get_mut(0)) {
            area.push((true, 0..u64::MAX));
        }
        if let (true, Some(bytes)) = (self.media.bytes.is_some(), descs.get_mut(header + 1)) {
            bytes.push((false, 0..u64::MAX));
        }
        rights.ranges = (0..)
            .zip(descs)
            .map(|(at, descs)| {
                let service = rights.held(at).any(|role| role == Role::Service);
                let own = descs.into_iter().filter(|(of_service, _)| *of_service == service);
                own.map(|(_, range)| range).collect()
            })
            .collect();
    }
}

fn settled(Settled { written, lost, report }: Settled) -> StorageAnswer {
    let Report { runs: fresh, end, more } = report;
    StorageAnswer::Settled { written, lost, fresh, end, more }
}

impl Rights {
    fn held(&self, device: u8) -> impl Iterator<Item = Role> {
        self.roles.iter().filter(move |(at, _)| *at == device).map(|(_, role)| *role)
    }

    fn allow(&self, device: u8, offset: u64, len: u64) -> bool {
        if let Some((at, redo)) = &self.redo {
            let meets = offset < redo.end && redo.start < offset.saturating_add(len);
            if *at == device && meets {
                return false;
            }
        }
        match self.held(device).count() {
            0 => false,
            1 => {
                let Some(end) = offset.checked_add(len) else { return false };
                let own = self.ranges.get(usize::from(device)).into_iter().flatten();
                own.into_iter().any(|range| range.start <= offset && end <= range.end)
            }
            _ => true,
        }
    }
}
