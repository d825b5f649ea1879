//! The record area as a medium of its own: is it the volume's, and of the same time (rule R16)?

use crate::header::HeaderView;
use siftfs_base::{Epoch, Error, Result, corrupt};
use siftfs_device::Device;
use siftfs_log::{
    HostState, RECORD_AREA_LANE, RECORD_AREA_SLOTS, RecordAreaHeader, StaticHeader, show_uuid,
};

/// A record area whose header was read.
pub struct RecordArea<'d> {
    device: &'d dyn Device,
    /// The newest header.
    pub header: RecordAreaHeader,
    /// Index of its slot.
    slot: usize,
}

impl<'d> RecordArea<'d> {
    /// Reads the header.
    ///
    /// # Errors
    /// Refused if no record area is here; incompatible if it is of a newer version.
    pub fn read(device: &'d dyn Device) -> Result<Self> {
        let mut newest: Option<(RecordAreaHeader, usize)> = None;
        for (slot, at) in RECORD_AREA_SLOTS.into_iter().enumerate() {
            let mut bytes = [0; 64];
            if at + bytes.len() as u64 > device.size() {
                continue;
            }
            device.read(at, &mut bytes)?;
            if let Some(header) = siftfs_log::if_valid(RecordAreaHeader::decode(&bytes))?
                && newest.is_none_or(|(other, _)| header.seq > other.seq)
            {
                newest = Some((header, slot));
            }
        }
        let Some((header, slot)) = newest else {
            return Err(Error::Refused(
                "no record area is there: neither slot of its header is valid".into(),
            ));
        };
        Ok(Self { device, header, slot })
    }

    /// Says that a mount of `epoch` is about to write the area; durable when it returns.
    pub fn begin_epoch(&self, epoch: Epoch) -> Result<()> {
        let header = RecordAreaHeader { seq: self.header.seq + 1, epoch, ..self.header };
        let at = RECORD_AREA_SLOTS.get(1 - self.slot).expect("there are two slots");
        self.device.write(*at, &header.encode(), true)
    }
}

/// Makes the header of a new area, for the volume that `header` describes. The old records, if
/// there are any, are of other keys.
pub fn format_record_area(device: &dyn Device, header: &StaticHeader) -> Result<()> {
    let Some(lane) = header.record_area() else { return Ok(()) };
    assert_eq!(lane.offset, RECORD_AREA_LANE, "the lane follows the slots");
    let (volume, epoch, len) = (header.volume, Epoch(0), lane.len);
    for (seq, at) in (1..).zip(RECORD_AREA_SLOTS) {
        let slot = RecordAreaHeader { seq, volume, epoch, len };
        device.write(at, &slot.encode(), true)?;
    }
    Ok(())
}

/// Makes both slots invalid, durably: what is there belongs to no volume any more.
pub fn erase_record_area(device: &dyn Device) -> Result<()> {
    RECORD_AREA_SLOTS.into_iter().try_for_each(|at| device.write(at, &[0; 64], true))
}

/// Is the area there, the volume's, whole, and of the time of its lanes?
///
/// # Errors
/// Refused if it is missing, or belongs to another volume; corrupt if it is smaller than it was
/// made, or an older copy.
pub fn check(view: &HeaderView, device: Option<&dyn Device>) -> Result<()> {
    let Some(lane) = view.header.record_area() else { return Ok(()) };
    let volume = show_uuid(&view.header.volume);
    let Some(device) = device else {
        return Err(Error::Refused(format!(
            "the record area of volume {volume} was not found: it may hold what was made durable last; \
             name it (--record-area), or, if it is lost, give it up (siftfs recover --discard-log)"
        )));
    };
    let area = RecordArea::read(device)?.header;
    if area.volume != view.header.volume {
        return Err(Error::Refused(format!(
            "the record area is that of volume {}, this is volume {volume}",
            show_uuid(&area.volume)
        )));
    }
    let end = lane.offset.checked_add(lane.len);
    if area.len != lane.len || end.is_none_or(|end| end > device.size()) {
        return Err(corrupt(
            "record area",
            format!("its lane has {} bytes, the medium {}", lane.len, device.size()),
        ));
    }
    // A damaged superblock says nothing against what the header says.
    let unmarked = view.area.is_some_and(|a| a.checksum_ok && !a.marker);
    let in_use = view.host.state != HostState::Clean && !unmarked;
    // A recovery that goes on to the logs of programs gives the area its next epoch first.
    let recovering = view.host.state == HostState::Recovering && view.host.registry.is_some();
    let ahead = recovering && area.epoch > view.host.lane_key.epoch;
    if in_use && area.epoch != view.host.lane_key.epoch && !ahead {
        return Err(corrupt(
            "record area",
            format!(
                "it is of mount {}, the log of mount {}: an older copy of one of both; what was made \
                 durable last is in the newer one",
                area.epoch.0, view.host.lane_key.epoch.0
            ),
        ));
    }
    Ok(())
}
