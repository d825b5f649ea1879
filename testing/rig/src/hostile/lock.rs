//! A user who keeps a directory's lock for as long as he likes.

use super::become_user;
use super::silent::{LEN, Silent};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::JoinHandle;

/// A thread that has getdents(2) copy entries into a page that never comes: the kernel keeps the
/// directory's lock, for reading, until this is dropped.
pub struct Held {
    silent: Option<Silent>,
    holder: Option<JoinHandle<io::Result<()>>>,
}

impl Held {
    /// Has `user` keep the lock of `dir`, which he may read, with a server on the empty directory
    /// `place`. When this returns the lock is held.
    ///
    /// # Errors
    /// What the kernel says, or that nothing waits.
    pub fn new(place: &Path, dir: &Path, user: u32) -> io::Result<Self> {
        let silent = Silent::mount(place)?;
        let (file, dir) = (silent.file(), dir.to_path_buf());
        let holder = std::thread::spawn(move || hold(&file, &dir, user));
        let held = Self { silent: Some(silent), holder: Some(holder) };
        held.silent.as_ref().map_or(Ok(()), Silent::wait_for_read)?;
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.silent.take());
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

#[allow(unsafe_code)] // mmap(2), and a buffer that is not there
fn hold(file: &Path, dir: &Path, user: u32) -> io::Result<()> {
    become_user(user)?;
    let file = File::options().read(true).write(true).open(file)?;
    let dir = File::open(dir)?;
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping of an open file; nothing is at a fixed address.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), LEN, prot, shared, file.as_raw_fd(), 0) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the buffer is the mapping, which nothing else uses; it fails with EFAULT when its
    // pages cannot be had.
    unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), map, LEN) };
    // SAFETY: the mapping made above, which nothing uses any more.
    unsafe { libc::munmap(map, LEN) };
    Ok(())
}
