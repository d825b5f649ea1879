//! The storage of this process for a host that has no other way to it (`docs/design/target.md`).
//!
//! A session has the volume open by itself, with its own locks: so its roles are free when the
//! connection has ended and the calls that had begun have, and not before (rule R9). It writes only
//! what the roles that it has may write.

use crate::device::server::{DeviceEnd, OpenStorage};
use siftfs_base::{BLOCK_SIZE, Error, Result, SharedBlock, corrupt};
use siftfs_device::{AlignedBuf, Device, RegionKind, Role};
use siftfs_transport::{Received, Receiver, Sender};
use siftfs_volume::{HEADER_HOST, HEADER_SERVICE, Media, region_descs};
use siftfs_wire::{
    Access, FromService, STORAGE_MAX_BLOCKS, STORAGE_MAX_DEVICES, StorageAnswer, StorageCall,
    StorageDevice, ToService,
};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::Duration;

/// Calls of a session that are carried out at once.
const WORKERS: usize = 8;
/// A role is waited for so long at most, whatever a host asks.
const MOST_PATIENCE: Duration = Duration::from_secs(5);
/// How often a worker without a call checks whether it is still wanted.
const POLL: Duration = Duration::from_millis(100);

/// The storage as one host has it.
pub(crate) struct StorageSession {
    devices: Vec<Arc<dyn Device>>,
    media: Media,
    access: Access,
    rights: RwLock<Rights>,
}

/// What the session may write now.
#[derive(Default)]
struct Rights {
    roles: Vec<(u8, Role)>,
    /// Of each device, what one role alone may write; empty with both roles or none.
    ranges: Vec<Vec<Range<u64>>>,
}

/// Why a session ended.
pub(crate) enum SessionEnd {
    /// Its host closed the connection.
    Closed,
    /// The server ends.
    Stopped,
    /// The connection broke, or the host broke the protocol.
    Broke(Error),
}

impl StorageSession {
    /// Opens the storage. What is answered lists its devices.
    pub fn open(open: &OpenStorage, access: Access) -> Result<(Self, StorageAnswer)> {
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
        Ok((Self { devices, media, access, rights }, answer))
    }

    /// Carries calls out until the connection ends or `stopped` says so. None is under way when
    /// this returns; `refused` is told what the host may not ask.
    pub fn serve(
        &self,
        end: &mut DeviceEnd,
        stopped: &(dyn Fn() -> bool + Sync),
        refused: &(dyn Fn(&Error) + Sync),
    ) -> SessionEnd {
        let receiver = Mutex::new(&mut end.receiver);
        let (ended, why) = (AtomicBool::new(false), Mutex::new(None));
        let work = || {
            while !ended.load(Ordering::Acquire) {
                let ends = match next(&receiver, stopped) {
                    Ok(Some((id, call))) => self.answer(id, call, &*end.sender, refused).err(),
                    Ok(None) => None,
                    Err(ends) => Some(ends),
                };
                if let Some(ends) = ends {
                    ended.store(true, Ordering::Release);
                    lock(&why).get_or_insert(ends);
                }
            }
        };
        thread::scope(|scope| {
            let started = (1..WORKERS).try_for_each(|_| {
                let worker = thread::Builder::new().name("siftfs-storage".into());
                worker.spawn_scoped(scope, work).map(drop)
            });
            if let Err(error) = started {
                tracing::warn!(%error, "fewer threads than usual for a host's storage");
            }
            work();
        });
        lock(&why).take().unwrap_or(SessionEnd::Stopped)
    }

    fn answer(
        &self,
        id: u64,
        call: StorageCall,
        sender: &dyn Sender<FromService>,
        refused: &(dyn Fn(&Error) + Sync),
    ) -> std::result::Result<(), SessionEnd> {
        let answer = self.carry_out(call).unwrap_or_else(|error| {
            if matches!(error, Error::Refused(_)) {
                refused(&error);
            }
            StorageAnswer::Failed { error }
        });
        sender.send(FromService::Storage { id, answer }).map_err(SessionEnd::Broke)
    }

