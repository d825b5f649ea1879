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

# A volume whose record area lies in such memory: what a small fsync acknowledged is there after the power went.

area_on_a_pmr() {
    area_volume "$(cat <<'END'
address=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
echo "$address" >/sys/bus/pci/drivers/nvme/unbind
place=pmr:$address
END
)" 'NVMe PMR, sfence and read-back'
}

area_on_an_nvdimm() { area_in_a_dax_file pmem0 'MAP_SYNC, cl[a-z]* and sfence'; }
area_on_virtio_pmem() { area_in_a_dax_file pmem1 'DAX without MAP_SYNC, msync'; }

area_in_a_dax_file() { # NAME-OF-DEVICE PROMISE
    area_volume "mkdir /pm
mount -t ext4 -o dax=always /dev/$1 /pm 2>/dev/null || {
    mkfs.ext4 -q -b 4096 /dev/$1
    mount -t ext4 -o dax=always /dev/$1 /pm
}
place=/pm/area" "$2"
}

area_volume() { # WHAT-SETS-place PROMISE
    power_cut 'acknowledged 150' <<END
$1
siftfs mkfs --record-area "\$place" --record-area-size 16M /dev/vda
siftfs mount -o "record_area=\$place" /dev/vda /mnt
i=0
while [ \$i -le 150 ]; do
    echo "line \$i" | dd of=/mnt/log oflag=append conv=notrunc,fsync 2>/dev/null
    [ \$i != 140 ] || siftfs status --json /mnt | tr -d ' \n'
    echo
    echo "acknowledged \$i"
    i=\$((i + 1))
done
sleep 100
END
    printed "$2"
    printed '"record_area":{[^}]*"records":1[34][0-9]'
    guest <<END
$1
siftfs mount -o "record_area=\$place" /dev/vda /mnt
echo "lines \$(grep -c line /mnt/log), last \$(tail -n1 /mnt/log)"
siftfs umount /mnt
siftfs fsck --record-area "\$place" /dev/vda
END
    printed '^lines 151, last line 150$'
    e2fsck -fn "$state/disk"
    debugfs -R 'cat log' "$state/disk" 2>/dev/null | cmp - <(seq 0 150 | sed 's/^/line /')
}

# A program that knows nothing of private logs, with its log in such memory: it appends lines and syncs each; all that were
# acknowledged are there after the power went, by a recovery that takes the log in.

log_on_an_nvdimm() { byte_log pmem0 'MAP_SYNC, cl[a-z]* and sfence'; }
log_on_virtio_pmem() { byte_log pmem1 'DAX without MAP_SYNC, msync'; }

byte_log() { # NAME-OF-DEVICE PROMISE
    power_cut 'acknowledged 300' <<END
mkfs.ext4 -q -b 4096 /dev/$1
mkdir /pm
mount -t ext4 -o dax=always /dev/$1 /pm
siftfs mkfs /dev/vda
siftfs mount -o write_cache=writethrough,private_logs=/pm/logs /dev/vda /mnt
export SIFTFS_ACCEL=eager
siftfs accel -- append_synced /mnt/log 301 | while read -r line; do
    [ "\$line" != 'acknowledged 150' ] || siftfs status --json /mnt
    echo "\$line"
done
END
    printed '"medium": "byte"'
    printed "\"promise\": \"persistent: $2\""
    guest <<END
mkdir /pm
mount -t ext4 -o dax=always /dev/$1 /pm
siftfs recover /dev/vda
siftfs mount /dev/vda /mnt
echo "lines \$(grep -c line /mnt/log), last \$(tail -n1 /mnt/log)"
siftfs umount /mnt
siftfs fsck /dev/vda
[ -z "\$(ls /pm/logs)" ]
END
    printed ': 1 logs of programs taken in: [0-9]* records of [1-9][0-9]* batches'
    printed '^lines 301, last line 300$'
    e2fsck -fn "$state/disk"
    debugfs -R 'cat log' "$state/disk" 2>/dev/null | cmp - <(seq 0 300 | sed 's/^/line /')
}

# Figure 5's operations, each with its fsync, on F2FS and on a volume with a record area: after the power went, both have the
# same files, all that were made and none that were removed.
f2fs_has_the_same_files() {
    truncate -s 256M "$state/second"
    mkfs.f2fs -q "$state/second"
    local mounts
    mounts=$(cat <<'END'
address=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
echo "$address" >/sys/bus/pci/drivers/nvme/unbind
mkdir /sift /f2fs
mount_both() {
    siftfs mount -o "record_area=pmr:$address" /dev/vda /sift
    mount -t f2fs -o fsync_mode=strict /dev/vdb /f2fs
}
END
)
    power_cut 'all is synced' <<END
$mounts
siftfs mkfs --record-area "pmr:\$address" --record-area-size 16M /dev/vda
mount_both
piece() { yes "piece \$1" | head -c 512; }
operations() { # DIRECTORY
    yes old | head -c 65536 >"\$1/random"
    cp "\$1/random" "\$1/sequential"
    sync "\$1/random" "\$1/sequential"
    i=0
    while [ \$i -lt 60 ]; do
        piece \$i | dd of="\$1/random" bs=512 seek=\$((i * 37 % 128)) conv=notrunc,fsync 2>/dev/null
        piece \$i | dd of="\$1/sequential" bs=512 seek=\$i conv=notrunc,fsync 2>/dev/null
        piece \$i | dd of="\$1/appended" oflag=append conv=notrunc,fsync 2>/dev/null
        piece \$i | dd of="\$1/made.\$i" conv=fsync 2>/dev/null
        if [ \$((i % 2)) = 1 ]; then
            rm "\$1/made.\$((i - 1))"
            sync "\$1"
        fi
        i=\$((i + 1))
    done
}
operations /f2fs
operations /sift
echo 'all is synced'
sleep 100
END
    guest <<END
$mounts
mount_both
files() { (cd "\$1" && find . -type f | sort | xargs md5sum); }
files /f2fs >/tmp/f2fs
files /sift >/tmp/sift
cmp /tmp/f2fs /tmp/sift
echo "\$(wc -l </tmp/sift) files, random \$(grep -c piece /sift/random) lines, appended \$(wc -c </sift/appended) bytes"
umount /f2fs
siftfs umount /sift
END
    printed '^33 files, random [1-9][0-9]* lines, appended 30720 bytes$'
    e2fsck -fn "$state/disk"
}
