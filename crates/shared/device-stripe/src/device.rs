//! The members as one device.

use crate::geometry::{DATA_BEGIN, Geometry};
use crate::label::Label;
use crate::member::Member;
use crate::stamp::{Guard, Holdings};
use siftfs_base::{Error, Result};
use siftfs_device::{Beside, Device, DeviceInfo, Discards, ReadOp, Role, WriteOp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes from which on a call that touches several members does so from several threads.
const AT_ONCE: usize = 128 << 10;

/// The area of a striped volume, over members that each have their part of it.
///
/// A flush is all members' flush. Once a member has failed to make something durable, so do all
/// later flushes and durable writes (rule R21). There is no order between members but that which a
/// flush makes.
pub struct StripedDevice {
    members: Vec<Member>,
    geometry: Geometry,
    set: Option<[u8; 16]>,
    /// What failed to be made durable first.
    latched: Mutex<Option<Error>>,
    /// The roles that are had, and their stamps.
    had: Arc<Holdings>,
    /// A member may be lost and reached again.
    guarded: AtomicBool,
}

/// What one member is to do of a call, with the bytes that it moves.
type Share<T> = (Vec<T>, usize);

impl StripedDevice {
    /// The members as they are, `set` being what their labels say.
    ///
    /// # Panics
    /// If their number is not the one that the geometry has.
    pub(crate) fn over(members: Vec<Member>, geometry: Geometry, set: Option<[u8; 16]>) -> Self {
        assert_eq!(members.len(), geometry.count(), "a set has all of its members");
        let (latched, had, guarded) = Default::default();
        Self { members, geometry, set, latched, had, guarded }
    }

    /// How the area lies on the members.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// UUID of the set; `None` for one that has no labels yet.
    pub fn set(&self) -> Option<[u8; 16]> {
        self.set
    }

    /// The members, in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Both roles are had on all members by how these were opened: stamps them for both, durably
    /// (rule R9). Nothing else was written yet.
    ///
    /// # Errors
    /// I/O errors: then some members may have the stamp.
    pub fn taken(&self) -> Result<()> {
        Role::ALL.iter().try_for_each(|role| {
            let _turn = self.had.turn(*role);
            self.stamp(*role)
        })
    }

    fn stamp(&self, role: Role) -> Result<()> {
        self.had.stamp(role, self.members.iter().map(|member| &*member.device))
    }

    /// What tells whether this member was another holder's while it could not be reached; `None`
    /// if no member has this number, or the set has no labels yet.
    pub fn guard(&self, member: usize) -> Option<Guard> {
        let (set, geometry) = (self.set?, self.geometry);
        let name = &self.members.get(member)?.name;
        self.guarded.store(true, Ordering::Release);
        Some(Guard::new(name, &Label { set, index: member, geometry }, &self.had))
    }

    /// The table by which dmsetup(8) makes the area of block devices, in sectors of 512 bytes.
    pub fn table(&self) -> String {
        let sectors = |bytes: u64| bytes / 512;
        let (size, unit) = (sectors(self.geometry.size()), sectors(self.geometry.unit()));
        let begin = sectors(DATA_BEGIN);
        let of = |member: &Member| format!(" {} {begin}", member.name);
        let members: String = self.members.iter().map(of).collect();
        format!("0 {size} striped {} {unit}{members}", self.members.len())
    }

    fn check_bounds(&self, op: &'static str, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.geometry.size() => Ok(()),
            _ => Err(Error::Io { op, offset, len, errno: libc::EINVAL }),
        }
    }

    /// Nothing was lost so far.
    fn check_latch(&self) -> Result<()> {
        let latched = self.latched.lock().unwrap_or_else(PoisonError::into_inner);
        latched.clone().map_or(Ok(()), Err)
    }

    /// Takes note of a failure to make something durable.
    fn latch(&self, result: Result<()>) -> Result<()> {
        let mut latched = self.latched.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*latched, result) {
            // One that began before the failure may have been covered by the one that failed.
            (Some(first), Ok(())) => Err(first.clone()),
            (None, Err(error)) => Err(latched.insert(error).clone()),
            (_, result) => result,
        }
    }

    /// Nothing to do, for each member.
    fn shares<T>(&self) -> Vec<Share<T>> {
        self.members.iter().map(|_| (Vec::new(), 0)).collect()
    }

    /// Has each member do its share; those with none are left alone. All of them have ended when
    /// this returns: the first error in the members' order, if one fails.
    fn each<T: Send>(
        &self,
        shares: Vec<Share<T>>,
        work: impl Fn(&Member, Vec<T>) -> Result<()> + Sync,
    ) -> Result<()> {
        let bytes: usize = shares.iter().map(|(_, bytes)| bytes).sum();
        let mut busy: Vec<_> =
            self.members.iter().zip(shares).filter(|(_, (ops, _))| !ops.is_empty()).collect();
        let run = |member: &Member, ops: Vec<T>| {
            work(member, ops).inspect_err(|error| {
                tracing::error!(member = member.name, %error, "a member of the stripes failed");
            })
        };
        let last = busy.pop();
        if busy.is_empty() || bytes < AT_ONCE {
            let all = busy.into_iter().chain(last).map(|(member, (ops, _))| run(member, ops));
            return all.fold(Ok(()), Result::and);
        }
        thread::scope(|scope| {
            let run = &run;
            let begun: Vec<_> = busy
                .into_iter()
                .map(|(member, (ops, _))| scope.spawn(move || run(member, ops)))
                .collect();
            let last = last.map_or(Ok(()), |(member, (ops, _))| run(member, ops));
            let ended = begun.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.fold(Ok(()), Result::and).and(last)
        })
    }

    /// What each member is to write of these.
    fn split<'a>(&self, ops: &[WriteOp<'a>]) -> Result<Vec<Share<WriteOp<'a>>>> {
        let mut shares = self.shares();
        for op in ops {
            self.check_bounds("write", op.offset, op.data.len() as u64)?;
            for part in self.geometry.parts(op.offset, op.data.len()) {
                let data = op.data.get(part.bytes);
                if let (Some(data), Some((own, bytes))) = (data, shares.get_mut(part.member)) {
                    own.push(WriteOp { offset: part.offset, data });
                    *bytes += data.len();
                }
            }
        }
        Ok(shares)
    }

    /// What each member is to read of these.
    fn split_reads<'a>(&self, ops: &'a mut [ReadOp<'_>]) -> Result<Vec<Share<ReadOp<'a>>>> {
        let mut shares = self.shares();
        for op in &*ops {
            self.check_bounds("read", op.offset, op.buf.len() as u64)?;
        }
        for op in ops {
            let mut rest = &mut *op.buf;
            for part in self.geometry.parts(op.offset, rest.len()) {
                let (buf, more) = std::mem::take(&mut rest).split_at_mut(part.bytes.len());
                rest = more;
                if let Some((own, bytes)) = shares.get_mut(part.member) {
                    *bytes += buf.len();
                    own.push(ReadOp { offset: part.offset, buf });
                }
            }
        }
        Ok(shares)
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_latch()?;
        let shares = self.split(&[WriteOp { offset, data }])?;
        let done = self.each(shares, |member, ops| match &*ops {
            [op] => member.device.write(op.offset, op.data, true),
            several => {
                member.device.write_batch(several)?;
                member.device.flush()
            }
        });
        self.latch(done)
    }
}

