//! An image as a device.

use crate::beside::Objects;
use crate::cluster::Cluster;
use crate::completion::Job;
use crate::health::Health;
use crate::image::Image;
use crate::owner::{Owner, refuse_written};
use crate::{Access, RbdPlace};
use siftfs_base::{Error, Result};
use siftfs_device::{Beside, Device, DeviceInfo, Discards, ReadOp, WriteOp};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes that space is given back in at least: librbd leaves less alone.
const DISCARD_UNIT: u64 = 64 << 10;

/// An image of RADOS block devices.
///
/// A write that has returned is on all replicas of its objects' acting set, and so durable; a flush
/// waits for what is under way. A call waits as long as the cluster does not answer: while too few
/// replicas live, while its network is cut, and while it is full.
///
/// Once the cluster has told this process that it was fenced, or that its lock is another's, every
/// later call fails with [`Error::Latched`]: another process has the volume.
pub struct RbdDevice {
    place: RbdPlace,
    size: u64,
    object_size: u64,
    /// Why every call fails.
    stopped: OnceLock<String>,
    /// The right to write; `None` for one that only reads.
    owner: Mutex<Option<Owner>>,
    health: Health,
    image: Image,
    objects: Arc<Objects>,
}

impl RbdDevice {
    /// Opens an image. For one that writes, everybody who had it before is fenced when this
    /// returns.
    ///
    /// # Errors
    /// Refused, saying what is wrong: the name, the key, the cluster, or a process that has the
    /// image.
    pub fn open(place: &RbdPlace, access: Access) -> Result<Self> {
        let cluster = Arc::new(Cluster::connect(place)?);
        let image = Image::open(cluster, place, access != Access::ReadOnly)?;
        let owner = match access {
            Access::ReadOnly => {
                refuse_written(&image, place)?;
                None
            }
            _ => Some(Owner::take(&image, place, &access)?),
        };
        // Behind the fence: nobody else changes it any more.
        let device = Self::of(place, image, owner)?;
        let (size, object_size) = (device.size, device.object_size);
        tracing::info!(%place, size, object_size, fsid = device.image.cluster.fsid, "image open");
        Ok(device)
    }

    /// An open image as a device, which writes if it has an owner's right.
    pub(crate) fn of(place: &RbdPlace, image: Image, owner: Option<Owner>) -> Result<Self> {
        let (size, object_size) = (image.size()?, image.object_size()?);
        let objects = Arc::new(Objects::of(image.cluster.clone(), place, image.id()?));
        let (stopped, owner) = (OnceLock::new(), Mutex::new(owner));
        let (place, health) = (place.clone(), Health::default());
        Ok(Self { place, size, object_size, stopped, owner, health, image, objects })
    }

    /// The image's number in its pool, which no other image ever has.
    ///
    /// # Errors
    /// The library does not say.
    pub(crate) fn id(&self) -> Result<String> {
        self.image.id()
    }

    /// Makes the image longer, to `size` bytes, and durably so when this returns. The new part
    /// reads as zeroes.
    ///
    /// # Errors
    /// Refused if the image is open only to be read, if it is longer than `size`, or if the cluster
    /// does not resize it: then it has its old length or the new one.
    pub fn lengthen(mut self, size: u64) -> Result<Self> {
        let refuse = |why: String| Err(Error::Refused(format!("{}: {why}", self.place)));
        if self.owner.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return refuse(
                "an image is made longer by its owner, and this process only reads it".into(),
            );
        }
        if size < self.size {
            return refuse(format!("{} bytes are not made {size}", self.size));
        }
        if size > self.size {
            self.image.resize(size)?;
        }
        // Others may ask the owner's library to resize the image, which does so.
        let have = self.image.size()?;
        if have != size {
            return refuse(format!("somebody else has given it {have} bytes meanwhile"));
        }
        tracing::info!(place = %self.place, before = self.size, size, "image made longer");
        self.size = size;
        Ok(self)
    }

    /// The image's name.
    pub fn place(&self) -> &RbdPlace {
        &self.place
    }

    fn inside(&self, op: &'static str, offset: u64, len: u64) -> Result<()> {
        if let Some(why) = self.stopped.get() {
            return Err(Error::Latched(why.clone()));
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(Error::Io { op, offset, len, errno: libc::EINVAL }),
        }
    }

    /// The bytes of a range up to the end of its first object.
    fn first_part(&self, offset: u64, len: usize) -> usize {
        let room = self.object_size - offset % self.object_size;
        usize::try_from(room).map_or(len, |room| room.min(len))
    }

    fn reads<'a>(&self, mut offset: u64, mut buf: &'a mut [u8]) -> Vec<Job<'a>> {
        let mut jobs = Vec::with_capacity(1);
        while !buf.is_empty() {
            let (part, rest) = buf.split_at_mut(self.first_part(offset, buf.len()));
            let at = offset;
            offset += part.len() as u64;
            jobs.push(Job::Read { offset: at, buf: part });
            buf = rest;
        }
        jobs
    }

    fn writes<'a>(&self, mut offset: u64, mut data: &'a [u8]) -> Vec<Job<'a>> {
        let mut jobs = Vec::with_capacity(1);
        while !data.is_empty() {
            let (part, rest) = data.split_at(self.first_part(offset, data.len()));
            jobs.push(Job::Write { offset, data: part });
            offset += part.len() as u64;
            data = rest;
        }
        jobs
    }

    /// Carries the accesses of one call out.
    fn run<'a>(
        &self,
        (op, offset, len): (&'static str, u64, u64),
        jobs: impl IntoIterator<Item = Job<'a>>,
    ) -> Result<()> {
        let _call = self.health.call();
        let Err(errno) = self.image.run(jobs) else { return Ok(()) };
        // ESHUTDOWN: the block list has this client. EROFS: its lock is another's. EINVAL: the
        // range was inside the image when it was opened.
        match errno {
            libc::ESHUTDOWN | libc::EROFS => Err(self.stop(format!(
                "fenced: another process has taken {} over; this one writes nothing more",
                self.place
            ))),
            libc::EINVAL => Err(self.shrank()),
            _ => Err(Error::Io { op, offset, len, errno }),
        }
    }

    /// Nothing works any more, for the first reason that was given.
    fn stop(&self, why: String) -> Error {
        Error::Latched(self.stopped.get_or_init(|| why).clone())
    }

    fn shrank(&self) -> Error {
        self.stop(format!("{} has become smaller than the volume on it", self.place))
    }

    /// Nothing is durable on an image that has become smaller: its objects are gone. The library
    /// knows the size by the image's watch, so that this asks nobody.
    fn require_whole(&self) -> Result<()> {
        if self.image.size()? < self.size { Err(self.shrank()) } else { Ok(()) }
    }
}

