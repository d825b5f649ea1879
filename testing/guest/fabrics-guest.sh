# What the case kernel_rows (fabrics.sh) runs in its guest.
at=10.77.0.1
modprobe -a dummy ib_uverbs rdma_rxe
ip link set lo up
ip addr add $at/24 dev dummy0
ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0
# /dev/ram0 and 1 are the kernel's near ones; 2 to 5 are behind its fabrics, 6 to 8 are of targets.
modprobe brd rd_nr=9 rd_size=262144
modprobe -a nvmet-tcp nvme-tcp nvmet-rdma nvme-rdma
mount -t configfs configfs /sys/kernel/config
packets() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }

# A port of the kernel's target. Each device behind it is a subsystem, whose controller here gets the next number.
nvmet=/sys/kernel/config/nvmet connected=0
port() { # KIND PORT
    mkdir $nvmet/ports/$2
    echo ipv4 >$nvmet/ports/$2/addr_adrfam
    echo $at >$nvmet/ports/$2/addr_traddr
    echo $1 >$nvmet/ports/$2/addr_trtype
    echo $2 >$nvmet/ports/$2/addr_trsvcid
}
connect() { # KIND PORT DEVICE
    name=$1-${3##*/} end=/dev/nvme${connected}n1
    mkdir $nvmet/subsystems/$name $nvmet/subsystems/$name/namespaces/1
    echo 1 >$nvmet/subsystems/$name/attr_allow_any_host
    echo $3 >$nvmet/subsystems/$name/namespaces/1/device_path
    echo 1 >$nvmet/subsystems/$name/namespaces/1/enable
    ln -s $nvmet/subsystems/$name $nvmet/ports/$2/subsystems/$name
    echo "transport=$1,traddr=$at,trsvcid=$2,nqn=$name" >/dev/nvme-fabrics
    tries=0
    until [ -b $end ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "$end does not appear"; exit 1; }
        usleep 100000
    done
    [ "$(cat /sys/class/nvme/nvme$connected/transport)" = $1 ]
    connected=$((connected + 1))
}
ext4() { # DEVICE DIR
    mkdir -p $2
    mkfs.ext4 -q -b 4096 $1
    mount -t ext4 $1 $2
}

# A target of ours whose programs come by that address, and a host of its volume.
serve() { # NAME DEVICE ADDRESS OPTIONS-OF-THE-TARGET
    name=$1 device=$2 address=$3
    shift 3
    siftfs mkfs $device
    siftfs device $device --listen unix:/tmp/$name-hosts --programs $address "$@" >/tmp/$name-target 2>&1 &
    listens $! /tmp/$name-target /tmp/$name-hosts
    siftfs serve target:unix:/tmp/$name-hosts/${device##*/} --listen unix:/tmp/$name >/tmp/$name-host 2>&1 &
    listens $! /tmp/$name-host 'is served at'
}
listens() { # PROCESS FILE WORDS
    until grep -q "$3" $2; do
        kill -0 $1 || { cat $2; exit 1; }
        usleep 100000
    done
}
keys() { # PORT...
    siftfs key new --file /tmp/target --comment target >/dev/null
    siftfs key new --comment program >/dev/null
    line() { siftfs key show --json $1 | sed -n 's/.*"line": *"\([^"]*\)".*/\1/p'; }
    echo "role=client $(line /etc/siftfs/key)" >/tmp/authorized
    for port; do
        echo "$at:$port $(line /tmp/target | cut -d' ' -f1-2)" >>/etc/siftfs/known_servers
    done
}

measure() { # ROUNDS TIME
    port tcp 4420
    port rdma 4421
    connect tcp 4420 /dev/ram2
    connect rdma 4421 /dev/ram3
    connect tcp 4420 /dev/ram4
    connect rdma 4421 /dev/ram5
    ext4 /dev/ram1 /near
    ext4 /dev/nvme2n1 /over-tcp
    ext4 /dev/nvme3n1 /over-rdma
    keys 7400 7402
    before=$(packets)
    serve rdma /dev/ram6 rdma:$at:7400 --key /tmp/target --authorized /tmp/authorized
    serve plain /dev/ram7 tcp:$at:7401 --insecure
    serve keyed /dev/ram8 tcp:$at:7402 --key /tmp/target --authorized /tmp/authorized
    siftfs bench ceto-kernel --rounds $1 --time $2 \
        --beside 'the device=/dev/ram0' --beside 'NVMe/TCP=/dev/nvme0n1' --beside 'NVMe/RDMA=/dev/nvme1n1' \
        --beside 'ext4=/near' --beside 'ext4 on NVMe/TCP=/over-tcp' --beside 'ext4 on NVMe/RDMA=/over-rdma' \
        --direct 'direct, rdma:=unix:/tmp/rdma' --plain 'direct, tcp: without keys=unix:/tmp/plain' \
        --direct 'direct, tcp:=unix:/tmp/keyed' >/tmp/figures
    echo "RDMA had $(($(packets) - before)) packets"
    [ $(($(packets) - before)) -gt 1000 ]
    cat /tmp/figures
    for name in nvme0n1 nvme1n1 nvme2n1 nvme3n1; do
        echo "$name: $(awk '{ print $5 " writes, " $16 " flushes" }' /sys/block/$name/stat)"
    done
}
