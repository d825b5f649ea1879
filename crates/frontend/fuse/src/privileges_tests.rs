use super::*;

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
    }
}

/// A caller whose status cannot be read.
fn far(uid: u32, gid: u32) -> Credentials {
    Credentials { uid, gid, pid: 0, umask: 0 }
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
    let me = Credentials { uid: uid.as_raw(), gid: u32::MAX, pid, umask: 0 };
    for group in groups.split_whitespace() {
        assert!(in_group(&me, group.parse().unwrap()));
    }
    assert!(!in_group(&me, 4_000_000_000));
    assert!(same_user_namespace(pid));
    let near = Credentials { gid: gid.as_raw(), ..me };
    assert_eq!(capable(&near, CAP_FSETID), uid.is_root());
}

#[test]
fn an_announcement_is_for_one_thread_and_one_file() {
    let announced = Announced::default();
    announced.note(5, 20, false);
    announced.note(5, 20, true);
    announced.note(6, 20, false);
    assert_eq!(announced.take(5, 21), None);
    assert_eq!(announced.take(5, 20), Some(true));
    assert_eq!(announced.take(5, 20), None);
    for pid in 100..100 + 2 * MOST as u32 {
        announced.note(pid, 20, false);
    }
    assert!(announced.list().len() <= MOST);
}

#[test]
fn written_pages_are_of_any_thread_and_one_file() {
    let announced = Announced::default();
    for (pid, ino, setgid) in
        [(u32::MAX, 19, true), (0, 20, false), (u32::MAX, 20, true), (0, 21, true)]
    {
        announced.note(pid, ino, setgid);
    }
    assert_eq!(announced.take_all(20), Some(true));
    assert_eq!(announced.take_all(20), None);
    assert_eq!(announced.take(0, 20), None);
    assert_eq!(announced.take(u32::MAX, 19), Some(true));
    assert_eq!(announced.take_all(21), Some(true));
    assert_eq!(announced.count.load(Ordering::SeqCst), 0);
}
