//! The command line.

use crate::daemon::logging::Level;
use crate::options::keys::{Admit, Key};
pub use crate::options::programs::{Accel, Bench, Freeze, NamedBench};
pub use crate::options::serve::Serve;
use crate::options::size::parse_size;
pub use crate::options::status::Status;
use crate::options::volumes::Volumes;
use clap::{Args, Parser, Subcommand, ValueEnum};
use siftfs_placement::{Address, BytePlace};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit status: 0 success, 1 failure, 2 wrong usage. `fsck` and `recover` speak like fsck(8): \
0 clean (or recovered), 4 damaged or in need of recovery, 8 could not check.";

const ADOPT_HELP: &str = "\
The file system is not changed, its superblock excepted, which names the log. It must be unmounted, \
clean (run e2fsck otherwise), have blocks of 4096 bytes and the features that mke2fs gives ext4 by \
default; bigalloc, inline_data, encrypt, casefold, verity, ea_inode, quota and others are refused by \
name. An ext4 journal is left as it is. `siftfs release` gives the file system back.";

const DEVICE_HELP: &str = "\
It says on standard output when it listens, and serves until SIGTERM, one mount at a time; mount with \
`siftfs mount VOLUME DIR --service ADDRESS`. It opens the volume only while a mount is there. When it dies, \
another one can be started in its place: the mount carries on. A unix socket is for its owner alone; over TCP the \
keys of hosts are admitted (`siftfs key`) that the file authorized lists with role=host. At rdma:HOST:PORT the keys \
are the same, and the blocks cross the network without encryption. With --insecure everybody who \
reaches the port may write the volume, so listen on an address that only trusted machines reach. At --programs \
programs of every user read and write the blocks of their files that a host has granted to them, and nothing else.";

/// A file system whose fsync is one write, and whose format is ext4.
#[derive(Parser)]
#[command(name = "siftfs", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Make a volume in a file or on a block device
    Mkfs(Mkfs),
    /// Make a clean ext4 file system a volume as it is, with its log elsewhere
    Adopt(Adopt),
    /// Give a volume back: everything into the ext4 area, and no log any more
    Release(Release),
    /// Mount a volume; returns when it is usable
    Mount(Mount),
    /// Do the background work of a volume that is mounted with --service: journaling, checkpoints
    Device(Device),
    /// Serve a volume to programs and mounts that reach it by a socket
    Serve(Serve),
    /// List, create and remove the volumes of a directory, and grow a volume
    Volumes(Volumes),
    /// Unmount; returns when the volume is plain ext4
    Umount(Umount),
    /// Give files new names, all of them or none, also after a crash
    Publish(Publish),
    /// Make everything written so far durable
    Sync(Dir),
    /// Show what a mount does, with its process id
    Status(Status),
    /// Show live what a mount does: fsync rate and latency, fill of the log, checkpoints
    Top(Top),
    /// Bring everything into the ext4 area and free the log
    Checkpoint(DirJson),
    /// Give the space of all free blocks back to what the volume lies on
    Trim(DirJson),
    /// Hold a mounted volume as a clean ext4 file system while a command makes a snapshot of it
    Freeze(Freeze),
    /// Bring a volume that was not unmounted back to plain ext4, without mounting it
    Recover(Recover),
    /// Check a volume that is not mounted: header, staging, journal, then the ext4 area
    Fsck(Fsck),
    /// Show what lies in a volume's header, lanes and journal, and what recovery would do; writes
    /// nothing
    Inspect(Check),
    /// Show what this machine could do for mounts and has switched off (requests by rings), and
    /// switch it on or off, now and for good
    Tune(Tune),
    /// Make this machine's key pair, or show what may be shown of it: over TCP a key says which
    /// machine it is
    Key(Key),
    /// Run a program whose small writes and calls of fsync need no conversation with the daemon of
    /// a mount with private_logs=on
    Accel(Accel),
    /// Run one of the benches that are built beside this program, such as coinpurse-fig5 or
    /// ceto-open; without a name, say which there are
    Bench(Bench),
    /// Write man pages and shell completions
    #[command(hide = true)]
    Generate(Generate),
}

