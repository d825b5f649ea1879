use super::*;
use siftfs_proto::Identity;

fn user(uid: u32, gid: u32) -> Claim {
    Claim::User { uid, gid, rights: Rights::all() }
}

#[test]
fn a_channel_that_is_root_may_speak_for_anybody() {
    let root = Some(Peer { uid: 0, gid: 0, pid: 5 });
    assert_eq!(judge(root, Claim::Kernel).unwrap(), Opening::kernel());
    assert!(judge(root, Claim::Owner).unwrap().administrator);
    let some = judge(root, user(7, 8)).unwrap();
    assert!(!some.administrator);
    assert_eq!(some.identity, Identity::User { uid: 7, gid: 8, rights: Rights::all() });
}

/// Another user's process, and one that nobody vouches for, gets no capability and no other id.
#[test]
fn r31_another_channel_speaks_for_itself() {
    let peer = Some(Peer { uid: 65_533, gid: 65_533, pid: 5 });
    let none = Rights::default();
    for (peer, claim) in [(peer, user(65_533, 65_533)), (None, user(5, 6))] {
        let opening = judge(peer, claim).unwrap();
        let Identity::User { rights, .. } = opening.identity else { panic!("a kernel") };
        assert_eq!((rights, opening.administrator), (none.clone(), false));
        assert!(opening.limits.bytes <= BYTES && opening.limits.handles < u64::MAX);
    }
    for (peer, claim) in [
        (peer, user(65_533, 0)),
        (peer, user(0, 0)),
        (peer, user(65_532, 65_533)),
        (peer, Claim::Kernel),
        (peer, Claim::Owner),
        (None, user(0, 6)),
        (None, user(5, 0)),
        (None, Claim::Kernel),
        (None, Claim::Owner),
    ] {
        assert!(matches!(judge(peer, claim.clone()), Err(Error::Refused(_))), "{claim:?}");
    }
}
