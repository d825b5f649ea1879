# A case of run.sh: programs on remote mounts, beside the kernel's NFSv4 server and client over ext4 on the same disk, with
# its exports `sync` and `async`. It measures and judges nothing: ratios within a round, whatever the guest's speed. Needs
# siftfs-remote-bench beside the other programs; SIFTFS_GUEST_ROUNDS and SIFTFS_GUEST_FILES say how much is done.
remote_beside_nfs() {
    local rounds=${SIFTFS_GUEST_ROUNDS:-3} files=${SIFTFS_GUEST_FILES:-100}
    mkdir "$state/root"
    "$here/add-nfs.sh" "$state/root" "$SIFTFS_GUEST"
    "$here/add-programs.sh" "$state/root" "$built/siftfs-remote-bench" git sqlite3 tar
    ln -s git "$state/root/usr/bin/git-upload-pack"
    (cd "$state/root" && find . | cpio --quiet -o -H newc -R 0:0) | cat "$work/programs.cpio" - >"$state/programs.cpio"
    truncate -s 3G "$state/disk"
    guest --programs "$state/programs.cpio" --seconds 1800 <<END
for module in \$(cat /etc/more-modules); do
    insmod \$module || true # or it is there
done
ip link set lo up
echo '127.0.0.1 localhost' >/etc/hosts
echo 'root:x:0:0::/:/bin/sh' >/etc/passwd
echo 'root:x:0:' >/etc/group
echo 'nfs 2049/tcp' >/etc/services
mkfs.ext4 -q /dev/vda
mkdir -p /disk /nfs-sync /nfs-async /var/lib/nfs/v4recovery
mount -t ext4 /dev/vda /disk
mkdir /disk/sync /disk/async /disk/ext4
echo '/disk/sync 127.0.0.1(rw,sync,no_root_squash,no_subtree_check,fsid=1)' >/etc/exports
echo '/disk/async 127.0.0.1(rw,async,no_root_squash,no_subtree_check,fsid=2)' >>/etc/exports
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t nfsd nfsd /proc/fs/nfsd
exportfs -a
rpc.mountd -N 2 -N 3
rpc.nfsd -N 3 4
echo Y >/proc/fs/nfsd/v4_end_grace
for kind in sync async; do
    mount.nfs 127.0.0.1:/disk/\$kind /nfs-\$kind -o vers=4.2
done
grep nfs4 /proc/mounts
export GIT_EXEC_PATH=/usr/bin GIT_TEMPLATE_DIR=
siftfs-remote-bench programs --dir /disk --rounds $rounds --files $files \\
    --beside "NFSv4, sync=/nfs-sync=1.5" --beside "NFSv4, async=/nfs-async" --beside "ext4 itself=/disk/ext4"
END
    printed 'NFSv4, sync'
    sed -n '/^tar /,$p' "$state/printed" >"$state/figures" # which run.sh prints
}