impl Command {
    /// Does it write a volume, or read all of one?
    pub fn works_on_a_volume(&self) -> bool {
        use Command as C;
        match self {
            C::Mkfs(_) | C::Adopt(_) | C::Release(_) | C::Mount(_) | C::Device(_) => true,
            C::Serve(_) | C::Recover(_) | C::Fsck(_) | C::Inspect(_) | C::Volumes(_) => true,
            C::Umount(_) | C::Publish(_) | C::Sync(_) | C::Status(_) | C::Top(_) => false,
            C::Checkpoint(_) | C::Trim(_) | C::Tune(_) | C::Bench(_) | C::Generate(_) => false,
            C::Accel(_) | C::Key(_) | C::Freeze(_) => false,
        }
    }
}

/// `siftfs mkfs`.
#[derive(Args)]
pub struct Mkfs {
    /// File (made if missing) or block device; rbd:POOL/IMAGE or rbd:POOL/IMAGE@CONF, an image of a
    /// Ceph cluster; or stripe:MEMBER,MEMBER,... for a file system that is striped over 2 to 16 of
    /// them, which needs --log; a member may be target:ADDRESS/NAME
    pub volume: PathBuf,
    /// Make no volume, but one member of a striped volume that is still to be made, for `siftfs
    /// device` to serve to the machine with the log; --size is how much data it shall hold
    #[arg(long, conflicts_with_all = ["stripe_unit", "log_size", "log", "label", "redo_lane",
          "reserve", "record_area", "record_area_size", "log_spare"])]
    pub member: bool,
    /// Bytes of a turn of a striped volume's members, such as 256K: a power of two, 64K to 64M;
    /// default: 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub stripe_unit: Option<u64>,
    /// Whole size, such as 2G; default: the size that is there. Of a striped volume: the file
    /// system's
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub size: Option<u64>,
    /// Journal and staging together, such as 128M; default: chosen from the size. With --log: the
    /// whole log; default: the size that is there
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub log_size: Option<u64>,
    /// Put the log on this file (made if missing), block device or image; the volume then holds
    /// ext4 alone
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// Put a spare log on this file (made if missing, of 256M, or 64M more than the log), block
    /// device or image, which it takes as a whole: while the log's device does not answer, new
    /// records go there, and once that fails, all of the log, if it has room. Needs --log
    #[arg(long, value_name = "PATH", requires = "log")]
    pub log_spare: Option<PathBuf>,
    /// Let the log or the record area of a volume on a cluster lie on this machine: with the
    /// machine die the newest fsyncs
    #[arg(long)]
    pub log_may_die: bool,
    /// The record area
    #[command(flatten)]
    pub area: NewRecordArea,
    /// ext4 label, at most 16 bytes
    #[arg(long, value_parser = label)]
    pub label: Option<String>,
    /// Staging lanes, 1 to 16
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub lanes: u16,
    /// What the journal holds of staged data: ref (references), or copy (the data again, as in the
    /// SIFT paper, for comparison)
    #[arg(long, value_name = "FORM", default_value = "ref")]
    pub journal_data: siftfs_placement::JournalData,
    /// Make a redo lane of this size, such as 64M, in which `siftfs device` makes atomic writes of
    /// programs durable; without it their hosts do. Besides --log-size, with --log a part of it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub redo_lane: Option<u64>,
    /// Give the volume's file all of its blocks now, so that nothing can lack space below later
    #[arg(long)]
    pub reserve: bool,
    /// Overwrite a file system that is there
    #[arg(long)]
    pub force: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs adopt`.
#[derive(Args)]
#[command(after_help = ADOPT_HELP)]
pub struct Adopt {
    /// A file, block device or image (rbd:POOL/IMAGE) with a clean ext4 file system
    pub volume: PathBuf,
    /// File (made if missing), block device or image for the log
    #[arg(long, value_name = "PATH")]
    pub log: PathBuf,
    /// Put a spare log on this file, block device or image: see mkfs
    #[arg(long, value_name = "PATH")]
    pub log_spare: Option<PathBuf>,
    /// Let the log of a volume on a cluster lie on this machine: see mkfs
    #[arg(long)]
    pub log_may_die: bool,
    /// Size of the log, such as 128M; default: the size that is there
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub log_size: Option<u64>,
    /// The record area
    #[command(flatten)]
    pub area: NewRecordArea,
    /// Staging lanes, 1 to 16
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub lanes: u16,
    /// What the journal holds of staged data: ref (references), or copy (the data again, as in the
    /// SIFT paper, for comparison)
    #[arg(long, value_name = "FORM", default_value = "ref")]
    pub journal_data: siftfs_placement::JournalData,
    /// Make a redo lane of this size, such as 64M, within the log: see mkfs
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub redo_lane: Option<u64>,
    /// Overwrite what is in the files or devices of the log and the record area
    #[arg(long)]
    pub force: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Where the parts of a volume are that lie on files or devices of their own.
#[derive(Args, Clone, Default)]
pub struct Parts {
    /// Where the volume's log is, if it is not with the volume; default: it is searched for
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// Where the volume's spare log is, if it has one; default: where it was the last time, or at
    /// the volume's name with .spare behind it
    #[arg(long, value_name = "PATH")]
    pub log_spare: Option<PathBuf>,
    /// Where the volume's record area is, if it has one: PATH, pmr:DDDD:BB:DD.F or volatile:PATH;
    /// default: where it was the last time, or at the volume's name with .area behind it
    #[arg(long, value_name = "PLACE")]
    pub record_area: Option<BytePlace>,
}

/// A record area to be made.
#[derive(Args)]
pub struct NewRecordArea {
    /// Put small fsyncs in memory that is addressed by bytes: a file (made if missing) on a file
    /// system mounted with DAX, a /dev/dax device, pmr:DDDD:BB:DD.F (an NVMe controller's
    /// persistent memory region), or volatile:PATH, a file on anything, for tests: a power cut may
    /// lose it
    #[arg(long, value_name = "PLACE")]
    pub record_area: Option<BytePlace>,
    /// Bytes of the record area, such as 64M; default: 64M for a file that is made, else what is
    /// there
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true,
          requires = "record_area")]
    pub record_area_size: Option<u64>,
}

/// `siftfs release`.
#[derive(Args)]
pub struct Release {
    /// The volume, not mounted
    pub volume: PathBuf,
    /// Where its parts are
    #[command(flatten)]
    pub parts: Parts,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs mount`.
