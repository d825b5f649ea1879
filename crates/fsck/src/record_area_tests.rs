//! One planted damage per finding about a record area.

use super::*;

pub(super) const LEN: u64 = 256 << 10;

/// A volume in this state, and its record area.
pub(super) fn volume(state: HostState) -> (Fixture, MemDevice) {
    let mut f = Fixture::empty(state);
    f.header.incompat |= INCOMPAT_RECORD_AREA;
    f.header.lanes.push(LaneEntry {
        id: LaneId(1),
        medium: LaneMedium::Bytes,
        offset: RECORD_AREA_LANE,
        len: LEN,
        owner: 0,
    });
    f.host.lane_ends.push(OPEN_END);
    f.host.lane_heads.push(0);
    f.service.lane_tails.push(0);
    f.headers();
    let area = MemDevice::new(RECORD_AREA_LANE + LEN);
    let header = RecordAreaHeader { seq: 1, volume: f.header.volume, epoch: KEY.epoch, len: LEN };
    write(&area, 0, &RecordAreaHeader { epoch: Epoch(KEY.epoch.0 - 1), ..header });
    write(&area, 1, &RecordAreaHeader { seq: 2, ..header });
    (f, area)
}

fn write(area: &MemDevice, slot: usize, header: &RecordAreaHeader) {
    area.write(RECORD_AREA_SLOTS[slot], &header.encode(), false).unwrap();
}

/// The newest header is changed.
pub(super) fn change(f: &Fixture, area: &MemDevice, how: impl Fn(&mut RecordAreaHeader)) {
    let mut new = RecordAreaHeader { seq: 3, volume: f.header.volume, epoch: KEY.epoch, len: LEN };
    how(&mut new);
    write(area, 0, &new);
}

fn found(f: &Fixture, bytes: Option<&dyn Device>) -> Vec<(&'static str, Severity)> {
    let devices = Devices { area: &f.dev, log: None, bytes, spare: false };
    check_on(devices).into_iter().map(|f| (f.code, f.severity)).collect()
}

#[test]
fn a_sound_record_area_has_no_findings() {
    for state in [HostState::Mounted, HostState::Clean] {
        let (f, area) = volume(state);
        assert_eq!(found(&f, Some(&area)), []);
        let seen = inspect(Devices { bytes: Some(&area), ..Devices::from(&f.dev as &dyn Device) });
        let view = seen.record_area.unwrap();
        assert_eq!((view.seq, view.epoch, view.len), (2, KEY.epoch.0, LEN));
        assert_eq!(view.volume, show_uuid(&f.header.volume));
    }
}

/// R16: a volume in use may have its newest state there.
#[test]
fn r16_a_record_area_that_is_missing() {
    let (f, _) = volume(HostState::Mounted);
    assert!(found(&f, None).contains(&("area.missing", Severity::Error)));
    let (f, _) = volume(HostState::Clean);
    assert_eq!(found(&f, None), [("area.missing", Severity::Warning)]);
}

#[test]
fn r16_a_record_area_of_another_volume() {
    let (f, area) = volume(HostState::Mounted);
    change(&f, &area, |h| h.volume = [9; 16]);
    assert!(found(&f, Some(&area)).contains(&("area.foreign", Severity::Error)));
}

/// R16: an older copy counts while the volume is in use, and not once everything is in the area.
#[test]
fn r16_an_older_copy_of_a_record_area() {
    for (state, bad) in [(HostState::Mounted, true), (HostState::Clean, false)] {
        let (f, area) = volume(state);
        change(&f, &area, |h| h.epoch = Epoch(KEY.epoch.0 - 1));
        assert_eq!(found(&f, Some(&area)).contains(&("area.epoch", Severity::Error)), bad);
    }
}

/// R16: a recovery that goes on to the logs of programs gives the area its next epoch first. That
/// says nothing for an older copy, nor for a mount.
#[test]
fn r16_a_record_area_of_the_epoch_to_come() {
    let next = Epoch(KEY.epoch.0 + 1);
    let before = Epoch(KEY.epoch.0 - 1);
    for (state, named, epoch, bad) in [
        (HostState::Recovering, true, next, false),
        (HostState::Recovering, false, next, true),
        (HostState::Recovering, true, before, true),
        (HostState::Mounted, true, next, true),
    ] {
        let (mut f, area) = volume(state);
        let name = RegistryName::new([7; 16], std::path::Path::new("/var/logs")).unwrap();
        f.host.registry = named.then_some(name);
        f.headers();
        change(&f, &area, |h| h.epoch = epoch);
        let seen = found(&f, Some(&area)).contains(&("area.epoch", Severity::Error));
        assert_eq!(seen, bad, "{state:?}, {named}, {epoch:?}");
    }
}

#[test]
fn a_record_area_of_another_size() {
    let (f, area) = volume(HostState::Mounted);
    change(&f, &area, |h| h.len = LEN / 2);
    assert!(found(&f, Some(&area)).contains(&("area.size", Severity::Error)));
    let (f, area) = volume(HostState::Mounted);
    let short = MemDevice::new(RECORD_AREA_LANE + LEN / 2);
    let mut slots = vec![0; 4096];
    area.read(0, &mut slots).unwrap();
    short.write(0, &slots, false).unwrap();
    assert!(found(&f, Some(&short)).contains(&("area.size", Severity::Error)));
}

/// One slot serves without the other; without both nothing says what it is.
#[test]
fn damaged_headers_of_a_record_area() {
    let (f, area) = volume(HostState::Mounted);
    area.write(RECORD_AREA_SLOTS[0] + 9, &[0xff], false).unwrap();
    assert_eq!(found(&f, Some(&area)), [("area.slot", Severity::Warning)]);
    area.write(RECORD_AREA_SLOTS[1] + 9, &[0xff], false).unwrap();
    assert!(found(&f, Some(&area)).contains(&("area.header", Severity::Error)));
}
