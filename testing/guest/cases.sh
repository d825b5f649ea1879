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

# Record areas: the guest prints the number of each record that is persistent, until its power goes. All of them must be there.

records_on_a_pmr() {
    local salt
    for salt in 1 2; do
        power_cut "acknowledged $((salt * 700))" <<END
address=\$(basename "\$(readlink -f /sys/class/nvme/nvme0/device)")
echo "\$address" >/sys/bus/pci/drivers/nvme/unbind
byte_medium write "pmr:\$address" 65536 $salt
END
        printed '^persistent: NVMe PMR, sfence and read-back$'
        "$built/examples/byte_medium" verify "volatile:$state/pmr" "$(acknowledged)" $salt
    done
}

records_on_an_nvdimm() { records_in_a_dax_file pmem0 '^persistent: MAP_SYNC, cl[a-z]* and sfence$'; }
records_on_virtio_pmem() { records_in_a_dax_file pmem1 '^persistent: DAX without MAP_SYNC, msync$'; }

records_in_a_dax_file() { # NAME-OF-DEVICE PROMISE
    power_cut 'acknowledged 10' <<END
mkfs.ext4 -q -b 4096 /dev/$1
mount -t ext4 -o dax=always /dev/$1 /mnt
byte_medium write /mnt/records 16777216 1
END
    printed "$2"
    # Without the end of the file system's journal, which is replayed before they are looked at.
    power_cut 'acknowledged 1500' <<END
mount -t ext4 -o dax=always /dev/$1 /mnt
byte_medium verify volatile:/mnt/records $(acknowledged) 1
byte_medium write /mnt/records 16777216 2
END
    guest <<END
mount -t ext4 -o dax=always /dev/$1 /mnt
byte_medium verify volatile:/mnt/records $(acknowledged) 2
END
}

# How many records the last guest acknowledged; their numbers begin with 0.
acknowledged() {
    local last
    last=$(sed -n 's/^acknowledged //p' "$state/printed" | tail -n1)
    echo $((last + 1))
}

# Each place that a power cut may empty is refused, with one line that says why.
what_is_not_persistent() {
    guest <<'END'
refused() { # PLACE PATTERN
    if message=$(byte_medium write "$1" 65536 1 2>&1); then
        echo "$1 was not refused"
        exit 1
    fi
    echo "$message"
    [ "$(echo "$message" | wc -l)" = 1 ]
    echo "$message" | grep -q "^byte_medium: .*$2"
}
for controller in /sys/class/nvme/nvme*; do
    address=$(basename "$(readlink -f "$controller/device")")
    refused "pmr:$address" "the driver nvme uses the NVMe controller $address: unbind it first"
    [ "$(cat "$controller/serial")" = pmr ] || buffer=$address
done
echo "$buffer" >/sys/bus/pci/drivers/nvme/unbind
refused "pmr:$buffer" "$buffer has a controller memory buffer (CMB) and no persistent memory region"
refused pmr:0000:00:00.0 'the PCI device 0000:00:00.0 is no NVMe controller'
refused pmr:0000:00:1e.0 'there is no PCI device 0000:00:1e.0'
truncate -s 64K /tmp/records
refused /tmp/records '/tmp/records is not DAX: it lies on tmpfs'
refused /tmp/new '/tmp/new is not DAX: it lies on tmpfs'
[ ! -e /tmp/new ]
refused /dev/pmem0 '/dev/pmem0 is a block device'
mkfs.ext4 -q -b 4096 /dev/pmem0
mount -t ext4 -o dax=never /dev/pmem0 /mnt
refused /mnt/records '/mnt/records is not DAX: it lies on ext'
[ ! -e /mnt/records ]
refused /dev/null '/dev/null is a character device, but no DAX device'
END
}
