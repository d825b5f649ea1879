#!/bin/bash
# Puts the kernel's NFS server and client into the root of a guest: the modules of its kernel, and the programs that set
# them up, of Debian's packages, unpacked and not installed:
#
#     testing/guest/add-nfs.sh ROOT DIR
#
# DIR is what build-image.sh made. The packages stay in DIR/nfs. ROOT/etc/more-modules names the modules in the order in which
# they are to be inserted.
set -euo pipefail
shopt -s inherit_errexit
PATH="$PATH:/usr/sbin:/sbin"
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 2 ] || { echo "usage: add-nfs.sh ROOT DIR" >&2; exit 2; }
root=$1 image=$(cd "$2" && pwd)
packages=(nfs-kernel-server nfs-common libwrap0 libtirpc3 libtirpc-common libevent-core-2.1-7 libkeyutils1 libnfsidmap1)
modules=(nfsd nfsv4)

if [ ! -e "$image/nfs" ]; then
    rm -rf "$image/nfs.new" && mkdir -p "$image/nfs.new"
    chmod 777 "$image/nfs.new" # apt loads as a user of its own
    (cd "$image/nfs.new" && apt-get download -q "${packages[@]}") || { echo "the packages of NFS cannot be downloaded" >&2; exit 1; }
    for package in "$image/nfs.new"/*.deb; do dpkg-deb -x "$package" "$image/nfs.new"; done
    mv "$image/nfs.new" "$image/nfs"
fi

release=$(ls "$image/linux/lib/modules")
mkdir -p "$root/etc"
for path in $(modprobe -d "$image/linux" -S "$release" --show-depends -a "${modules[@]}" | sed -n 's/^insmod //p'); do
    file=${path#"$image/linux"}
    [ ! -e "$root$file" ] || continue
    install -D -m 644 "$path" "$root$file"
    echo "$file" >>"$root/etc/more-modules"
done

libraries=$image/nfs/usr/lib/x86_64-linux-gnu
mkdir -p "$root/usr/lib/x86_64-linux-gnu"
cp -L "$libraries"/*.so.* "$image"/nfs/lib/x86_64-linux-gnu/*.so.* "$root/usr/lib/x86_64-linux-gnu"
cp "$image/nfs/etc/netconfig" "$root/etc"
programs=()
for name in usr/sbin/exportfs usr/sbin/rpc.mountd usr/sbin/rpc.nfsd sbin/mount.nfs; do programs+=("$image/nfs/$name"); done
LD_LIBRARY_PATH=$libraries:$image/nfs/lib/x86_64-linux-gnu "$here/add-programs.sh" "$root" "${programs[@]}"
rm -r "${root:?}$image/nfs" # libraries that lie with the others already
