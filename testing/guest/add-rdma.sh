#!/bin/bash
# Puts what RDMA over a network device in software (soft-RoCE) needs into the root of a guest: rdma(8), the library of verbs and
# its provider, which it loads by its name:
#
#     testing/guest/add-rdma.sh ROOT
#
# The guest has the modules already (build-image.sh) and loads them by modprobe(8).
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { echo "usage: add-rdma.sh ROOT" >&2; exit 2; }
root=$1
"$here/add-programs.sh" "$root" rdma
verbs=$(PATH="$PATH:/usr/sbin:/sbin" ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p' | head -n1)
[ -n "$verbs" ] || { echo "libibverbs.so.1 is missing; scripts/install-deps.sh guest installs it" >&2; exit 1; }
provider=$(dirname "$(readlink -f "$verbs")")/libibverbs/librxe-rdmav34.so
for library in "$verbs" "$provider" $(ldd "$verbs" "$provider" | grep -o '=> /[^ ]*' | cut -c4-); do
    [ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
done
install -D -m 644 /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/rxe.driver"
