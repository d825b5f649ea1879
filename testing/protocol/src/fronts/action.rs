//! What may happen next.

/// One atomic step. Numbers name a client, a session, or a notice by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's next call begins: it is answered by what its kernel knows, or asks.
    Begin(usize),
    /// An append's request is sent.
    Send(usize),
    /// The Runtime carries a request out, under the state lock; or it recalls the lease.
    Apply(usize),
    /// What the request tells is remembered (planted fault only).
    Remember(usize),
    /// The Runtime answers a change.
    Answer(usize),
    /// An answer arrives, and the call returns.
    Arrive(usize),
    /// The holder of a lease looks at its word, after it has published.
    Look(usize),
    /// A kernel sends a page that a program stored to.
    Flush(usize, usize),
    /// The Runtime takes such a page.
    Take(usize, usize),
    /// The request of such a page is answered (planted fault only).
    Release(usize, usize),
    /// A kernel forgets what this notice names.
    Forget(usize),
    /// A kernel drops the first page that is left of the file, because a notice names one that is
    /// mapped.
    Drop(usize),
    /// An acknowledgement arrives.
    Acknowledge(usize),
    /// Before the inode is leased, what is pending for it becomes durable, and kernels are told to
    /// forget what they were told meanwhile.
    Drain,
    /// The lease is granted.
    Grant,
    /// The holder gives it back, because it is recalled.
    Comply,
    /// What the holder gave back is applied, and the lease ends.
    Ingest,
    /// The lease ends by its term.
    Expire,
    /// A term passes.
    Tick,
    /// A kernel that is silent on pages or attributes for a term is aborted.
    Abort(usize),
    /// A session ends.
    Dies(usize),
    /// A session goes silent.
    Silence(usize),
    /// The daemon dies, and another one starts.
    DaemonDies,
    /// The machine sleeps for longer than a term.
    Sleep,
    /// Of this client's change an acknowledgement comes twice.
    Again(usize),
    /// This notice is acknowledged by another session.
    Foreign(usize),
}
