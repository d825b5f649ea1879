use super::*;
use crate::{FileOptions, open_exclusive, preallocate};
use siftfs_base::Error;

fn errno(result: Result<()>) -> i32 {
    match result {
        Err(Error::Io { errno, .. }) => errno,
        other => panic!("expected an I/O error, got {other:?}"),
    }
}

/// A file that lost its tail after it was opened: reads and batches say so instead of
/// returning what was in the buffer.
#[test]
fn a_truncated_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for options in [
        FileOptions::default(),
        FileOptions { uring: false, ..Default::default() },
        FileOptions { direct: false, uring: false, ..Default::default() },
    ] {
        let path = dir.path().join("volume");
        preallocate(&path, 1 << 20).unwrap();
        let d = open_exclusive(&path, false, options).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
        assert_eq!(errno(d.read(8192, &mut [0; 4096])), libc::EIO);
        let mut bufs = [AlignedBuf::zeroed(4096), AlignedBuf::zeroed(4096)];
        let mut ops: Vec<_> =
            bufs.iter_mut().zip([4096, 8192]).map(|(buf, offset)| ReadOp { offset, buf }).collect();
        assert_eq!(errno(d.read_batch(&mut ops)), libc::EIO);
    }
}

/// A file that was cut shorter is noticed at the next flush, and at the next write before that can
/// make it long again. It stays failed, whatever becomes of the file.
#[test]
fn a_file_that_shrinks_is_noticed_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let block = AlignedBuf::zeroed(4096);
    for options in [
        FileOptions::default(),
        FileOptions { uring: false, durable: DurableWrite::Dsync, ..Default::default() },
        FileOptions { direct: false, uring: false, ..Default::default() },
    ] {
        let path = dir.path().join("volume");
        let end = (1 << 20) - 4096;
        type Use<'a> = (&'a str, &'a dyn Fn(&FileDevice) -> Result<()>);
        let uses: [Use<'_>; 4] = [
            ("flush", &|d| d.flush()),
            ("write", &|d| d.write(end, &block, false)),
            ("durable write", &|d| d.write(end, &block, true)),
            ("batch", &|d| d.write_batch(&[WriteOp { offset: end, data: &block }])),
        ];
        for (what, first) in uses {
            let _ = std::fs::remove_file(&path);
            preallocate(&path, 1 << 20).unwrap();
            let d = open_exclusive(&path, true, options).unwrap();
            d.write(0, &block, true).unwrap();
            d.flush().unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(512 << 10).unwrap();
            let error = first(&d).expect_err(what);
            assert!(error.to_string().contains("cut shorter"), "{what}: {error}");
            assert_eq!(file.metadata().unwrap().len(), 512 << 10, "{what} made it long again");
            file.set_len(1 << 20).unwrap();
            assert_eq!(errno(d.flush()), libc::EIO, "{what}");
            assert_eq!(errno(d.write(0, &block, true)), libc::EIO, "{what}");
        }
    }
}

#[test]
fn writing_what_was_opened_for_reading_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    preallocate(&path, 1 << 20).unwrap();
    let d = open_exclusive(&path, false, FileOptions::default()).unwrap();
    let block = AlignedBuf::zeroed(4096);
    assert_eq!(errno(d.write(0, &block, false)), libc::EBADF);
    assert_eq!(errno(d.write(0, &block, true)), libc::EBADF);
    let ops = [WriteOp { offset: 0, data: &block }, WriteOp { offset: 4096, data: &block }];
    assert_eq!(errno(d.write_batch(&ops)), libc::EBADF);
    d.flush().unwrap();
}

#[test]
fn preallocate_reserves_and_never_shrinks() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    preallocate(&path, 2 << 20).unwrap();
    preallocate(&path, 1 << 20).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 2 << 20);
    assert!(meta.blocks() * 512 >= 2 << 20);
    assert!(matches!(preallocate(&path, 1 << 60), Err(Error::Refused(_))));
    assert!(matches!(preallocate(dir.path(), 1), Err(Error::Refused(_))));
}

/// Bulk that is cut into slices arrives whole; that it is cut is seen where the first piece fails.
#[test]
fn bulk_gives_way_to_the_small_writes_of_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    preallocate(&path, 4 << 20).unwrap();
    let mut data = AlignedBuf::zeroed(1 << 20);
    data.chunks_mut(4096).zip(1..).for_each(|(block, i)| block.fill(i as u8));
    let bulk = [WriteOp { offset: 8192, data: &data }];
    // With io_uring what is long is cut anyway, to be in flight together.
    for (time, uring, piece) in [(3600, false, SLICE), (0, false, 1 << 20), (0, true, SLICE)] {
        let options = FileOptions { uring, ..FileOptions::default() };
        let for_reading = open_exclusive(&path, false, options).unwrap();
        for_reading.expect_urgent(Duration::from_secs(time));
        match for_reading.write_batch(&bulk) {
            Err(Error::Io { len, .. }) => assert_eq!(len, piece as u64),
            other => panic!("{other:?}"),
        }
    }
    let d = open_exclusive(&path, true, FileOptions::default()).unwrap();
    d.expect_urgent(Duration::from_secs(3600));
    d.write_batch(&bulk).unwrap();
    let mut back = AlignedBuf::zeroed(1 << 20);
    d.read(8192, &mut back).unwrap();
    assert!(back[..] == data[..]);
}
