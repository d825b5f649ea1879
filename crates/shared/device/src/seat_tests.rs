use super::*;
use crate::MemDevice;

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
