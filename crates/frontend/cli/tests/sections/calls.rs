//! System calls on an open file, as a program in C would make them.

use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

pub const FEATURES: u32 = 0x8004_f50c;
pub const START: u32 = 0xf501;
pub const COMMIT: u32 = 0xf502;
pub const ABORT: u32 = 0xf505;

/// An error, or what a call gives back.
pub type Result<T> = std::result::Result<T, i32>;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// An open file.
pub struct File(pub OwnedFd);

/// Memory on a page's boundary, for O_DIRECT.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(len: usize) -> Self {
        let len = len.next_multiple_of(4096).max(4096);
        let layout = std::alloc::Layout::from_size_align(len, 4096).unwrap();
        // SAFETY: the layout is not empty.
        Self(unsafe { std::alloc::alloc_zeroed(layout) }, len)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let layout = std::alloc::Layout::from_size_align(self.1, 4096).unwrap();
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.0, layout) };
    }
}

impl File {
    pub fn open(path: &Path, flags: OFlags) -> Self {
        Self(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap())
    }

    /// A new file of this content, open to read and write.
    pub fn create(path: &Path, content: &[u8]) -> Self {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = Self(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).unwrap());
        file.write(0, content);
        file
    }

    /// An ioctl(2) without an argument.
    pub fn call(&self, command: u32) -> Result<()> {
        // SAFETY: none of these commands has an argument.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), command.into(), 0) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    pub fn try_write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let pages = Pages::new(data.len());
        let mut done = 0;
        // SAFETY: the memory is as long as the data, or longer.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), pages.0, data.len()) };
        while done < data.len() {
            let at = (offset + done as u64) as libc::off_t;
            // SAFETY: inside of that memory.
            let n = unsafe {
                let from = pages.0.add(done).cast();
                libc::pwrite(self.0.as_raw_fd(), from, data.len() - done, at)
            };
            if n <= 0 {
                return Err(errno());
            }
            done += n as usize;
        }
        Ok(())
    }

    #[track_caller]
    pub fn write(&self, offset: u64, data: &[u8]) {
        self.try_write(offset, data).unwrap_or_else(|e| panic!("pwrite at {offset}: {e}"));
    }

    /// All of the file, as read(2) gives it.
    pub fn all(&self) -> Vec<u8> {
        let pages = Pages::new(1 << 20);
        let mut out = Vec::new();
        loop {
            let at = out.len() as libc::off_t;
            // SAFETY: as much as the memory has.
            let n = unsafe { libc::pread(self.0.as_raw_fd(), pages.0.cast(), pages.1, at) };
            assert!(n >= 0, "pread: {}", errno());
            if n == 0 {
                return out;
            }
            // SAFETY: this many bytes were read.
            out.extend_from_slice(unsafe { std::slice::from_raw_parts(pages.0, n as usize) });
        }
    }

    pub fn sync(&self) {
        rustix::fs::fsync(&self.0).unwrap();
    }

    pub fn truncate(&self, size: u64) {
        rustix::fs::ftruncate(&self.0, size).unwrap();
    }

    /// The kernel drops the file's clean pages.
    pub fn forget_pages(&self) {
        // A page that the kernel is just at work on stays, and is asked for again.
        for _ in 0..1000 {
            // Under the writeback cache they are dirty.
            // SAFETY: no memory is passed.
            unsafe { libc::sync_file_range(self.0.as_raw_fd(), 0, 0, 7) };
            rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            if self.cached() == 0 {
                return;
            }
            std::thread::yield_now();
        }
        panic!("the kernel keeps pages");
    }

    /// Pages of the file in the kernel's cache, by cachestat(2).
    fn cached(&self) -> u64 {
        let (range, mut pages) = ([0u64; 2], [0u64; 5]);
        let fd = self.0.as_raw_fd();
        // SAFETY: both arguments are as the call has them, and live as long as it.
        let done = unsafe { libc::syscall(451, fd, range.as_ptr(), pages.as_mut_ptr(), 0) };
        assert_eq!(done, 0, "cachestat: {}", std::io::Error::last_os_error());
        pages[0]
    }

    /// A shared mapping of the first `len` bytes.
    pub fn map(&self, len: usize) -> Map {
        let writes = rustix::fs::fcntl_getfl(&self.0).unwrap().contains(OFlags::RDWR);
        let prot = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping of an open file; nothing is at a fixed address.
        let at = unsafe {
            let fd = self.0.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        Map(at.cast(), len)
    }

    /// Takes a POSIX lock on one byte; waits for it.
    pub fn lock(&self) {
        assert_eq!(lock(self.0.as_raw_fd(), libc::F_SETLKW), 0, "lock: {}", errno());
    }
}

/// A POSIX lock for writing on the byte that no test writes.
pub fn lock(fd: i32, command: i32) -> i32 {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 1 << 30,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the lock's description outlives the call.
    unsafe { libc::fcntl(fd, command, &raw const lock) }
}

/// A shared mapping.
pub struct Map(*mut u8, usize);

// SAFETY: shared with other processes anyhow; each access is of one byte, and volatile.
unsafe impl Sync for Map {}

impl Map {
    pub fn at(&self, index: usize) -> u8 {
        assert!(index < self.1);
        // SAFETY: inside of the mapping, as long as the file.
        unsafe { self.0.add(index).read_volatile() }
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.0
    }

    pub fn store(&mut self, index: usize, byte: u8) {
        assert!(index < self.1);
        // SAFETY: as above, and mapped for writing.
        unsafe { self.0.add(index).write_volatile(byte) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping, to which no reference is left.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// The features that the file system says it has.
pub fn features(file: &File, command: u32) -> Result<u32> {
    let mut features = [0u32; 2];
    // SAFETY: room for more than the command says that it gives back.
    match unsafe { libc::ioctl(file.0.as_raw_fd(), command.into(), features.as_mut_ptr()) } {
        0 => Ok(features[0]),
        _ => Err(errno()),
    }
}

/// Runs `f` as this user, without any right of root's.
pub fn as_user(uid: u32, f: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let body = || {
            let (user, group) =
                (rustix::thread::Uid::from_raw(uid), rustix::thread::Gid::from_raw(uid));
            rustix::thread::set_thread_groups(&[group]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            f();
        };
        scope.spawn(body).join().unwrap();
    });
}

/// A process that does `body` and is then killed, or ends by itself.
pub struct Child(i32);

impl Child {
    /// `body` makes system calls alone: other threads may have held any lock when it was forked.
    pub fn start(body: impl FnOnce() -> i32) -> Self {
        // SAFETY: the child makes nothing but system calls, and ends by _exit(2).
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // SAFETY: as above.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::_exit(body());
            }
        }
        Self(pid)
    }

    pub fn kill(&self) {
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Waits for its end; its exit status, or -1 if it was killed.
    pub fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: a child that was not waited for.
        let pid = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(pid, self.0);
        std::mem::forget(self);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: as in `wait`.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}
