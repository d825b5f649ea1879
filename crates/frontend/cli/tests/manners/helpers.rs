//! mount(8), umount(8), fstab, systemd's way to call them.

use crate::place::script;
use crate::support::{SIFTFS, Setup, run, siftfs};
use std::os::unix::fs::symlink;

#[test]
fn mount_and_umount_by_type() {
    let s = Setup::new();
    let ran = script(
        &s,
        r#"
mount -t siftfs "$V" "$D" -o nosuid,nodev,commit=1
[ "$(findmnt -no FSTYPE "$D")" = fuse.siftfs ] || fail type
findmnt -no OPTIONS "$D" | grep -q nosuid,nodev || fail options
[ "$(findmnt -no SOURCE "$D")" = "$V" ] || fail source
echo kept > "$D/f"
siftfs fsck "$V" && fail 'fsck of a mounted volume'
umount "$D"
# umount(8) came back: the daemon has gone, the volume is ext4.
siftfs fsck "$V" | grep -q clean
e2fsck -fn "$V"
mount -t siftfs "$V" "$D" -o ro
[ "$(cat "$D/f")" = kept ]
touch "$D/g" && fail 'wrote to a read-only mount'
umount "$V"
mount -t fuse.siftfs "$V" "$D"
umount "$D"
mount -t siftfs.mail "$V" "$D"
[ "$(findmnt -no FSTYPE "$D")" = fuse.mail ] || fail subtype
siftfs umount "$D"
"#,
    );
    ran.ok();
}

/// umount(8) comes back when the daemon has closed the volume, also where it has a table of its own
/// and does not ask for the mount's type; the line in that table goes with the mount.
#[test]
fn umount_waits() {
    let s = Setup::new();
    script(
        &s,
        r#"
touch /run/mount/utab
for options in commit=3600 commit=3600,subtype=; do
    mount -t siftfs "$V" "$D" -o "$options"
    grep -q "^SRC=$V TARGET=$D " /run/mount/utab || fail "$(cat /run/mount/utab)"
    head -c 30000000 /dev/urandom > "$D/large"
    umount "$D"
    flock -n "$V" true || fail "still in use: $options"
    grep -q "$V" /run/mount/utab && fail "$(cat /run/mount/utab)"
    e2fsck -fn "$V" > "$T/said" 2>&1 || fail "$(cat "$T/said")"
done
mount -t siftfs "$V" "$D"
kill -TERM "$(siftfs status "$D" --json | sed -n 's/^ *"pid": \([0-9]*\),*$/\1/p')"
while ! flock -n "$V" true; do sleep 0.05; done
# The line is the last that goes.
n=0
while grep -q "$V" /run/mount/utab; do
    n=$((n + 1)); [ "$n" -lt 400 ] || fail "$(cat /run/mount/utab)"
    sleep 0.05
done
"#,
    )
    .ok();
}

#[test]
fn lines_of_fstab() {
    let s = Setup::new();
    script(
        &s,
        r#"
echo "$V $D siftfs rw,noauto,nosuid,user,exec,_netdev,nofail,x-systemd.automount,x-a=b 0 0" > "$T/fstab"
export LIBMOUNT_FSTAB="$T/fstab"
mount "$D"
findmnt -no OPTIONS "$D" | grep nosuid | grep -qv noexec || fail options
umount "$D"
mount "$V"
umount "$D"
mount -a
mountpoint -q "$D" && fail 'noauto was mounted'
sed -i s/noauto,// "$T/fstab"
mount -a
mountpoint -q "$D" || fail 'mount -a did not mount'
mount -a
[ "$(findmnt -no TARGET "$D" | wc -l)" = 1 ] || fail 'mounted twice'
umount -a -t fuse.siftfs -T "$T/fstab" 2>/dev/null || umount "$D"
"#,
    )
    .ok();
}

/// `mount -f` checks and mounts nothing; `-s` passes over unknown options; `-v` says what was done.
#[test]
fn fake_sloppy_verbose() {
    let s = Setup::new();
    script(
        &s,
        r#"
mount -f -t siftfs "$V" "$D"
mountpoint -q "$D" && fail 'fake mounted'
siftfs fsck "$V" > "$T/out" || fail 'fake left something'
expect 1 mount.siftfs "$V" "$D" -f -o speed
expect 1 mount -t siftfs "$V" "$D" -o speed
mount -s -t siftfs "$V" "$D" -o speed,colour=red
umount "$D"
mount -v -t siftfs "$V" "$D" | grep -q "$D" || fail 'nothing said'
umount -v "$D"
mount -n -r -t siftfs "$V" "$D"
findmnt -no OPTIONS "$D" | grep -q '^ro' || fail 'not read-only'
umount -n "$D"
"#,
    )
    .ok();
}

