use super::*;

fn understood(line: &str) -> Result<Call, Failure> {
    understand(line.split(' ').map(OsString::from).collect())
}

fn converted(line: &str) -> String {
    let call = understood(line).unwrap();
    let out: Vec<_> = call.arguments.into_iter().map(|a| a.into_string().unwrap()).collect();
    out.join(" ")
}

#[test]
fn called_as_a_helper() {
    for (given, means) in [
        (
            "/sbin/mount.siftfs /v /d -n -o rw,commit=1",
            "siftfs mount --helper /v /d -o rw,commit=1",
        ),
        ("/sbin/mount.siftfs /v /d -o rw", "siftfs mount --helper /v /d -o rw"),
        ("mount.siftfs -o ro /v /d", "siftfs mount --helper -o ro /v /d"),
        ("mount.siftfs /v /d -sfnv", "siftfs mount --helper /v /d --sloppy --fake --verbose"),
        ("mount.siftfs /v /d -nocommit=2", "siftfs mount --helper /v /d -o commit=2"),
        ("mount.siftfs /v /d -r -i", "siftfs mount --helper /v /d -o ro"),
        ("mount.siftfs /v /d -w", "siftfs mount --helper /v /d -o rw"),
        ("mount.fuse.siftfs /v /d -t siftfs", "siftfs mount --helper /v /d"),
        ("mount.fuse.siftfs /v /d -t fuse.siftfs", "siftfs mount --helper /v /d"),
        ("mount.siftfs /v /d -t siftfs.mail", "siftfs mount --helper /v /d -o subtype=mail"),
        ("/sbin/umount.fuse.siftfs -l /d", "siftfs umount --lazy /d"),
        ("umount.siftfs /d -nfrv -t fuse.siftfs", "siftfs umount /d --force"),
        ("umount.siftfs /d -nrv -t fuse.siftfs", "siftfs umount /d"),
        ("fsck.siftfs -fy /v", "siftfs fsck --repair all -- /v"),
        ("/usr/bin/siftfs fsck -n", "/usr/bin/siftfs fsck -n"),
    ] {
        assert_eq!(converted(given), means, "{given}");
    }
}

#[test]
fn a_namespace_is_entered_and_not_passed_on() {
    let call = understood("mount.siftfs /v /d -N /proc/7/fd/3 -o ro").unwrap();
    assert_eq!(call.namespace.as_deref(), Some(OsStr::new("/proc/7/fd/3")));
    assert_eq!(call.arguments.len(), 7);
    assert!(understood("umount.siftfs /d").unwrap().namespace.is_none());
    let missing = enter_namespace(OsStr::new("/no/such/namespace")).unwrap_err();
    assert!(missing.message.contains("/no/such/namespace"), "{missing:?}");
}

#[test]
fn wrong_calls_are_refused() {
    for line in [
        "mount.siftfs /v /d -o",
        "mount.siftfs /v /d -N",
        "mount.siftfs /v /d -t ext4",
        "mount.siftfs /v /d -t siftfs.",
        "mount.siftfs /v /d -x",
        "umount.siftfs /d -s",
        "umount.siftfs /d -o ro",
    ] {
        assert_eq!(understood(line).unwrap_err().code, crate::show::failure::USAGE, "{line}");
    }
}

/// Each role's statuses are those of its own manual page.
#[test]
fn exit_statuses_by_role() {
    let role = |line: &str| Role::of(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
    assert_eq!(role("mount.siftfs /v /d"), Role::Helper);
    assert_eq!(role("umount.fuse.siftfs /d"), Role::Helper);
    assert_eq!(role("siftfs fsck /v"), Role::Check);
    assert_eq!(role("siftfs recover /v"), Role::Check);
    assert_eq!(role("siftfs mount --helper /v /d"), Role::Command);
    assert_eq!(role("/sbin/fsck.siftfs -n /v"), Role::Check);
    let wrong = ["mount.siftfs", "fsck.siftfs", "siftfs"].map(|name| Role::of(&[name.into()]));
    assert_eq!(wrong, [Role::Helper, Role::Check, Role::Command]);
    let failed = [Role::Command, Role::Check, Role::Helper].map(|r| r.failure_status(1));
    assert_eq!(failed, [1, 8, 32]);
    let all = [0, 1, 2, 4, 8];
    assert_eq!(all.map(|c| Role::Command.exit_status(c)), [0, 1, 2, 4, 8]);
    assert_eq!(all.map(|c| Role::Check.exit_status(c)), [0, 1, 16, 4, 8]);
    assert_eq!(all.map(|c| Role::Helper.exit_status(c)), [0, 32, 1, 32, 32]);
}
