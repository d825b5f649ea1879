//! How two sides that have met come to carry their frames over RDMA: each opens a queue pair on the
//! device that has its end of the connection, and tells the other about it.

use crate::channel::Channel;
use crate::handshake::Greeting;
use rustix::fd::AsFd;
use siftfs_base::{Error, Result};
use siftfs_rdma::{QueuePair, TERMS_LEN, Terms};
use std::net::SocketAddr;

impl<C: Channel + AsFd> Greeting<'_, C> {
    /// A queue pair that is connected to the peer's, on both sides. Each step is taken when both
    /// sides have said that they have taken the one before it: what one of them lacks, both say.
    ///
    /// # Errors
    /// One side has no device, or does not reach the other's.
    pub fn join_queues(&self) -> Result<QueuePair> {
        let mut pair = self.conclude(self.open_queue())?;
        self.write(&pair.terms().encode())?;
        let mut theirs = [0; TERMS_LEN];
        self.read(&mut theirs)?;
        let joined = Terms::decode(&theirs, self.peer).and_then(|theirs| pair.connect(&theirs));
        self.conclude(joined)?;
        Ok(pair)
    }

    fn open_queue(&self) -> Result<QueuePair> {
        let own = rustix::net::getsockname(self.channel);
        let own = own.ok().and_then(|own| SocketAddr::try_from(own).ok());
        let own = own.ok_or_else(|| {
            Error::Refused(format!("RDMA to {}: this end has no address of IP", self.peer))
        })?;
        siftfs_rdma::open(own.ip())
    }
}
