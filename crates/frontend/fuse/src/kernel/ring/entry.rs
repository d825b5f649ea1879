//! One entry of the kernel's queue, with a ring and memory of its own, used by one thread.
//!
//! The life of an entry:
//!
//! 1. [`Entry::new`]: ring and memory exist, the kernel knows nothing of them.
//! 2. [`Entry::register`]: the memory is the kernel's until a completion.
//! 3. [`Entry::wait`] says [`Event::Request`]: the memory is ours, and holds a request.
//! 4. [`Entry::answer`]: the answer is in it, and it is the kernel's again (2).
//!
//! The kernel writes to the memory on this thread only, inside of the calls that submit or wait
//! (IORING_SETUP_DEFER_TASKRUN), and only while it is the kernel's.
#![allow(unsafe_code)]

use super::uring::Ring;
use crate::kernel::MAX_IO;
use crate::kernel::abi::{self, InHeader, OutHeader, RingCommand, RingHeader};
use crate::kernel::request::Malformed;
use io_uring::squeue::Entry128;
use io_uring::{opcode, types};
use memmap2::{MmapMut, MmapRaw, UncheckedAdvice};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Where the payload begins: behind a page that has the header at its beginning, and at its end
/// the parts of a message that come before the payload.
const PAYLOAD: usize = 4096;
/// Bytes of the payload: the largest read or write.
const PAYLOAD_LEN: usize = MAX_IO as usize;
/// The vectors of a registration: header and payload.
const VECTORS: u32 = 2;
/// Where a submission has the number of its vectors.
const SQE_LEN: usize = 24;

const _: () = {
    let head = size_of::<InHeader>() + 128;
    assert!(size_of::<RingHeader>() + head <= PAYLOAD, "the parts of the first page are apart");
    assert!(size_of::<Entry128>() == 128, "a submission is the kernel's own structure");
};

/// Whose the memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Ours, without a request.
    Nobody,
    /// The kernel's.
    Kernel,
    /// Ours, with a request: where it lies, and what its answer is committed by.
    Request { start: usize, end: usize, commit_id: u64 },
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A request is there.
    Request,
    /// The time is over.
    Idle,
    /// The mount is gone.
    End,
    /// The kernel refused the last command with this errno; the entry is not registered any more.
    Refused(i32),
}

/// An entry. It must be made, used and dropped by one thread.
pub(super) struct Entry {
    ring: Ring,
    memory: MmapRaw,
    /// Header and payload, for the kernel to read at registration.
    vectors: Box<[libc::iovec; VECTORS as usize]>,
    device: Arc<OwnedFd>,
    queue: u16,
    holder: Holder,
    /// Bytes at the payload's beginning that may have been touched since [`Entry::give_back`].
    touched: usize,
}

/// Can this process have rings of the kind that entries need?
///
/// # Errors
/// What io_uring_setup(2) says.
pub(super) fn probe() -> io::Result<()> {
    Ring::new().map(drop)
}

/// The lengths of a request's fixed part and payload, as far as its header can be believed.
fn lengths(header: &RingHeader) -> Result<(usize, usize), Malformed> {
    let (head, _) = InHeader::read_from_prefix(&header.in_out).map_err(|_| Malformed)?;
    let all = usize::try_from(head.len).map_err(|_| Malformed)?;
    let payload = usize::try_from(header.entry.payload_len).map_err(|_| Malformed)?;
    let body = all.checked_sub(size_of::<InHeader>()).ok_or(Malformed)?;
    let fixed = body.checked_sub(payload).ok_or(Malformed)?;
    match payload <= PAYLOAD_LEN && fixed <= header.fixed.len() {
        true => Ok((fixed, payload)),
        false => Err(Malformed),
    }
}

impl Entry {
    /// An entry for `queue` of the connection `device`, not registered yet.
    pub(super) fn new(device: Arc<OwnedFd>, queue: u16) -> io::Result<Self> {
        let memory = MmapRaw::from(MmapMut::map_anon(PAYLOAD + PAYLOAD_LEN)?);
        let vector = |at: usize, iov_len: usize| {
            let iov_base = memory.as_mut_ptr().wrapping_add(at).cast();
            libc::iovec { iov_base, iov_len }
        };
        let header = vector(0, size_of::<RingHeader>());
        let vectors = Box::new([header, vector(PAYLOAD, PAYLOAD_LEN)]);
        let (ring, holder) = (Ring::new()?, Holder::Nobody);
        Ok(Self { ring, memory, vectors, device, queue, holder, touched: 0 })
    }

