//! A queue pair of a device, by the functions of `shim.c`.
#![allow(unsafe_code)]

use crate::{BUFFER_LEN, BUFFERS, CONTROLS, Done, Queue, Terms};
use siftfs_base::{Error, Result};
use std::ffi::{CStr, c_char, c_int};
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Incoming buffers: those that credits are given for, and those for messages without bytes.
const INCOMING: u32 = BUFFERS + CONTROLS;
/// Requests are numbered by their buffer, with these bits for the others.
const SEND: u64 = 1 << 32;
const CONTROL: u64 = 1 << 33;

/// `siftfs_rdma_shape`.
#[repr(C)]
struct Shape {
    address: [u8; 16],
    receives: u32,
    sends: u32,
    controls: u32,
    length: u32,
}

/// `siftfs_rdma_end`.
#[repr(C)]
#[derive(Default)]
struct End {
    gid: [u8; 16],
    queue: u32,
    first: u32,
    lid: u16,
    mtu: u16,
}

/// `siftfs_rdma_done`.
#[repr(C)]
#[derive(Default)]
struct Completion {
    id: u64,
    status: u32,
    carries: u32,
    length: u32,
    carried: u32,
}

/// `siftfs_rdma`, which is looked into by the shim alone.
#[repr(C)]
struct Raw {
    _private: [u8; 0],
    _not_shared: PhantomData<*mut u8>,
}

unsafe extern "C" {
    fn siftfs_rdma_open(shape: *const Shape, out: *mut *mut Raw, step: *mut *const c_char)
    -> c_int;
    fn siftfs_rdma_close(raw: *mut Raw);
    fn siftfs_rdma_describe(raw: *const Raw, end: *mut End);
    fn siftfs_rdma_connect(raw: *mut Raw, first: u32, peer: *const End) -> c_int;
    fn siftfs_rdma_memory(raw: *const Raw) -> *mut u8;
    fn siftfs_rdma_descriptor(raw: *const Raw) -> c_int;
    fn siftfs_rdma_receive(raw: *mut Raw, buffer: u32, id: u64) -> c_int;
    fn siftfs_rdma_send(raw: *mut Raw, buffer: u32, len: u32, id: u64, carried: u32) -> c_int;
    fn siftfs_rdma_poll(raw: *mut Raw, done: *mut Completion) -> c_int;
    fn siftfs_rdma_status(status: u32) -> *const c_char;
    fn siftfs_rdma_take_events(raw: *mut Raw) -> c_int;
    fn siftfs_rdma_stop(raw: *mut Raw);
}

/// A queue pair, its completions and its memory. The memory is freed after the queue pair, so that
/// nothing that is under way outlives it.
pub struct QueuePair {
    raw: NonNull<Raw>,
    first: u32,
    /// Which buffers the device has: incoming ones, then outgoing ones.
    busy: Vec<bool>,
}

// SAFETY: the shim's structure has no tie to a thread, and the library's functions may be called
// from any. It is not `Sync`: one thread at a time has it.
unsafe impl Send for QueuePair {}

