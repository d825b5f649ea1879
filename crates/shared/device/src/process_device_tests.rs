use super::*;
use crate::{FaultDevice, MemDevice};

#[test]
fn a_role_has_one_holder_until_it_gives_it_back_or_dies() {
    let shared = SharedDevice::new(Arc::new(MemDevice::new(8192)));
    let (a, b) = (shared.open(), shared.open());
    let now = Duration::ZERO;
    a.claim(Role::Service, now).unwrap();
    a.claim(Role::Service, now).unwrap();
    assert!(b.claim(Role::Service, now).unwrap_err().to_string().contains("process 1"));
    b.claim(Role::Host, now).unwrap();
    a.unclaim(Role::Service).unwrap();
    b.claim(Role::Service, now).unwrap();
    b.write(0, &[1], false).unwrap();
    b.kill();
    assert!(b.write(0, &[2], false).is_err() && b.claim(Role::Host, now).is_err());
    a.claim(Role::Host, now).unwrap();
    a.claim(Role::Service, now).unwrap();
    let mut byte = [0];
    a.read(0, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    a.kill_after(1);
    a.write(0, &[3], false).unwrap();
    assert!(!a.is_dead() && a.write(0, &[4], false).is_err() && a.is_dead());
    shared.open().claim(Role::Service, now).unwrap();
    shared.open().claim(Role::Host, now).unwrap();
}

/// Hints are no accesses: they do not use up a life, and one that was begun ends although its
/// process has died.
#[test]
fn hints_reach_the_device() {
    let device = Arc::new(FaultDevice::new(8192, 1));
    let seat = SharedDevice::new(device.clone()).open();
    seat.kill_after(0);
    seat.expect_urgent(Duration::from_millis(7));
    seat.give_way(Duration::ZERO);
    seat.urgent(true);
    let stats = device.stats();
    assert_eq!((stats.expected, stats.pauses), (Some(Duration::from_millis(7)), 1));
    assert_eq!((stats.urgent, seat.is_dead()), (1, false));
    seat.kill();
    seat.urgent(false);
    assert_eq!(device.stats().urgent, 0);
}
