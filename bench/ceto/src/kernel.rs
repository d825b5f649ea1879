//! Storage that is there already, with nothing modelled and nothing injected: a file system or a
//! device of the machine's own kernel, past its page cache, and a direct file of a host that runs.

use crate::latency::{BLOCK, SIZE, median};
use crate::stage::said;
use crate::ways::Way;
use siftfs::{Direct, Volume};
use siftfs_base::{Error, Rng};
use siftfs_device::AlignedBuf;
use siftfs_device_target::TargetPlace;
use siftfs_rig::fresh::{fresh, refresh};
use siftfs_rig::place::{Failed, Result, failed};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// Name of the file that is read and written. This process's number and the side's follow.
const FILE: &str = "siftfs-ceto-bench";
/// How often a round is made that the host disturbs.
const TRIES: usize = 3;

/// What is measured, and how it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// For people.
    pub name: String,
    /// A path, or the address of a host.
    pub at: String,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once('=') {
            Some((name, at)) if !name.is_empty() && !at.is_empty() => {
                Ok(Self { name: name.into(), at: at.into() })
            }
            _ => Err("write NAME=PATH or NAME=ADDRESS".into()),
        }
    }
}

/// A device, or a file, of the kernel's. All that is read was written, and each write is durable
/// when it returns.
pub struct Kernel {
    file: File,
    buf: AlignedBuf,
    rng: Rng,
}

impl Kernel {
    /// In a folder, a new file of [`SIZE`] bytes, whose name is gone already. A block device, which
    /// nobody else may have in use, loses what is in its first [`SIZE`] bytes.
    ///
    /// # Errors
    /// The path is neither; or what the kernel reports, such as that it has no direct I/O there.
    pub fn open(path: &Path, side: usize) -> Result<Self> {
        let kind = path.metadata().map_err(failed(path.display()))?.file_type();
        if !kind.is_dir() && !kind.is_block_device() {
            let what = "it is neither a folder nor a block device";
            return Err(Failed(format!("{}: {what}", path.display())));
        }
        let named = path.join(own_name(side));
        let place = if kind.is_dir() { &named } else { path };
        let (mut options, at) = (OpenOptions::new(), || failed(place.display()));
        options.read(true).write(true).create(kind.is_dir());
        options.custom_flags(libc::O_DIRECT | libc::O_DSYNC | libc::O_EXCL);
        let file = options.open(place).map_err(at())?;
        if kind.is_dir() {
            std::fs::remove_file(place).map_err(at())?;
        }
        let mut piece = AlignedBuf::zeroed(1 << 20);
        for offset in (0..SIZE).step_by(piece.len()) {
            file.write_all_at(refresh(&mut piece), offset).map_err(at())?;
        }
        Ok(Self { file, buf: AlignedBuf::zeroed(BLOCK), rng: Rng::new(5) })
    }

    /// The median of reads, or of durable writes, in microseconds.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn round(&mut self, time: Duration, writes: bool) -> Result<f64> {
        let Self { file, buf, rng } = self;
        median(time, rng, |at| match writes {
            true => file.write_all_at(refresh(buf), at).map_err(said),
            false => file.read_exact_at(buf, at).map_err(said),
        })
    }
}

/// A direct file, of a host whose storage a target has.
pub struct Granted {
    direct: Direct,
    path: String,
    file: Way,
    rng: Rng,
}

impl Granted {
    /// A new file of [`SIZE`] bytes, all granted. With `keys` the target is reached with this
    /// machine's, and otherwise with none: nothing is encrypted then.
    ///
    /// # Errors
    /// The host is not there, or does not admit this process; it has no target, or the target
    /// cannot be reached; or nothing is granted.
    pub fn open(address: &str, side: usize, keys: bool) -> Result<Self> {
        let direct = if keys { Direct::connect(address, "") } else { plain(address) };
        let direct = direct.map_err(said)?;
        let path = format!("/{}", own_name(side));
        let file = Way::Direct(direct.create(&path, 0o600).map_err(said)?);
        file.fill(direct.names(), SIZE)?;
        direct.names().checkpoint().map_err(said)?;
        file.settles()?;
        Ok(Self { direct, path, file, rng: Rng::new(6) })
    }

    /// As [`Kernel::round`], at the target alone: a round in which the host takes the file back is
    /// made again.
    ///
    /// # Errors
    /// What host or target report, or the file is taken back in each of [`TRIES`] rounds.
    pub fn round(&mut self, time: Duration, writes: bool) -> Result<f64> {
        let Self { direct, file, rng, .. } = self;
        let (mut data, names): (_, &Volume) = (fresh::<BLOCK>(), direct.names());
        for _ in 0..TRIES {
            file.settles()?;
            let found = median(time, rng, |at| match writes {
                true => file.write(names, (at, refresh(&mut data)), true),
                false => file.read(at, BLOCK),
            })?;
            if file.is_direct() {
                return Ok(found);
            }
            eprintln!("the host has taken the file back: the round is made again");
        }
        Err(Failed(format!("the host has taken the file back in each of {TRIES} rounds")))
    }

    /// Removes the file and ends the session.
    ///
    /// # Errors
    /// What the host reports.
    pub fn end(self) -> Result<()> {
        drop(self.file);
        self.direct.names().remove_file(&self.path).map_err(said)
    }
}

fn own_name(side: usize) -> String {
    format!("{FILE}-{}-{side}", std::process::id())
}

/// A session whose target is reached without keys.
fn plain(address: &str) -> siftfs::Result<Direct> {
    let address: siftfs::Address = address.parse()?;
    let options = siftfs::transport();
    let reach = Box::new(|target: &str| {
        let named = TargetPlace::parse(target).and_then(std::result::Result::ok);
        let refused = || Error::Refused(format!("{target}: no target's volume"));
        let (address, volume) = named.ok_or_else(refused)?;
        Ok(TargetPlace { address, volume, options: siftfs::transport(), secured: None })
    });
    let claim = siftfs_remote::claim_at(&address);
    Direct::connect_with(&address, (&options, None), ("", claim), reach)
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
