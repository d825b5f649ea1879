//! The arguments of `siftfs serve`.

use crate::daemon::logging::Level;
use crate::options::args::Parts;
use crate::options::keys::{Admit, Known};
use clap::Args;
use siftfs_placement::Address;
use std::path::PathBuf;

const SERVE_HELP: &str = "\
It says on standard output where it listens, and serves until SIGTERM; then the volume is plain ext4 again. \
Programs reach it by siftfs::Volume::connect (Rust), and are as if they had opened the volume themselves; \
`siftfs mount ADDRESS DIR` mounts it. A unix socket is for its owner and root alone, who may do anything. Over TCP the keys of machines decide (`siftfs key`), by \
the lines of the file authorized, and what is said is encrypted; at rdma:HOST:PORT the keys are the same, and what is \
said is not encrypted. With --insecure nothing says who connects: clients \
are users without privileges, of their own choice, so listen where only trusted machines reach.";

/// How a server stands to another one of the same volume, which lies on a cluster.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Succession {
    /// Of a volume on a cluster that another server may have: wait, and serve it when that one is
    /// dead, by what the cluster says, or gives it up
    #[arg(long)]
    pub standby: bool,
    /// Of a volume on a cluster: fence the process that has it, also if it lives, and serve it.
    /// Without --listen: have a standby do so
    #[arg(long, conflicts_with = "standby")]
    pub take_over: bool,
    /// Have the server of a volume on a cluster, on whatever machine, give it up in order to one
    /// that waits, and wait until that one has it
    #[arg(long, conflicts_with_all = ["standby", "take_over", "listen"])]
    pub hand_over: bool,
}

/// `siftfs serve`.
#[derive(Args)]
#[command(after_help = SERVE_HELP)]
pub struct Serve {
    /// The volume; or a directory or a pool (rbd:POOL/) of volumes, each of which is served by its
    /// name
    pub volume: PathBuf,
    /// Where programs reach it: unix:PATH, tcp:HOST:PORT, or rdma:HOST:PORT, where what crosses is
    /// not encrypted; may be given several times
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["hand_over", "take_over"])]
    pub listen: Vec<Address>,
    /// How it stands to another server of the same volume
    #[command(flatten)]
    pub succession: Succession,
    /// Which machines it talks to over TCP
    #[command(flatten)]
    pub admit: Admit,
    /// Where its parts are
    #[command(flatten)]
    pub parts: Parts,
    /// The `siftfs device` process that does the background work: unix:PATH, tcp:HOST:PORT or
    /// rdma:HOST:PORT; default: this process does it itself
    #[arg(long, value_name = "ADDRESS")]
    pub service: Option<Address>,
    /// How that process is known over TCP
    #[command(flatten)]
    pub known: Known,
    /// Run on these processors alone, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = crate::daemon::processors::parse)]
    pub cpus: Option<crate::daemon::processors::List>,
    /// How long to spin for a client's call before sleeping, in microseconds; 0 never spins
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(0..=crate::options::given::MAX_SPIN))]
    pub spin: u64,
    /// Executors
    #[command(flatten)]
    pub executing: crate::options::execution::Executing,
    /// Where it is watched: the metrics of the one volume, /healthz and /readyz, at 127.0.0.1:PORT
    /// or on a unix socket's path
    #[arg(long, value_name = "ADDRESS", value_parser = crate::daemon::metrics_server::Address::parse)]
    pub metrics: Option<crate::daemon::metrics_server::Address>,
    /// Of a directory or a pool: close a volume that nobody has used for so long, and open it again
    /// for the next client; 0 never closes one; default: 300
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub close_after: Option<u64>,
    /// Data that is kept in memory of each volume, at least 8M; default: 256M, of which the volumes
    /// of a directory have equal shares
    #[arg(long, value_name = "SIZE", value_parser = crate::options::given::parse_cache)]
    pub cache: Option<u64>,
    /// Where messages are written; default: standard error
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// What they hold; counts more than SIFTFS_LOG
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<Level>,
    /// Messages, and the lines that say where it listens, as JSON
    #[arg(long)]
    pub json: bool,
}
