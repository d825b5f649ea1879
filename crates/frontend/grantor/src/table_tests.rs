use super::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

fn socket() -> Arc<Packets> {
    let flags = SocketFlags::CLOEXEC;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    // The other end stays open, so that an end is this side's own.
    std::mem::forget(b);
    Arc::new(a.into())
}

#[test]
fn a_user_has_half_of_what_others_leave() {
    let (mut table, socket) = (Table::default(), socket());
    let mut admitted =
        |uid: u32| (0..20).filter(|_| table.admit(uid, &socket, 16).is_some()).count();
    assert_eq!(admitted(1000), 8);
    assert_eq!(admitted(1001), 4);
    assert_eq!(admitted(1002), 2);
    assert_eq!(admitted(1003), 1);
    assert_eq!(admitted(1004), 1, "a user without any gets one while there is one");
    assert_eq!(admitted(1005), 0);
    assert_eq!(table.len(), 16);
}

#[test]
fn what_has_gone_makes_room() {
    let (mut table, socket) = (Table::default(), socket());
    let one = table.admit(7, &socket, 2).unwrap();
    assert!(table.admit(7, &socket, 2).is_none());
    table.leave(one);
    assert!(table.admit(7, &socket, 2).is_some());
}

#[test]
fn nobody_enters_what_is_closed() {
    let (mut table, socket) = (Table::default(), socket());
    table.admit(7, &socket, 8).unwrap();
    table.close();
    assert!(socket.receive(64, false).unwrap().is_none(), "those that there are end");
    assert!(table.is_closed() && table.admit(8, &socket, 8).is_none());
}
