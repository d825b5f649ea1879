//! The status document: what a mount says of itself. Runtime and Service fill it, and `siftfs
//! status`, `siftfs top`, the metrics and the benchmarks read it, all of them as these types.
//!
//! Its JSON is what `siftfs status --json` prints (`docs/design/status.md`). A reader takes the
//! document of another version: it ignores a field that it does not know, and one that is missing
//! is zero, empty or none. The block protocol carries the Service's types too, in bytes of its own:
//! a field that one of them gets changes the protocol, which its codec notices.

mod device;
mod io;
mod latency;
mod link;
mod runtime;
mod service;
mod state;

pub use device::{ClusterInfo, DeviceInfo, Persists, SpareInfo};
pub use io::{IoCounts, OriginCounts, RegionCounts};
pub use latency::Distribution;
pub use link::{Link, Remote};
pub use runtime::{
    Allocation, Cache, Credits, Crowd, Discard, Dispatch, Dispatched, Group, Kept, Lane, LogSpace,
    Memory, NoRoom, Operations, Pages, Pending, Queues, RecordArea, RuntimeCounts, RuntimeStatus,
    Trimmed,
};
pub use service::{
    CheckpointReport, DeviceStatistics, ProgramStatistics, ServiceStatistics, Urgency,
    WorkerStatistics,
};
pub use state::{STUCK_MS, State, StateCell};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All of it, as a mount's daemon answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The daemon's process id; 0 where there is no daemon.
    pub pid: u32,
    /// The daemon's version.
    pub version: String,
    /// Path of the volume.
    pub volume: String,
    /// Path of a log that lies elsewhere.
    pub log: Option<String>,
    /// The spare log behind it, if there is one and the daemon has the volume itself.
    pub spare_log: Option<SpareInfo>,
    /// Where the volume is mounted. This and what follows, down to `warnings`, is about one mount:
    /// the one that was asked about, or the oldest.
    pub dir: String,
    /// The mount options as given, and those of later remounts behind them.
    pub options: String,
    /// Seconds since the mount.
    pub uptime_s: f64,
    /// When the daemon answered, in seconds since 1970.
    pub time_s: f64,
    /// What the process does with its volume; none where one of another version does not say, or
    /// says something that is not known.
    #[serde(deserialize_with = "state::known")]
    pub state: Option<State>,
    /// Requests that the kernel sent since the mount, by name; one that never came is missing.
    pub requests: BTreeMap<String, u64>,
    /// How these requests come.
    pub request_loop: RequestLoop,
    /// What of the mount is not as it should be, and what to do, for people.
    pub warnings: Vec<String>,
    /// Every mount of the volume, the oldest first.
    pub mounts: Vec<Mount>,
    /// The process that serves the volume, if it is not the daemon itself.
    pub server: Option<Server>,
    /// What the Runtime says, and through it the Service.
    pub runtime: RuntimeStatus,
}

/// The process that serves a volume to the daemon of a mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Where it is reached, or was reached last.
    pub address: String,
    /// All addresses that it may have, in the order in which they were named.
    pub addresses: Vec<String>,
    /// The other end of the connection, in words for people.
    pub peer: String,
    /// Why nothing can be asked any more, if it is so: every request is an error then.
    pub lost: Option<String>,
    /// Calls that were sent to it since the mount.
    pub calls: u64,
    /// What has crossed to it for programs with private logs, if there were any.
    pub placement: Option<Placement>,
}

/// What has crossed between a mount and the process that serves its volume for programs with
/// private logs, since the mount: bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// Connections that there are, one per program.
    pub connections: u64,
    /// Connections that there were.
    pub opened: u64,
    /// Bytes of messages to the server, with blocks that no shared memory was free for.
    pub sent: u64,
    /// Bytes of blocks that were copied into shared memory instead.
    pub lent: u64,
    /// Bytes of messages from the server.
    pub received: u64,
}

/// One mount of a volume that may have several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// Where it is.
    pub dir: String,
    /// Its device number, `MAJOR:MINOR`.
    pub device: String,
    /// Which directory of the volume it shows; none: all of it.
    pub subdir: Option<String>,
    /// Its options as given, and those of later remounts behind them.
    pub options: String,
    /// Seconds since it was mounted.
    pub uptime_s: f64,
    /// Requests that the kernel sent to it, by name.
    pub requests: BTreeMap<String, u64>,
    /// How these requests come.
    pub request_loop: RequestLoop,
    /// Private logs of programs, if they may have them.
    pub private_logs: Option<PrivateLogs>,
    /// What of it is not as it should be, for people.
    pub warnings: Vec<String>,
}

/// Private logs of a mount's programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrivateLogs {
    /// Programs that have a session.
    pub sessions: u64,
    /// Those of them that make durable themselves what they wrote, by a log of their own; for the
    /// others the daemon does.
    pub file_logs: u64,
    /// Each of the programs.
    pub programs: Vec<LoggedProgram>,
    /// Files that are leased to them.
    pub leases: u64,
    /// Those of them of which blocks were granted, to be read and written at the target.
    pub direct: u64,
    /// Grants of blocks since it was mounted.
    pub grants: u64,
    /// Records that were taken in since it was mounted.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Connections, tokens and leases that were refused.
    pub refused: u64,
    /// Sessions that were ended because they broke a rule.
    pub ended: u64,
    /// Leases that ended before all that was published of their files was taken in.
    pub lost: u64,
    /// How the records were taken in.
    pub ingest: Ingest,
}

/// The back end of private logs, since the mount was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ingest {
    /// Batches of records.
    pub batches: u64,
    /// Ingestions that had more than one thread.
    pub pipelined: u64,
    /// Writes that became of the records.
    pub writes: u64,
    /// Bytes of these: what was not superseded within its batch.
    pub patched: u64,
    /// Blocks of which the index cache knew.
    pub index_hits: u64,
    /// Blocks for which the index was asked.
    pub index_misses: u64,
    /// Blocks that were read in before a write needed them.
    pub brought: u64,
    /// Seconds of each step, those of all threads together.
    pub seconds: IngestSteps,
}

/// Seconds of the back end's steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IngestSteps {
    /// Headers were copied and checked.
    pub fetch: f64,
    /// Blocks were looked up.
    pub locate: f64,
    /// Records were merged, and blocks read in.
    pub merge: f64,
    /// Data were copied.
    pub copy: f64,
    /// The files were written.
    pub patch: f64,
    /// Whole ingestions, of which the steps may go on beside each other.
    pub all: f64,
}

/// A program that has a session, and what makes durable what it writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoggedProgram {
    /// Its process.
    pub pid: u64,
    /// `daemon`, or what its own log lies in: `file`, `byte` or `volatile`.
    pub medium: String,
    /// How that is done, and whether it outlives a power cut, for people.
    pub promise: String,
    /// Files that are leased to it.
    pub leases: u64,
}

/// How the kernel's requests come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestLoop {
    /// `ring` or `device`.
    pub kind: String,
    /// Why so, for people.
    pub why: String,
    /// Number of queues of the rings; 0 without rings.
    pub queues: u64,
    /// Number of threads that carry requests out.
    pub threads: u64,
    /// Number of those threads that have a request at this moment.
    pub busy: u64,
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
