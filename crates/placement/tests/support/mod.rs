//! A volume in memory that these tests open, crash and check.

use siftfs_base::{Clock, ManualClock};
use siftfs_device::{Device, MemDevice};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use std::process::Command;
use std::sync::Arc;

/// A device and a clock.
pub struct World {
    pub dev: Arc<MemDevice>,
    pub clock: Arc<ManualClock>,
}

impl World {
    /// A freshly made volume of 24 MiB with this many lanes.
    pub fn new(lanes: u16) -> Self {
        Self::of_size(24 << 20, lanes)
    }

    /// The same of this size in bytes.
    pub fn of_size(size: u64, lanes: u16) -> Self {
        let dev = Arc::new(MemDevice::new(size));
        let any: Arc<dyn Device> = dev.clone();
        let opts = MkfsOptions { log_size: Some(6 << 20), lanes, ..MkfsOptions::default() };
        mkfs_on(any.clone(), &opts).expect("mkfs");
        Self { dev, clock: Arc::new(ManualClock::new(1_700_000_000)) }
    }

    /// Opens it, recovering it if need be; the test's thread does everything.
    pub fn open(&self) -> LocalVolume {
        self.open_with(&OpenOptions::default())
    }

    /// The same, with options.
    #[allow(dead_code)] // each test program uses a part of it
    pub fn open_with(&self, options: &OpenOptions) -> LocalVolume {
        let clock: Arc<dyn Clock> = self.clock.clone();
        LocalVolume::open_on(self.dev.clone(), clock, options, Threads::None).expect("open")
    }

    /// `e2fsck -fn` on the device as it is: nothing but pass lines and summary.
    pub fn e2fsck(&self) {
        let file = tempfile::NamedTempFile::new().expect("temp file");
        self.dev.snapshot().save(file.path()).expect("save");
        let out = Command::new("e2fsck").arg("-fn").arg(file.path()).output().expect("e2fsck");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{text}");
        for line in text.lines().filter(|l| !l.is_empty()) {
            assert!(line.starts_with("Pass ") || line.contains("files ("), "{text}");
        }
    }
}
