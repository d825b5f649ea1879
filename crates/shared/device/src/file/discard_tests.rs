use super::*;
use crate::{Device, FileOptions, open_exclusive};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;

fn queue(values: &[(&str, u64)]) -> Option<Discards> {
    let values: HashMap<_, _> = values.iter().copied().collect();
    of_queue(|name| values.get(name).copied())
}

#[test]
fn a_queue_that_cannot_discard_says_so() {
    assert_eq!(queue(&[]), None);
    assert_eq!(queue(&[("discard_max_bytes", 0), ("discard_granularity", 4096)]), None);
}

#[test]
fn a_queue_names_its_granularity_and_a_block_is_the_least() {
    let most = ("discard_max_bytes", 1 << 30);
    let unit = |granularity| queue(&[most, ("discard_granularity", granularity)]);
    assert_eq!(unit(512), Some(Discards { unit: 4096, usual: true }));
    assert_eq!(unit(1 << 20), Some(Discards { unit: 1 << 20, usual: true }));
    assert_eq!(queue(&[most]), Some(Discards { unit: 4096, usual: true }));
    assert_eq!(unit(3 << 12), None, "such a unit divides no area");
}

#[test]
fn a_hole_gives_the_space_of_a_file_back_and_keeps_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let reserved = open_exclusive(&path, true, FileOptions::default()).unwrap();
    assert!(!reserved.discards().unwrap().usual, "a file without a hole was meant to be reserved");
    let before = file.metadata().unwrap().blocks();
    reserved.discard(256 << 10, 512 << 10).unwrap();
    let after = file.metadata().unwrap();
    assert_eq!((after.len(), before - after.blocks()), (1 << 20, (512 << 10) / STAT_BLOCK));
    let mut bytes = [0; 2];
    file.read_exact_at(&mut bytes, (256 << 10) - 1).unwrap();
    assert_eq!(bytes, [7, 0]);
    drop(reserved);
    let sparse = open_exclusive(&path, true, FileOptions::default()).unwrap();
    assert!(sparse.discards().unwrap().usual);
}

#[test]
fn a_discard_outside_is_refused_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    std::fs::write(&path, vec![7; 8192]).unwrap();
    let device = open_exclusive(&path, true, FileOptions::default()).unwrap();
    assert!(device.discard(4096, 8192).is_err());
    assert!(device.discard(u64::MAX, 2).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 8192]);
}
