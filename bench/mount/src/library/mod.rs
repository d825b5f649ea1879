//! Rows that only a run with the library of private logs has (`--accel`), and what they, and others
//! in such a run, are compared with apart from ext4.

pub mod device_bytes;
pub mod jobs;
pub mod loaded;
pub mod opens;
pub mod pgbench;
pub mod postgres;
pub mod sources;
pub mod versus;
