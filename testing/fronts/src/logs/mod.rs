//! Programs with private logs (`docs/design/private-logs.md`), beside others that know nothing of
//! them.
//!
//! `grants` is the daemon's part. `program` is a process that writes by its leases, or by the
//! kernel where it has none, with several threads; a child of its fork does the same. `remote` has
//! such programs do what is asked for, from the turns of another process. `records` are
//! appended to one file by programs of all kinds at once.

pub mod grants;
pub mod program;
pub mod records;
pub mod remote;