    fn carry_out(&self, call: StorageCall) -> Result<StorageAnswer> {
        let done = |()| StorageAnswer::Done;
        match call {
            StorageCall::Open { .. } => Err(Error::Refused("the storage is open already".into())),
            StorageCall::Claim { device, role, patience } => {
                self.claim(device, role, Duration::from_millis(patience.into())).map(done)
            }
            StorageCall::Unclaim { device, role } => self.unclaim(device, role).map(done),
            StorageCall::Read { device, offset, len } => self.read(device, offset, len),
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
        }
    }

    fn device(&self, at: u8) -> Result<&dyn Device> {
        let device = self.devices.get(usize::from(at));
        device.map(|device| &**device).ok_or_else(|| Error::Refused(format!("no device {at}")))
    }

    fn read(&self, device: u8, offset: u64, len: u32) -> Result<StorageAnswer> {
        let len = sensible(len)?;
        let mut bytes = AlignedBuf::zeroed(len);
        self.device(device)?.read(offset, &mut bytes)?;
        let blocks = bytes.chunks(BLOCK_SIZE).map(|part| {
            let mut block = [0; BLOCK_SIZE];
            block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            SharedBlock::from(block)
        });
        Ok(StorageAnswer::Data { blocks: blocks.collect() })
    }

    fn write(
        &self,
        device: u8,
        offset: u64,
        (len, blocks): (u32, &[SharedBlock]),
        durable: bool,
    ) -> Result<()> {
        let len = sensible(len)?;
        if blocks.len() != len.div_ceil(BLOCK_SIZE) {
            let what = format!("a write of {len} bytes with {} blocks", blocks.len());
            return Err(Error::Refused(what));
        }
        let mut bytes = AlignedBuf::zeroed(blocks.len() * BLOCK_SIZE);
        for (to, block) in bytes.as_chunks_mut::<BLOCK_SIZE>().0.iter_mut().zip(blocks) {
            block.copy_to(to);
        }
        let data = bytes.get(..len).ok_or_else(|| Error::Refused("too few blocks".into()))?;
        // The right is held until the write has ended: what takes it away waits.
        let rights = self.may_write(device, offset, len as u64)?;
        let written = self.device(device)?.write(offset, data, durable);
        drop(rights);
        written
    }

    /// The right to write these bytes, as long as it is held.
    fn may_write(&self, device: u8, offset: u64, len: u64) -> Result<RwLockReadGuard<'_, Rights>> {
        let rights = self.rights.read().unwrap_or_else(PoisonError::into_inner);
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

    fn claim(&self, device: u8, role: Role, patience: Duration) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::Refused("the storage was opened to be read".into()));
        }
        self.device(device)?.claim(role, patience.min(MOST_PATIENCE))?;
        let mut rights = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        if !rights.roles.contains(&(device, role)) {
            rights.roles.push((device, role));
        }
        self.look(&mut rights);
        Ok(())
    }

    fn unclaim(&self, device: u8, role: Role) -> Result<()> {
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

impl Rights {
    fn held(&self, device: u8) -> impl Iterator<Item = Role> {
        self.roles.iter().filter(move |(at, _)| *at == device).map(|(_, role)| *role)
    }

    fn allow(&self, device: u8, offset: u64, len: u64) -> bool {
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

/// A length that a call may have.
fn sensible(len: u32) -> Result<usize> {
    let len = len as usize;
    if len <= STORAGE_MAX_BLOCKS * BLOCK_SIZE {
        return Ok(len);
    }
    Err(Error::Refused(format!("{len} bytes in one call")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next call, received by the worker whose turn it is.
fn next(
    receiver: &Mutex<&mut Box<dyn Receiver<ToService>>>,
    stopped: &dyn Fn() -> bool,
) -> std::result::Result<Option<(u64, StorageCall)>, SessionEnd> {
    let mut receiver = lock(receiver);
    if stopped() {
        return Err(SessionEnd::Stopped);
    }
    match receiver.recv(Some(POLL)) {
        Ok(Received::Message(ToService::Storage { id, call })) => Ok(Some((id, call))),
        Ok(Received::Message(_)) => {
            let what = "a message that is no call on the storage";
            Err(SessionEnd::Broke(corrupt("message of the block protocol", what)))
        }
        Ok(Received::Timeout) => Ok(None),
        Ok(Received::Closed) => Err(SessionEnd::Closed),
        Err(error) => Err(SessionEnd::Broke(error)),
    }
}
