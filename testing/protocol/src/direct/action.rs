//! What may happen next.

/// One atomic step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The program asks for a direct lease of its file.
    Open,
    /// It submits its next request.
    Submit,
    /// It learns that its queue is gone, and that nobody answers.
    GiveUp,
    /// The target takes a request up: it checks it, and begins.
    Begin,
    /// What was begun is carried out.
    Finish,
    /// The redo lane is flushed: what was committed is answered.
    FlushLane,
    /// The oldest committed redo record goes to its blocks.
    Replay,
    /// The area is flushed.
    FlushArea,
    /// The redo lane's tail is made durable behind what was replayed and flushed.
    Tail,
    /// A program that reads beside others asks for a grant.
    ReaderAsks(usize),
    /// The target begins a read of it.
    ReaderBegins(usize),
    /// That read is answered.
    ReaderEnds(usize),
    /// The target takes the host's message: a grant, or that the lease is to end.
    Hear,
    /// It says that nothing can come of the lease any more.
    Drained,
    /// The host does the next thing of its script, or begins what that needs.
    Host,
    /// It writes down that blocks were written that the target says it wrote.
    MarkWritten,
    /// The host is there again: it says its epoch to the target, and reads what is durable.
    HostComes,
    /// The target is there again, and has read the lane from its tail.
    TargetComes,
    /// The host dies.
    HostDies,
    /// The target dies; the storage keeps what it has.
    TargetDies,
    /// The program dies.
    ProgramDies,
    /// Power fails under the storage, the target and the host. The number says which of what was
    /// not flushed is there afterwards.
    PowerFails(u16),
}
