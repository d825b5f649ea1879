#!/bin/bash
# Copies programs into the root of a guest, with the shared libraries that ldd(1) says they need:
#
#     testing/guest/add-programs.sh ROOT PROGRAM...
#
# A program is a path or a name in PATH. It becomes ROOT/usr/bin/NAME, without the symbols for debuggers.
set -euo pipefail
shopt -s inherit_errexit
PATH="$PATH:/usr/sbin:/sbin"
root=$1
shift
mkdir -p "$root/usr/bin"
for program; do
    path=$(command -v "$program") || { echo "$program: no such program" >&2; exit 1; }
    to=$root/usr/bin/${path##*/}
    cp -L "$path" "$to"
    strip --strip-debug "$to"
    libraries=$(ldd "$path" | grep -o '/[^ ]*')
    for library in $libraries; do
        # Where the program looks for it; the loader among them, by its whole path.
        [ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
    done
done
