//! What `-o` can say, once it is understood.

use crate::daemon::logging::{Format, Level};
use crate::daemon::memory::Place;
use crate::daemon::metrics_server::Address;
use crate::options::keys::confirm;
use siftfs_fuse::MountOptions;
use siftfs_grantor::How;
use siftfs_placement::{
    Address as ServiceAddress, Dial, LogsPlace, OpenOptions, ServicePlace, TransportOptions,
};
use siftfs_remote::Patience;
use siftfs_transport::Trust;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything that `-o` can say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// For the kernel.
    pub mount: MountOptions,
    /// Where logs of its programs lie, if they may have any.
    pub file_logs: FileLogs,
    /// Logs of programs may lie on this machine while the volume lies on a cluster.
    pub log_may_die: bool,
    /// How what these programs write is taken in.
    pub ingest: How,
    /// The directory of the volume that is mounted, from the volume's root; `None`: that root.
    pub subdir: Option<PathBuf>,
    /// For the volume.
    pub open: OpenOptions,
    /// For the daemon.
    pub daemon: DaemonOptions,
    /// For the process that does the background work.
    pub service: ServiceOptions,
    /// For a volume that another process serves.
    pub served: ServedOptions,
}

/// Where the logs lie by which programs make durable themselves what they wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FileLogs {
    /// Programs have no file logs: the daemon makes durable what they wrote.
    #[default]
    None,
    /// Beside the file that has the volume's log, or the volume.
    Beside,
    /// In this directory.
    In(LogsPlace),
}

/// A volume that another process serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedOptions {
    /// Its name or UUID.
    pub volume: Option<String>,
    /// The server's port, if it is named as `HOST:/VOLUME`.
    pub port: Option<u16>,
    /// Calls fail when the server is lost for too long.
    pub soft: bool,
    /// For how long they wait then.
    pub timeo: Option<Duration>,
}

/// How long calls of a `soft` mount wait for their server.
const TIMEO: Duration = Duration::from_secs(60);

impl ServedOptions {
    /// How long calls wait for a server that is lost.
    ///
    /// # Errors
    /// A message: the options do not go together.
    pub fn patience(&self) -> Result<Patience, String> {
        match (self.soft, self.timeo) {
            (true, timeo) => Ok(Patience::Soft(timeo.unwrap_or(TIMEO))),
            (false, None) => Ok(Patience::Hard),
            (false, Some(_)) => Err(
                "timeo= says how long the calls of a soft mount wait for their server: say soft, too"
                    .into(),
            ),
        }
    }
}

/// Which process does the background work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceOptions {
    /// Where that process listens; `None`: the daemon itself does it.
    pub address: Option<ServiceAddress>,
    /// How long it may be away before the daemon does.
    pub fallback: Option<Duration>,
    /// What the connection may cost.
    pub transport: TransportOptions,
    /// How that process, and a server of files, is known over TCP.
    pub trust: Trust,
}

impl ServiceOptions {
    /// As a volume is opened with.
    ///
    /// # Errors
    /// A message that says what does not go together, or that keys are missing.
    pub fn place(&self, read_only: bool) -> Result<Option<ServicePlace>, String> {
        let Some(address) = &self.address else {
            return match self.fallback {
                Some(_) => Err("service-fallback without a service: say --service ADDRESS".into()),
                None => Ok(None),
            };
        };
        if read_only {
            return Err("a read-only mount has no background work: leave the service out".into());
        }
        let options = self.transport.clone();
        let secured = self.trust.secure(address, &options, confirm());
        let secured = secured.map_err(|e| e.to_string())?;
        let dial = Dial { address: address.clone(), options, secured };
        Ok(Some(ServicePlace { connector: Arc::new(dial), fallback: self.fallback }))
    }
}

/// What `-o` says about the daemon itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaemonOptions {
    /// Where the volume is served to other processes.
    pub listen: Vec<ServiceAddress>,
    /// The keys that are admitted there over TCP; none: the default file.
    pub authorized: Option<PathBuf>,
    /// Where metrics are served.
    pub metrics: Option<Address>,
    /// How the log is written.
    pub log_format: Format,
    /// What the log holds.
    pub log_level: Option<Level>,
    /// Where the log goes.
    pub log_file: Option<PathBuf>,
    /// Whose memory it takes.
    pub memory_group: Place,
}
