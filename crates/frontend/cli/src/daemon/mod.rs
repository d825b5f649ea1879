//! The process that serves a mount (`serve`), what it needs of its machine (memory, limits,
//! processors), and its sockets: for commands and for metrics.

pub mod allocator;
pub mod cgroup;
pub mod control_server;
pub mod limits;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod metrics_server;
pub mod notify;
pub mod private;
pub mod processors;
pub mod serve;
pub mod settings;
pub mod utab;
