#!/bin/bash
# Boots a guest, runs a script in it as root, prints what it prints, and returns its exit status:
#
#     testing/guest/run-guest.sh [--state DIR] [--devices LIST] [--programs CPIO] [--seconds N] [--kill-at LINE] SCRIPT
#
# --state DIR      keeps the images of disks and memory (below) there, made when missing; otherwise they go with the guest
# --devices LIST   of the devices below; default: none
# --programs CPIO  an archive that is unpacked in the guest's root
# --seconds N      the guest is killed after so long; default: 120
# --kill-at LINE   kills qemu as soon as the script prints this line. Then the exit status is 137.
#
#     disk     /dev/vda                             DIR/disk
#     second   /dev/vdb                             DIR/second
#     pmr      NVMe with a region of 64 MiB (PMR)   DIR/pmr       its namespace: DIR/pmr-disk
#     cmb      NVMe with a buffer of 64 MiB (CMB)                 its namespace: DIR/cmb-disk
#     nvdimm   /dev/pmem0                           DIR/nvdimm
#     pmem     virtio-pmem, the /dev/pmem after it  DIR/pmem
#
# When qemu dies, what the guest had in its memory is gone. What its processors stored to persistent memory, and what it
# sent to a disk, is in these files. Processor caches are not emulated: stores that were not flushed are there, too.
#
# SIFTFS_GUEST is where build-image.sh put the kernel; default: target/guest. 125: the guest ended without a status.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
image=${SIFTFS_GUEST:-$here/../../target/guest}
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

state='' devices='' programs='' seconds=120 kill_at=''
while [ $# -gt 1 ]; do
    case $1 in
    --state) state=$2 ;;
    --devices) devices=$2 ;;
    --programs) programs=$2 ;;
    --seconds) seconds=$2 ;;
    --kill-at) kill_at=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ $# = 1 ] || usage
script=$1

fail() { echo "run-guest.sh: $*" >&2; exit 125; }
command -v qemu-system-x86_64 >/dev/null || fail "qemu-system-x86_64 is missing; scripts/install-deps.sh guest installs it"
[ -e "$image/vmlinux" ] && [ -e "$image/base.cpio" ] || fail "no kernel in $image; testing/guest/build-image.sh makes it"
[ -r "$script" ] || fail "$script cannot be read"

own=$(mktemp -d "${TMPDIR:-/tmp}/siftfs-guest.XXXXXX") || exit 125
qemu=
trap '[ -z "$qemu" ] || kill -KILL "$qemu" 2>/dev/null; rm -rf "$own"' EXIT
trap 'exit 130' HUP INT TERM
[ -n "$state" ] || state=$own
mkdir -p "$state" "$own/root"

# The kernel unpacks archives that follow each other, aligned to 4 bytes as cpio(1) pads them.
cp "$script" "$own/root/script"
(cd "$own/root" && echo script | cpio --quiet -o -H newc -R 0:0) >"$own/script.cpio"
cat "$image/base.cpio" ${programs:+"$programs"} "$own/script.cpio" >"$own/initrd" || exit 125

file() { # NAME SIZE
    [ -e "$state/$1" ] || truncate -s "$2" "$state/$1"
    echo "$state/$1"
}
# Commas are doubled in values of options.
memory() { local path; path=$(file "$1" "$2"); echo "memory-backend-file,id=$1,share=on,size=$2,mem-path=${path//,/,,}"; }
drive() { local path; path=$(file "$1" "$2"); echo "if=none,id=$1,format=raw,file=${path//,/,,}"; }

# The guest waits for these below /dev.
hardware=() nvme=0 pmem=0 wait=siftfs.wait=null
for device in $devices; do
    case $device in
    disk)
        hardware+=(-drive "$(drive disk 256M)" -device virtio-blk-pci,drive=disk)
        wait+=,vda
        ;;
    second)
        hardware+=(-drive "$(drive second 256M)" -device virtio-blk-pci,drive=second)
        wait+=,vdb
        ;;
    pmr)
        hardware+=(-object "$(memory pmr 64M)" -drive "$(drive pmr-disk 64M)" -device nvme,serial=pmr,drive=pmr-disk,pmrdev=pmr)
        wait+=,nvme${nvme}n1 nvme=$((nvme + 1))
        ;;
    cmb)
        hardware+=(-drive "$(drive cmb-disk 64M)" -device nvme,serial=cmb,drive=cmb-disk,cmb_size_mb=64)
        wait+=,nvme${nvme}n1 nvme=$((nvme + 1))
        ;;
    nvdimm)
        hardware+=(-object "$(memory nvdimm 256M)" -device nvdimm,memdev=nvdimm,id=nvdimm0)
        wait+=,pmem$pmem pmem=$((pmem + 1))
        ;;
    pmem)
        hardware+=(-object "$(memory pmem 256M)" -device virtio-pmem-pci,memdev=pmem,id=pmem0)
        wait+=,pmem$pmem pmem=$((pmem + 1))
        ;;
    *) fail "$device is no device" ;;
    esac
done

# With a thread for each processor qemu 7.2 aborts when a PMR is enabled (rcu_read_unlock).
arguments=(-machine q35,nvdimm=on -m 1024,slots=4,maxmem=8G -accel tcg,thread=single -cpu max -smp 2
    -nodefaults -no-reboot -display none -monitor none
    -kernel "$image/vmlinux" -initrd "$own/initrd"
    -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off tsc=reliable random.trust_cpu=on iomem=relaxed $wait"
    -chardev "file,id=console,path=$own/console" -serial chardev:console
    -chardev file,id=output,path=/dev/fd/1 -chardev "file,id=status,path=$own/status"
    -device virtio-serial-pci -device virtserialport,chardev=output,name=output
    -device virtserialport,chardev=status,name=status "${hardware[@]}")

exec 3< <(exec qemu-system-x86_64 "${arguments[@]}" 2>"$own/errors" </dev/null)
qemu=$!
end=$((SECONDS + seconds)) why='ended'
while left=$((end - SECONDS)); do
    [ $left -gt 0 ] || { why="was killed after $seconds s"; kill -KILL "$qemu"; break; }
    line='' got=0
    IFS= read -r -t "$left" -u 3 line || got=$?
    [ $got -le 128 ] || continue
    [ $got = 0 ] || [ -n "$line" ] || break
    printf '%s\n' "$line"
    [ -n "$kill_at" ] && [ "$line" = "$kill_at" ] || continue
    kill -KILL "$qemu"
    cat <&3 # what was printed before
    wait "$qemu"
    qemu=
    exit 137
done
wait "$qemu"
status=$?
qemu=
[ -s "$own/status" ] && exit "$(cat "$own/status")"
{
    echo "run-guest.sh: the guest $why without an exit status (qemu's is $status)"
    cat "$own/errors"
    tail -c 3000 "$own/console" 2>/dev/null
} >&2
exit 125
