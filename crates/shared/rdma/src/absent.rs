//! What there is in a program without the verbs: nothing that can be opened.

use crate::{Done, NOT_BUILT_IN, Queue, Terms};
use siftfs_base::{Error, Result};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// A queue pair, of which this program has none.
#[derive(Debug)]
pub struct QueuePair(Infallible);

/// Refuses: this program was built without RDMA.
///
/// # Errors
/// Always [`Error::Refused`].
pub fn open(_: IpAddr) -> Result<QueuePair> {
    Err(Error::Refused(NOT_BUILT_IN.into()))
}

impl QueuePair {
    /// What the peer needs to know.
    pub fn terms(&self) -> Terms {
        match self.0 {}
    }

    /// Connects it to the peer's.
    ///
    /// # Errors
    /// None here.
    pub fn connect(&mut self, _: &Terms) -> Result<()> {
        match self.0 {}
    }
}

impl Queue for QueuePair {
    fn outgoing(&mut self, _: u32) -> &mut [u8] {
        match self.0 {}
    }
    fn incoming(&self, _: u32) -> &[u8] {
        match self.0 {}
    }
    fn send(&mut self, _: u32, _: u32, _: u32) -> io::Result<()> {
        match self.0 {}
    }
    fn send_control(&mut self, _: u32) -> io::Result<()> {
        match self.0 {}
    }
    fn post(&mut self, _: u32) -> io::Result<()> {
        match self.0 {}
    }
    fn poll(&mut self) -> io::Result<Option<Done>> {
        match self.0 {}
    }
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
    fn take_events(&mut self) -> io::Result<()> {
        match self.0 {}
    }
    fn stop(&mut self) {
        match self.0 {}
    }
}
