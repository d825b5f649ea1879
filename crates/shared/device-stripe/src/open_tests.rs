//! A set opens with all of its members in their order, and with nothing else.

use super::*;
use crate::geometry::MIN_UNIT;
use siftfs_device::{Device, Divisible, FaultDevice, MemDevice, Part};
use std::sync::Arc;

const UNIT: u64 = MIN_UNIT;
const SET: [u8; 16] = [7; 16];

fn member(name: &str, device: &Arc<dyn Device>) -> Member {
    Member { name: name.into(), device: device.clone() }
}

fn devices(units: &[u64]) -> Vec<Arc<dyn Device>> {
    let of =
        |units: &u64| -> Arc<dyn Device> { Arc::new(MemDevice::new((1 << 20) + units * UNIT)) };
    units.iter().map(of).collect()
}

fn named(devices: &[Arc<dyn Device>], order: &[usize]) -> Vec<Member> {
    let name = |at: usize| ["a", "b", "c", "d"][at];
    order.iter().map(|at| member(name(*at), &devices[*at])).collect()
}

/// A set of three, sealed.
fn set_of(uuid: [u8; 16]) -> Vec<Arc<dyn Device>> {
    let devices = devices(&[4, 4, 4]);
    StripedDevice::make(named(&devices, &[0, 1, 2]), UNIT, u64::MAX).unwrap().seal(uuid).unwrap();
    devices
}

