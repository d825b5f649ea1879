#!/bin/sh
# Builds SQLite's own test program, with atomic batch writes, from the source package of the system's
# SQLite. It goes to DIR/build/testfixture, its scripts to DIR/source/test. Takes minutes, and does
# nothing when all is there. The list of packages that is fetched for it is its own: the system's is
# left as it is.
set -eu
[ $# = 1 ] || { echo "usage: $0 DIR" >&2; exit 1; }
mkdir -p "$1"
cd "$1"
[ -x build/testfixture ] && [ -d source/test ] && exit 0
rm -rf source build lists sources.list
mkdir -p lists/partial build

# shellcheck disable=SC1091 # not there where this is checked
. /etc/os-release
printf 'deb-src http://deb.debian.org/debian %s main\n' "$VERSION_CODENAME" >sources.list
apt() {
    apt-get -q -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$PWD/lists" -o APT::Sandbox::User=root "$@"
}
apt update
apt source --download-only sqlite3
dpkg-source -x sqlite3_*.dsc source

cd build
../source/configure --disable-shared --with-tcl=/usr/lib/tcl8.6
make testfixture OPTS=-DSQLITE_ENABLE_BATCH_ATOMIC_WRITE
