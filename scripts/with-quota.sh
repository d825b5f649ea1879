#!/bin/sh
# Runs a command with a share of one processor, as `siftfs device --cpu-quota` runs itself:
#
#     scripts/with-quota.sh PERCENT COMMAND...
#
# Needs root and a control group file system, version 1 or 2. What the command starts is bound too.
set -eu
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
percent=$1
shift
period=10000
# The kernel takes no less than a millisecond.
[ "$percent" -ge 10 ] || period=$((100000 / percent))
top=$(awk '$3 == "cgroup" && $4 ~ /(^|,)cpu(,|$)/ { print $2; exit }' /proc/mounts)
if [ -n "$top" ]; then
    group=$top/siftfs-quota-$$
    mkdir "$group"
    echo "$period" > "$group/cpu.cfs_period_us"
    echo $((percent * period / 100)) > "$group/cpu.cfs_quota_us"
else
    top=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [ -n "$top" ] || { echo "$0: no control group file system is mounted" >&2; exit 1; }
    echo +cpu > "$top/cgroup.subtree_control"
    group=$top/siftfs-quota-$$
    mkdir "$group"
    echo "$((percent * period / 100)) $period" > "$group/cpu.max"
fi
trap 'rmdir "$group"' EXIT
code=0
sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$@" || code=$?
exit $code
