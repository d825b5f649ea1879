//! A device in memory that several processes of a test have open, each through a seat of its own,
//! with the roles' locks and with death.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use siftfs_base::{Error, Result};

use crate::{Device, DeviceInfo, Discards, Io, IoQueue, Medium, ReadOp, Role, WriteOp, io_error};

/// The holder of each role.
#[derive(Default)]
struct Roles {
    holders: Mutex<HashMap<Role, u64>>,
    freed: Condvar,
}

/// A device that is opened by [`SharedDevice::open`], once per process that a test plays.
#[derive(Clone)]
pub struct SharedDevice {
    device: Arc<dyn Device>,
    roles: Arc<Roles>,
    next: Arc<Mutex<u64>>,
}

impl SharedDevice {
    /// All I/O goes to `device`.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, roles: Arc::default(), next: Arc::default() }
    }

    /// Opens the device for one more process, without a role.
    pub fn open(&self) -> Arc<ProcessDevice> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        Arc::new(ProcessDevice {
            shared: self.clone(),
            number: *next,
            dead: RwLock::new(false),
            doomed: AtomicBool::new(false),
            left: AtomicU64::new(u64::MAX),
        })
    }
}

/// One process's open device. Dropping it gives its roles back.
pub struct ProcessDevice {
    shared: SharedDevice,
    number: u64,
    /// I/O shares it; death waits for I/O in flight.
    dead: RwLock<bool>,
    /// The process has used up its accesses.
    doomed: AtomicBool,
    /// Accesses before the process dies by itself.
    left: AtomicU64,
}

impl ProcessDevice {
    /// The process dies: what it does from now on fails and reaches nothing. I/O in flight ends
    /// first, then its roles are free.
    pub fn kill(&self) {
        *self.dead.write().unwrap_or_else(PoisonError::into_inner) = true;
        self.give_up(&Role::ALL);
    }

    /// The process dies before the access after the next `accesses`.
    pub fn kill_after(&self, accesses: u64) {
        self.left.store(accesses, Ordering::SeqCst);
    }

    /// Has the process died?
    pub fn is_dead(&self) -> bool {
        *self.dead.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_up(&self, roles: &[Role]) {
        let table = &self.shared.roles;
        let mut holders = table.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.retain(|role, who| *who != self.number || !roles.contains(role));
        drop(holders);
        table.freed.notify_all();
    }

    fn alive<T>(&self, io: impl FnOnce(&dyn Device) -> Result<T>) -> Result<T> {
        let spend = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(1));
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend);
        if left == Ok(0) && !self.doomed.swap(true, Ordering::SeqCst) {
            self.kill();
        }
        let dead = self.dead.read().unwrap_or_else(PoisonError::into_inner);
        if *dead {
            return Err(io_error("access", 0, 0, libc::EIO));
        }
        io(&*self.shared.device)
    }
}

impl Drop for ProcessDevice {
    fn drop(&mut self) {
        self.give_up(&Role::ALL);
    }
}

impl Device for ProcessDevice {
    fn size(&self) -> u64 {
        self.shared.device.size()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.alive(|d| d.read(offset, buf))
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.alive(|d| d.write(offset, data, fua))
    }
    fn flush(&self) -> Result<()> {
        self.alive(|d| d.flush())
    }
    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        self.alive(|d| d.read_batch(ops))
    }
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        self.alive(|d| d.write_batch(ops))
    }
    /// For devices that carry it out at once: a process that dies does not wait for others.
    fn begin(self: Arc<Self>, io: Io, queue: &mut IoQueue) -> std::result::Result<(), Io> {
        let mut io = Some(io);
        let begun = self.alive(|_| {
            let io = io.take().expect("it is asked once");
            Ok(self.shared.device.clone().begin(io, queue))
        });
        // One that is dead says so when it is asked to read or write.
        begun.unwrap_or_else(|_| io.map_or(Ok(()), Err))
    }
    fn discards(&self) -> Option<Discards> {
        self.shared.device.discards()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.alive(|d| d.discard(offset, len))
    }
    fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
        let table = &self.shared.roles;
        let mut holders = table.holders.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let holder = *holders.entry(role).or_insert(self.number);
            let left = until.saturating_duration_since(Instant::now());
            if holder == self.number {
                break;
            }
            if left.is_zero() {
                let what = format!("the device is in use by process {holder} as {role:?}");
                return Err(Error::Refused(what));
            }
            let waited = table.freed.wait_timeout(holders, left);
            holders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(holders);
        let dead = *self.dead.read().unwrap_or_else(PoisonError::into_inner);
        if dead {
            self.give_up(&[role]);
        }
        if dead { Err(io_error("claim", 0, 0, libc::EIO)) } else { Ok(()) }
    }
    fn unclaim(&self, role: Role) -> Result<()> {
        self.give_up(&[role]);
        Ok(())
    }
    // Hints are no accesses: one that was begun has to end, alive or not.
    fn urgent(&self, under_way: bool) {
        self.shared.device.urgent(under_way);
    }
    fn expect_urgent(&self, time: Duration) {
        self.shared.device.expect_urgent(time);
    }
    fn give_way(&self, pause: Duration) {
        self.shared.device.give_way(pause);
    }
    fn medium(&self) -> Medium {
        self.shared.device.medium()
    }
    fn describe(&self) -> DeviceInfo {
        self.shared.device.describe()
    }
}

#[cfg(test)]
#[path = "process_device_tests.rs"]
mod tests;
