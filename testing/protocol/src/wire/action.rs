//! What may happen next.

/// One atomic step. Numbers name a client by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's next call begins, and is on its way if there is a connection.
    Begin(usize),
    /// The server learns which change a client that comes back would repeat next.
    Arrive(usize),
    /// The server takes what a client has sent, and carries it out.
    Receive(usize),
    /// What was carried out is answered.
    Answer(usize),
    /// A client gets the next message.
    Deliver(usize),
    /// A client makes a connection, and opens its session.
    Connect(usize),
    /// What a kernel knows runs out: its client has been without a connection for a term.
    RunsOut(usize),
    /// The server makes durable what clients keep, writes that down, and tells them.
    Keep,
    /// The Runtime makes all durable by itself.
    Commit,
    /// A server that dies or has ended is there again: the book says what is durable, and which
    /// epoch of the volume begins.
    Note,
    /// That epoch is durable: what is durable was recovered.
    Recover,
    /// It has written the book, under a number above or below all numbers before.
    Serve(bool),
    /// The grace time is over without this client.
    StrikeOut(usize),
    /// A session without a connection is ended after its term.
    TermEnds(usize),
    /// A server that has ended in order is gone.
    Stop,
    /// A connection is lost, with what is on its way in both directions.
    Lose(usize),
    /// The server is killed.
    Kill,
    /// The server ends in order.
    End,
    /// A client dies.
    Dies(usize),
    /// A client that lives is away for longer than it is waited for.
    Late(usize),
    /// The book is lost: another machine takes the volume over.
    LoseBook,
}
