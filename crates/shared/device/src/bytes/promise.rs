//! Which promise of persistence holds for a record area.

use std::fmt;

/// The instruction that writes cache lines back, the best that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFlush {
    /// `clwb`: writes back, and may keep the line.
    Clwb,
    /// `clflushopt`: writes back and drops the line.
    Clflushopt,
    /// `clflush`: as `clflushopt`, one line after the other.
    Clflush,
}

impl LineFlush {
    /// The instruction's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::Clflushopt => "clflushopt",
            Self::Clflush => "clflush",
        }
    }
}

/// Which promise of persistence holds, as it was proved when the area was opened. It is shown in
/// plain words for reports and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytePromise {
    /// A file on a DAX file system, mapped with `MAP_SYNC`: its blocks are on the medium before
    /// the first store, and a line that was written back and fenced is persistent.
    MapSync(LineFlush),
    /// A `/dev/dax` device over persistent memory: as `MapSync`, without a file system.
    DaxDevice(LineFlush),
    /// A DAX file where the kernel refuses `MAP_SYNC` (virtio-pmem): msync(2) makes it persistent.
    Msync,
    /// The persistent memory region of an NVMe controller: stores are posted over PCIe, and what
    /// was stored is persistent when a read of the controller has come back.
    ReadBack,
    /// Nothing survives a power cut.
    Volatile,
}

impl BytePromise {
    /// Does what was made durable survive a power cut?
    pub fn is_persistent(self) -> bool {
        self != Self::Volatile
    }

    /// How one write is made durable.
    pub fn way(self) -> String {
        match self {
            Self::MapSync(line) => format!("MAP_SYNC, {} and sfence", line.name()),
            Self::DaxDevice(line) => format!("DAX device, {} and sfence", line.name()),
            Self::Msync => "DAX without MAP_SYNC, msync".into(),
            Self::ReadBack => "NVMe PMR, sfence and read-back".into(),
            Self::Volatile => "nothing survives a power cut".into(),
        }
    }
}

impl fmt::Display for BytePromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_persistent() { "persistent" } else { "volatile" };
        write!(f, "{kind}: {}", self.way())
    }
}
