//! Whole reads and writes from the partial ones that the kernel may do.

use std::fs::File;
use std::io::IoSlice;

use rustix::io::{Errno, ReadWriteFlags};
use siftfs_base::Result;

use crate::io_error;

/// Fills `buf`; the end of the file inside the range is an error.
pub(super) fn read_all(file: &File, offset: u64, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(file, &mut buf[done..], offset + done as u64) {
            Ok(0) => return Err(io_error("read", offset, buf.len(), libc::EIO)),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(io_error("read", offset, buf.len(), e.raw_os_error())),
        }
    }
    Ok(())
}

/// Writes all of `data`.
pub(super) fn write_all(file: &File, offset: u64, data: &[u8]) -> Result<()> {
    let fail = |errno| io_error("write", offset, data.len(), errno);
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(file, &data[done..], offset + done as u64) {
            Ok(0) => return Err(fail(libc::EIO)),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(fail(e.raw_os_error())),
        }
    }
    Ok(())
}

/// Writes all of `data`, durable when it returns; the errno on failure.
pub(super) fn write_dsync(file: &File, offset: u64, data: &[u8]) -> std::result::Result<(), i32> {
    let mut done = 0;
    while done < data.len() {
        let part = [IoSlice::new(&data[done..])];
        match rustix::io::pwritev2(file, &part, offset + done as u64, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(libc::EIO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.raw_os_error()),
        }
    }
    Ok(())
}
