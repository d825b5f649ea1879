//! A FUSE server with one file, whose pages it never brings.

#![allow(clippy::host_endian_bytes)] // the kernel's messages are in the machine's own order

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The file's name.
pub const FILE: &str = "f";
/// Its length in bytes.
pub const LEN: usize = 64 << 10;
/// How long a READ is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// A message with all of its data.
const BUFFER: usize = 1 << 20;
/// For how many seconds the kernel may trust what it is told.
const VALID: u64 = 1000;
const ROOT: u64 = 1;

/// A mounted server. When it is dropped the kernel ends its connection: each call that waited for
/// it fails.
pub struct Silent {
    dir: PathBuf,
    reads: Arc<AtomicUsize>,
    server: Option<JoinHandle<()>>,
}

impl Silent {
    /// Mounts it on an empty directory, for all users.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn mount(dir: &Path) -> io::Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let data =
            format!("fd={},rootmode=40755,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("silent", dir, "fuse", flags, CString::new(data)?.as_c_str())?;
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let server = std::thread::spawn(move || serve(device, &counted));
        Ok(Self { dir: dir.into(), reads, server: Some(server) })
    }

    /// Where the file is.
    pub fn file(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Returns when a thread waits for a page of the file.
    ///
    /// # Errors
    /// None does.
    pub fn wait_for_read(&self) -> io::Result<()> {
        let begun = Instant::now();
        while self.reads.load(Ordering::SeqCst) == 0 {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("no thread reads the file"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Ends the connection first, whatever waits for it.
        let _ = unmount(&self.dir, UnmountFlags::FORCE);
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Answers requests until the mount is gone.
fn serve(mut device: File, reads: &AtomicUsize) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted) => continue,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(_) => return,
        };
        let Some(message) = buffer.get(..len) else { return };
        let word = |at: usize| message.get(at..at + 8).map_or([0; 8], |b| b.try_into().unwrap());
        let opcode = u32::from_ne_bytes(word(0)[4..].try_into().unwrap_or_default());
        let (unique, node) = (word(8), u64::from_ne_bytes(word(16)));
        let (error, body) = match opcode {
            1 => (0, entry()),
            2 | 36 | 42 => continue, // FORGET, INTERRUPT, BATCH_FORGET have no answer.
            3 => (0, attributes(node)),
            14 => (0, vec![0; 16]), // OPEN
            15 => {
                reads.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            18 | 25 => (0, Vec::new()), // RELEASE, FLUSH
            26 => (0, init()),
            _ => (-libc::ENOSYS, Vec::new()),
        };
        let len = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
        let mut answer = len.to_ne_bytes().to_vec();
        answer.extend(error.to_ne_bytes());
        answer.extend(unique);
        answer.extend(body);
        // The caller may have gone.
        let _ = device.write(&answer);
    }
}

/// Protocol 7.31, and no more than a page in a request.
fn init() -> Vec<u8> {
    let mut out = vec![0; 64];
    for (at, value) in [(0, 7u32), (4, 31), (20, 4096), (24, 1)] {
        put(&mut out, at, &value.to_ne_bytes());
    }
    out
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The file, whatever the name.
fn entry() -> Vec<u8> {
    let mut out = vec![0; 128];
    for (at, value) in [(0, 2), (16, VALID), (24, VALID)] {
        put(&mut out, at, &value.to_ne_bytes());
    }
    put(&mut out, 40, &inode(2));
    out
}

fn attributes(node: u64) -> Vec<u8> {
    let mut out = vec![0; 104];
    put(&mut out, 0, &VALID.to_ne_bytes());
    put(&mut out, 16, &inode(node));
    out
}

fn inode(node: u64) -> [u8; 88] {
    let mut out = [0; 88];
    let (mode, len) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 0),
        _ => (libc::S_IFREG | 0o666, LEN as u64),
    };
    put(&mut out, 0, &node.to_ne_bytes());
    put(&mut out, 8, &len.to_ne_bytes());
    put(&mut out, 60, &mode.to_ne_bytes());
    put(&mut out, 64, &1u32.to_ne_bytes());
    out
}