    /// Gives the memory to the kernel, for the first request.
    pub(super) fn register(&mut self) -> io::Result<()> {
        assert_eq!(self.holder, Holder::Nobody, "memory is registered while it is ours");
        let vectors = self.vectors.as_ptr() as u64;
        self.command(abi::RING_REGISTER, 0, Some(vectors))
    }

    /// The memory of a request that the kernel handed over, or of an entry that it does not know.
    fn ours(&mut self) -> &mut [u8] {
        assert_ne!(self.holder, Holder::Kernel, "memory is used while it is ours");
        // SAFETY: the mapping lives as long as `self` and has this length; the kernel does not
        // write to it before it is handed over again, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr(), self.memory.len()) }
    }

    /// The request, in one piece: header, fixed part, payload. The data of a WRITE begins on a
    /// page. One whose lengths make no sense is its header alone.
    pub(super) fn message(&self) -> &[u8] {
        let Holder::Request { start, end, .. } = self.holder else {
            panic!("a message is read while there is one");
        };
        assert!(start <= end && end <= self.memory.len(), "a message lies in the memory");
        // SAFETY: in the mapping, which lives as long as `self`; the kernel does not write to it
        // before it is handed over again, and nothing else does, because both need `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().wrapping_add(start), end - start) }
    }

    /// Puts the request that the kernel wrote into one piece.
    fn arrived(&mut self) {
        self.holder = Holder::Nobody;
        let memory = self.ours();
        let (header, _) = RingHeader::read_from_prefix(memory).expect("a page holds a header");
        let commit_id = header.entry.commit_id;
        // Without lengths to believe in, the header alone: it contradicts itself, and is refused.
        let (fixed, payload) = lengths(&header).unwrap_or((0, 0));
        let fixed_at = PAYLOAD - fixed;
        let start = fixed_at - size_of::<InHeader>();
        let mut put = |at: usize, bytes: Option<&[u8]>| {
            let bytes = bytes.expect("lengths were checked");
            memory
                .get_mut(at..at + bytes.len())
                .expect("before the payload")
                .copy_from_slice(bytes);
        };
        put(start, header.in_out.get(..size_of::<InHeader>()));
        put(fixed_at, header.fixed.get(..fixed));
        self.touched = self.touched.max(payload);
        self.holder = Holder::Request { start, end: PAYLOAD + payload, commit_id };
    }

    /// Answers the request: `error` is 0 or a negative errno, `body` what follows the header. The
    /// answer is on its way when this returns.
    ///
    /// # Errors
    /// When the kernel cannot be asked at all.
    pub(super) fn answer(&mut self, unique: u64, error: i32, body: &[&[u8]]) -> io::Result<()> {
        let Holder::Request { commit_id, .. } = self.holder else {
            panic!("a request is answered once");
        };
        self.holder = Holder::Nobody;
        let len: usize = body.iter().map(|part| part.len()).sum();
        // More than the kernel can have asked for.
        let (error, len) = if len > PAYLOAD_LEN { (-libc::EIO, 0) } else { (error, len) };
        let body = if len == 0 { &[] } else { body };
        let memory = self.ours();
        let mut at = PAYLOAD;
        for part in body {
            let end = at + part.len();
            memory.get_mut(at..end).expect("the sum was checked").copy_from_slice(part);
            at = end;
        }
        let payload_len = u32::try_from(len).expect("a mebibyte at most");
        let mut header = RingHeader::new_zeroed();
        header.entry.commit_id = commit_id;
        header.entry.payload_len = payload_len;
        let whole = payload_len + u32::try_from(size_of::<OutHeader>()).expect("a few bytes");
        let out = OutHeader { len: whole, error, unique };
        out.write_to_prefix(&mut header.in_out).expect("it has room for one");
        header.write_to_prefix(memory).expect("a page holds a header");
        self.touched = self.touched.max(len);
        self.command(abi::RING_COMMIT_AND_FETCH, commit_id, None)
    }

