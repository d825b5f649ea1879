use super::*;
use crate::test_image::Image;

/// Rule R15's marker: in the primary and every backup, with valid checksums, it keeps e2fsck
/// away; cleared again, e2fsck finds the volume as it was.
#[test]
fn marker_keeps_e2fsck_away_and_leaves_no_trace() {
    let image = Image::make(600);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    let backups = fs.layout.backup_superblocks();
    assert_eq!(backups, [32768, 98304]);
    for on in [true, false] {
        for nr in &backups {
            let mut copy = [0; SUPER_SIZE];
            copy.copy_from_slice(&store.read(*nr).unwrap()[..SUPER_SIZE]);
            check_super(&copy).unwrap();
            set_marker(&mut copy, on);
            check_super(&copy).unwrap();
            assert_eq!((has_marker(&copy), super_uuid(&copy)), (on, fs.superblock.uuid()));
            assert_eq!(super_block_count(&copy), fs.layout.block_count());
            store.modify(*nr).unwrap()[..SUPER_SIZE].copy_from_slice(&copy);
        }
        fs.superblock.set_marker(on);
        image.save(&mut fs, &mut store);
        if on {
            let mut fsck = std::process::Command::new("/usr/sbin/e2fsck");
            let out = fsck.arg("-fn").arg(&image.file).output().unwrap();
            assert!(!out.status.success());
            assert!(Fs::open(&mut store).unwrap().superblock.marker());
        }
    }
    image.check();
}

#[test]
fn images_and_times() {
    let image = Image::make(300);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    assert!(fs.superblock.is_clean());
    fs.sync_super(&mut store).unwrap();
    assert!(store.dirty.is_empty(), "nothing changed yet");
    fs.superblock.set_mount_time(Timestamp { sec: (1 << 32) + 7, nsec: 0 });
    fs.superblock.set_write_time(Timestamp { sec: (1 << 32) + 9, nsec: 0 });
    let sb = fs.superblock.super_block();
    assert_eq!((sb.s_mtime.get(), sb.s_mtime_hi), (7, 1));
    assert_eq!(fs.superblock.write_time(), (1 << 32) + 9);
    let picture = fs.super_image();
    fs.sync_super(&mut store).unwrap();
    assert_eq!(store.read(0).unwrap()[SUPER_OFFSET..SUPER_OFFSET + SUPER_SIZE], picture);
    store.dirty.clear();
    fs.sync_super(&mut store).unwrap();
    assert!(store.dirty.is_empty(), "nothing changed, nothing is written");
    let backup = fs.backup_image(32768);
    check_super(&backup).unwrap();
    assert_eq!(super_ref(&backup).s_block_group_nr.get(), 1);
    // Copies may stand anywhere in their groups' first block: write them all.
    for nr in fs.layout.backup_superblocks() {
        let copy = fs.backup_image(nr);
        store.modify(nr).unwrap()[..SUPER_SIZE].copy_from_slice(&copy);
    }
    image.save(&mut fs, &mut store);
    image.check();
}

#[test]
fn reserved_blocks_are_mke2fs_five_percent() {
    let image = Image::make(300);
    let mut store = image.load();
    let fs = Fs::open(&mut store).unwrap();
    assert_eq!(fs.reserved_blocks(), 3840);
    assert_eq!(fs.superblock.reserved_ids(), (0, 0));
    assert_eq!(fs.layout.overhead_blocks() + fs.free_blocks() + 5, fs.layout.block_count());
}
