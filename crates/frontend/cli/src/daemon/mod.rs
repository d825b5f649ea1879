//! The process that serves a volume (`serve`) and its `mounts`, what it needs of its machine
//! (memory, limits, processors), and its sockets: for commands and for metrics.

pub mod allocator;
pub mod asking;
pub mod board;
pub mod cgroup;
pub mod control_server;
pub mod freeze;
pub mod limits;
pub mod listening;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod metrics_server;
pub mod mounts;
pub mod notify;
pub mod origin;
pub mod private;
pub mod processors;
pub mod serve;
