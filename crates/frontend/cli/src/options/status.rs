//! The arguments of `siftfs status`.

use clap::Args;
use std::path::PathBuf;

/// `siftfs status`.
#[derive(Args)]
pub struct Status {
    /// A directory on the mount; with --healthy also where a volume is served: unix:PATH,
    /// tcp:HOST:PORT, rdma:HOST:PORT or HOST:/VOLUME
    pub dir: PathBuf,
    /// Fail unless the mount's log is there
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// Say no more than whether the volume is healthy: it answers, no write or flush has failed, no
    /// other process has taken it over, and no call of its storage has waited for a minute. Exit
    /// status 0, or 1 with the reason
    #[arg(long, conflicts_with = "log")]
    pub healthy: bool,
    /// How a served volume is reached, in options of a mount: volume=NAME, port=PORT, key=FILE,
    /// known_servers=FILE, fingerprint=SHA256:..., insecure
    #[arg(short = 'o', value_name = "OPTIONS", requires = "healthy")]
    pub options: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
