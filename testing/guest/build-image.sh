#!/bin/bash
# Makes what `run-guest.sh` boots, once, in the directory that it is given:
#
#     testing/guest/build-image.sh DIR
#
# DIR/vmlinux: Debian's stock kernel, which linux-image-amd64 stands for at that time, or the package that
# SIFTFS_GUEST_KERNEL names; unpacked, not installed. It stays the same until DIR is removed; apt checks what it loads.
# DIR/base.cpio: busybox, mke2fs and e2fsck, and of that kernel's modules those that the guest loads. Made again when `init` or this
# script changes. Needs what `scripts/install-deps.sh guest` installs.
set -euo pipefail
shopt -s inherit_errexit
PATH="$PATH:/usr/sbin:/sbin"
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { echo "usage: build-image.sh DIR" >&2; exit 2; }
mkdir -p "$1"
cd "$1"

modules=(virtio_pci virtio_blk virtio_console crc32c_generic ext4 f2fs fuse nvme nfit nd_pmem nd_btt virtio_pmem)
# Those that only some cases load, by modprobe(8).
more=(dummy ib_uverbs rdma_rxe brd nvmet-tcp nvme-tcp nvmet-rdma nvme-rdma)

say() { echo "guest image: $*"; }
fail() { echo "guest image: $*" >&2; exit 1; }
for program in apt-get busybox cpio depmod modprobe dpkg-deb xz mke2fs; do
    command -v $program >/dev/null || fail "$program is missing; scripts/install-deps.sh guest installs it"
done

# The kernel that a compressed image holds, which qemu enters without the decompression that takes seconds in emulation.
uncompressed() { # IMAGE
    local at
    at=$(LC_ALL=C grep -abom1 -P '\xfd7zXZ\x00' "$1" | head -n1 | cut -d: -f1) || true
    [ -n "$at" ] && tail -c "+$((at + 1))" "$1" | xz -dc --single-stream 2>/dev/null
}

kernel() {
    local package=${SIFTFS_GUEST_KERNEL:-} release
    rm -rf new && mkdir new
    if [ -z "$package" ]; then
        depends() { apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n1; }
        package=$(depends)
        [ -n "$package" ] || { apt-get update -q && package=$(depends); }
        [ -n "$package" ] || fail "apt knows no linux-image-amd64"
    fi
    say "downloads $package"
    chmod 777 new # apt loads as a user of its own
    (cd new && { apt-get download -q "$package" || { apt-get update -q && apt-get download -q "$package"; }; }) ||
        fail "the kernel package $package cannot be downloaded"
    dpkg-deb -x new/linux-image-*.deb new/root
    release=$(ls new/root/lib/modules)
    uncompressed "new/root/boot/vmlinuz-$release" >new/vmlinux || true
    [ "$(head -c4 new/vmlinux)" = $'\x7fELF' ] || cp "new/root/boot/vmlinuz-$release" new/vmlinux
    rm -rf linux && mv new/root linux
    mv new/vmlinux vmlinux
    echo "$package $(dpkg-deb -f new/linux-image-*.deb Version)" >kernel
    rm -r new
}

base() {
    local release file path
    release=$(ls linux/lib/modules)
    say "puts its modules beside busybox"
    rm -rf root && mkdir -p root/bin root/sbin root/usr/bin root/etc root/dev root/proc root/sys root/tmp root/run root/mnt
    cp /bin/busybox root/bin/busybox
    ln -s /bin/busybox root/sbin/modprobe # where the kernel looks for it
    install -m 755 "$here/init" root/init
    depmod -b linux "$release"
    for path in $(modprobe -d "$PWD/linux" -S "$release" --show-depends -a "${modules[@]}" "${more[@]}" | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u); do
        file=${path#"$PWD/linux/"}
        install -D -m 644 "$path" "root/$file"
    done
    cp linux/lib/modules/"$release"/modules.{builtin,builtin.modinfo,order} "root/lib/modules/$release"
    depmod -b root "$release"
    echo "${modules[*]}" >root/etc/modules
    "$here/add-programs.sh" root mkfs.ext4 mke2fs e2fsck
    cp /etc/mke2fs.conf root/etc
    (cd root && find . | sort | cpio --quiet -o -H newc -R 0:0) >base.new
    rm -r root
    mv base.new base.cpio
}

# A file is there only when it is whole, so that an interrupted run is made up for by the next.
if [ ! -e kernel ] || { [ -n "${SIFTFS_GUEST_KERNEL:-}" ] && ! grep -q "^$SIFTFS_GUEST_KERNEL " kernel; }; then
    rm -f kernel made-from
    kernel
fi
from=$(cat kernel "$here/init" "$here/build-image.sh" "$here/add-programs.sh" | sha256sum)
if [ ! -e base.cpio ] || [ "$(cat made-from 2>/dev/null)" != "$from" ]; then
    rm -f made-from
    base
    echo "$from" >made-from
fi
say "$(cat kernel), $(du -k base.cpio | cut -f1) KiB beside it, in $PWD"
