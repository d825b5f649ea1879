//! The mounts of a daemon's volume: those that there are (`live`), each as a `front`, with
//! `settings` of its own, a name of the daemon's socket (`sockets`) and a line in umount(8)'s table
//! (`utab`). Commands `attach` more of them, of a part of the tree if they want (`subdir`).

pub mod attach;
pub mod front;
pub mod live;
pub mod settings;
mod sockets;
pub mod subdir;
mod utab;
