#!/bin/bash
# Tests in guests, one after the other (`make test-guest`):
#
#     testing/guest/run.sh BUILT [NAME...]
#
# BUILT is where the release builds of the programs below are. With names only these cases run. KEEP=DIR keeps the state
# and the output of each case in DIR/NAME. The exit status says whether all passed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH="$PATH:/usr/sbin:/sbin"

# Each case is a function in cases.sh, and the devices of run-guest.sh that its guests have.
cases=(
    'starts:                        '
    'nvdimm_holds_a_dax_file:       nvdimm'
    'virtio_pmem_holds_a_dax_file:  nvdimm pmem'
    'controllers_are_told_apart:    pmr cmb'
    'volume_survives_a_power_cut:   disk'
    'records_on_a_pmr:              pmr'
    'records_on_an_nvdimm:          nvdimm'
    'records_on_virtio_pmem:        nvdimm pmem'
    'what_is_not_persistent:        pmr cmb nvdimm'
    'area_on_a_pmr:                 disk pmr'
    'area_on_an_nvdimm:             disk nvdimm'
    'area_on_virtio_pmem:           disk nvdimm pmem'
    'log_on_an_nvdimm:              disk nvdimm'
    'log_on_virtio_pmem:            disk nvdimm pmem'
    'f2fs_has_the_same_files:       disk second pmr'
    'rdma_carries_a_target:         disk'
)
# Those that only run by their names: they measure, and take long.
named=(
    'remote_beside_nfs:             disk'
    'kernel_rows:                   '
)
programs=(siftfs examples/byte_medium examples/append_synced)
library=libsiftfs_preload.so

[ $# -ge 1 ] || { echo "usage: run.sh BUILT [NAME...]" >&2; exit 2; }
built=$(cd "$1" && pwd) || exit 1
shift
# A build of tests leaves the library where it was compiled.
[ -e "$built/$library" ] || library=deps/$library
work=$(mktemp -d "${TMPDIR:-/tmp}/siftfs-guests.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
export SIFTFS_GUEST=${SIFTFS_GUEST:-$here/../../target/guest}
"$here/build-image.sh" "$SIFTFS_GUEST" || exit 1
"$here/add-programs.sh" "$work/root" "${programs[@]/#/$built/}" "$built/$library" || exit 1
(cd "$work/root" && find . | cpio --quiet -o -H newc -R 0:0) >"$work/programs.cpio" || exit 1

# guest [OPTION-OF-RUN-GUEST...]: boots a guest of this case with the script on the standard input, on the state that the
# guests before it left. A command that fails ends the script.
guest() {
    { echo 'set -e'; cat; } >"$state/script"
    "$here/run-guest.sh" --state "$state" --devices "$devices" --programs "$work/programs.cpio" "$@" "$state/script" 2>&1 |
        tee -a "$state/printed"
}
# power_cut LINE: a guest whose power goes when it has printed this line.
power_cut() {
    local status=0
    guest --kill-at "$1" || status=$?
    [ $status = 137 ] || { echo "the guest did not print '$1' (status $status)"; return 1; }
}
# Has a guest of this case printed that?
printed() { grep -q -e "$1" "$state/printed" || { echo "no guest printed '$1'"; return 1; }; }
# shellcheck source=testing/guest/cases.sh
. "$here/cases.sh"
# shellcheck source=testing/guest/nfs.sh
. "$here/nfs.sh"
# shellcheck source=testing/guest/rdma.sh
. "$here/rdma.sh"
# shellcheck source=testing/guest/fabrics.sh
. "$here/fabrics.sh"
[ $# = 0 ] || cases+=("${named[@]}")

passed=0 failed=0 start=$SECONDS
for line in "${cases[@]}"; do
    name=${line%%:*} devices=${line#*:}
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    state=${KEEP:-$work}/$name began=$SECONDS
    rm -rf "$state"
    mkdir -p "$state"
    # Not in a condition, where a command that fails would not end the case.
    (set -e; "$name") >"$state/log" 2>&1
    status=$?
    if [ $status = 0 ]; then
        echo "test guest::$name ... ok ($((SECONDS - began)) s)"
        [ ! -e "$state/figures" ] || cat "$state/figures"
        passed=$((passed + 1))
    else
        echo "test guest::$name ... FAILED ($((SECONDS - began)) s)"
        sed 's/^/    /' "$state/log"
        failed=$((failed + 1))
    fi
    [ -n "${KEEP:-}" ] || rm -rf "$state"
done
[ $((passed + failed)) -gt 0 ] || { echo "no case has such a name: $*" >&2; exit 2; }
echo "$passed passed, $failed failed, in $((SECONDS - start)) s"
[ $failed = 0 ]
