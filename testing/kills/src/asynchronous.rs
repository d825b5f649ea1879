//! Writes that are submitted and completed apart: io_submit(2) and io_uring.

#![allow(unsafe_code)] // both take buffers by address

use io_uring::{IoUring, opcode, types};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// How writes are submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// io_submit(2) and io_getevents(2).
    Aio,
    /// io_uring.
    Uring,
}

/// Part of a buffer: O_DIRECT wants whole blocks on block boundaries.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Block([u8; 4096]);

/// Bytes that a write in flight refers to.
struct Buffer {
    blocks: Box<[Block]>,
    len: usize,
}

impl Buffer {
    fn of(bytes: &[u8]) -> Self {
        let block = |part: &[u8]| {
            let mut block = Block([0; 4096]);
            block.0[..part.len()].copy_from_slice(part);
            block
        };
        Self { blocks: bytes.chunks(4096).map(block).collect(), len: bytes.len() }
    }

    fn address(&self) -> *const u8 {
        self.blocks.as_ptr().cast()
    }
}

/// The kernel's `struct iocb`, on little-endian machines.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const IOCB_CMD_PWRITE: u16 = 1;

enum Queue {
    Aio(libc::c_ulong),
    Uring(Box<IoUring>),
}

/// Writes in flight.
pub struct Writes {
    queue: Queue,
    /// What each refers to, until it is complete.
    pending: HashMap<u64, Buffer>,
    next: u64,
}

impl Writes {
    /// A queue for `depth` writes.
    ///
    /// # Errors
    /// When the kernel has none to give.
    pub fn new(way: Way, depth: u32) -> io::Result<Self> {
        let queue = match way {
            Way::Uring => Queue::Uring(Box::new(IoUring::new(depth)?)),
            Way::Aio => {
                let mut context: libc::c_ulong = 0;
                // SAFETY: the call writes the context's number and keeps no pointer.
                let made = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
                checked(made)?;
                Queue::Aio(context)
            }
        };
        Ok(Self { queue, pending: HashMap::new(), next: 0 })
    }

    /// Submits a write, of which the queue takes its depth; returns its number.
    ///
    /// # Errors
    /// What the submission said; nothing is in flight then.
    pub fn submit(&mut self, fd: impl AsFd, offset: u64, bytes: &[u8]) -> io::Result<u64> {
        let number = self.next;
        self.next += 1;
        let buffer = Buffer::of(bytes);
        let fd = fd.as_fd().as_raw_fd();
        match &mut self.queue {
            Queue::Aio(context) => {
                let iocb = Iocb {
                    data: number,
                    opcode: IOCB_CMD_PWRITE,
                    fd: fd.cast_unsigned(),
                    buffer: buffer.address() as u64,
                    len: buffer.len as u64,
                    offset: offset.cast_signed(),
                    ..Iocb::default()
                };
                let list = [&raw const iocb];
                // SAFETY: the control block is copied by the call; the buffer stays in `pending`
                // until the completion was seen.
                let sent =
                    unsafe { libc::syscall(libc::SYS_io_submit, *context, 1, list.as_ptr()) };
                checked(sent)?;
            }
            Queue::Uring(ring) => {
                let len = u32::try_from(buffer.len).map_err(io::Error::other)?;
                let entry = opcode::Write::new(types::Fd(fd), buffer.address(), len)
                    .offset(offset)
                    .build()
                    .user_data(number);
                // SAFETY: the buffer stays in `pending` until the completion was seen.
                unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
                ring.submit()?;
            }
        }
        self.pending.insert(number, buffer);
        Ok(number)
    }

    /// Waits for a completion: the write's number, and its result.
    ///
    /// # Errors
    /// When waiting failed.
    pub fn wait(&mut self) -> io::Result<(u64, io::Result<usize>)> {
        assert!(!self.pending.is_empty(), "nothing is in flight");
        let (number, result) = match &mut self.queue {
            Queue::Aio(context) => {
                let mut event = Event::default();
                loop {
                    let none = std::ptr::null::<libc::timespec>();
                    // SAFETY: room for one event, which the call fills.
                    let got = unsafe {
                        libc::syscall(libc::SYS_io_getevents, *context, 1, 1, &raw mut event, none)
                    };
                    match checked(got) {
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        other => break other?,
                    }
                }
                (event.data, event.result)
            }
            Queue::Uring(ring) => loop {
                if let Some(done) = ring.completion().next() {
                    break (done.user_data(), i64::from(done.result()));
                }
                match ring.submit_and_wait(1) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    other => drop(other?),
                }
            },
        };
        self.pending.remove(&number);
        let error = |r: i64| io::Error::from_raw_os_error(i32::try_from(-r).unwrap_or(libc::EIO));
        Ok((number, usize::try_from(result).map_err(|_| error(result))))
    }
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Drop for Writes {
    fn drop(&mut self) {
        while !self.pending.is_empty() && self.wait().is_ok() {}
        // A buffer that is still referred to must not be freed.
        std::mem::forget(std::mem::take(&mut self.pending));
        if let Queue::Aio(context) = self.queue {
            // SAFETY: the context is ours, and nothing uses it any more.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        }
    }
}

/// One write, submitted and waited for.
///
/// # Errors
/// What submission or completion said.
pub fn write_at(way: Way, fd: impl AsFd, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    let mut writes = Writes::new(way, 1)?;
    writes.submit(fd, offset, bytes)?;
    writes.wait()?.1
}
