//! A device as a file: what is written by one is read by the other.

use super::*;
use siftfs_device::MemDevice;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

#[test]
fn the_file_is_the_device() {
    let device = Arc::new(MemDevice::new(3 << 20));
    device.write(5000, b"below", false).unwrap();
    let served = OneFile::serve(device.clone(), true).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(served.path()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3 << 20);
    let mut found = [0; 5];
    file.read_exact_at(&mut found, 5000).unwrap();
    assert_eq!(&found, b"below");
    for (at, len) in [(1u64, 1), (4095, 2), (1 << 20, 1 << 20), ((3 << 20) - 9, 9)] {
        file.write_all_at(&vec![7; len], at).unwrap();
        file.sync_all().unwrap();
        let mut there = vec![0; len];
        device.read(at, &mut there).unwrap();
        assert!(there.iter().all(|byte| *byte == 7), "{len} bytes at {at}");
    }
    assert!(file.write_all_at(&[1], 3 << 20).is_err(), "behind the device's end");
    assert_eq!(file.read_at(&mut found, 3 << 20).unwrap(), 0);
    assert!(File::create(served.path().with_file_name("other")).is_err());
    let path = served.path().to_owned();
    drop(file);
    served.end().unwrap();
    assert!(!path.exists() && !path.parent().unwrap().exists(), "nothing stays");
}

#[test]
fn one_that_is_only_read_is_not_written() {
    let device = Arc::new(MemDevice::new(1 << 20));
    let served = OneFile::serve(device.clone(), false).unwrap();
    assert!(OpenOptions::new().write(true).open(served.path()).is_err());
    assert_eq!(std::fs::read(served.path()).unwrap(), vec![0; 1 << 20]);
    served.end().unwrap();
    let service = Served { device, writable: false };
    let write = Request::write(FILE, 0, vec![1]);
    assert_eq!(service.call(&Credentials::default(), write), Err(errno(libc::EROFS)));
}
