//! The devices that a volume lies on.

use crate::header::{HeaderView, read_media, region_descs, repair_headers};
use crate::record_area::{self, RecordArea};
use crate::spare::{self, LogPair};
use siftfs_base::{BLOCK_BYTES, Error, Result};
use siftfs_device::{Device, RegionDesc, RegionKind, Role, Storage};
use std::sync::Arc;
use std::time::Duration;

/// One device that holds everything, or one for the ext4 area and one for the log.
#[derive(Clone)]
pub struct Media {
    /// Holds the area, and all else where there is no other device.
    pub area: Arc<dyn Device>,
    /// Holds header, journal and staging.
    pub log: Option<Arc<dyn Device>>,
    /// Holds the record area, on byte-addressable memory.
    pub bytes: Option<Arc<dyn Device>>,
    /// Holds the spare log.
    pub spare: Option<Arc<dyn Device>>,
    /// The log with its spare one, which `log` is then.
    pub pair: Option<Arc<LogPair>>,
}

impl Media {
    /// Area and log on devices of their own.
    pub fn split(area: Arc<dyn Device>, log: Arc<dyn Device>) -> Self {
        Self { log: Some(log), ..Self::from(area) }
    }

    /// The same with a record area on `bytes`.
    pub fn with_bytes(self, bytes: Option<Arc<dyn Device>>) -> Self {
        Self { bytes, ..self }
    }

    /// The same with a spare log on `spare`, which is empty or is to be opened: see
    /// [`Media::paired`].
    pub fn with_spare(self, spare: Option<Arc<dyn Device>>) -> Self {
        Self { spare, ..self }
    }

    /// The same, with the log and a spare one as one device, if there is a spare one and that was
    /// not done before. For a caller that may write, the log's device then has everything, or was
    /// given up. The log may be missing if the spare one is the log alone.
    ///
    /// # Errors
    /// As [`LogPair::open`].
    pub fn paired(self, may_write: bool) -> Result<Self> {
        let (Some(spare), None) = (&self.spare, &self.pair) else {
            return Ok(self);
        };
        let pair = LogPair::open(self.log.clone(), spare.clone(), may_write)?;
        let log: Arc<dyn Device> = pair.clone();
        Ok(Self { log: Some(log), pair: Some(pair), ..self })
    }

    /// The device that holds header, journal and staging.
    pub fn log_device(&self) -> &dyn Device {
        &**self.log.as_ref().unwrap_or(&self.area)
    }

    /// The device of the area, then those of a log elsewhere, of a spare one and of a record area.
    pub fn devices(&self) -> impl Iterator<Item = &dyn Device> {
        [Some(&self.area), self.log.as_ref(), self.spare.as_ref(), self.bytes.as_ref()]
            .into_iter()
            .flatten()
            .map(|device| &**device)
    }

    /// Finds and checks the header: see [`read_media`]. The record area, where there is one, is the
    /// volume's: see [`record_area::check`].
    pub fn read(&self) -> Result<HeaderView> {
        let view = read_media(&*self.area, self.log.as_deref())?;
        record_area::check(&view, self.bytes.as_deref())?;
        spare::check(&view, self.pair.as_deref(), self.spare.is_some())?;
        Ok(view)
    }

    /// The record area, if the volume has one.
    pub fn record_area(&self, view: &HeaderView) -> Result<Option<RecordArea<'_>>> {
        let (Some(device), Some(_)) = (&self.bytes, view.header.record_area()) else {
            return Ok(None);
        };
        RecordArea::read(&**device).map(Some)
    }

    /// As [`Media::read`], by a caller that is about to write the volume.
    ///
    /// # Errors
    /// Also incompatible if it has features that only readers may ignore.
    pub fn read_to_write(&self) -> Result<HeaderView> {
        let view = self.read()?;
        match view.header.unknown_ro_compat() {
            0 => Ok(view),
            unknown => Err(Error::Incompatible(format!(
                "read-only compatible features {unknown:#x} that this build does not know: it may read \
                 the volume (mount -o ro, if it was unmounted cleanly), and a newer SiftFS may write it"
            ))),
        }
    }

    /// Makes everything that can be read durable, on every device.
    pub fn flush(&self) -> Result<()> {
        self.devices().try_for_each(|device| device.flush())
    }

    /// See [`repair_headers`].
    pub fn repair(&self, view: &HeaderView) -> Result<()> {
        repair_headers(self.log_device(), view)
    }

    /// Takes a role on every device of the volume, waiting at most `patience` for each: see
    /// [`Device::claim`].
    pub fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        for (done, device) in self.devices().enumerate() {
            device.claim(role, patience).inspect_err(|_| {
                // Some of a role's locks are as good as no lock; the first error is returned.
                self.devices().take(done).for_each(|device| drop(device.unclaim(role)));
            })?;
        }
        Ok(())
    }

    /// Gives a role back on every device.
    pub fn unclaim(&self, role: Role) -> Result<()> {
        self.devices().map(|device| device.unclaim(role)).fold(Ok(()), Result::and)
    }

    /// The volume's regions. The area of a volume whose log lies elsewhere is all of its device, so
    /// that the file system may be grown while it is not mounted.
    pub fn storage(&self, view: &HeaderView) -> Result<Storage> {
        let descs = region_descs(&view.header);
        let mut on = match &self.log {
            None => vec![(self.area.clone(), descs)],
            Some(log) => {
                let len = self.area.size() / BLOCK_BYTES * BLOCK_BYTES;
                let area = RegionDesc { kind: RegionKind::Area, index: 0, offset: 0, len };
                vec![(self.area.clone(), vec![area]), (log.clone(), descs)]
            }
        };
        if let (Some(bytes), Some(lane)) = (&self.bytes, view.header.record_area()) {
            let (kind, index) = (RegionKind::Staging, lane.id.0);
            let desc = RegionDesc { kind, index, offset: lane.offset, len: lane.len };
            on.push((bytes.clone(), vec![desc]));
        }
        Storage::on(&on)
    }
}

impl From<Arc<dyn Device>> for Media {
    fn from(area: Arc<dyn Device>) -> Self {
        Self { area, log: None, bytes: None, spare: None, pair: None }
    }
}

impl<T: Device + 'static> From<Arc<T>> for Media {
    fn from(area: Arc<T>) -> Self {
        Self { area, log: None, bytes: None, spare: None, pair: None }
    }
}
