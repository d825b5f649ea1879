//! What a run did, in numbers.

use serde::Serialize;
use siftfs_status::Status;
use std::collections::BTreeMap;

/// Counts of a run. Those that a mount keeps are of the mounts as they were asked just before their
/// end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The run's seed.
    pub seed: u64,
    /// Rounds that were finished.
    pub rounds: u64,
    /// Volumes that were made.
    pub volumes: u64,
    /// Rounds by placement.
    pub placements: BTreeMap<String, u64>,
    /// Rounds by request loop and write cache.
    pub modes: BTreeMap<String, u64>,
    /// Rounds by how they ended.
    pub ends: BTreeMap<&'static str, u64>,
    /// What became of device processes while the load ran.
    pub incidents: BTreeMap<&'static str, u64>,
    /// Hosts that were killed, in mounting, recovering and unmounting too.
    pub host_kills: u64,
    /// Servers of volumes that were killed, in recovering too.
    pub server_kills: u64,
    /// Rounds by who served the volume to the workers' mount, and by which way.
    pub served: BTreeMap<String, u64>,
    /// Calls whose server died before it answered, and of which nobody can say whether they were
    /// carried out: each was found carried out as a whole, or not at all.
    pub uncertain: u64,
    /// Files that a program without a mount made, beside the workers of a volume that a server has.
    pub beside: u64,
    /// Device processes that were killed.
    pub device_kills: u64,
    /// Header copies that were damaged before a recovery.
    pub headers_damaged: u64,
    /// Recoveries that were killed before one succeeded.
    pub recoveries_killed: u64,
    /// Greetings with a device process, or with the host's own Service in its place.
    pub greetings: u64,
    /// Device processes that a mount lost.
    pub losses: u64,
    /// Times that a host took the background work over.
    pub fallbacks: u64,
    /// Waits of operations and fsyncs for background progress.
    pub stalls: u64,
    /// Background transactions.
    pub transactions: u64,
    /// Checkpoints that were answered.
    pub checkpoints: u64,
    /// Calls of the load that returned.
    pub calls: u64,
    /// Of them, acknowledgements of durability, each judged after the round's end.
    pub acknowledged: u64,
    /// Of those, commits of sections of the ledger.
    pub sections: u64,
    /// Of those, fsyncs of programs with the library loaded.
    pub program_syncs: u64,
    /// Such programs that were killed while their host lived.
    pub program_kills: u64,
    /// Leases that they had at most at one time.
    pub leases: u64,
    /// File logs that they had at most at one time.
    pub file_logs: u64,
    /// Records of private logs that were taken in.
    pub records: u64,
    /// Sessions that were ended because they broke a rule; leases that ended too early.
    pub sessions_ended: u64,
    /// Trees judged by the durability oracle after a death of the host.
    pub trees_after_deaths: u64,
    /// Trees compared whole with the model.
    pub trees_compared: u64,
    /// Runs of `e2fsck -fn` and `siftfs fsck`.
    pub e2fsck_runs: u64,
    /// Processor seconds of hosts, as far as they were seen before their end.
    pub host_cpu_s: f64,
    /// Processor seconds of servers.
    pub server_cpu_s: f64,
    /// Processor seconds of device processes.
    pub device_cpu_s: f64,
    /// Seconds that the run took.
    pub seconds: f64,
}

impl Summary {
    /// Adds what a mount says of itself.
    pub fn add_status(&mut self, status: &Status) {
        let runtime = &status.runtime;
        for logs in status.mounts.iter().filter_map(|mount| mount.private_logs.as_ref()) {
            self.leases = self.leases.max(logs.leases);
            self.file_logs = self.file_logs.max(logs.file_logs);
            self.records += logs.records;
            self.sessions_ended += logs.ended + logs.lost;
        }
        if let Some(link) = &runtime.link.remote {
            self.greetings += link.greetings;
            self.losses += link.losses;
            self.fallbacks += link.takeovers;
        }
        self.stalls += runtime.runtime.stalls.values().sum::<u64>();
        self.transactions += runtime.runtime.transactions;
        self.checkpoints +=
            runtime.service.checkpoints_background + runtime.service.checkpoints_emergency;
    }
}
