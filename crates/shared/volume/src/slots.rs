//! Writing the host's and the Service's records: two slots each, in both copies.

use crate::header::HeaderView;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Result};
use siftfs_device::{HeaderWriter, Origin};
use siftfs_log::{HostRecord, ServiceRecord};

/// Two slots of one kind of record.
struct Slots {
    writer: HeaderWriter,
    newest: usize,
    top: u64,
}

impl Slots {
    /// Sequence number for the next record. Numbers of failed attempts are not used again: the
    /// attempt may have landed in one copy.
    fn draw(&mut self) -> u64 {
        self.top += 1;
        self.top
    }

    /// Writes the slot that does not hold the newest record, in both copies, then flushes; a
    /// torn write leaves the newest record alone.
    fn write(&mut self, origin: Origin, block: &[u8; BLOCK_SIZE]) -> Result<()> {
        let slot = 1 - self.newest;
        for copy in self.writer.copies() {
            copy.write(origin, slot as u64 * BLOCK_BYTES, block)?;
        }
        let copies = self.writer.copies();
        for (i, copy) in copies.iter().enumerate() {
            // One flush serves every copy on the same device.
            if !copies.iter().take(i).any(|earlier| earlier.shares_device(copy)) {
                copy.flush(origin)?;
            }
        }
        self.newest = slot;
        Ok(())
    }
}

/// The one writer of host records.
pub struct HostSlots {
    slots: Slots,
    newest: HostRecord,
}

impl HostSlots {
    /// `writer` is `Storage::take_header(HEADER_HOST)` of the volume that `view` describes.
    pub fn new(writer: HeaderWriter, view: &HeaderView) -> Self {
        let slots = Slots { writer, newest: view.host_slot, top: view.top[0] };
        Self { slots, newest: view.host.clone() }
    }

    /// The newest durable record.
    pub fn newest(&self) -> &HostRecord {
        &self.newest
    }

    /// Makes `record` the newest (its `seq` is set here), durable on return, and with it
    /// everything written to the same device before. After an error either record may be found.
    pub fn write(&mut self, origin: Origin, record: &HostRecord) -> Result<()> {
        let record = HostRecord { seq: self.slots.draw(), ..record.clone() };
        self.slots.write(origin, &record.encode())?;
        self.newest = record;
        Ok(())
    }
}

/// The one writer of service records.
pub struct ServiceSlots {
    slots: Slots,
    newest: ServiceRecord,
}

impl ServiceSlots {
    /// `writer` is `Storage::take_header(HEADER_SERVICE)` of the volume that `view` describes.
    pub fn new(writer: HeaderWriter, view: &HeaderView) -> Self {
        let slots = Slots { writer, newest: view.service_slot, top: view.top[1] };
        Self { slots, newest: view.service.clone() }
    }

    /// The newest durable record.
    pub fn newest(&self) -> &ServiceRecord {
        &self.newest
    }

    /// As [`HostSlots::write`].
    pub fn write(&mut self, origin: Origin, record: &ServiceRecord) -> Result<()> {
        let record = ServiceRecord { seq: self.slots.draw(), ..record.clone() };
        self.slots.write(origin, &record.encode())?;
        self.newest = record;
        Ok(())
    }
}
