//! Files and mounts without private logs: the program goes on by the kernel.

use crate::support::{Setup, siftfs};
use crate::{Held, errno, lease, mounted, open, told};
use siftfs_accel::Session;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn a_mount_offers_them_if_it_is_said() {
    let s = Setup::new();
    s.mount("write_cache=writethrough");
    let f = open(&s.path("f"));
    assert_eq!(errno(Session::enter(&f)), Some(libc::ENOTTY));
    assert!(told(&s).is_null());
    drop(f);
    s.umount();
    let outside = open(&s.path("outside"));
    assert_eq!(errno(Session::enter(&outside)), Some(libc::ENOTTY));
    let more = [
        ("write_cache=writeback", "write_cache"),
        ("write_cache=writethrough,operations=off", "operations"),
    ];
    for (options, named) in more {
        let both = format!("private_logs=on,{options}");
        siftfs(&["mount", s.volume(), s.dir(), "-o", &both]).fails(2, &["private_logs", named]);
    }
}

/// Another program that may write the file keeps it from being leased, until it has closed it.
#[test]
fn a_file_that_another_program_writes() {
    let s = mounted();
    let path = s.path("f");
    fs::write(&path, "").unwrap();
    let script = format!("exec 9>>{}; echo open; read _; echo x >&9", path.display());
    let mut other = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 5];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut said).unwrap();
    let f = open(&path);
    let session = Session::enter(&f).unwrap();
    assert_eq!(errno(session.lease(&f)), Some(libc::EAGAIN));
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    let leased = lease(&session, &f);
    assert_ne!(leased.append(b"y\n"), siftfs_accel::Through::Mount);
    leased.close().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "x\ny\n");
    drop((f, session));
    s.umount();
}

/// What a write would take away, a lease does not give.
#[test]
fn files_with_privileges() {
    let s = mounted();
    let f = open(&s.path("f"));
    let session = Session::enter(&f).unwrap();
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(errno(session.lease(&f)), Some(libc::EOPNOTSUPP));
    fs::set_permissions(s.path("f"), fs::Permissions::from_mode(0o755)).unwrap();
    drop(lease(&session, &f));
    let reads = File::open(s.path("f")).unwrap();
    assert_eq!(errno(session.lease(&reads)), Some(libc::EBADF));
    let dir = File::open(s.dir()).unwrap();
    assert!(errno(session.lease(&dir)).is_some());
    drop((f, reads, dir, session));
    s.umount();
}

/// A session that has become another's, and one that is gone, are of no use.
#[test]
fn a_second_lease_of_the_same_file() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    assert_eq!(errno(held.session.lease(&held.file)), Some(libc::EBUSY));
    assert!(held.lasts());
    let second = Session::enter(&held.file).unwrap();
    let leased = lease(&second, &held.file);
    assert!(!held.lasts(), "another session of the same program gets it");
    drop((leased, second, held));
    s.umount();
}
