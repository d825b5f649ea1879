//! A systemd of its own, as the first process of a namespace: a line of fstab, and the service.

use crate::place::script;
use crate::support::Setup;

/// The mount unit that systemd makes of a line of fstab mounts and unmounts; `siftfs@.service`
/// does, too, and starts its daemon again when that is killed. Both leave plain ext4.
///
/// Seen to fail when the service has no `Restart=`.
#[test]
fn a_mount_unit_and_the_service() {
    let s = Setup::new();
    script(&s, SYSTEMD).ok();
}

const SYSTEMD: &str = r#"
cat > "$T/boot" <<'B'
set -eu
# What others have mounted stays theirs: nothing of it is held here.
for m in $(findmnt -rno TARGET,SOURCE,FSTYPE | awk '$2 ~ "^/dev/loop" || $3 ~ "^fuse" { print $1 }'); do
    # One that lay in another has gone with it.
    umount -i -l "$m" || ! mountpoint -q "$m"
done
mkdir "$T/upper" "$T/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$T/upper,workdir=$T/work" /etc
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/lock /etc/siftfs
echo "$V $D siftfs rw,nosuid,noauto,nofail 0 0" > /etc/fstab
printf 'VOLUME=%s\nDIR=%s\nOPTIONS=nosuid,nodev\n' "$V" "$D" > /etc/siftfs/data.conf
cp "$T/usr/lib/systemd/system/siftfs@.service" /run/systemd/system/
printf '[Unit]\nDefaultDependencies=no\n' > /run/systemd/system/nothing.target
# A container's systemd leaves the kernel's settings alone; here it cannot but do so.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
export container=lxc
exec /lib/systemd/systemd --system --unit=nothing.target --log-target=console --show-status=no
B
cat > "$T/checks" <<'B'
set -eu
fail() { echo "$1" >&2; systemctl --no-pager status "$unit" >&2 || true; exit 1; }
plain() { findmnt -rno TARGET "$D" && fail 'still mounted'; e2fsck -fn "$V" > "$T/said" 2>&1 || fail "$(cat "$T/said")"; }
unit=$(systemd-escape -p --suffix=mount "$D")
# A line of fstab is a mount unit.
systemctl start "$unit" || fail 'not started'
[ "$(findmnt -no FSTYPE "$D")" = fuse.siftfs ] || fail 'not mounted'
echo fstab > "$D/f"
systemctl stop "$unit" || fail 'not stopped'
plain
# The service, whose daemon is killed and started again.
unit=siftfs@data.service
systemctl start "$unit" || fail 'not started'
[ "$(cat "$D/f")" = fstab ] || fail 'not mounted'
echo service > "$D/g"
sync "$D/g"
first=$(systemctl show -P MainPID "$unit")
kill -9 "$first"
n=0
until [ "$(cat "$D/g" 2>&1)" = service ]; do
    n=$((n + 1)); [ "$n" -lt 300 ] || fail 'not started again'
    sleep 0.1
done
[ "$(systemctl show -P MainPID "$unit")" != "$first" ] || fail 'the same process'
systemctl stop "$unit" || fail 'not stopped'
plain
B
unshare --mount --pid --fork --kill-child --mount-proc --cgroup --uts --ipc sh "$T/boot" > "$T/log" 2>&1 &
manager=$!
trap 'kill -9 "$manager" 2> /dev/null || true' EXIT
n=0
until inside=$(cat "/proc/$manager/task/$manager/children" 2> /dev/null) && inside=${inside% } && [ -n "$inside" ] &&
    nsenter -t "$inside" -m -p systemctl is-system-running > /dev/null 2>&1; do
    n=$((n + 1)); [ "$n" -lt 300 ] || fail "systemd does not run: $(cat "$T/log")"
    sleep 0.1
done
nsenter -t "$inside" -m -p sh "$T/checks" || fail "$(cat "$T/log")"
kill -9 "$inside"
wait "$manager" || true
trap - EXIT
"#;
