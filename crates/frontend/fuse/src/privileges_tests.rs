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
    announced.note(5, 20, false).unwrap();
    announced.note(5, 20, true).unwrap();
    announced.note(6, 20, false).unwrap();
    assert_eq!(announced.take(5, 21), None);
    assert_eq!(announced.take(5, 20), Some(true));
    assert_eq!(announced.take(5, 20), None);
    // A thread does one thing at a time, and those that cannot be told apart do many.
    announced.note(6, 22, false).unwrap();
    assert_eq!(announced.take(6, 20), None);
    assert_eq!(announced.take(6, 22), Some(false));
    announced.note(0, 20, false).unwrap();
    announced.note(0, 22, false).unwrap();
    assert_eq!((announced.take(0, 20), announced.take(0, 22)), (Some(false), Some(false)));
}

/// What is lost of others' announcements would leave privileges where they are to go.
#[test]
fn no_announcement_is_lost_for_another() {
    let announced = Announced::default();
    let last = 100 + u32::try_from(MOST).unwrap();
    for pid in 100..last {
        announced.note(pid, 20, false).unwrap();
    }
    assert_eq!(announced.note(last, 20, false), Err(errno(libc::EAGAIN)));
    announced.note(100, 20, true).unwrap();
    assert_eq!(announced.take(100, 20), Some(true));
    announced.note(last, 20, false).unwrap();
    assert!((101..=last).all(|pid| announced.take(pid, 20) == Some(false)));
}

#[test]
fn written_pages_are_of_any_thread_and_one_file() {
    let announced = Announced::default();
    for (pid, ino, setgid) in [(9, 19, true), (0, 20, false), (u32::MAX, 20, true), (0, 21, true)] {
        announced.note(pid, ino, setgid).unwrap();
    }
    assert_eq!(announced.take_all(20), Some(true));
    assert_eq!(announced.take_all(20), None);
    assert_eq!(announced.take(0, 20), None);
    assert_eq!(announced.take(9, 19), Some(true));
    assert_eq!(announced.take_all(21), Some(true));
    assert_eq!(announced.count.load(Ordering::SeqCst), 0);
}
