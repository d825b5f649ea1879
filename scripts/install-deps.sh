#!/bin/sh
# Installs the system programs that are missing, with apt. Does nothing when all are there.
# With the argument "apps" also the software that `make test-apps` runs, with "bench" what `make bench` measures, with
# "guest" what `make test-guest` boots a virtual machine with, with "rbd" the cluster of `make test-rbd`, with
# "integrations" what `make integrations` builds with.
set -eu
PATH="$PATH:/usr/sbin:/sbin"

missing=""
need() { # program package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need mke2fs e2fsprogs
need e2fsck e2fsprogs
need debugfs e2fsprogs
need sqlite3 sqlite3
need setfacl acl
need losetup mount
need mount mount
need findmnt util-linux
need setpriv util-linux
need unshare util-linux
need flock util-linux
need fsck util-linux
need nsenter util-linux
need script bsdutils
need make make
need man man-db
need zsh zsh
need fish fish
need systemd-analyze systemd
need cc gcc
need valgrind valgrind
need pkg-config pkg-config
need unshare util-linux
need tar tar
need python3 python3
need git git
need fio fio
python3 -c "import ensurepip, venv" 2>/dev/null || missing="$missing python3-venv"
# For `siftfs bench ceto-table3`, which a test runs.
[ -e /usr/lib/x86_64-linux-gnu/libleveldb.so.1d ] || missing="$missing libleveldb1d"
# LevelDB as programs have it, for tests of the library that is loaded into them.
/usr/bin/python3 -c "import plyvel" 2>/dev/null || missing="$missing python3-plyvel"
# For addresses of RDMA (the feature `rdma`), which nothing needs that is without them.
[ -e /usr/include/infiniband/verbs.h ] || missing="$missing libibverbs-dev"
# For images of Ceph (the feature `rbd`), likewise.
[ -e /usr/include/rbd/librbd.h ] || missing="$missing librbd-dev"
if [ "${1:-}" = apps ]; then
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
    ls /usr/lib/postgresql/*/bin/pgbench >/dev/null 2>&1 || missing="$missing postgresql"
    need db_bench rocksdb-tools
    need ldb rocksdb-tools
    need redis-server redis-server
    need redis-check-aof redis-tools
    need mariadbd mariadb-server-core
    need mariadb mariadb-client-core
    need sysbench sysbench
    need git git
    need rsync rsync
    need go golang-go
    need setfacl acl
    # For SQLite's own tests, which are built.
    need tclsh tcl
    [ -e /usr/lib/tcl8.6/tclConfig.sh ] || missing="$missing tcl8.6-dev"
    need dpkg-source dpkg-dev
fi
if [ "${1:-}" = rbd ]; then
    need ceph-mon ceph-mon
    need ceph-osd ceph-osd
    need ceph ceph-common
    need rbd ceph-common
    # For a server that is cut off from the cluster.
    need iptables iptables
    # For bench/rbd, which a test runs.
    need db_bench rocksdb-tools
fi
if [ "${1:-}" = bench ]; then
    need db_bench rocksdb-tools
    need mkfs.xfs xfsprogs
    need mkfs.btrfs btrfs-progs
    # For siftfs-coinpurse-bench.
    need mariadbd mariadb-server-core
    need mariadb mariadb-client-core
    need sysbench sysbench
fi
if [ "${1:-}" = guest ]; then
    need qemu-system-x86_64 qemu-system-x86
    # The guest has no libraries for one that needs them.
    dpkg-query -W -f '${Status}' busybox-static 2>/dev/null | grep -q ' installed$' || missing="$missing busybox-static"
    need cpio cpio
    need depmod kmod
    need xz xz-utils
    need dpkg-deb dpkg
    need mkfs.f2fs f2fs-tools
    # For RDMA in software.
    need rdma iproute2
    [ -e /etc/libibverbs.d/rxe.driver ] || missing="$missing ibverbs-providers"
fi
if [ "${1:-}" = integrations ]; then
    need c++ g++
    need patch patch
    need dpkg-source dpkg-dev
    [ -e /usr/include/leveldb/db.h ] || missing="$missing libleveldb-dev"
    [ -e /usr/include/rocksdb/db.h ] || missing="$missing librocksdb-dev"
    [ -e /usr/include/gtest/gtest.h ] || missing="$missing libgtest-dev"
    [ -e /usr/include/gmock/gmock.h ] || missing="$missing libgmock-dev"
    # For LevelDB's archive, which is linked, and for programs that are run as they are.
    ls /usr/lib/*/libsnappy.so >/dev/null 2>&1 || missing="$missing libsnappy-dev"
    need db_bench rocksdb-tools
fi

[ -z "$missing" ] && exit 0
packages=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "missing programs; install these packages: $packages" >&2
    exit 1
fi
echo "installing: $packages"
export DEBIAN_FRONTEND=noninteractive
# Debian's packages start the servers they bring, unless this file says no; none is needed here.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
# shellcheck disable=SC2086 # a list of words
apt-get install -y -q --no-install-recommends $packages || {
    apt-get update -q
    apt-get install -y -q --no-install-recommends $packages
}
