//! The client's side of a session that lends (`docs/design/private-logs.md`, "NICFS's placement"):
//! leases that are granted on to programs of this machine, and what these write. Its data go into
//! memory that both processes share, and a header about them into the message.

use super::Client;
use crate::{Address, FileProtocol, Opening, TransportOptions};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, Result, SharedBlock};
use siftfs_calls::{Claim, Leases, ToServer};
use siftfs_proto::{Credentials, Holder, Request, WriteData};
use siftfs_transport::{CallerEnd, connect};
use std::sync::Arc;

/// Memory that such a session shares, each way: room for the largest write, and for one more that
/// is not given back yet.
const MEMORY: u64 = 2 << 20;

impl Client {
    /// Opens a session for a program's private log, in the name of this machine's kernel. `holder`
    /// is told which leases to return, and that the session is lost.
    ///
    /// # Errors
    /// As [`Client::connect`]; and the server is not on this machine, or shares no memory.
    pub fn lend(
        address: &Address,
        options: &TransportOptions,
        volume: &str,
        holder: Arc<dyn Holder>,
    ) -> Result<Self> {
        let end = dial(address, options)?;
        let (volume, claim) = (volume.into(), Claim::Kernel);
        let opening =
            Opening { volume, claim, caches: false, leases: Leases::Lent, returning: None };
        Self::open_beside(end, opening, (None, Some(holder)))
    }
}

/// A connection for such a session.
///
/// # Errors
/// The server is not on this machine, or does not listen.
pub(super) fn dial(
    address: &Address,
    options: &TransportOptions,
) -> Result<CallerEnd<FileProtocol>> {
    if address.network().is_some() {
        return Err(Error::Refused(format!(
            "private logs of programs on a volume at {address}: only headers of what a program writes \
             go to its server, and the data into memory that both share, which needs a unix socket on \
             the server's machine"
        )));
    }
    let shared_memory = options.shared_memory.min(MEMORY);
    connect::<FileProtocol>(address, &TransportOptions { shared_memory, ..options.clone() })
}

/// The message for a call of such a session.
pub(super) fn message(
    (slot, number): (u32, u64),
    credentials: Credentials,
    request: Request,
) -> ToServer {
    match request {
        Request::LeaseWrite { lease, offset, data, time, durable: false } if !data.is_empty() => {
            let len = u32::try_from(data.len()).expect("a piece is a mebibyte at most");
            let blocks = in_blocks(offset, data);
            ToServer::Lent { slot, number, credentials, lease, offset, len, time, blocks }
        }
        request => {
            let (request, proofs) = (Box::new(request), None);
            ToServer::Call { slot, number, credentials, request, change: None, proofs }
        }
    }
}

/// The data in whole blocks, each byte where the file's block has it.
fn in_blocks(offset: u64, data: WriteData) -> Vec<SharedBlock> {
    let skip = (offset % BLOCK_BYTES) as usize;
    let bytes = match data {
        WriteData::Blocks(blocks) if skip == 0 => return blocks,
        data => data.into_bytes(),
    };
    let (mut blocks, mut rest, mut from) = (Vec::new(), &bytes[..], skip);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(BLOCK_SIZE - from));
        let mut block = [0; BLOCK_SIZE];
        let place = block.get_mut(from..from + now.len()).expect("it ends where the block does");
        place.copy_from_slice(now);
        blocks.push(SharedBlock::from(block));
        (rest, from) = (later, 0);
    }
    blocks
}

#[cfg(test)]
#[path = "lends_tests.rs"]
mod tests;
