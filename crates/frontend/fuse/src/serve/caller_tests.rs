use super::*;
use siftfs_base::Timestamp;

fn file(perm: u16, uid: u32, gid: u32) -> Attr {
    let t = Timestamp::default();
    Attr {
        ino: 20,
        generation: 1,
        kind: FileKind::Regular,
        perm,
        nlink: 1,
        uid,
        gid,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
        crtime: t,
        held: false,
    }
}

/// A caller whose status cannot be read.
fn far(uid: u32, gid: u32) -> Credentials {
    Credentials { uid, gid, ..Credentials::default() }
}

#[test]
fn what_goes_with_a_change() {
    let (root, user, member) = (far(0, 0), far(7, 7), far(7, 50));
    for (perm, by_user, by_member, by_root) in [
        (0o755, false, false, false),
        (0o4755, true, true, true),
        (0o2755, true, true, true),
        (0o2745, true, false, false),
        (0o6745, true, true, true),
    ] {
        let f = file(perm, 1, 50);
        assert_eq!(has_bits(&user, &f), by_user, "{perm:o}");
        assert_eq!(has_bits(&member, &f), by_member, "{perm:o}");
        assert_eq!(has_bits(&root, &f), by_root, "{perm:o}");
    }
    assert!(takes_setgid(&user, &file(0o6745, 1, 50)));
    assert!(!takes_setgid(&member, &file(0o6745, 1, 50)));
    assert!(owns(&user, &file(0o644, 7, 0)) && !owns(&user, &file(0o644, 8, 7)));
    assert!(owns(&root, &file(0o644, 8, 7)));
}

/// The status of the thread that runs this can be read.
#[test]
fn a_caller_that_waits_is_looked_at() {
    let pid = std::process::id();
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let groups = status(pid, "Groups:").unwrap();
    let me = Credentials { uid: uid.as_raw(), gid: u32::MAX, pid, ..Credentials::default() };
    for group in groups.split_whitespace() {
        assert!(in_group(&me, group.parse().unwrap()));
    }
    assert!(!in_group(&me, 4_000_000_000));
    assert!(same_user_namespace(pid));
    let near = Credentials { gid: gid.as_raw(), ..me };
    assert_eq!(capable(&near, CAP_FSETID), uid.is_root());
}
