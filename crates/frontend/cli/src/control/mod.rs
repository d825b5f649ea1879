//! How commands speak with the daemon of a mount: the documents, and a command's end of the socket.

pub mod client;
pub mod messages;
pub mod passing;
pub mod waiting;