#[derive(Args)]
#[command(after_help = crate::options::table::help())]
pub struct Mount {
    /// The volume; target:ADDRESS/VOLUME if a device process has its storage; or where another
    /// process serves it: unix:PATH, tcp:HOST:PORT, rdma:HOST:PORT or HOST:/VOLUME
    pub volume: PathBuf,
    /// An existing directory
    pub dir: PathBuf,
    /// Stay in the foreground until the volume is unmounted
    #[arg(long)]
    pub foreground: bool,
    /// Options, separated by commas; a later one wins
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Where its parts are
    #[command(flatten)]
    pub parts: Parts,
    /// The `siftfs device` process that does the background work: unix:PATH, tcp:HOST:PORT or
    /// rdma:HOST:PORT; default: the mount does it itself
    #[arg(long, value_name = "ADDRESS")]
    pub service: Option<Address>,
    /// Serve the volume to other processes, too: unix:PATH, tcp:HOST:PORT or rdma:HOST:PORT; may
    /// be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<Address>,
    /// When that process has been away for so long, the mount does the work itself until it is
    /// back; default: what needs it waits
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "10", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub service_fallback: Option<u64>,
    /// Where the background process writes its messages; default: nowhere
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// What the log holds; counts more than SIFTFS_LOG
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<Level>,
    /// Check the options, and mount nothing
    #[arg(long)]
    pub fake: bool,
    /// Called by mount(8), which names all of the kernel's options
    #[arg(long, hide = true)]
    pub helper: bool,
    /// Pass over unknown mount options
    #[arg(long)]
    pub sloppy: bool,
    /// Say what was mounted
    #[arg(long, short)]
    pub verbose: bool,
    /// The background process itself; speaks with its parent through standard output
    #[arg(long, hide = true)]
    pub daemon_child: bool,
}

