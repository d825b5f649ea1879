#!/bin/bash
# A cluster of Ceph on this machine's loopback, for tests: one monitor and three OSDs, with keys (cephx).
#
#     cluster.sh up DIR [IOPS]     make it, or start what of it does not run; DIR/ceph.conf is its configuration
#     cluster.sh pid DIR NAME      the process of mon.a, osd.0, osd.1 and so on
#     cluster.sh down DIR          end all of it; DIR keeps what it has
#
# Of the product is the key of client.sift alone (DIR/sift.keyring), with what `profile rbd` gives and no more. The
# pools are `slow` and `fast`, both on the same OSDs. When a cluster is made with IOPS, `slow` is on three OSDs of its
# own, whose processes together make at most IOPS reads and IOPS writes per second at the disk: the bound is one of the
# kernel's controller blkio (cgroup v1). Everything lies in DIR, on sparse files. PORT=16900: the first of the ports that
# it takes.
set -euo pipefail
what=${1:?up, pid or down}
mkdir -p "${2:?a directory}"
dir=$(cd "$2" && pwd)
conf=$dir/ceph.conf
port=${PORT:-16900}
osds=(0 1 2)
# The disk's bound on the OSDs of a pool of slow devices, and these.
iops=$(cat "$dir/iops" 2>/dev/null) || iops=${3:-}
slow=()
[ "$what" = pid ] || [ -z "$iops" ] || slow=(3 4 5)
group=/sys/fs/cgroup/blkio/siftfs-slow-$port

