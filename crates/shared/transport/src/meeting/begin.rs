//! The beginning of a connection, once there is a channel: greeting, memory, threads.

use crate::channel::Channel;
use crate::channel::socket::Socket;
use crate::channel::stream;
use crate::handshake::{Agreement, End, Greeting};
use crate::link::{self, Met};
use crate::mapping::Layout;
use crate::{Connection, TransportOptions, shm};
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
        let agreement = greeting.agree::<P>(self.end, self.options, true)?;
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

    /// A connection whose bytes all go through `channel`.
    pub fn over<P: Protocol, C: Channel, Out: Message, In: Message>(
        &self,
        channel: C,
        met: Met,
    ) -> Result<Connection<Out, In>> {
        let agreement = self.greeting(&channel, &met).agree::<P>(self.end, self.options, false)?;
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
