//! Files of a mount that a session of the same process leases, as that of a private log does: what
//! the mount's kernel knows of them, and of all others. By each request loop. Needs root,
//! `/dev/fuse` and python3.

#[path = "lent/knows.rs"]
mod knows;
#[path = "lent/program.rs"]
mod program;
#[path = "support/rings.rs"]
mod rings;
#[path = "lent/tokens.rs"]
mod tokens;
#[path = "lent/world.rs"]
mod world;
