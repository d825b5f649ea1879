//! The words of `siftfs volumes`.

use crate::options::args::{Parts, label};
use crate::options::size::parse_size;
use clap::{Args, Subcommand};
use std::path::PathBuf;

const VOLUMES_HELP: &str = "\
A directory of volumes is a directory with files that are volumes, and `siftfs serve DIRECTORY` serves all of them. \
Logs, members of striped volumes, and files whose names begin with a dot are no volumes of it. A pool of a cluster \
(rbd:POOL/, rbd:POOL/NAMESPACE/) is the same with images, each of which is named as rbd:POOL/IMAGE.";

const GROW_HELP: &str = "\
Nobody may have the volume open. Its file or image becomes as long as --size says. A crash at any step leaves the volume with its old or its new size, and growing may be \
tried again. The log of a volume that holds its own moves behind its old end, so the volume has to grow by the length of \
its log at least. How far a volume can grow in place was settled when its file system was made: to the next multiple \
of 8 GiB of the file system, because that is what its table of group descriptors has room for. A volume is not made smaller.";

/// `siftfs volumes`.
#[derive(Args)]
#[command(after_help = VOLUMES_HELP, disable_help_subcommand = true)]
pub struct Volumes {
    /// What to do.
    #[command(subcommand)]
    pub what: VolumesCommand,
}

/// What `siftfs volumes` does.
#[derive(Subcommand)]
pub enum VolumesCommand {
    /// Show the volumes of a directory or a pool, those in use among them
    List(ListVolumes),
    /// Make a volume in a new file or on a new image, which has its name when it is whole
    Create(CreateVolume),
    /// Remove a volume that nobody uses, with all of its files
    Remove(RemoveVolume),
    /// Make a volume larger that nobody uses
    Grow(GrowVolume),
}

/// `siftfs volumes list`.
#[derive(Args)]
pub struct ListVolumes {
    /// The directory, or a pool (rbd:POOL/)
    pub dir: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs volumes create`.
#[derive(Args)]
pub struct CreateVolume {
    /// The new file, such as DIRECTORY/NAME, or a new image, rbd:POOL/IMAGE
    pub volume: PathBuf,
    /// Whole size, such as 2G
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub size: u64,
    /// Journal and staging together, such as 128M; default: chosen from the size
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub log_size: Option<u64>,
    /// ext4 label, at most 16 bytes
    #[arg(long, value_parser = label)]
    pub label: Option<String>,
    /// Staging lanes, 1 to 16
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub lanes: u16,
    /// Give the volume's file all of its blocks now, so that nothing can lack space below later
    #[arg(long)]
    pub reserve: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs volumes remove`.
#[derive(Args)]
pub struct RemoveVolume {
    /// The volume's file or image
    pub volume: PathBuf,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs volumes grow`.
#[derive(Args)]
#[command(after_help = GROW_HELP)]
pub struct GrowVolume {
    /// The volume, not in use
    pub volume: PathBuf,
    /// Whole size afterwards, such as 4G; default: the size that its file or device has, where that
    /// was made larger already, or a growth was cut off
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub size: Option<u64>,
    /// Where its parts are
    #[command(flatten)]
    pub parts: Parts,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}
