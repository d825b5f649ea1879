//! A file by one of the two ways that are compared: at the target, and by the host alone.

use crate::stage::said;
use siftfs::{DirectFile, File, Volume};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result};
use std::thread;
use std::time::{Duration, Instant};

/// How long until a file's blocks are granted.
const GRANTED: Duration = Duration::from_secs(30);

/// A file by one of the two ways.
pub enum Way {
    /// What is granted of it goes to the target.
    Direct(DirectFile),
    /// All of it goes to the host.
    Host(File),
}

impl Way {
    /// Writes at a byte; `durable` makes it so, by the host in one compound.
    ///
    /// # Errors
    /// What the target or the host reports.
    pub fn write(&self, volume: &Volume, (at, data): (u64, &[u8]), durable: bool) -> Result<()> {
        match (self, durable) {
            (Self::Direct(file), true) => file.write_durable_at(at, data).map_err(said),
            (Self::Direct(file), false) => file.write_at(at, data).map_err(said),
            (Self::Host(file), true) => {
                let mut steps = volume.compound();
                steps.write(file, at, data);
                steps.durable().map(drop).map_err(said)
            }
            (Self::Host(file), false) => file.write_at(at, data).map_err(said),
        }
    }

    /// Reads this many bytes and forgets them.
    ///
    /// # Errors
    /// As [`Way::write`], or there are fewer.
    pub fn read(&self, at: u64, len: usize) -> Result<()> {
        let read = match self {
            Self::Direct(file) => file.read_at(at, len),
            Self::Host(file) => file.read_at(at, len),
        };
        let found = read.map_err(said)?.len();
        if found == len { Ok(()) } else { Err(Failed(format!("{found} bytes at {at}"))) }
    }

    /// What was written is durable.
    ///
    /// # Errors
    /// As [`Way::write`].
    pub fn sync(&self) -> Result<()> {
        match self {
            Self::Direct(file) => file.sync_data(),
            Self::Host(file) => file.sync_data(),
        }
        .map_err(said)
    }

    /// Has nothing of the file left, durably.
    ///
    /// # Errors
    /// As [`Way::write`].
    pub fn empty(&self) -> Result<()> {
        match self {
            Self::Direct(file) => file.set_len(0).and_then(|()| file.sync_all()),
            Self::Host(file) => file.set_len(0).and_then(|()| file.sync_all()),
        }
        .map_err(said)
    }

    /// Writes the file, up to this byte, and syncs it.
    ///
    /// # Errors
    /// As [`Way::write`].
    pub fn fill(&self, volume: &Volume, size: u64) -> Result<()> {
        let mut piece = vec![0; 1 << 20];
        for at in (0..size).step_by(piece.len()) {
            self.write(volume, (at, refresh(&mut piece)), false)?;
        }
        self.sync()
    }

    /// Does it go to the target now?
    pub fn is_direct(&self) -> bool {
        matches!(self, Self::Direct(file) if file.is_direct())
    }

    /// Returns when it goes to the target, if it is to.
    ///
    /// # Errors
    /// The host grants nothing of the file.
    pub fn settles(&self) -> Result<()> {
        let begun = Instant::now();
        while matches!(self, Self::Direct(_)) && !self.is_direct() {
            if begun.elapsed() > GRANTED {
                return Err(Failed("the host grants nothing of the file".into()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}
