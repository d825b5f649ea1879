//! The commands, a file each, and what several of them do: `closing` waits for a volume that is
//! being unmounted, `place` finds the mount that a path means.

pub mod attach;
pub mod closing;
pub mod e2fsck;
pub mod fsck;
pub mod generate;
pub mod inspect;
pub mod live;
pub mod manual;
pub mod mount;
pub mod one_file;
pub mod processes;
pub mod programs;
pub mod publish;
pub mod remount;
pub mod top;
pub mod tune;
pub mod umount;
pub mod volume;
pub mod volumes;