/// Opens a queue pair on the device that has the address `local`: with RoCE, one whose port has
/// this address of IP; else, the first active port of InfiniBand's own network. All its incoming
/// buffers are posted.
///
/// # Errors
/// [`Error::Refused`]: there is no such device, it refuses, or the library is missing.
pub fn open(local: IpAddr) -> Result<QueuePair> {
    let address = match local {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let mut first = [0; 4];
    getrandom::fill(&mut first)
        .map_err(|e| Error::Refused(format!("cannot number packets of RDMA: {e}")))?;
    let shape = Shape {
        address,
        receives: INCOMING,
        sends: BUFFERS,
        controls: CONTROLS,
        length: BUFFER_LEN,
    };
    let (mut raw, mut step) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: all three live during the call, which fills in the latter two.
    let failed = unsafe { siftfs_rdma_open(&shape, &mut raw, &mut step) };
    let Some(raw) = NonNull::new(raw).filter(|_| failed == 0) else {
        // SAFETY: the shim names the step by a literal before it does anything that can fail.
        let step = unsafe { CStr::from_ptr(step) }.to_string_lossy();
        return Err(cannot(&step, failed, local));
    };
    let first = u32::from_le_bytes(first) >> 8;
    let busy = vec![false; (INCOMING + BUFFERS) as usize];
    let mut pair = QueuePair { raw, first, busy };
    for buffer in 0..INCOMING {
        pair.post(buffer).map_err(|e| Error::Refused(format!("cannot use RDMA: {e}")))?;
    }
    Ok(pair)
}

fn cannot(step: &str, failed: c_int, local: IpAddr) -> Error {
    let why = match -failed {
        libc_numbers::ENODEV => {
            return Error::Refused(format!(
                "no active RDMA device has the address {local} (see `ibv_devinfo -v`, `rdma link`)"
            ));
        }
        libc_numbers::ELIBACC => {
            return Error::Refused("cannot use RDMA: libibverbs1 is not installed".into());
        }
        number => io::Error::from_raw_os_error(number),
    };
    Error::Refused(format!("cannot use RDMA at {local}: cannot {step}: {why}"))
}

/// Two errors that the shim itself answers.
mod libc_numbers {
    use rustix::io::Errno;
    pub const ENODEV: i32 = Errno::NODEV.raw_os_error();
    pub const ELIBACC: i32 = Errno::LIBACC.raw_os_error();
}

fn checked(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        failed => Err(io::Error::from_raw_os_error(failed.wrapping_neg())),
    }
}

impl QueuePair {
    /// What the peer needs to know.
    pub fn terms(&self) -> Terms {
        let mut end = End::default();
        // SAFETY: the queue pair is open, and the structure is the one that the shim fills in.
        unsafe { siftfs_rdma_describe(self.raw.as_ptr(), &mut end) };
        let End { gid, queue, lid, mtu, .. } = end;
        Terms { gid, queue, first: self.first, lid, mtu }
    }

    /// Connects it to the peer's, which is told its own part by its own side. Messages may be sent
    /// when both sides have done so.
    ///
    /// # Errors
    /// [`Error::Refused`]: the device does not find the peer.
    pub fn connect(&mut self, peer: &Terms) -> Result<()> {
        let Terms { gid, queue, first, lid, mtu } = *peer;
        let end = End { gid, queue, first, lid, mtu };
        // SAFETY: the queue pair is open, and the structure lives during the call.
        let result = unsafe { siftfs_rdma_connect(self.raw.as_ptr(), self.first, &end) };
        checked(result)
            .map_err(|e| Error::Refused(format!("cannot connect by RDMA to the {peer:?}: {e}")))
    }

    /// Where a buffer's bytes are.
    ///
    /// # Panics
    /// There is no such buffer, or the device has it.
    fn bytes(&self, at: u32) -> *mut u8 {
        let busy = self.busy.get(at as usize).expect("there is such a buffer");
        assert!(!busy, "the device has buffer {at}");
        // SAFETY: the memory has a buffer for each entry of `busy`, one after the other.
        unsafe { siftfs_rdma_memory(self.raw.as_ptr()).add((at * BUFFER_LEN) as usize) }
    }

    /// Hands a buffer to the device, and takes it back if the device refuses.
    fn hand_over(&mut self, at: u32, request: impl FnOnce(*mut Raw) -> c_int) -> io::Result<()> {
        let busy = self.busy.get_mut(at as usize).expect("there is such a buffer");
        assert!(!*busy, "the device has buffer {at}");
        let result = checked(request(self.raw.as_ptr()));
        *busy = result.is_ok();
        result
    }

    fn take_back(&mut self, at: u32) -> io::Result<()> {
        match self.busy.get_mut(at as usize) {
            Some(busy) if *busy => {
                *busy = false;
                Ok(())
            }
            _ => Err(io::Error::other(format!("the device is done with buffer {at} unasked"))),
        }
    }

