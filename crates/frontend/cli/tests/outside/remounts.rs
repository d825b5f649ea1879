//! `mount -o remount`.

use crate::place::script;
use crate::support::{SIFTFS, Setup, run, siftfs};
use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// By mount(8), with and without a line of fstab: read-only and back, options, and umount(8) still
/// waits.
#[test]
fn mount_remounts() {
    let s = Setup::new();
    script(
        &s,
        r#"
touch /run/mount/utab
has() { findmnt -no OPTIONS "$D" | grep -q "\\<$1\\>" || fail "no $1: $(findmnt -no OPTIONS "$D")"; }
lacks() { findmnt -no OPTIONS "$D" | grep -q "\\<$1\\>" && fail "$1: $(findmnt -no OPTIONS "$D")"; true; }
writes() { echo "$1" > "$D/$1" && sync "$D/$1" && siftfs sync "$D" || fail "cannot write $1"; }
refuses() { if echo x > "$D/refused" 2> /dev/null || mkdir "$D/refused" 2> /dev/null; then fail written; fi; }
mount -t siftfs "$V" "$D" -o nosuid,commit=3600
writes before
mount -o remount,ro "$D"
has ro; has nosuid; refuses
[ "$(cat "$D/before")" = before ] || fail 'not to be read'
siftfs status "$D" --json | grep -q '"options": ".*,ro' || fail 'not in the status'
siftfs sync "$D"
mount -o remount,rw "$D"
has rw; has nosuid; writes after
mount -o remount,suid,noatime,nodev,commit=1 "$D"
lacks nosuid; has noatime; has nodev
mount -o remount,relatime "$D"
lacks noatime; has relatime
# mount(8) alone, by the volume, by fstab.
mount -t siftfs -o remount,ro "$V" "$D"
refuses
echo "$V $D siftfs rw,noauto,noexec,commit=2,x-a=b 0 0" > "$T/fstab"
LIBMOUNT_FSTAB="$T/fstab" mount -o remount "$D"
has rw; has noexec; writes fstab
LIBMOUNT_FSTAB="$T/fstab" mount -o remount,ro "$V"
refuses
LIBMOUNT_FSTAB="$T/fstab" mount -o remount "$V"
writes again
grep -q "TARGET=$D .*helper=siftfs" /run/mount/utab || fail "$(cat /run/mount/utab)"
# What cannot be changed is named, and nothing is changed.
for what in threads=9 subtype=x cache=1M speed; do
    got=0; mount -o "remount,ro,$what" "$D" 2> "$T/said" || got=$?
    [ "$got" != 0 ] || fail "$what was taken"
    grep -q "${what%%=*}" "$T/said" || fail "$(cat "$T/said")"
    writes "with-$what"
done
# A file open for writing, or removed and open.
exec 9> "$D/open"
expect 32 mount -o remount,ro "$D" 2> "$T/said"
grep -q 'open for writing' "$T/said" || fail "$(cat "$T/said")"
writes open-file
exec 9>&-
exec 9< "$D/again"; rm "$D/again"
expect 32 mount -o remount,ro "$D" 2> "$T/said"
exec 9<&-
mount -o remount,ro "$D"
umount "$D"
flock -n "$V" true || fail 'umount(8) did not wait'
siftfs fsck "$V" > /dev/null || fail 'not clean'
expect 32 mount -t siftfs -o remount,ro "$V" "$D" 2> "$T/said"
"#,
    )
    .ok();
    s.assert_plain_ext4();
}

