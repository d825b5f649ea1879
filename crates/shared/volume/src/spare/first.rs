//! The first device of a pair: the log's own one, or its image on the spare device, once the log's
//! own one has failed.

use siftfs_base::{Error, Result};
use siftfs_device::{Device, DeviceInfo, Medium, WriteOp};
use siftfs_log::SpareHeader;
use std::sync::{Arc, OnceLock};

/// The image of the log's device, on a part of the spare one.
struct Image {
    spare: Arc<dyn Device>,
    at: u64,
    len: u64,
}

impl Image {
    /// Where a call of the log's device goes.
    fn place(&self, op: &'static str, offset: u64, len: usize) -> Result<u64> {
        let len = len as u64;
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        match inside {
            true => Ok(self.at + offset),
            false => Err(Error::Io { op, offset, len, errno: libc::EINVAL }),
        }
    }
}

impl Device for Image {
    fn size(&self) -> u64 {
        self.len
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.spare.read(self.place("read", offset, buf.len())?, buf)
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.spare.write(self.place("write", offset, data.len())?, data, fua)
    }
    fn flush(&self) -> Result<()> {
        self.spare.flush()
    }
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let moved = |op: &WriteOp<'_>| self.place("write", op.offset, op.data.len());
        let places = ops.iter().map(moved).collect::<Result<Vec<_>>>()?;
        let moved = ops.iter().zip(places).map(|(op, offset)| WriteOp { offset, data: op.data });
        self.spare.write_batch(&moved.collect::<Vec<_>>())
    }
    fn medium(&self) -> Medium {
        self.spare.medium()
    }
    fn describe(&self) -> DeviceInfo {
        self.spare.describe()
    }
}

/// The device that has the log, while the spare one has nothing.
pub(super) struct First {
    /// The log's own device; `None` if it was given up before this process opened the log.
    own: Option<Arc<dyn Device>>,
    image: OnceLock<Image>,
}

impl First {
    /// The log is on its own device.
    pub fn own(device: Arc<dyn Device>) -> Self {
        Self { own: Some(device), image: OnceLock::new() }
    }

    /// The log is on the spare device alone, as this header says.
    pub fn image(spare: &Arc<dyn Device>, header: &SpareHeader) -> Self {
        let first = Self { own: None, image: OnceLock::new() };
        first.give_up(spare, header);
        first
    }

    /// The log's own device, whether or not it was given up since the log was opened.
    pub fn original(&self) -> Option<&dyn Device> {
        self.own.as_deref()
    }

    /// The device that calls go to.
    pub fn get(&self) -> &dyn Device {
        match (self.image.get(), &self.own) {
            (Some(image), _) => image,
            (None, Some(own)) => &**own,
            (None, None) => unreachable!("a log is on one of both"),
        }
    }

    /// From now on calls go to the image, which `header` has made the log. Those that are inside
    /// the log's own device end there.
    pub fn give_up(&self, spare: &Arc<dyn Device>, header: &SpareHeader) {
        assert!(header.alone && header.image > 0, "the header says so first");
        let image = Image { spare: spare.clone(), at: header.image, len: header.log_len };
        assert!(self.image.set(image).is_ok(), "a device is given up once");
    }
}
