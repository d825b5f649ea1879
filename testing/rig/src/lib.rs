//! What the programs that work on mounted volumes share: a temporary place whose mounts go away
//! with it, and a volume driven through the `siftfs` command, as a user would.

pub mod connection;
pub mod database;
pub mod descriptors;
pub mod device;
pub mod ext4;
pub mod figure;
pub mod fillsync;
pub mod fresh;
pub mod hostile;
pub mod place;
pub mod program;
pub mod proxy;
pub mod rings;
pub mod status;
pub mod table;
pub mod varmail;
pub mod volume;
