#!/bin/sh
# Fetches the source packages of the system's LevelDB and RocksDB, whose own tests are built, and
# puts them into DIR/leveldb, DIR/leveldb-patched (with leveldb/checksum.patch) and DIR/rocksdb. Does
# nothing when all is there. The list of packages that is fetched for it is its own: the system's is
# left as it is.
set -eu
[ $# = 1 ] || { echo "usage: $0 DIR" >&2; exit 1; }
patch=$(dirname "$(readlink -f "$0")")/leveldb/checksum.patch
mkdir -p "$1"
cd "$1"
if ! [ -e fetched ]; then
    rm -rf leveldb rocksdb lists sources.list
    mkdir -p lists/partial
    # shellcheck disable=SC1091 # not there where this is checked
    . /etc/os-release
    printf 'deb-src http://deb.debian.org/debian %s main\n' "$VERSION_CODENAME" >sources.list
    apt() {
        apt-get -q -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- \
            -o Dir::State::lists="$PWD/lists" -o APT::Sandbox::User=root "$@"
    }
    apt update
    apt source --download-only leveldb rocksdb
    dpkg-source -x leveldb_*.dsc leveldb
    dpkg-source -x rocksdb_*.dsc rocksdb
    touch fetched
fi
if ! cmp -s "$patch" applied.patch; then
    rm -rf leveldb-patched
    cp -a leveldb leveldb-patched
    patch -d leveldb-patched -p1 <"$patch"
    cp "$patch" applied.patch
fi
