#!/bin/sh
# Installs the system programs that are missing, with apt. Does nothing when all are there.
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
need cc gcc

[ -z "$missing" ] && exit 0
packages=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "missing programs; install these packages: $packages" >&2
    exit 1
fi
echo "installing: $packages"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words
apt-get install -y -q --no-install-recommends $packages || {
    apt-get update -q
    apt-get install -y -q --no-install-recommends $packages
}
