# The cases of run.sh, which says what `guest`, `power_cut` and `printed` do. What is between the words END runs in a
# guest; a command that fails ends it, and the case.

starts() {
    guest <<'END'
siftfs --version
END
    printed "^$("$built/siftfs" --version)\$"
}

nvdimm_holds_a_dax_file() { dax_file pmem0; }
virtio_pmem_holds_a_dax_file() { dax_file pmem1; }

dax_file() { # NAME-OF-DEVICE
    guest <<END
mkfs.ext4 -q -b 4096 /dev/$1
mount -t ext4 -o dax=always /dev/$1 /mnt
grep '/mnt ext4 .*dax=always' /proc/mounts
echo 'kept by $1' >/mnt/file
umount /mnt
END
    guest <<END
mount -t ext4 -o dax=always /dev/$1 /mnt
cat /mnt/file
END
    printed "^kept by $1\$"
}

# A controller with a persistent region has BAR 4, and one with a buffer has BAR 2. Either is free for others without its driver.
controllers_are_told_apart() {
    guest <<'END'
for controller in /sys/class/nvme/nvme*; do
    pci=$(readlink -f "$controller/device")
    echo "$(cat "$controller/serial") $(cd "$pci" && echo resource[1-5])"
    echo "${pci##*/}" >/sys/bus/pci/drivers/nvme/unbind
    [ ! -e "$pci/driver" ]
done
[ -z "$(ls /sys/class/nvme)" ]
END
    printed '^pmr *resource4$'
    printed '^cmb *resource2$'
}

# What is synced on a volume comes back, by a recovery outside of the guest.
volume_survives_a_power_cut() {
    power_cut 'all is synced' <<'END'
siftfs mkfs /dev/vda
siftfs mount /dev/vda /mnt
seq 100000 >/mnt/numbers
siftfs sync /mnt
echo 'all is synced'
sleep 100
END
    ! "$built/siftfs" fsck "$state/disk"
    "$built/siftfs" recover "$state/disk"
    "$built/siftfs" fsck "$state/disk"
    e2fsck -fn "$state/disk"
    debugfs -R 'cat numbers' "$state/disk" | cmp - <(seq 100000)
}
