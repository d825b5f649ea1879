//! Programs that hold leases of one volume's files, without a mount: the grantor, its socket and
//! the memories are real, and so are the programs, which are processes of their own. What the
//! kernel does on a mount is done here by a session of the file protocol
//! (`docs/design/private-logs.md`).

pub mod logs;
pub mod program;
pub mod promised;
pub mod raw;
pub mod times;
pub mod user;
pub mod world;
