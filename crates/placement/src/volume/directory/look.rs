//! Looking at a file that may be a volume, without any lock and without a write.

use super::listed::{ListedVolume, VolumeState};
use crate::volume::files::io;
use siftfs_base::{Error, Result};
use siftfs_device::{Device, is_hosted};
use siftfs_device_stripe::is_member;
use siftfs_log::{HostState, show_uuid};
use siftfs_volume::{AreaSuper, HeaderView, read_headers};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// A file or block device that is only read.
struct Looked {
    file: File,
    size: u64,
}

impl Device for Looked {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        self.file.read_exact_at(buf, offset).map_err(|e| Error::Io {
            op: "read",
            offset,
            len,
            errno: e.raw_os_error().unwrap_or(libc::EIO),
        })
    }

    fn write(&self, offset: u64, data: &[u8], _fua: bool) -> Result<()> {
        let len = data.len() as u64;
        Err(Error::Io { op: "write", offset, len, errno: libc::EBADF })
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// What `path` is, as a volume; `None` if no volume is there. One that is in use may change while
/// it is looked at, and is not called damaged for that.
///
/// # Errors
/// Refused if it cannot be opened or read.
pub(super) fn looked_at(path: &Path) -> Result<Option<ListedVolume>> {
    let meta = std::fs::metadata(path).map_err(|e| io("look at", path, &e))?;
    if !(meta.is_file() || meta.file_type().is_block_device()) {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let mut file = options.open(path).map_err(|e| io("open", path, &e))?;
    let size = file.seek(SeekFrom::End(0)).map_err(|e| io("look at", path, &e))?;
    let device = Looked { file, size };
    let used = is_hosted(path).map_err(|e| io("look at", path, &e))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    looked_at_device(&device, &name, used)
}

/// What is on a device, as a volume that is called `name`; `None` if no volume is there. `used`: a
/// process has it, and may change it while it is looked at.
///
/// # Errors
/// It cannot be read.
pub(super) fn looked_at_device(
    device: &dyn Device,
    name: &str,
    used: bool,
) -> Result<Option<ListedVolume>> {
    if is_member(device)? {
        return Ok(None);
    }
    let found = match read_headers(device) {
        Ok(view) => Some(Found::of(&view)),
        Err(error) => Found::without_header(device, error)?,
    };
    Ok(found.map(|found| found.listed(name, device.size(), used)))
}

/// What was found in a volume.
struct Found {
    area: Option<AreaSuper>,
    uuid: Option<[u8; 16]>,
    clean: bool,
    problem: Option<Error>,
}

impl Found {
    fn of(view: &HeaderView) -> Self {
        let plain = view.area.is_some_and(|area| area.checksum_ok && !area.marker);
        let clean = view.host.state == HostState::Clean && plain;
        Self { area: view.area, uuid: Some(view.header.volume), clean, problem: None }
    }

    /// Where no header was found, `error` says why: a volume with its log elsewhere has none here.
    fn without_header(device: &dyn Device, error: Error) -> Result<Option<Self>> {
        let mut bytes = [0; 1024];
        if device.size() >= 2048 {
            device.read(1024, &mut bytes)?;
        }
        let area = AreaSuper::parse(&bytes);
        if let (Some(area), Some(link)) = (area, area.and_then(|area| area.link)) {
            let clean = area.checksum_ok && !area.marker;
            let uuid = Some(link.volume);
            return Ok(Some(Self { area: Some(area), uuid, clean, problem: None }));
        }
        match error {
            Error::Corrupt { .. } | Error::Incompatible(_) => {
                Ok(Some(Self { area, uuid: None, clean: false, problem: Some(error) }))
            }
            Error::Refused(_) => Ok(None),
            other => Err(other),
        }
    }

    fn listed(self, name: &str, bytes: u64, used: bool) -> ListedVolume {
        let problem = self.problem.filter(|_| !used);
        let state = match (&problem, self.clean) {
            _ if used => VolumeState::Used,
            (Some(_), _) => VolumeState::Damaged,
            (None, true) => VolumeState::Clean,
            (None, false) => VolumeState::Dirty,
        };
        ListedVolume {
            name: name.to_owned(),
            bytes,
            area_bytes: self.area.map(|area| area.len),
            uuid: self.uuid.as_ref().map(show_uuid),
            state,
            log_elsewhere: self.area.is_some_and(|area| area.link.is_some()),
            problem: problem.map(|problem| problem.to_string()),
        }
    }
}
