//! The command line of what starts other programs.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

const ACCEL_HELP: &str = "\
The program, and every program that it starts, gets the library libsiftfs_preload.so (LD_PRELOAD). A file that it \
has open to be written and calls fsync(2) on again and again goes by a private log; everything else goes by the \
mount, and so do programs that are linked statically, and those that reach the kernel past the C library. Where no \
mount has private_logs=on, nothing changes. With --direct, files on a mount of a target's volume are read and written \
at the target, where that is granted. SIFTFS_ACCEL=off switches the library off, SIFTFS_ACCEL_SKIP=NAME:NAME \
leaves programs of these names alone, SIFTFS_ACCEL_STREAMS=off is --no-streams. The exit status is the program's; 127: there is no such program; 126: it \
cannot be run.";

/// `siftfs accel`.
#[derive(Args)]
#[command(after_help = ACCEL_HELP, disable_help_subcommand = true)]
pub struct Accel {
    /// Leave the C library's streams (fopen, fwrite) to the mount
    #[arg(long)]
    pub no_streams: bool,
    /// Read and write files at the target that has their volume's storage, where that is granted
    #[arg(long)]
    pub direct: bool,
    /// Tell at the end which calls on files of mounts went past the library; slow, x86-64
    #[arg(long)]
    pub count_escapes: bool,
    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

const FREEZE_HELP: &str = "\
Everything is brought into the ext4 area, and the mark is taken off that says that the volume is in use. So what the \
command copies (lvcreate -s, rbd snap create, cp --reflink) is a clean ext4 file system, which the kernel mounts. \
Meanwhile changes and calls of fsync wait, and programs read on. The command must not write to the mount itself. When \
it takes longer than --within it is killed, with all that it has started in its process group, and the volume goes on. \
The exit status is the command's, 128 and the number of the signal that ended it, or 124: the hold ended before the \
command, and what that made is no snapshot.";

/// `siftfs freeze`.
#[derive(Args)]
#[command(after_help = FREEZE_HELP, disable_help_subcommand = true)]
pub struct Freeze {
    /// A directory on the mount
    pub dir: PathBuf,
    /// How long changes may wait for the command, 1 to 300 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=300))]
    pub within: u64,
    /// The command that makes the snapshot, and its arguments
    #[arg(required = true, last = true)]
    pub command: Vec<OsString>,
}

/// `siftfs bench`.
#[derive(Args)]
#[command(disable_help_subcommand = true, subcommand_value_name = "NAME [ARGUMENTS]...")]
pub struct Bench {
    /// Which, if any.
    #[command(subcommand)]
    pub bench: Option<NamedBench>,
}

/// What follows `siftfs bench`.
#[derive(Subcommand)]
pub enum NamedBench {
    /// Which, and what of it, such as coinpurse-fig5, then the bench's own arguments: all of them,
    /// `--help` included, are the bench's.
    #[command(external_subcommand)]
    Named(Vec<OsString>),
}