/// The argument forms of mount(8)'s and systemd's helpers, and their exit statuses.
#[test]
fn statuses_of_the_helpers() {
    let s = Setup::new();
    script(
        &s,
        r#"
mount.siftfs "$V" "$D" -o rw,nosuid
expect 32 mount.siftfs "$V" "$D"
expect 32 mount.siftfs "$V" "$T"
umount.siftfs "$D"
mount.fuse.siftfs "$V" "$D" -n -o rw -t fuse.siftfs
exec 9> "$D/open"
expect 32 umount.fuse.siftfs "$D"
expect 32 umount "$D"
exec 9>&-
umount.fuse.siftfs -f "$D"
expect 32 umount.siftfs "$D"
expect 32 mount.siftfs "$T/missing" "$D"
expect 32 mount.siftfs "$V" "$T/missing"
expect 32 mount -t siftfs "$T/missing" "$D"
expect 1 mount.siftfs "$V"
expect 1 mount.siftfs "$V" "$D" -x
expect 1 mount.siftfs "$V" "$D" -o commit=never
expect 1 mount.siftfs "$V" "$D" -t ext4
expect 2 siftfs mount "$V"
expect 2 siftfs mount "$V" "$D" -o speed
expect 1 siftfs mount "$T/missing" "$D"
expect 16 siftfs fsck
expect 16 siftfs recover --speed "$V"
expect 8 siftfs fsck "$T/missing"
expect 0 siftfs fsck "$V"
"#,
    )
    .ok();
}

/// `mount -N` reaches the namespace that it names.
#[test]
fn another_mount_namespace() {
    let s = Setup::new();
    script(
        &s,
        r#"
unshare --mount --propagation private sleep 100 &
other=$!
while [ "$(readlink /proc/$other/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.05; done
mount.siftfs "$V" "$D" -N "/proc/$other/ns/mnt"
mountpoint -q "$D" && fail 'mounted here'
nsenter -t $other -m mountpoint -q "$D" || fail 'not mounted there'
umount.siftfs "$D" -N $other
nsenter -t $other -m mountpoint -q "$D" && fail 'still mounted there'
kill $other
"#,
    )
    .ok();
}

/// A lazy umount(8) returns when the last user has gone.
#[test]
fn lazy_umount() {
    let s = Setup::new();
    script(
        &s,
        r#"
mount -t siftfs "$V" "$D"
exec 9> "$D/open"
umount -l "$D" 9>&- &
leaving=$!
while mountpoint -q "$D"; do sleep 0.05; done
echo late >&9
exec 9>&-
wait $leaving
siftfs fsck "$V"
"#,
    )
    .ok();
}

/// Without installation: the names alone make the program a helper.
#[test]
fn the_name_makes_the_helper() {
    let s = Setup::new();
    let helper = s.tmp.path().join("mount.siftfs");
    symlink(SIFTFS, &helper).unwrap();
    run(helper.to_str().unwrap(), &[s.volume(), s.dir(), "-o", "ro"]).ok();
    siftfs(&["umount", s.volume()]).ok();
}

/// SIGTERM unmounts the daemon's own mount where it is now, and leaves another one in its old
/// place.
#[test]
fn a_moved_mount_is_found() {
    let s = Setup::new();
    script(
        &s,
        r#"
mount -t siftfs "$V" "$D"
mkdir "$T/moved"
mount --move "$D" "$T/moved"
mount -t tmpfs tmpfs "$D"
pid=$(siftfs status "$T/moved" --json | sed -n 's/^ *"pid": \([0-9]*\),*$/\1/p')
kill -TERM "$pid"
for i in $(seq 40); do [ -e "/proc/$pid" ] || break; sleep 0.1; done
# Sooner than the grace time after which it would go by force.
[ -e "/proc/$pid" ] && fail 'the daemon did not find its mount'
mountpoint -q "$T/moved" && fail 'still mounted'
mountpoint -q "$D" || fail 'the other mount has gone'
umount "$D"
siftfs fsck "$V"
"#,
    )
    .ok();
}