impl Device for RbdDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        self.inside("read", offset, len)?;
        self.run(("read", offset, len), self.reads(offset, buf))
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        let len = data.len() as u64;
        self.inside("write", offset, len)?;
        self.run(("write", offset, len), self.writes(offset, data))?;
        if fua { self.require_whole() } else { Ok(()) }
    }

    fn flush(&self) -> Result<()> {
        self.inside("flush", 0, 0)?;
        self.run(("flush", 0, 0), [Job::Flush])?;
        self.require_whole()
    }

    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(|op| self.inside("read", op.offset, op.buf.len() as u64))?;
        let (offset, len) = extent(ops.iter().map(|op| (op.offset, op.buf.len())));
        let jobs = ops.iter_mut().flat_map(|op| self.reads(op.offset, op.buf));
        self.run(("read", offset, len), jobs)
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(|op| self.inside("write", op.offset, op.data.len() as u64))?;
        let (offset, len) = extent(ops.iter().map(|op| (op.offset, op.data.len())));
        let jobs = ops.iter().flat_map(|op| self.writes(op.offset, op.data));
        self.run(("write", offset, len), jobs)
    }

    fn discards(&self) -> Option<Discards> {
        Some(Discards { unit: DISCARD_UNIT, usual: true })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inside("discard", offset, len)?;
        let (mut at, mut jobs) = (offset, Vec::new());
        while at < offset + len {
            let part = (self.object_size - at % self.object_size).min(offset + len - at);
            jobs.push(Job::Discard { offset: at, len: part });
            at += part;
        }
        self.run(("discard", offset, len), jobs)
    }

    fn finish(&self) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        // A fenced process has nothing to give back.
        let Some(mut owner) = owner.take().filter(|_| self.stopped.get().is_none()) else { return };
        self.stop(format!("{} is closed", self.place));
        if let Err(error) = owner.give_back(&self.image) {
            tracing::warn!(place = %self.place, %error, "the image's lock is not given back");
        }
    }

    fn can_be_taken(&self) -> bool {
        true
    }

    fn was_taken(&self) -> Option<String> {
        self.stopped.get().cloned()
    }

    fn beside(&self) -> Option<Arc<dyn Beside>> {
        Some(self.objects.clone())
    }

    fn describe(&self) -> DeviceInfo {
        let report = self.health.report(&self.image.cluster, &self.place.pool, self.object_size);
        DeviceInfo {
            path: self.place.to_string(),
            kind: "RBD image".into(),
            volatile_cache: Some(false),
            fua: Some(true),
            direct: true,
            durable_write: "write".into(),
            why: "the cluster answers a write when all replicas have it; librbd's cache is off"
                .into(),
            cluster: Some(Box::new(report)),
            ..DeviceInfo::default()
        }
    }
}

impl Drop for RbdDevice {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The first byte of several ranges, and the bytes of all of them, for a message.
fn extent(ranges: impl Iterator<Item = (u64, usize)>) -> (u64, u64) {
    ranges.fold((u64::MAX, 0), |(first, all), (offset, len)| (first.min(offset), all + len as u64))
}