    fn broken(status: u32) -> io::Error {
        // SAFETY: the library has a text, which is never freed, for each number.
        let text = unsafe { CStr::from_ptr(siftfs_rdma_status(status)) };
        io::Error::other(format!("RDMA: {}", text.to_string_lossy()))
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: it is open, and not used after this. The shim ends the queue pair before it
        // frees the memory.
        unsafe { siftfs_rdma_close(self.raw.as_ptr()) }
    }
}

impl Queue for QueuePair {
    fn outgoing(&mut self, buffer: u32) -> &mut [u8] {
        assert!(buffer < BUFFERS, "there is such a buffer");
        let bytes = self.bytes(INCOMING + buffer);
        // SAFETY: the device does not have this buffer, and gets it by this structure alone, which
        // is borrowed for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(bytes, BUFFER_LEN as usize) }
    }

    fn incoming(&self, buffer: u32) -> &[u8] {
        assert!(buffer < INCOMING, "there is such a buffer");
        let bytes = self.bytes(buffer);
        // SAFETY: as above; the device, and so the peer, writes to it only after it was posted.
        unsafe { std::slice::from_raw_parts(bytes, BUFFER_LEN as usize) }
    }

    fn send(&mut self, buffer: u32, len: u32, carried: u32) -> io::Result<()> {
        assert!(buffer < BUFFERS && (1..=BUFFER_LEN).contains(&len), "{len} bytes of {buffer}");
        let at = INCOMING + buffer;
        // SAFETY: the queue pair is open, and the buffer is inside of its memory, which lives on
        // until the queue pair has ended.
        self.hand_over(at, |raw| unsafe {
            siftfs_rdma_send(raw, at, len, SEND | u64::from(buffer), carried)
        })
    }

    fn send_control(&mut self, carried: u32) -> io::Result<()> {
        // SAFETY: the queue pair is open, and no memory is named.
        checked(unsafe { siftfs_rdma_send(self.raw.as_ptr(), 0, 0, CONTROL, carried) })
    }

    fn post(&mut self, buffer: u32) -> io::Result<()> {
        assert!(buffer < INCOMING, "there is such a buffer");
        // SAFETY: as for `send`. No slice of this buffer lives while `self` is borrowed here.
        self.hand_over(buffer, |raw| unsafe { siftfs_rdma_receive(raw, buffer, buffer.into()) })
    }

    fn poll(&mut self) -> io::Result<Option<Done>> {
        let mut done = Completion::default();
        // SAFETY: the queue pair is open, and the structure is the one that the shim fills in.
        match unsafe { siftfs_rdma_poll(self.raw.as_ptr(), &mut done) } {
            0 => return Ok(None),
            1 => {}
            failed => return checked(failed).map(|()| None),
        }
        if done.status != 0 {
            // What is under way is not done before the queue pair ends.
            return Err(Self::broken(done.status));
        }
        let buffer = done.id as u32;
        match done.id & (SEND | CONTROL) {
            CONTROL => Ok(Some(Done::SentControl)),
            SEND => {
                self.take_back(INCOMING + buffer)?;
                Ok(Some(Done::Sent(buffer)))
            }
            _ if done.carries == 0 || done.length > BUFFER_LEN => {
                Err(io::Error::new(ErrorKind::InvalidData, "RDMA: a message of another kind"))
            }
            _ => {
                self.take_back(buffer)?;
                Ok(Some(Done::Received { buffer, len: done.length, carried: done.carried }))
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open for as long as the queue pair, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(siftfs_rdma_descriptor(self.raw.as_ptr())) }
    }

    fn take_events(&mut self) -> io::Result<()> {
        // SAFETY: the queue pair is open.
        checked(unsafe { siftfs_rdma_take_events(self.raw.as_ptr()) })
    }

    fn stop(&mut self) {
        // SAFETY: the queue pair is open.
        unsafe { siftfs_rdma_stop(self.raw.as_ptr()) }
    }
}

#[cfg(test)]
#[path = "verbs_tests.rs"]
mod tests;
