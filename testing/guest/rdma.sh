# A case of run.sh: a target that is reached over RDMA, in software (soft-RoCE) on a network device of the guest's own. What
# crosses shows in that device's counters of packets. Needs a siftfs with the feature `rdma`.
rdma_carries_a_target() {
    mkdir "$state/root"
    "$here/add-rdma.sh" "$state/root"
    (cd "$state/root" && find . | cpio --quiet -o -H newc -R 0:0) | cat "$work/programs.cpio" - >"$state/programs.cpio"
    guest --programs "$state/programs.cpio" --seconds 300 <<'END'
modprobe -a dummy ib_uverbs rdma_rxe
ip link set lo up
ip addr add 10.77.0.1/24 dev dummy0
ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0
packets() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }

json() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }
for name in target host stranger; do
    siftfs key new --file /tmp/$name --comment $name >/dev/null
done
print=$(siftfs key show --json /tmp/target | json fingerprint)
echo "role=host volumes=vda $(siftfs key show --json /tmp/host | json line)" >/tmp/authorized
known() { echo "key=/tmp/$1,known_servers=/tmp/known,fingerprint=$print"; }
at_port() { # KIND PORT
    siftfs device /dev/vda --listen "$1:10.77.0.1:$2" --key /tmp/target --authorized /tmp/authorized >/tmp/said 2>&1 &
    target=$!
    until grep -q 10.77.0.1 /tmp/said; do
        kill -0 $target || { cat /tmp/said; exit 1; }
        usleep 100000
    done
}
refused() { # PORT KEY PATTERN
    if message=$(siftfs mount "target:rdma:10.77.0.1:$1/vda" /mnt -o "$(known "$2")" 2>&1); then
        echo "a mount was not refused: $3"
        exit 1
    fi
    echo "$message"
    echo "$message" | grep -q "$3"
}
counts() { grep -o '"path": *"target:[^"]*"' /tmp/status; }

siftfs mkfs /dev/vda
at_port tcp 7401
alone=$target
refused 7401 host 'does not carry frames over RDMA: it has to listen at rdma:'
kill $alone
wait $alone

at_port rdma 7400
refused 7400 stranger 'the server does not admit the key'
before=$(packets)
siftfs mount target:rdma:10.77.0.1:7400/vda /mnt -o "$(known host)"
seq 100000 >/mnt/first
sync /mnt/first
siftfs status --json /mnt >/tmp/status
counts
seq 100000 | cmp - /mnt/first
after=$(packets)
# 589 KB in packets of at most 1 KiB.
echo "packets: $((after - before))"
[ $((after - before)) -gt 500 ]

kill -KILL $target
wait $target || true
(seq 200000 >/mnt/second && sync /mnt/second && echo 'the second is synced') &
writer=$!
sleep 1
kill -0 $writer
at_port rdma 7400
wait $writer
siftfs checkpoint /mnt
siftfs umount /mnt
kill $target
wait $target
echo "packets at the end: $(($(packets) - after))"
[ $(($(packets) - after)) -gt 1000 ]
END
    printed '"path": *"target:rdma:10.77.0.1:7400/vda"'
    printed '^the second is synced$'
    e2fsck -fn "$state/disk"
    debugfs -R 'cat first' "$state/disk" 2>/dev/null | cmp - <(seq 100000)
    debugfs -R 'cat second' "$state/disk" 2>/dev/null | cmp - <(seq 200000)
}
