//! What each side tells the other about its queue pair, once they have met.

use crate::{BUFFER_LEN, BUFFERS};
use siftfs_base::{Error, Result, corrupt, crc32c};
use std::fmt;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"SiftRdma";
/// What the bytes of messages mean.
const VERSION: u32 = 1;
/// Numbers of queue pairs and of packets have 24 bits.
const MAX_24: u32 = (1 << 24) - 1;
/// 256 to 4096 bytes, as verbs number them.
const MTUS: std::ops::RangeInclusive<u16> = 1..=5;
/// Bytes of [`Terms`].
pub const TERMS_LEN: usize = size_of::<Raw>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    buffers: U32,
    buffer_len: U32,
    queue: U32,
    first: U32,
    lid: U16,
    mtu: U16,
    gid: [u8; 16],
    reserved: U32,
    crc: U32,
}

impl Raw {
    fn computed_crc(&self) -> u32 {
        let (fields, _) = self.as_bytes().split_at(size_of::<Self>() - size_of::<U32>());
        crc32c(fields)
    }
}

/// Where a side's queue pair is, and how the peer reaches it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Global address of the port; with RoCE the address of IP.
    pub gid: [u8; 16],
    /// Number of the queue pair, of 24 bits.
    pub queue: u32,
    /// Number of the first packet that this side sends, of 24 bits.
    pub first: u32,
    /// Local address of the port on InfiniBand's own network; 0 with RoCE.
    pub lid: u16,
    /// The longest packet, as verbs number them: 1 for 256 bytes to 5 for 4096.
    pub mtu: u16,
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = std::net::Ipv6Addr::from(self.gid);
        write!(f, "queue pair {:#x} at {address}, local address {}", self.queue, self.lid)
    }
}

impl Terms {
    /// The bytes that say it.
    pub fn encode(&self) -> [u8; TERMS_LEN] {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            buffers: BUFFERS.into(),
            buffer_len: BUFFER_LEN.into(),
            queue: self.queue.into(),
            first: self.first.into(),
            lid: self.lid.into(),
            mtu: self.mtu.into(),
            gid: self.gid,
            reserved: 0.into(),
            crc: 0.into(),
        };
        raw.crc = raw.computed_crc().into();
        zerocopy::transmute!(raw)
    }

    /// What `peer` says of its own queue pair. All of it is checked, but not that it is true: a
    /// wrong number gives a connection on which nothing arrives.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that say no such thing, [`Error::Refused`] for terms of another
    /// version.
    pub fn decode(bytes: &[u8; TERMS_LEN], peer: &str) -> Result<Self> {
        let raw = Raw::read_from_bytes(bytes).expect("its own length");
        let damaged = |why: &str| corrupt(format!("terms of RDMA from {peer}"), why);
        if raw.magic != MAGIC {
            return Err(damaged("they are none"));
        }
        if raw.crc.get() != raw.computed_crc() {
            return Err(damaged("their checksum does not hold"));
        }
        let theirs = (raw.version.get(), raw.buffers.get(), raw.buffer_len.get());
        if theirs != (VERSION, BUFFERS, BUFFER_LEN) {
            let (version, buffers, len) = theirs;
            return Err(Error::Refused(format!(
                "{peer} has {buffers} buffers of {len} bytes for RDMA, in version {version}; this \
                 program has {BUFFERS} of {BUFFER_LEN}, in version {VERSION}; use the same release \
                 on both sides"
            )));
        }
        let terms = Self {
            gid: raw.gid,
            queue: raw.queue.get(),
            first: raw.first.get(),
            lid: raw.lid.get(),
            mtu: raw.mtu.get(),
        };
        if terms.queue > MAX_24 || terms.first > MAX_24 {
            return Err(damaged("a number has more than 24 bits"));
        }
        if !MTUS.contains(&terms.mtu) {
            return Err(damaged("there is no such packet length"));
        }
        Ok(terms)
    }
}

#[cfg(test)]
#[path = "terms_tests.rs"]
mod tests;