fail() { echo "cluster.sh: $*" >&2; exit 1; }
# Sockets lie in the directory, and a socket's path is short.
[ ${#dir} -le 70 ] || fail "the path $dir is too long"
ask() { timeout 60 ceph -c "$conf" --connect-timeout 20 "$@" 2>>"$dir/ask.log"; }

# The process of the daemon NAME, if it lives and is this cluster's.
process() {
    local pid
    pid=$(cat "$dir/run/$1.pid" 2>/dev/null) || return 1
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "-c $conf" && echo "$pid"
}

# Starts the daemon NAME, which goes to the background by itself.
launch() {
    process "$1" >/dev/null && return
    local kind=${1%.*} id=${1#*.} join=
    case " ${slow[*]} " in *" $id "*) [ "$kind" = osd ] && join=$group/cgroup.procs ;; esac
    # A process is born in the group of the one that starts it.
    ( [ -z "$join" ] || echo "$BASHPID" >"$join"
      exec "ceph-$kind" -i "$id" -c "$conf" --pid-file "$dir/run/$1.pid" </dev/null >>"$dir/$1.out" 2>&1 ) ||
        { tail -5 "$dir/$1.out" >&2; fail "$1 does not start"; }
}

# The group of the slow OSDs, with its bound on the disk that DIR lies on.
bound() {
    local disk part
    [ -e /sys/fs/cgroup/blkio/blkio.throttle.write_iops_device ] ||
        fail "slow OSDs need the controller blkio of cgroup v1 at /sys/fs/cgroup/blkio"
    part=/sys/dev/block/$(findmnt -no MAJ:MIN -T "$dir" | tr -d " ")
    [ -e "$part/partition" ] && part=$(realpath "$part")/..
    disk=$(cat "$part/dev")
    mkdir -p "$group"
    for way in read write; do echo "$disk $iops" >"$group/blkio.throttle.${way}_iops_device"; done
    echo "$iops" >"$dir/iops"
}

configure() {
    cat >"$conf" <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = $((port + 10))
ms bind port max = $((port + 90))
ms bind ipv6 = false
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
run dir = $dir/run
log file = $dir/\$name.log
admin socket = $dir/run/\$name.asok
crash dir = $dir
osd pool default size = 3
osd pool default min size = 2
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
# A dead OSD is noticed in seconds. The monitor judges by the same bound.
osd heartbeat interval = 1
osd heartbeat grace = 4
mon osd adjust heartbeat grace = false
mon osd min down reporters = 1
mon osd down out interval = 600
[mon]
mon data = $dir/mon
mon allow pool delete = true
mon data avail warn = 2
mon data avail crit = 1
mon election timeout = 2
mon cluster log to file = false
paxos propose interval = 0.1
paxos min wait = 0.02
[osd]
osd data = $dir/osd\$id
keyring = $dir/osd\$id/keyring
bluestore block size = $((3 << 30))
bluestore block create = true
bluestore cache autotune = false
bluestore cache size = $((64 << 20))
osd memory target = $((896 << 20))
osd class update on start = false
# Little to replay after a kill.
bluestore rocksdb options = compression=kNoCompression,max_write_buffer_number=4,write_buffer_size=16777216,max_total_wal_size=67108864
[client.admin]
keyring = $dir/admin.keyring
log file =
admin socket =
[client.sift]
keyring = $dir/sift.keyring
log file =
admin socket =
# A client that has died is known to be gone after ten seconds, and not after thirty.
osd client watch timeout = 10
END
}

make_monitor() {
    ceph-authtool --create-keyring "$dir/admin.keyring" --gen-key -n client.admin \
        --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' >/dev/null
    ceph-authtool --create-keyring "$dir/mon.keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
    ceph-authtool "$dir/mon.keyring" --import-keyring "$dir/admin.keyring" >/dev/null
    monmaptool --create --clobber --fsid "$(sed -n 's/^fsid = //p' "$conf")" \
        --addv a "[v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]" "$dir/monmap" >/dev/null
    mkdir -p "$dir/mon"
    ceph-mon --mkfs -i a -c "$conf" --monmap "$dir/monmap" --keyring "$dir/mon.keyring" >>"$dir/mkfs.out" 2>&1 ||
        fail "no monitor is made: $(tail -3 "$dir/mkfs.out")"
}

make_osd() {
    local uuid key
    uuid=$(cat /proc/sys/kernel/random/uuid) key=$(ceph-authtool --gen-print-key)
    mkdir -p "$dir/osd$1"
    printf '{"cephx_secret": "%s"}' "$key" | ask osd new "$uuid" "$1" -i - >/dev/null
    ceph-authtool --create-keyring "$dir/osd$1/keyring" --name "osd.$1" --add-key "$key" >/dev/null
    ceph-osd -i "$1" -c "$conf" --mkfs --osd-uuid "$uuid" >>"$dir/mkfs.out" 2>&1
    touch "$dir/osd$1/made"
}

# Each pool's OSDs are of a class of its name, where they are not the same.
classes() {
    [ ${#slow[@]} -gt 0 ] || return 0
    ask osd crush set-device-class fast "${osds[@]/#/osd.}" >/dev/null
    ask osd crush set-device-class slow "${slow[@]/#/osd.}" >/dev/null
}

make_pools() {
    local pool rule=
    for pool in slow fast; do
        if [ ${#slow[@]} -gt 0 ]; then
            rule=on-$pool
            ask osd crush rule create-replicated "$rule" default osd "$pool" >/dev/null
        fi
        ask osd pool create "$pool" 8 8 replicated $rule >/dev/null
        ask osd pool application enable "$pool" rbd >/dev/null
    done
    ask auth get-or-create client.sift mon 'profile rbd' osd 'profile rbd pool=slow, profile rbd pool=fast' \
        -o "$dir/sift.keyring" >/dev/null
    touch "$dir/made"
}

up() {
    mkdir -p "$dir/run"
    [ -f "$conf" ] || configure
    [ -d "$dir/mon/store.db" ] || make_monitor
    [ ${#slow[@]} = 0 ] || bound
    launch mon.a
    local n all=("${osds[@]}" "${slow[@]}")
    for n in "${all[@]}"; do
        [ -f "$dir/osd$n/made" ] || make_osd "$n" || fail "osd.$n is not made: $(tail -3 "$dir/mkfs.out")"
    done
    for n in "${all[@]}"; do launch "osd.$n"; done
    for _ in $(seq 600); do
        ask osd stat -f json | grep -q "\"num_up_osds\":${#all[@]}," && break
        sleep 0.1
    done
    ask osd stat | grep -q "${#all[@]} up" || fail "not all OSDs are up: $(ask osd stat)"
    [ -f "$dir/made" ] || { classes; make_pools; }
}

down() {
    local name
    for name in "${osds[@]/#/osd.}" "${slow[@]/#/osd.}" mon.a; do
        [ "$name" != osd. ] || continue
        pid=$(process "$name") || continue
        kill "$pid"
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$pid" 2>/dev/null || true
    done
    # The kernel takes a group away when its last process is gone.
    for _ in $(seq 100); do
        [ -d "$group" ] && ! rmdir "$group" 2>/dev/null || break
        sleep 0.1
    done
}

case $what in
    up) up ;;
    pid) process "${3:?a daemon}" || fail "$3 does not run" ;;
    down) down ;;
    *) fail "up, pid or down, and not $what" ;;
esac