impl Device for StripedDevice {
    fn size(&self) -> u64 {
        self.geometry.size()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_batch(&mut [ReadOp { offset, buf }])
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        match fua {
            true => self.write_durable(offset, data),
            false => self.write_batch(&[WriteOp { offset, data }]),
        }
    }

    fn flush(&self) -> Result<()> {
        self.check_latch()?;
        let shares = self.members.iter().map(|_| (vec![()], AT_ONCE)).collect();
        self.latch(self.each(shares, |member, _| member.device.flush()))
    }

    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        let shares = self.split_reads(ops)?;
        self.each(shares, |member, mut ops| match &mut *ops {
            [op] => member.device.read(op.offset, op.buf),
            several => member.device.read_batch(several),
        })
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        self.each(self.split(ops)?, |member, ops| match &*ops {
            [op] => member.device.write(op.offset, op.data, false),
            several => member.device.write_batch(several),
        })
    }

    fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        let _turn = self.had.turn(role);
        if self.had.of(role).is_some() {
            return Ok(());
        }
        let until = Instant::now() + patience;
        // A role is had on all members, or on none; the first error is returned.
        let give_back = |count: usize| {
            let had = self.members.iter().take(count);
            had.for_each(|member| drop(member.device.unclaim(role)));
        };
        for (done, member) in self.members.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            member.device.claim(role, left).inspect_err(|_| give_back(done))?;
        }
        self.stamp(role).inspect_err(|_| give_back(self.members.len()))
    }

    fn unclaim(&self, role: Role) -> Result<()> {
        let _turn = self.had.turn(role);
        let each = |what: &dyn Fn(&Member) -> Result<()>| {
            self.members.iter().map(what).fold(Ok(()), Result::and)
        };
        // What a lost member would be given again is nothing once the stamp is no longer asked for.
        let flushed = match self.guarded.load(Ordering::Acquire) {
            true => each(&|member| member.device.flush()),
            false => Ok(()),
        };
        self.had.forget(role);
        flushed.and(each(&|member| member.device.unclaim(role)))
    }

    fn finish(&self) {
        self.members.iter().for_each(|member| member.device.finish());
    }

    fn can_be_taken(&self) -> bool {
        self.members.iter().any(|member| member.device.can_be_taken())
    }

    fn was_taken(&self) -> Option<String> {
        self.members.iter().find_map(|member| member.device.was_taken())
    }

    fn beside(&self) -> Option<Arc<dyn Beside>> {
        // The first member has the first block, too.
        self.members.first()?.device.beside()
    }

    fn urgent(&self, under_way: bool) {
        self.members.iter().for_each(|member| member.device.urgent(under_way));
    }

    fn expect_urgent(&self, time: Duration) {
        self.members.iter().for_each(|member| member.device.expect_urgent(time));
    }

    fn give_way(&self, pause: Duration) {
        let until = Instant::now() + pause;
        for member in &self.members {
            member.device.give_way(until.saturating_duration_since(Instant::now()));
        }
    }

    fn discards(&self) -> Option<Discards> {
        let all: Option<Vec<_>> = self.members.iter().map(|m| m.device.discards()).collect();
        let all = all?;
        let usual = all.iter().all(|discards| discards.usual);
        let unit = all.iter().map(|discards| discards.unit).max()?;
        // Larger ones are multiples of smaller ones then, and the begin of the data is one of all.
        let fit = all.iter().all(|d| d.unit.is_power_of_two() && d.unit <= DATA_BEGIN);
        // What is larger than a unit of the stripes takes whole turns of all members.
        let turns = if unit > self.geometry.unit() { self.members.len() as u64 } else { 1 };
        fit.then_some(Discards { unit: unit * turns, usual })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_bounds("discard", offset, len)?;
        let mut shares = self.shares();
        for (member, run) in self.geometry.runs(offset, len) {
            if let Some((own, bytes)) = shares.get_mut(member) {
                own.push(run);
                *bytes = AT_ONCE;
            }
        }
        self.each(shares, |member, runs| {
            let discard =
                |run: &std::ops::Range<u64>| member.device.discard(run.start, run.end - run.start);
            runs.iter().try_for_each(discard)
        })
    }

    fn describe(&self) -> DeviceInfo {
        let all: Vec<DeviceInfo> = self.members.iter().map(|m| m.device.describe()).collect();
        let words = |of: fn(&DeviceInfo) -> &str| {
            let mut words: Vec<&str> = all.iter().map(of).collect();
            words.dedup();
            words.join(", ")
        };
        // One that is not known leaves the whole unknown, unless another one decides.
        let any = |of: fn(&DeviceInfo) -> Option<bool>| {
            let known: Vec<_> = all.iter().map(of).collect();
            if known.contains(&Some(true)) { Some(true) } else { known.into_iter().min()? }
        };
        let every = |of: fn(&DeviceInfo) -> Option<bool>| {
            let known: Vec<_> = all.iter().map(of).collect();
            if known.contains(&Some(false)) { Some(false) } else { known.into_iter().min()? }
        };
        let names: Vec<_> = self.members.iter().map(|member| (&*member.name).into()).collect();
        DeviceInfo {
            path: crate::StripePlace::new(names).name().display().to_string(),
            kind: format!("stripes of {} KiB: {}", self.geometry.unit() >> 10, words(|d| &d.kind)),
            volatile_cache: any(|d| d.volatile_cache),
            fua: every(|d| d.fua),
            direct: all.iter().all(|d| d.direct),
            uring: all.iter().all(|d| d.uring),
            persistent: every(|d| d.persistent),
            durable_write: words(|d| &d.durable_write),
            why: words(|d| &d.why),
            persists: None,
            cluster: None,
        }
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