    /// Hands the memory to the kernel with a command, and returns without waiting.
    fn command(&mut self, command: u32, commit_id: u64, vectors: Option<u64>) -> io::Result<()> {
        let request = RingCommand { flags: 0, commit_id, queue: self.queue, padding: [0; 6] };
        let mut area = [0; 80];
        request.write_to_prefix(&mut area).expect("a command fits its area");
        let device = types::Fd(self.device.as_raw_fd());
        let submission = opcode::UringCmd80::new(device, command).cmd(area).addr(vectors).build();
        let submission = if vectors.is_some() { with_vectors(submission) } else { submission };
        // What the submission refers to (vectors, header, payload) belongs to `self`, whose ring is
        // dropped before the memory is; from here on the memory is the kernel's.
        self.ring.push(&submission);
        self.holder = Holder::Kernel;
        loop {
            match self.ring.submit() {
                Ok(()) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                    // The kernel is short of memory for the moment.
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// What the kernel said of the last command so far.
    pub(super) fn poll(&mut self) -> Option<Event> {
        assert_eq!(self.holder, Holder::Kernel, "only a command completes");
        let result = self.ring.completion()?;
        self.holder = Holder::Nobody;
        Some(match -result {
            0 => {
                self.arrived();
                Event::Request
            }
            // CONNABORTED: the connection was ended by force. CANCELED: this process ends.
            libc::ENOTCONN | libc::ENODEV | libc::ECONNABORTED | libc::ECANCELED => Event::End,
            e => Event::Refused(e),
        })
    }

    /// Waits for a request, `limit` long at most.
    ///
    /// # Errors
    /// When the kernel cannot be asked at all.
    pub(super) fn wait(&mut self, limit: Option<Duration>) -> io::Result<Event> {
        loop {
            if let Some(event) = self.poll() {
                return Ok(event);
            }
            match self.ring.wait(limit) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::ETIME) => {
                    return Ok(self.poll().unwrap_or(Event::Idle));
                }
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Bytes of the payload that may hold memory.
    pub(super) fn touched(&self) -> usize {
        self.touched
    }

    /// Gives the payload's memory back to the system; it is zero from now on. Also while the
    /// kernel waits for a request: it writes to the payload inside of [`Entry::wait`] only.
    pub(super) fn give_back(&mut self) {
        assert!(!matches!(self.holder, Holder::Request { .. }), "a request is not dropped");
        let payload = (PAYLOAD, PAYLOAD_LEN);
        // SAFETY: private anonymous memory becomes zero; no reference to it exists, for that takes
        // `self`, and the kernel does not write to it now.
        let advised = unsafe {
            self.memory.unchecked_advise_range(UncheckedAdvice::DontNeed, payload.0, payload.1)
        };
        if let Err(error) = advised {
            tracing::warn!(%error, "memory of an idle request thread is kept");
        }
        self.touched = 0;
    }
}

/// The submission with the number of vectors that its address points to, which the library has no
/// call for.
fn with_vectors(mut submission: Entry128) -> Entry128 {
    let bytes = std::ptr::from_mut(&mut submission).cast::<u8>();
    // SAFETY: the structure is the kernel's, 128 bytes (asserted above), and any value of this
    // field is valid; it is aligned to four bytes in a structure that is aligned to eight.
    unsafe { bytes.add(SQE_LEN).cast::<u32>().write(VECTORS) };
    submission
}

/// Makes the kernel go on without rings on `device`, whose requests wait until every queue has an
/// entry: one registration that it must refuse.
pub(super) fn refuse(device: &Arc<OwnedFd>) -> io::Result<()> {
    let mut entry = Entry::new(device.clone(), u16::MAX)?;
    entry.register()?;
    match entry.wait(Some(Duration::from_secs(5)))? {
        Event::Refused(_) | Event::End => Ok(()),
        Event::Request | Event::Idle => Err(io::Error::other("the kernel keeps its rings")),
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
