#!/bin/sh
# Says what is missing for the tests, and fails. A test that was skipped in silence proves
# nothing, so none is.
set -u
PATH="$PATH:/usr/sbin:/sbin"
bad=0
wrong() {
    echo "cannot test here: $1" >&2
    bad=1
}

[ "$(id -u)" = 0 ] || wrong "mounting needs root; run as root"
[ -c /dev/fuse ] || modprobe fuse 2>/dev/null || true
[ -c /dev/fuse ] || wrong "no /dev/fuse; load the kernel's fuse module"
[ -c /dev/loop-control ] || modprobe loop 2>/dev/null || true
[ -c /dev/loop-control ] || wrong "no /dev/loop-control; load the kernel's loop module"

# The largest tests want 3 GiB for their volumes, and fail without, which is late.
place=${TMPDIR:-/var/tmp}
free=$(df --output=avail -k "$place" | tail -n 1)
[ "$free" -ge $((4 << 20)) ] || wrong "less than 4 GiB free in $place, where volumes of tests lie; set TMPDIR to a directory with more"

# The whole build, clippy's included, takes 10 GiB, and is halfway when the compiler finds no more.
build=${CARGO_TARGET_DIR:-target}
mkdir -p "$build"
built=$(du -sk "$build" | cut -f 1)
free=$(df --output=avail -k "$build" | tail -n 1)
[ "$((built + free))" -ge $((14 << 20)) ] || wrong "less than 14 GiB for the build in $build; free some, or set CARGO_TARGET_DIR to a directory with more"

if [ "$bad" = 0 ]; then
    dir=$(mktemp -d)
    truncate -s 8M "$dir/image"
    mke2fs -q -F -t ext4 "$dir/image" || wrong "mke2fs does not work"
    mkdir "$dir/mount"
    if mount -t ext4 -o loop,ro "$dir/image" "$dir/mount"; then
        umount "$dir/mount"
    else
        wrong "the kernel's ext4 cannot be mounted from a loop device"
    fi
    rm -rf "$dir"
fi
exit "$bad"
