//! What may happen next.

/// One atomic step. I/O is one step per write and one per flush; between any two steps anything
/// else may happen, crashes included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's next write, removal, or capture by fsync.
    Client(u8),
    /// A client's next fsync, captured into the record area.
    Compact(u8),
    /// A client's fsync returns.
    Return(u8),
    /// Data that was not fsynced is staged, because the volume is being unmounted.
    Settle(u8),
    /// The place of the record with this number is fixed (planted fault only).
    Place(u8),
    /// The record with this number is written to its lane.
    WriteRecord(u8),
    /// The lanes of the disk are flushed.
    FlushLanes,
    /// The record with this number, in the record area, is persisted.
    Persist(u8),
    /// A file's data goes straight to a new block.
    Push(u8),
    /// Background assembly cuts a transaction.
    Cut,
    /// The host sends the next message about what it keeps.
    Send,
    /// The host asks for a checkpoint.
    Ask {
        /// Because a client, or the host itself, waits for credits.
        emergency: bool,
    },
    /// The host asks for the discard of this block.
    Discard(u8),
    /// The host takes the next message.
    Receive,
    /// The host connects to this process.
    Connect(u8),
    /// The host runs the Service itself, because the device stays away.
    Fallback,
    /// The host gives the Service role back.
    GiveBack,
    /// Everything is in the area: the host says goodbye.
    Goodbye,
    /// The next step of an unmount, once the Service has let go.
    Leave,
    /// The host starts: it takes both locks and reads the volume.
    Mount,
    /// The next step of a recovery that the host does itself.
    Recover,
    /// This process takes its next message.
    Serve(u8),
    /// This process's Service goes on with what it does.
    Work(u8),
    /// This process's Service begins a checkpoint that was asked for.
    Checkpoint(u8),
    /// This process's Service carries a discard out.
    Empty(u8),
    /// This process notices that its connection has ended.
    Notice(u8),
    /// This process has finished what was committed, and lets go.
    LetGo(u8),
    /// The host process dies.
    HostDies,
    /// A device process dies, and another one starts in its place.
    DeviceDies(u8),
    /// The link breaks while both sides live.
    LinkBreaks,
    /// Everything loses power; the number selects what survives of the unflushed writes.
    PowerFails(u16),
    /// A flush fails; the number selects which of the writes that it was to cover are gone.
    FlushFails(Flush, u16),
    /// The host stalls, and another one gets its turn.
    Stall,
    /// A host that finds the other one's lock leaves the turn to it.
    Wake,
    /// The process of a host that has latched a failure ends.
    GiveUp,
}

/// Which process flushes, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flush {
    /// The host, its lanes on the disk.
    Lanes,
    /// The host, a record of the record area.
    Compact,
    /// The host, a header record: mounting, recovering or unmounting.
    Header,
    /// This process's Service.
    Service(u8),
}

impl Action {
    /// Faults are what the outside does to us.
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Self::HostDies
                | Self::DeviceDies(_)
                | Self::LinkBreaks
                | Self::PowerFails(_)
                | Self::FlushFails(..)
                | Self::Stall
        )
    }
}
