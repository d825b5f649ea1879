//! What the options do, and read-only mounts.

use crate::support::{Setup, run, siftfs};
use rustix::process::Signal;
use std::fs;

fn mount_line(s: &Setup) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().rfind(|l| l.contains(s.dir())).unwrap().to_string()
}

#[test]
fn flags_reach_the_kernel() {
    let s = Setup::new();
    s.mount("nosuid,nodev,noexec,sync,noallow_other");
    let line = mount_line(&s);
    for flag in ["rw,", "nosuid", "nodev", "noexec", "sync"] {
        assert!(line.contains(flag), "{flag}: {line}");
    }
    assert!(!line.contains("allow_other"), "{line}");
    s.umount();
    s.mount("nosuid,nodev,noexec,suid,dev,exec,allow_other,subtype=");
    let line = mount_line(&s);
    assert!(line.contains(" fuse rw,") && line.contains("allow_other"), "{line}");
    assert!(!["nosuid", "nodev", "noexec"].iter().any(|f| line.contains(f)), "{line}");
    s.umount();
}

#[test]
fn noexec_and_allow_other_hold() {
    let s = Setup::new();
    s.mount("noexec,noallow_other");
    fs::copy("/bin/true", s.path("true")).unwrap();
    let program = s.path("true");
    let refused = std::process::Command::new(&program).status().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "ls", s.dir()];
    for dir in [s.tmp.path(), &s.path("")] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir, open).unwrap();
    }
    assert_ne!(run("setpriv", &user).code, 0);
    s.umount();
    s.mount("exec,allow_other");
    assert!(std::process::Command::new(&program).status().unwrap().success());
    run("setpriv", &user).ok();
    s.umount();
}

fn killed(s: &Setup) {
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
}

/// A read-only mount of a dirty volume recovers it; a clean one is not written at all.
#[test]
fn read_only_mounts() {
    let s = Setup::new();
    s.mount("commit=3600");
    let file = fs::File::create(s.path("f")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    killed(&s);
    s.mount("ro");
    assert!(s.path("f").exists());
    assert!(mount_line(&s).contains(" ro,"));
    let refused = fs::File::create(s.path("g")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    s.umount();
    s.assert_plain_ext4();
    let before = fs::read(s.volume()).unwrap();
    s.mount("ro");
    assert_eq!(fs::read_dir(s.dir()).unwrap().count(), 2);
    s.umount();
    assert!(before == fs::read(s.volume()).unwrap(), "a read-only mount wrote");
}

/// Nothing is read without its log: what to do instead is said.
#[test]
fn noload_says_what_to_do_instead() {
    let s = Setup::new();
    crate::place::script(
        &s,
        r#"
for options in ro,noload norecovery; do
    expect 1 mount.siftfs "$V" "$D" -o "$options" 2> "$T/said"
    [ "$(grep -c 'half of a checkpoint; mount it with ro alone' "$T/said")" = 1 ] || fail "$(cat "$T/said")"
done
"#,
    )
    .ok();
}

/// A volume on a write-protected device can be mounted read-only if it is clean. If it is not, it
/// would have to be recovered, and cannot be.
#[test]
fn write_protected_devices() {
    let s = Setup::new();
    s.mount("commit=3600");
    fs::File::create(s.path("f")).unwrap().sync_all().unwrap();
    let protected = || {
        let out = run("losetup", &["--find", "--show", "--read-only", s.volume()]).ok().out;
        Loop(out.trim().to_string())
    };
    killed(&s);
    siftfs(&["umount", s.dir()]).fails(1, &[]);
    let device = protected();
    siftfs(&["mount", &device.0, s.dir(), "-o", "ro"])
        .fails(1, &[&device.0, "cannot be written", "siftfs recover"]);
    siftfs(&["mount", &device.0, s.dir()]).fails(1, &[&device.0, "write-protected", "-o ro"]);
    drop(device);
    siftfs(&["recover", s.volume()]).ok();
    let device = protected();
    siftfs(&["mount", &device.0, s.dir()]).fails(1, &[&device.0]);
    siftfs(&["mount", &device.0, s.dir(), "-o", "ro"]).ok();
    assert!(s.path("f").exists());
    siftfs(&["umount", s.dir()]).ok();
    drop(device);
    s.assert_plain_ext4();
}

/// A loop device, taken away at the end.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}