impl Mount {
    /// The same, with words of their own that are options as well among the options.
    pub fn gathered(mut self) -> Self {
        for address in self.listen.drain(..) {
            let address = match address {
                Address::Unix(path) => Address::Unix(std::path::absolute(&path).unwrap_or(path)),
                tcp => tcp,
            };
            self.options.push(format!("listen={address}"));
        }
        self
    }
}

/// `siftfs device`.
#[derive(Args)]
#[command(after_help = DEVICE_HELP)]
pub struct Device {
    /// The volume, or one member of a striped volume, of which the storage alone is served
    pub volume: PathBuf,
    /// Where hosts reach it: unix:PATH, tcp:HOST:PORT, or rdma:HOST:PORT, where what crosses is
    /// not encrypted
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Address,
    /// Where programs of any user reach the blocks that a host has granted to them: unix:PATH,
    /// tcp:HOST:PORT or rdma:HOST:PORT; default: where hosts do
    #[arg(long, value_name = "ADDRESS")]
    pub programs: Option<Address>,
    /// The folder of a scratch file without a name, for the table of what is granted to programs,
    /// of which 128 MiB are kept in memory; default: $TMPDIR, or /tmp
    #[arg(long, value_name = "DIRECTORY")]
    pub scratch: Option<PathBuf>,
    /// Which machines it talks to over TCP
    #[command(flatten)]
    pub admit: Admit,
    /// Where its parts are
    #[command(flatten)]
    pub parts: Parts,
    /// Run on these processors alone, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = crate::daemon::processors::parse)]
    pub cpus: Option<crate::daemon::processors::List>,
    /// Use at most this share of one processor; 25 is a quarter, 200 are two
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub cpu_quota: Option<u64>,
    /// How checkpoints replay: ordered, coalesce (what is left of a batch), or auto
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub replay: siftfs_placement::ReplayMode,
    /// Memory that a checkpoint may take, at least 64M
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = crate::options::given::parse_memory)]
    pub memory: u64,
    /// Threads that serve all programs' connections; default: the processors, and at least 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub workers: Option<u8>,
    /// How long to spin for a message before sleeping, in microseconds; 0 never spins
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(0..=crate::options::given::MAX_SPIN))]
    pub spin: u64,
    /// Where messages are written; default: standard error
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// What they hold; counts more than SIFTFS_LOG
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<Level>,
    /// Messages, and the line that says that it listens, as JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs umount`.
#[derive(Args)]
pub struct Umount {
    /// The directory it is mounted on, or the volume
    pub dir: PathBuf,
    /// Detach even if it is in use; returns when the last user has gone
    #[arg(long)]
    pub lazy: bool,
    /// End every call on the mount with an error first, and detach it: for a daemon that does not
    /// answer. What was written without fsync may be lost
    #[arg(long)]
    pub force: bool,
    /// Refuse unless the mount's log is there
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
}

/// `siftfs publish`.
#[derive(Args)]
pub struct Publish {
    /// Files of one mount, each with its new name after it: SRC DST [SRC DST ...]
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub names: Vec<PathBuf>,
    /// Fail if a new name is another file's already
    #[arg(long)]
    pub no_replace: bool,
    /// What has happened when the command ends
    #[arg(long, value_enum, default_value = "durable")]
    pub level: PublishLevel,
}

