//! Stamps: written before a holder writes anything else, and seen by the one that comes back.

use super::*;
use crate::geometry::{DATA_BEGIN, MIN_UNIT};
use crate::{Member, StripedDevice};
use siftfs_device::{Fault, FaultDevice, OpClass, SharedDevice};
use std::time::Duration;

const UNIT: u64 = MIN_UNIT;

fn disks() -> Vec<Arc<FaultDevice>> {
    (1..3).map(|n| Arc::new(FaultDevice::new(DATA_BEGIN + 4 * UNIT, n))).collect()
}

fn members(disks: &[Arc<FaultDevice>]) -> Vec<Member> {
    let of = |(n, disk): (usize, &Arc<FaultDevice>)| Member {
        name: format!("m{n}"),
        device: disk.clone(),
    };
    disks.iter().enumerate().map(of).collect()
}

/// A sealed set, and its disks.
fn made() -> Vec<Arc<FaultDevice>> {
    let disks = disks();
    StripedDevice::make(members(&disks), UNIT, u64::MAX).unwrap().seal([3; 16]).unwrap();
    disks
}

fn open(disks: &[Arc<FaultDevice>]) -> StripedDevice {
    StripedDevice::open(members(disks)).unwrap()
}

fn said(guard: &Guard, disk: &FaultDevice) -> String {
    guard.check(disk).unwrap_err().to_string()
}

fn bytes_of(disk: &FaultDevice, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    disk.read(range.start, &mut bytes).unwrap();
    bytes
}

/// The documented places and bytes.
#[test]
fn bytes_are_as_documented() {
    assert_eq!(stamp_range(Role::Host), 4096..8192);
    assert_eq!(stamp_range(Role::Service), 8192..12288);
    let bytes = encode(Role::Service, [9; 16]);
    assert_eq!(&bytes[..16], b"SIFTown\x01\x01\0\0\0\x01\0\0\0");
    assert!(bytes[16..32] == [9; 16] && bytes[32..4092].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[4092..], checksum(0, &bytes[..4092]).to_le_bytes());
}

/// One that still has the roles is told so; one whose role another had since is not.
#[test]
fn another_holder_is_seen() {
    let disks = made();
    let first = open(&disks);
    let guards: Vec<_> = (0..2).map(|at| first.guard(at).unwrap()).collect();
    first.claim(Role::Service, Duration::ZERO).unwrap();
    let both = |what: &dyn Fn(&Guard, &FaultDevice)| {
        guards.iter().zip(&disks).for_each(|(guard, disk)| what(guard, disk));
    };
    both(&|guard, disk| guard.check(disk).unwrap());
    // The host's role is another matter.
    open(&disks).claim(Role::Host, Duration::ZERO).unwrap();
    both(&|guard, disk| guard.check(disk).unwrap());
    let other = open(&disks);
    other.claim(Role::Service, Duration::ZERO).unwrap();
    both(&|guard, disk| assert!(said(guard, disk).contains("another process"), "it is over"));
    other.unclaim(Role::Service).unwrap();
    both(&|guard, disk| assert!(said(guard, disk).contains("another process"), "for good"));
    first.unclaim(Role::Service).unwrap();
    both(&|guard, disk| guard.check(disk).unwrap());
}

/// Nobody believes a stamp that rots, and a label that is not the own one.
#[test]
fn damage_is_no_own_stamp() {
    let disks = made();
    let first = open(&disks);
    first.taken().unwrap();
    let guard = first.guard(1).unwrap();
    guard.check(&*disks[1]).unwrap();
    for role in Role::ALL {
        let range = stamp_range(role);
        let own = bytes_of(&disks[1], range.clone());
        for at in [0, 13, 20, 4000, 4095] {
            disks[1].write(range.start + at, &[own[at as usize] ^ 4], true).unwrap();
            assert!(said(&guard, &disks[1]).contains("damaged"), "byte {at}");
            disks[1].write(range.start, &own, true).unwrap();
        }
        guard.check(&*disks[1]).unwrap();
    }
    assert!(said(&guard, &disks[0]).contains("made anew"), "the other member's label");
    StripedDevice::make(members(&disks), UNIT, u64::MAX).unwrap();
    assert!(said(&guard, &disks[1]).contains("made anew"));
}

/// What a role's holder writes first is its stamp, and it is durable before the role is had.
#[test]
fn a_stamp_is_durable_before_anything_else() {
    let disks = made();
    let first = open(&disks);
    let guards: Vec<_> = (0..2).map(|at| first.guard(at).unwrap()).collect();
    first.claim(Role::Host, Duration::ZERO).unwrap();
    for seed in 0..8 {
        for (guard, disk) in guards.iter().zip(&disks) {
            let left = FaultDevice::from_image(disk.power_cut_image(seed), seed);
            guard.check(&left).expect("the stamp survives the cut");
        }
    }
}

/// A stamp that cannot be written on one member leaves the role to others, on all of them.
#[test]
fn no_stamp_no_role() {
    let disks = made();
    let shared: Vec<_> = disks.iter().map(|disk| SharedDevice::new(disk.clone())).collect();
    let opened = || {
        let of = |(n, shared): (usize, &SharedDevice)| Member {
            name: format!("m{n}"),
            device: shared.open(),
        };
        StripedDevice::open(shared.iter().enumerate().map(of).collect()).unwrap()
    };
    let (first, second) = (opened(), opened());
    disks[1].inject(Fault::fail(OpClass::Write, libc::EIO).once());
    first.claim(Role::Host, Duration::ZERO).unwrap_err();
    second.claim(Role::Host, Duration::ZERO).expect("nobody has it");
    first.claim(Role::Host, Duration::ZERO).unwrap_err();
    second.unclaim(Role::Host).unwrap();
    first.claim(Role::Host, Duration::ZERO).expect("the disk writes again");
}