fn said(members: Vec<Member>) -> String {
    StripedDevice::open(members).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn it_opens_as_it_was_made() {
    let devices = devices(&[9, 5, 7]);
    let made = StripedDevice::make(named(&devices, &[0, 1, 2]), UNIT, u64::MAX).unwrap();
    assert_eq!((made.size(), made.set()), (15 * UNIT, None));
    assert!(said(named(&devices, &[0, 1, 2])).contains("member a: it is of no set"));
    made.write(UNIT, b"here", false).unwrap();
    made.seal(SET).unwrap();
    let open = StripedDevice::open(named(&devices, &[0, 1, 2])).unwrap();
    assert_eq!((open.size(), open.set()), (15 * UNIT, Some(SET)));
    assert_eq!(open.table(), "0 1920 striped 3 128 a 2048 b 2048 c 2048");
    let mut found = [0; 4];
    devices[1].read(1 << 20, &mut found).unwrap();
    assert_eq!(&found, b"here", "unit 1 is the second member's first");
}

/// What is asked for at most, in whole units.
#[test]
fn it_takes_what_is_asked_for() {
    let devices = devices(&[9, 9]);
    let made = StripedDevice::make(named(&devices, &[0, 1]), UNIT, 3 * UNIT + 9).unwrap();
    assert_eq!(made.size(), 6 * UNIT);
    let none = StripedDevice::make(named(&devices, &[0, 1]), UNIT, UNIT - 1);
    assert!(none.is_err(), "a member without a unit");
}

#[test]
fn a_wrong_order_is_said_with_the_right_one() {
    let devices = set_of(SET);
    assert!(said(named(&devices, &[1, 0, 2])).contains("name stripe:a,b,c"));
    assert!(said(named(&devices, &[2, 0, 1])).contains("name stripe:a,b,c"));
}

#[test]
fn a_missing_member_is_said() {
    let devices = set_of(SET);
    let two = said(named(&devices, &[0, 2]));
    assert!(two.contains("has 3 members, and 2 are named, its numbers 1, 3"), "{two}");
}

#[test]
fn a_doubled_member_is_said() {
    let devices = set_of(SET);
    let mut members = named(&devices, &[0, 1, 2]);
    members[2] = member("copy", &devices[1]);
    let twice = said(members);
    assert!(twice.contains("member copy: it is number 2") && twice.contains("member b"), "{twice}");
}

#[test]
fn a_member_of_another_set_is_said() {
    let (devices, others) = (set_of(SET), set_of([8; 16]));
    let mut members = named(&devices, &[0, 1, 2]);
    members[1] = member("other", &others[1]);
    let foreign = said(members);
    assert!(foreign.contains("member other: it is of the set 08080808"), "{foreign}");
}

/// The set's UUID is copied, and all else is another set's.
#[test]
fn a_member_of_another_geometry_is_said() {
    let devices = set_of(SET);
    let longer = super::tests::devices(&[8, 8, 8]);
    let made = StripedDevice::make(named(&longer, &[0, 1, 2]), UNIT, u64::MAX).unwrap();
    made.seal(SET).unwrap();
    let mut members = named(&devices, &[0, 1, 2]);
    members[2] = member("longer", &longer[2]);
    assert!(said(members).contains("member longer: it is of the set"));
}

#[test]
fn a_truncated_member_is_said() {
    let devices = set_of(SET);
    let mut bytes = vec![0; (1 << 20) + 3 * UNIT as usize];
    devices[2].read(0, &mut bytes).unwrap();
    let short: Arc<dyn Device> = Arc::new(MemDevice::new(bytes.len() as u64));
    short.write(0, &bytes, false).unwrap();
    let mut members = named(&devices, &[0, 1, 2]);
    members[2] = member("short", &short);
    assert!(said(members.clone()).contains("member short: truncated"));
    let tiny: Arc<dyn Device> = Arc::new(MemDevice::new(512));
    members[2] = member("tiny", &tiny);
    assert!(said(members).contains("member tiny: it has no label"));
}

#[test]
fn a_damaged_label_is_said() {
    let devices = set_of(SET);
    devices[1].write(33, &[1], false).unwrap();
    let damaged = StripedDevice::open(named(&devices, &[0, 1, 2])).map(|_| ()).unwrap_err();
    assert!(matches!(damaged, Error::Corrupt { .. }), "{damaged}");
    assert!(damaged.to_string().contains("member b"), "{damaged}");
}

/// The area's offsets begin behind the reserved bytes of every member.
#[test]
fn no_write_reaches_a_label() {
    let devices = set_of(SET);
    let open = StripedDevice::open(named(&devices, &[0, 1, 2])).unwrap();
    open.write(0, &vec![0xff; open.size() as usize], true).unwrap();
    assert!(open.write(open.size() - 1, &[0; 2], false).is_err());
    assert!(open.write(u64::MAX, &[0; 2], false).is_err());
    StripedDevice::open(named(&devices, &[0, 1, 2])).expect("the labels are as they were");
}

#[test]
fn a_new_set_takes_old_labels_away() {
    let devices = set_of(SET);
    let made = StripedDevice::make(named(&devices, &[1, 0]), UNIT, u64::MAX).unwrap();
    assert!(said(named(&devices, &[0, 1, 2])).contains("it is of no set"));
    made.seal([9; 16]).unwrap();
    StripedDevice::open(named(&devices, &[1, 0])).expect("the new one");
    assert!(said(named(&devices, &[1, 0, 2])).contains("member c: it is of the set 07070707"));
}

/// Its labels are durable when it is a set, and the old ones are gone before anything is written.
#[test]
fn labels_are_durable() {
    let disks: Vec<_> = (0..2).map(|n| Arc::new(FaultDevice::new(4 << 20, n))).collect();
    let members = || -> Vec<Member> {
        disks.iter().map(|d| Member { name: "m".into(), device: d.clone() }).collect()
    };
    let made = StripedDevice::make(members(), UNIT, u64::MAX).unwrap();
    made.seal(SET).unwrap();
    assert!(disks.iter().all(|disk| disk.pending().is_empty()));
    StripedDevice::make(members(), UNIT, u64::MAX).unwrap();
    assert!(disks.iter().all(|disk| disk.durable().bytes(0, 4096) == Label::free()));
}

#[test]
fn memory_that_is_addressed_by_bytes_is_refused() {
    let disk = Arc::new(FaultDevice::new(8 << 20, 1).with_bytes_from(4 << 20));
    let whole: Arc<dyn Divisible> = disk;
    let part = |range| -> Arc<dyn Device> { Arc::new(Part::new(whole.clone(), range)) };
    let members = vec![member("disk", &part(0..4 << 20)), member("bytes", &part(4 << 20..8 << 20))];
    let refused = StripedDevice::make(members, UNIT, u64::MAX).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("member bytes: it is memory"), "{refused}");
}