/// How far a publish is when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PublishLevel {
    /// Other programs see all of it; a crash shows all or nothing
    Visible,
    /// The same, and nothing that is made durable later survives a crash without it
    Atomic,
    /// All of it is durable, data included
    Durable,
}

/// A mounted directory.
#[derive(Args)]
pub struct Dir {
    /// A directory on the mount
    pub dir: PathBuf,
}

/// A mounted directory, and how to print.
#[derive(Args)]
pub struct DirJson {
    /// A directory on the mount
    pub dir: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs recover`.
#[derive(Args)]
pub struct Recover {
    /// The volume
    pub volume: PathBuf,
    /// Where its parts are
    #[command(flatten)]
    pub parts: Parts,
    /// Give the log up instead: only for a volume whose log, or a directory of programs' logs that
    /// it names, is lost or damaged. What was fsynced since the last checkpoint may be lost; run
    /// e2fsck afterwards
    #[arg(long)]
    pub discard_log: bool,
    /// Of a volume on a cluster: fence the process that has it, also if it lives, on another
    /// machine or on this one. It writes nothing more
    #[arg(long)]
    pub take_over: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs fsck`.
#[derive(Args)]
pub struct Fsck {
    /// What is checked
    #[command(flatten)]
    pub check: Check,
    /// End e2fsck when it has worked for so long without getting further (processor time), as in a
    /// loop; 0 never does; default: a minute, and a second for each GiB
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// For `fsck.siftfs`: what may be put right
    #[arg(long, hide = true, value_enum, default_value = "nothing")]
    pub repair: Repair,
    /// For `fsck.siftfs`: believe an ext4 area that calls itself clean
    #[arg(long, hide = true)]
    pub quick: bool,
    /// For `fsck.siftfs`: an open descriptor that takes e2fsck's lines of progress
    #[arg(long, hide = true)]
    pub progress_fd: Option<i32>,
}

/// What fsck may put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Repair {
    /// Nothing: it only reads.
    Nothing,
    /// What the next mount would do, and what `e2fsck -p` does without asking.
    Safe,
    /// Everything: what the next mount would do, and what `e2fsck -y` does.
    All,
}

/// `siftfs inspect`, and what `siftfs fsck` has of it.
#[derive(Args)]
pub struct Check {
    /// The volume
    pub volume: PathBuf,
    /// Where its parts are
    #[command(flatten)]
    pub parts: Parts,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs tune`.
#[derive(Args)]
pub struct Tune {
    /// What to do
    #[arg(value_enum, default_value = "show")]
    pub to: TuneTo,
    /// As `siftfs tune off`
    #[arg(long, conflicts_with = "to")]
    pub off: bool,
    /// Where FUSE is no module, change the kernel's command line in the files of GRUB or
    /// kernel-install(8); default: say what to change
    #[arg(long)]
    pub edit_command_line: bool,
    /// The machine whose files are below DIR, such as an image that is being built
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What `siftfs tune` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TuneTo {
    /// Shows what is set and what there is to do, and changes nothing
    Show,
    /// Switches it on
    On,
    /// Switches it off
    Off,
}

/// `siftfs generate`.
#[derive(Args)]
pub struct Generate {
    /// Where to: below it, `man` and `completions` are made
    pub dir: PathBuf,
}

/// `siftfs top`.
#[derive(Args)]
pub struct Top {
    /// A directory on the mount
    pub dir: PathBuf,
    /// Seconds between two pictures, 0.1 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub delay: f64,
    /// How many pictures; default: until interrupted
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub count: Option<u64>,
    /// One picture, as -n 1
    #[arg(long, conflicts_with = "count")]
    pub once: bool,
}

/// Parses an ext4 label.
pub fn label(text: &str) -> Result<String, String> {
    match text.len() {
        0..=16 => Ok(text.into()),
        n => Err(format!("{n} bytes, and ext4 has room for 16")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.1..=3600.0).contains(&s) => Ok(s),
        _ => Err("not a number of seconds from 0.1 to 3600".into()),
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
