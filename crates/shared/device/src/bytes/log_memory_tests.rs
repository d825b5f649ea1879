//! Logs in files of memory; persistent ones are for a guest (`testing/guest`).

use super::*;
use std::os::unix::fs::FileExt;

const LEN: usize = 1 << 20;

fn file() -> File {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(LEN as u64).unwrap();
    file
}

#[test]
fn what_is_stored_is_read_by_pread() {
    let file = file();
    let log = LogMemory::volatile(&file, LEN).unwrap();
    assert_eq!(log.promise(), BytePromise::Volatile);
    for (at, len) in [(0, 64), (64, 700), (4096 - 8, 5000), (LEN - 8, 8)] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + at) as u8).collect();
        log.persist(at, &bytes).unwrap();
        let mut read = vec![0; len];
        file.read_exact_at(&mut read, at as u64).unwrap();
        assert_eq!(read, bytes, "{len} at {at}");
    }
}

/// A log that is made shorter under its program is an error and no signal.
///
/// Seen to fail, by SIGBUS, when the pages are not asked for before the stores.
#[test]
fn r41_a_log_that_was_made_shorter_is_an_error() {
    let file = file();
    let log = LogMemory::volatile(&file, LEN).unwrap();
    file.set_len(4096).unwrap();
    log.persist(0, &[1; 64]).unwrap();
    for at in [4096, 64 << 10, LEN - 64, 4096 - 8] {
        let error = log.persist(at, &[1; 64]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "{at}");
    }
}

#[test]
fn what_is_no_log_in_memory_is_refused() {
    let refused = |log: Result<LogMemory>| match log {
        Err(Error::Refused(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was taken"),
    };
    assert!(!LogMemory::is_persistent(&file()));
    assert!(refused(LogMemory::persistent(&file(), LEN)).contains("DAX"));
    assert!(refused(LogMemory::volatile(&file(), LEN / 2)).contains("bytes instead of"));
    assert!(refused(LogMemory::volatile(&file(), LEN * 2)).contains("bytes instead of"));
    let dir = File::open("/dev/shm").unwrap();
    refused(LogMemory::volatile(&dir, LEN));
    let path = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    path.as_file().set_len(LEN as u64).unwrap();
    let only_read = File::open(path.path()).unwrap();
    assert!(refused(LogMemory::volatile(&only_read, LEN)).contains("map"));
}
