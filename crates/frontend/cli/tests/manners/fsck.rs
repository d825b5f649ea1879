//! fsck(8) and the boot with fsck.siftfs.

use crate::place::script;
use crate::support::Setup;

/// A volume that was not unmounted, with a file in its log, at `$V`.
const CRASH: &str = r#"
crash() {
    mount -t siftfs "$V" "$D" -o commit=3600
    echo kept > "$D/kept"
    sync "$D/kept"
    kill -KILL "$(siftfs status "$D" --json | sed -n 's/^ *"pid": \([0-9]*\),*$/\1/p')"
    while siftfs status "$D" > /dev/null 2>&1; do sleep 0.05; done
    umount -i -l "$D"
}
"#;

fn fsck_script(s: &Setup, text: &str) {
    script(s, &format!("{CRASH}{text}")).ok();
}

/// By type, from the command line and from fstab, as systemd's boot does.
#[test]
fn fsck_finds_its_helper() {
    let s = Setup::new();
    fsck_script(
        &s,
        r#"
echo "$V $D siftfs rw,noauto 0 2" > "$T/fstab"
export FSTAB_FILE="$T/fstab"
fsck -V -T "$V" | grep -q "fsck.siftfs" || fail 'another helper'
fsck -T "$V" | grep -q "$V: clean" || fail 'not clean'
crash
expect 4 fsck -T -n "$V"
expect 4 fsck -T "$V"
expect 1 fsck -a -T -l "$V"
expect 0 fsck -a -T -l -M "$V"
mount -t siftfs "$V" "$D"
grep -q kept "$D/kept" || fail 'lost'
expect 8 fsck -T -a "$V"
umount "$D"
"#,
    );
    s.assert_plain_ext4();
}

/// What each of its options does, and its exit statuses.
#[test]
fn options_of_the_helper() {
    let s = Setup::new();
    fsck_script(
        &s,
        r#"
expect 0 fsck.siftfs "$V"
expect 0 fsck.siftfs -n -f "$V"
expect 0 fsck.siftfs -a "$V"
expect 0 fsck.siftfs -y -f "$V"
expect 16 fsck.siftfs
expect 16 fsck.siftfs -x "$V"
expect 16 fsck.siftfs -n -y "$V"
expect 8 fsck.siftfs "$T/missing"
crash
cp "$V" "$T/dirty"
for look in '' -n -f; do
    expect 4 fsck.siftfs $look "$V"
done
cmp "$V" "$T/dirty" || fail 'written'
for mend in -a -p -y -fy; do
    cp "$T/dirty" "$V"
    expect 1 fsck.siftfs $mend "$V"
    expect 0 fsck.siftfs -f "$V"
    debugfs -R 'cat /kept' "$V" 2> /dev/null | grep -q kept || fail "$mend lost it"
done
# Lines of progress go where they are wanted.
exec 7> "$T/progress"
expect 0 fsck.siftfs -f -C7 "$V"
grep -q '^5 ' "$T/progress" || fail "$(cat "$T/progress")"
"#,
    );
    s.assert_plain_ext4();
}

/// Damage in the ext4 area: reported by a check that is told not to trust it, repaired by -a and
/// -y.
#[test]
fn damage_in_the_area() {
    let s = Setup::new();
    fsck_script(
        &s,
        r#"
mount -t siftfs "$V" "$D"
for i in 1 2 3; do head -c 20000 /dev/urandom > "$D/f$i"; done
umount "$D"
debugfs -w -R 'clri /f2' "$V" 2> "$T/said"
expect 0 fsck.siftfs -n "$V"
expect 4 fsck.siftfs -n -f "$V"
cp "$V" "$T/damaged"
expect 1 fsck.siftfs -a -f "$V"
expect 0 fsck.siftfs -n -f "$V"
cp "$T/damaged" "$V"
expect 1 fsck.siftfs -y -f "$V"
expect 0 fsck.siftfs -n -f "$V"
mount -t siftfs "$V" "$D"
[ -s "$D/f1" ] && [ -s "$D/f3" ] || fail 'more than that is gone'
[ -e "$D/f2" ] && fail 'still there'
echo after > "$D/after"
umount "$D"
"#,
    );
    s.assert_plain_ext4();
}

/// Only the owner may give a damaged log up.
#[test]
fn a_damaged_log_is_left_alone() {
    let s = Setup::new();
    let at = size_of_area(&s);
    fsck_script(
        &s,
        &format!(
            r#"
crash
size=$(stat -c %s "$V")
for at in {at} $((size - 65536)); do
    head -c 4096 /dev/urandom | dd of="$V" bs=4096 seek=$((at / 4096)) conv=notrunc status=none
done
cp "$V" "$T/before"
for flags in -n -a -y -fy; do
    expect 4 fsck.siftfs $flags "$V"
done
cmp "$V" "$T/before" || fail 'written'
"#
        ),
    );
}

/// Where the first copy of the header is: behind the blocks that the superblock counts.
fn size_of_area(s: &Setup) -> u64 {
    let mut count = [0; 4];
    let file = std::fs::File::open(s.volume()).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut count, 1024 + 4).unwrap();
    u64::from(u32::from_le_bytes(count)) * 4096
}
