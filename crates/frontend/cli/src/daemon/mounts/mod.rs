//! The mounts of a daemon's volume: those that there are (`live`), what is known of each
//! (`mounted`), its `settings`, its name of the daemon's socket (`sockets`) and its line in
//! umount(8)'s table (`utab`), and what its programs have of `private_logs`. Commands `attach` more
//! of them, of a part of the tree if they want (`subdir`).

pub mod attach;
pub mod live;
pub mod mounted;
pub mod private_logs;
pub mod settings;
mod sockets;
pub mod subdir;
mod utab;
