//! Storage: the device trait with explicit write, flush and FUA semantics, its backends, and
//! the counted, bounds-checked regions that each role is handed.

mod api;
mod buf;
mod bytes;
mod counters;
mod fault;
mod file;
mod image;
mod mem;
mod part;
mod process_device;
mod queue;
mod region;
mod room;
mod storage;
mod waits;

pub use api::*;
pub use buf::AlignedBuf;
pub use bytes::{
    ByteDevice, ByteOptions, BytePlace, BytePromise, LineFlush, LogMemory, PciAddress,
};
pub use counters::Counters;
pub use fault::*;
pub use file::{
    DurableWrite, FileDevice, FileOptions, is_hosted, open_exclusive, open_for_service,
    preallocate, reserve_blocks,
};
pub use image::Image;
pub use mem::MemDevice;
pub use part::{Divisible, Part};
pub use process_device::{ProcessDevice, SharedDevice};
pub use queue::{Io, IoDone, IoKind, IoQueue};
pub use region::{Region, URGENT_MAX};
pub use room::Room;
pub use siftfs_status::{DeviceInfo, IoCounts, OriginCounts, RegionCounts};
pub use storage::{
    AreaReader, AreaWriter, HeaderWriter, JournalReader, JournalWriter, RegionDesc, RegionReader,
    RegionWriter, ServiceWriters, StagingReader, StagingWriter, Storage, SuperblockWriter,
    zero_fill,
};
pub use waits::Waits;
