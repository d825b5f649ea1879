//! Inode flags, as lsattr(1) shows them and ext4 keeps them.

/// `i`: no process changes, names, renames or removes the file.
pub const IMMUTABLE: u32 = 0x10;
/// `a`: data is appended, nothing else changes.
pub const APPEND: u32 = 0x20;
/// `d`: not for dump(8).
pub const NODUMP: u32 = 0x40;
/// `A`: reads leave no time behind.
pub const NOATIME: u32 = 0x80;

/// What can be set and cleared.
pub const SETTABLE: u32 = IMMUTABLE | APPEND | NODUMP | NOATIME;
/// What a new file has from its directory.
pub const INHERITED: u32 = NODUMP | NOATIME;
/// What is shown: ext4's own list.
pub const VISIBLE: u32 = 0x725B_DFFF;
/// What ext4 lets a user change.
pub const MODIFIABLE: u32 = 0x604B_C0FF;
/// Of those, what a file has by its format, and a change of which ext4 ignores or we do: extents.
pub const KEPT: u32 = 0x0008_0000;
