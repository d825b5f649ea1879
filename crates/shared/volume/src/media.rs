//! The devices that a volume lies on.

use crate::header::{HeaderView, read_media, region_descs, repair_headers};
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
}

impl Media {
    /// Area and log on devices of their own.
    pub fn split(area: Arc<dyn Device>, log: Arc<dyn Device>) -> Self {
        Self { area, log: Some(log) }
    }

    /// The device that holds header, journal and staging.
    pub fn log_device(&self) -> &dyn Device {
        &**self.log.as_ref().unwrap_or(&self.area)
    }

    /// The device of the area, then that of a log elsewhere.
    pub fn devices(&self) -> impl Iterator<Item = &dyn Device> {
        [Some(&self.area), self.log.as_ref()].into_iter().flatten().map(|device| &**device)
    }

    /// Finds and checks the header: see [`read_media`].
    pub fn read(&self) -> Result<HeaderView> {
        read_media(&*self.area, self.log.as_deref())
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
        self.area.flush()?;
        self.log.as_ref().map_or(Ok(()), |log| log.flush())
    }

    /// See [`repair_headers`].
    pub fn repair(&self, view: &HeaderView) -> Result<()> {
        repair_headers(self.log_device(), view)
    }

    /// Takes a role on every device of the volume, waiting at most `patience` for each: see
    /// [`Device::claim`].
    pub fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        self.area.claim(role, patience)?;
        let Some(log) = &self.log else { return Ok(()) };
        log.claim(role, patience).inspect_err(|_| {
            // Half a role is none; the first cause is what counts.
            let _ = self.area.unclaim(role);
        })
    }

    /// Gives a role back on every device.
    pub fn unclaim(&self, role: Role) -> Result<()> {
        let log = self.log.as_ref().map_or(Ok(()), |log| log.unclaim(role));
        self.area.unclaim(role).and(log)
    }

    /// The volume's regions. The area of a volume whose log lies elsewhere is all of its device, so
    /// that the file system may be grown while it is not mounted.
    pub fn storage(&self, view: &HeaderView) -> Result<Storage> {
        let descs = region_descs(&view.header);
        let Some(log) = &self.log else { return Storage::new(self.area.clone(), &descs) };
        let len = self.area.size() / BLOCK_BYTES * BLOCK_BYTES;
        let area = RegionDesc { kind: RegionKind::Area, index: 0, offset: 0, len };
        Storage::on(&[(self.area.clone(), vec![area]), (log.clone(), descs)])
    }
}

impl From<Arc<dyn Device>> for Media {
    fn from(area: Arc<dyn Device>) -> Self {
        Self { area, log: None }
    }
}

impl<T: Device + 'static> From<Arc<T>> for Media {
    fn from(area: Arc<T>) -> Self {
        Self { area, log: None }
    }
}