/// Nothing is written while it is read-only, and all that was written before is in the area.
#[test]
fn read_only_means_that_nothing_is_written() {
    let s = Setup::new();
    s.mount("commit=3600");
    for i in 0..50 {
        fs::write(s.path(&format!("f{i}")), vec![i; 30_000]).unwrap();
    }
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,ro,commit=0.05"]).ok();
    let before = fs::read(s.volume()).unwrap();
    for i in 0..50 {
        assert_eq!(fs::read(s.path(&format!("f{i}"))).unwrap(), vec![i; 30_000]);
    }
    for refused in [
        File::create(s.path("new")).map(drop),
        fs::remove_file(s.path("f1")),
        File::options().write(true).open(s.path("f1")).map(drop),
        fs::set_permissions(s.path("f1"), std::os::unix::fs::PermissionsExt::from_mode(0o600)),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
    siftfs(&["sync", s.dir()]).ok();
    siftfs(&["checkpoint", s.dir()]).ok();
    std::thread::sleep(Duration::from_millis(500));
    assert!(fs::read(s.volume()).unwrap() == before, "the volume was written");
    // Killed now, it needs a recovery, which finds an empty log.
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    siftfs(&["umount", s.dir()]).fails(1, &["recover"]);
    let report = siftfs(&["recover", s.volume(), "--json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!((&report["staged_found"], &report["replayed_transactions"]), (&0.into(), &0.into()));
    s.assert_plain_ext4();
}

/// A volume that was mounted read-only is plain ext4 until it is remounted, and marked from then
/// on, also after checkpoints have written its superblock.
#[test]
fn a_read_only_mount_becomes_writable() {
    let s = Setup::new();
    let marked = || run("e2fsck", &["-n", s.volume()]).code != 0;
    s.mount("ro");
    assert!(!marked());
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,rw,commit=1"]).ok();
    assert!(marked(), "e2fsck would take it");
    for i in 0..30 {
        fs::write(s.path(&format!("f{i}")), vec![i; 10_000]).unwrap();
    }
    siftfs(&["checkpoint", s.dir()]).ok();
    assert!(marked(), "a checkpoint took the marker away");
    let mut kept = File::create(s.path("kept")).unwrap();
    kept.write_all(b"fsynced").unwrap();
    kept.sync_all().unwrap();
    drop(kept);
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    s.mount("ro");
    assert_eq!(fs::read(s.path("kept")).unwrap(), b"fsynced");
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,rw"]).ok();
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,ro"]).ok();
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,rw"]).ok();
    fs::write(s.path("last"), b"x").unwrap();
    s.umount();
    s.assert_plain_ext4();
    s.mount("ro");
    assert_eq!(fs::read(s.path("last")).unwrap(), b"x");
    s.umount();
    s.assert_plain_ext4();
}

/// With its log elsewhere, the superblock names the log after that, too.
#[test]
fn a_volume_with_a_log_elsewhere_becomes_writable() {
    let s = Setup::empty();
    let log = s.tmp.path().join("log");
    let log = log.to_str().unwrap();
    siftfs(&["mkfs", s.volume(), "--size", "64M", "--log", log, "--log-size", "8M"]).ok();
    s.mount("ro");
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,rw"]).ok();
    File::create(s.path("f")).unwrap().sync_all().unwrap();
    siftfs(&["checkpoint", s.dir()]).ok();
    File::create(s.path("g")).unwrap().sync_all().unwrap();
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    s.mount("");
    assert!(s.path("f").exists() && s.path("g").exists());
    s.umount();
    s.assert_plain_ext4();
}

/// A write-protected volume stays read-only.
#[test]
fn a_write_protected_volume_stays_read_only() {
    let s = Setup::new();
    let device = run("losetup", &["--find", "--show", "--read-only", s.volume()]).ok().out;
    let device = device.trim();
    siftfs(&["mount", device, s.dir(), "-o", "ro"]).ok();
    siftfs(&["mount", device, s.dir(), "-o", "remount,rw"]).fails(1, &["write-protected"]);
    let refused = File::create(s.path("f")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    s.umount();
    run("losetup", &["--detach", device]).ok();
    s.assert_plain_ext4();
}

/// While programs write, a file is open for writing more often than not: what gets through is
/// whole, and what does not says so.
#[test]
fn remounting_under_load() {
    let s = Setup::new();
    s.mount("commit=0.05");
    let script = "i=0; while :; do i=$((i + 1)); d=\"$0/d$((i % 7))\"; mkdir -p \"$d\"; \
                  echo $i > \"$d/t\" && mv \"$d/t\" \"$d/f$((i % 50))\"; rm -rf \"$d/x\"; mkdir \"$d/x\"; done";
    let mut load: Vec<_> = (0..2)
        .map(|i| {
            fs::create_dir_all(s.path(&format!("w{i}"))).unwrap();
            let dir = s.path(&format!("w{i}"));
            let mut sh = Command::new("sh");
            sh.args(["-c", script])
                .arg(dir)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let (mut taken, mut busy) = (0, 0);
    let end = Instant::now() + Duration::from_secs(60);
    while taken < 10 && Instant::now() < end {
        let ran = siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,ro"]);
        if ran.code == 0 {
            taken += 1;
            siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,rw"]).ok();
        } else {
            busy += 1;
            assert!(ran.err.contains("open for writing"), "{ran:?}");
        }
    }
    for child in &mut load {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(taken > 0, "never read-only, {busy} times busy");
    s.umount();
    s.assert_plain_ext4();
}

/// With the background work in another process.
#[test]
fn remounting_with_a_device_process() {
    let s = Setup::new();
    let address = format!("unix:{}", s.tmp.path().join("sock").display());
    let device = || {
        let mut device = Command::new(SIFTFS);
        device.args(["device", s.volume(), "--listen", &address]).stdout(Stdio::piped());
        let mut device = device.stderr(Stdio::null()).spawn().unwrap();
        let mut line = [0; 1];
        std::io::Read::read_exact(device.stdout.as_mut().unwrap(), &mut line).unwrap();
        device
    };
    let mut first = device();
    siftfs(&["mount", s.volume(), s.dir(), "-o", "commit=3600", "--service", &address]).ok();
    for round in 0..3 {
        fs::write(s.path(&format!("f{round}")), vec![round; 200_000]).unwrap();
        siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,ro"]).ok();
        let before = fs::read(s.volume()).unwrap();
        assert!(File::create(s.path("x")).is_err());
        std::thread::sleep(Duration::from_millis(300));
        assert!(fs::read(s.volume()).unwrap() == before, "the volume was written");
        siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,rw"]).ok();
    }
    // Read-only while the process is another one.
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,ro"]).ok();
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = device();
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,rw"]).ok();
    fs::write(s.path("last"), b"x").unwrap();
    siftfs(&["mount", s.volume(), s.dir(), "-o", &format!("remount,service={address}")]).ok();
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,service=unix:/other"])
        .fails(1, &["service=unix:/other", "cannot be changed"]);
    s.umount();
    second.kill().unwrap();
    second.wait().unwrap();
    s.assert_plain_ext4();
}

/// Settings of the running volume take effect.
#[test]
fn settings_take_effect() {
    let s = Setup::new();
    let log = s.tmp.path().join("log");
    let options = format!("commit=3600,log_level=error,log_file={}", log.display());
    s.mount(&options);
    let journaled = || {
        let status = siftfs(&["status", s.dir(), "--json"]).ok();
        let status: siftfs_status::Status = serde_json::from_str(&status.out).unwrap();
        status.runtime.service.journaled_transactions
    };
    fs::write(s.path("f"), b"x").unwrap();
    let before = fs::read(s.volume()).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(fs::read(s.volume()).unwrap() == before, "journaled before its time: {}", journaled());
    let new =
        "remount,commit=0.05,cache=8M,meta_cache=8M,group_wait=0,low_watermark=60,log_level=debug";
    siftfs(&["mount", s.volume(), s.dir(), "-o", new]).ok();
    let end = Instant::now() + Duration::from_secs(20);
    while fs::read(s.volume()).unwrap() == before {
        assert!(Instant::now() < end, "not journaled although commit=0.05");
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::write(s.path("g"), vec![3; 20 << 20]).unwrap();
    siftfs(&["umount", s.dir()]).ok();
    assert!(fs::read_to_string(&log).unwrap().contains("remounted"), "log_level did not change");
    s.assert_plain_ext4();
}
