//! The mount as the system's own programs use it: mount(8), umount(8), fstab, systemd, man. Each
//! test that needs helpers in `/sbin` installs them in a mount namespace of its own.

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "manners/fsck.rs"]
mod fsck;
#[path = "manners/helpers.rs"]
mod helpers;
#[path = "manners/install.rs"]
mod install;
#[path = "manners/key.rs"]
mod key;
#[path = "manners/options.rs"]
mod options;
#[path = "manners/place.rs"]
mod place;
#[path = "manners/systemd.rs"]
mod systemd;
