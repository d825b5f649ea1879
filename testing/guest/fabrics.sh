# A case of run.sh: direct files beside what the guest's own kernel has: a disk, and the same kind of disk over NVMe/TCP and
# NVMe/RDMA (soft-RoCE), raw and with ext4. Every disk is memory of the guest (brd), and so is that of each target, and all that
# crosses goes to an address of the guest's own. It measures and judges nothing: ratios within a round, whatever the guest's
# speed. Needs siftfs-ceto-bench beside the other programs, with the feature `rdma`; SIFTFS_GUEST_ROUNDS and SIFTFS_GUEST_TIME
# say how much is done.
kernel_rows() {
    local rounds=${SIFTFS_GUEST_ROUNDS:-5} time=${SIFTFS_GUEST_TIME:-1s}
    mkdir "$state/root"
    "$here/add-rdma.sh" "$state/root"
    "$here/add-programs.sh" "$state/root" "$built/siftfs-ceto-bench"
    (cd "$state/root" && find . | cpio --quiet -o -H newc -R 0:0) | cat "$work/programs.cpio" - >"$state/programs.cpio"
    { cat "$here/fabrics-guest.sh"; echo "measure $rounds $time"; } |
        guest --programs "$state/programs.cpio" --seconds 1800
    printed '^4 KiB writes, each durable$'
    sed -n '/^4 KiB reads$/,$p' "$state/printed" >"$state/figures" # which run.sh prints
}
