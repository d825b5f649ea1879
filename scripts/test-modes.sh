#!/bin/bash
# All tests of the mount by each request loop and under each cache mode, and some with the option idmap:
#
#     scripts/test-modes.sh [CARGO-OPTION...] [-- TEST-OPTION...]
#
# The mode "accel" runs what programs do with the library of `siftfs accel` loaded into the tests themselves and into all
# that they start, on mounts with private logs.
#
# The mode "shared" runs what programs do on mounts that others may be beside, "remote" on mounts of volumes that another
# process serves, "checked" on mounts over TCP whose server checks the callers.
#
# MODES="ring,writeback device,writethrough accel shared remote checked" runs these alone. Needs root. FUSE over io_uring is switched on in the kernel
# while rings are tested, and is then as it was. A kernel without it makes this fail, but with SIFTFS_NO_RINGS=1, which
# leaves rings out and says so. The exit status says whether all that was run passed.
set -u
cd "$(dirname "$0")/.." || exit 1
modes=${MODES:-device,writethrough device,writeback ring,writethrough ring,writeback accel shared remote checked}

# The tests that mount; `mount` and `lent` are siftfs-fuse's, the others are siftfs-cli's. `kills` draws request loop and cache for each
# mount of its own, rings where they are switched on: it is run once while they are.
programs=(bad_volumes commands compounds device inspect kernel_cache kernel_counts lent limits log manners mount one_message outside
    posix preload private_logs record_area requests sections several sqlite watching)

# Those of them that are programs' calls on a mount, and not the daemon's own affairs.
library=(posix sections compounds limits)

options=(--workspace --locked --no-fail-fast) # the features of `make test`, so that nothing is built twice
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done

parameter=/sys/module/fuse/parameters/enable_uring
before=
case $modes in *ring,*)
    if [ "${SIFTFS_NO_RINGS:-}" = 1 ]; then
        echo "rings are left out (SIFTFS_NO_RINGS=1)"
        modes=$(printf '%s\n' $modes | grep -v '^ring,')
    elif [ -w "$parameter" ]; then
        before=$(cat "$parameter")
    else
        echo "cannot test here: no FUSE over io_uring ($parameter); SIFTFS_NO_RINGS=1 leaves rings out" >&2
        exit 1
    fi
esac

# Tests that switch rings on and off themselves hold this lock meanwhile.
switch() { flock "${TMPDIR:-/tmp}/siftfs-tests-enable-uring" sh -c "echo $1 > $parameter"; }
trap '[ -z "$before" ] || switch "$before"' EXIT
trap 'exit 130' INT TERM HUP

bad=0 said=()
# tests NAME OPTIONS-OF-MOUNTS PROGRAM... -- TEST-OPTION...
tests() {
    local name=$1 mounts=$2 which=() start=$SECONDS verdict=passed
    shift 2
    while [ "$1" != -- ]; do which+=(--test "$1"); shift; done
    echo "== $name"
    SIFTFS_TEST_OPTIONS=$mounts ${CARGO:-cargo} test "${options[@]}" "${which[@]}" "$@" || { verdict=FAILED; bad=1; }
    said+=("$(printf '%-20s %5d s  %s' "$name" $((SECONDS - start)) "$verdict")")
}

# The tests with the library loaded. Their calls are the C library's in a build of their own, so that there is something to
# catch: otherwise rustix makes system calls by itself. `accelerated::` fails where the library catches nothing.
accelerated() {
    local flags="--cfg rustix_use_libc ${RUSTFLAGS:-}" triple built kind=debug mode=()
    triple=$(rustc -vV | sed -n 's/^host: //p')
    built=$(${CARGO:-cargo} metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/accel
    case " ${options[*]} " in *" --release "*) kind=release mode=(--release) ;; esac
    # What is built for itself lies beside the command, where it looks for its library.
    RUSTFLAGS=$flags CARGO_TARGET_DIR=$built ${CARGO:-cargo} build --locked "${mode[@]}" -p siftfs-cli -p siftfs-preload \
        || { bad=1; said+=("$(printf '%-20s %5d s  %s' accel 0 'NOT BUILT')"); return; }
    local runner=CARGO_TARGET_$(printf '%s' "$triple" | tr 'a-z-' 'A-Z_')_RUNNER
    local -x "$runner=$built/$kind/siftfs accel --" CARGO_TARGET_DIR=$built RUSTFLAGS=$flags SIFTFS_ACCEL=eager
    local options=(-p siftfs-cli --locked --no-fail-fast "${mode[@]}")
    tests accel write_cache=writethrough,private_logs=on "${library[@]}" "$@"
}

# What asks for the writeback cache, which neither mode has.
cached=(written_back:: tickets::what_was_waited_for_survives
    synchronous::direct_writes_that_hold_the_file_beside_reads_end)

beside_others() { tests shared shared posix "$@" "${cached[@]/#/--skip=}"; }

# Mounts of served volumes. Left out besides: what kills the volume's process by the mount's daemon, and what is about
# the volume's own options, its file or the end of the process that has it, and what has a server of its own.
of_volumes=(checked:: pressure::a_small_volume_under_load_and_kills discard:: host::an_unmount_without_room_below
    places::a_volume_of_60_gib places::on_a_loop_device)
remote() {
    local -x SIFTFS_TEST_REMOTE=1
    tests remote '' "${library[@]}" "$@" "${cached[@]/#/--skip=}" "${of_volumes[@]/#/--skip=}"
}

# Mounts over TCP whose server checks each caller, of a directory: what compares them with ext4. Left out besides: what
# maps users, what kills the daemon, and what counts the names in the root (a directory has no lost+found).
checked() {
    local -x SIFTFS_TEST_REMOTE=checked
    tests checked '' posix "$@" "${cached[@]/#/--skip=}" --skip=idmapped:: --skip=shared:: --skip=pressure:: --skip=kill \
        --skip=flags::an_open_descriptor_changes_nothing_either
}

[ $# -gt 0 ] || set -- --
for mode in $modes; do
    [ "$mode" = accel ] && { accelerated "$@"; continue; }
    [ "$mode" = shared ] && { beside_others "$@"; continue; }
    [ "$mode" = remote ] && { remote "$@"; continue; }
    [ "$mode" = checked ] && { checked "$@"; continue; }
    loop=${mode%,*} cache=${mode#*,}
    [ "$loop" = device ] || switch Y
    tests "$mode" "requests=$loop,write_cache=$cache" "${programs[@]}" "$@"
    [ "$loop" = device ] || switch "$before"
done
if [ -n "$before" ]; then
    switch Y
    tests 'kills, with rings' '' kills "$@"
fi
# Callers of mounts that map users are mostly unknown: what must not differ for that.
tests idmap idmap posix "$@" acls:: names:: overlay:: idmapped:: attrs:: handles::
printf '%s\n' "${said[@]}"
exit "$bad"
