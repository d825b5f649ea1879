//! The beginning of a connection, once there is a channel: greeting, memory, threads.

use crate::channel::Channel;
use crate::channel::rdma::Rdma;
use crate::channel::socket::Socket;
use crate::channel::stream;
use crate::handshake::{Agreement, Carrier, End, Greeting};
use crate::link::{self, Met};
use crate::mapping::Layout;
use crate::share::failed;
use crate::{Connection, TransportOptions, shm};
use rustix::fd::AsFd;
use siftfs_base::Result;
use siftfs_codec::{Message, Protocol};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// What is known before the two sides have greeted each other.
pub(crate) struct Begin<'a> {
    /// Which side this is.
    pub end: End,
    pub options: &'a TransportOptions,
    pub deadline: Instant,
    /// The connection is not wanted any more.
    pub stop: &'a AtomicBool,
}

impl Begin<'_> {
    fn greeting<'a, C>(&'a self, channel: &'a C, met: &'a Met) -> Greeting<'a, C> {
        Greeting {
            channel,
            peer: &met.peer,
            deadline: self.deadline,
            patience: self.options.handshake,
            stop: self.stop,
        }
    }

    /// A connection over a unix socket, and over shared memory if both sides want that.
    pub fn local<P: Protocol, Out: Message, In: Message>(
        &self,
        socket: Socket,
        met: Met,
    ) -> Result<Connection<Out, In>> {
        let greeting = self.greeting(&socket, &met);
        let agreement = greeting.agree::<P>(self.end, self.options, Carrier::Local)?;
        if agreement.slots == 0 {
            return self.stream::<P, _, _, _>(socket, &agreement, met);
        }
        let layout = Layout::new(agreement.slots, P::SERVER_LENDS);
        let shared = match self.end {
            End::Caller => greeting.give_memory(layout)?,
            End::Server => greeting.take_memory(layout)?,
        };
        let (pipes, cut) = shm::pipes(self.end, shared, socket, &met.peer);
        link::open::<P, _, _>(self.end, &agreement, self.options, met, pipes, cut)
    }

    /// A connection that begins over `channel`, and stays there or goes on over RDMA.
    pub fn over<P: Protocol, C: Channel + AsFd, Out: Message, In: Message>(
        &self,
        channel: C,
        mut met: Met,
        carrier: Carrier,
    ) -> Result<Connection<Out, In>> {
        let greeting = self.greeting(&channel, &met);
        let agreement = greeting.agree::<P>(self.end, self.options, carrier)?;
        if !agreement.rdma {
            return self.stream::<P, _, _, _>(channel, &agreement, met);
        }
        let queue = greeting.join_queues()?;
        let channel = Rdma::new(channel, queue).map_err(|e| failed(&met.peer, &e))?;
        met.peer.push_str(" over RDMA");
        self.stream::<P, _, _, _>(channel, &agreement, met)
    }

    fn stream<P: Protocol, C: Channel, Out: Message, In: Message>(
        &self,
        channel: C,
        agreement: &Agreement,
        met: Met,
    ) -> Result<Connection<Out, In>> {
        let (pipes, cut) = stream::pipes(&Arc::new(channel), &met.peer);
        link::open::<P, _, _>(self.end, agreement, self.options, met, pipes, cut)
    }
}
