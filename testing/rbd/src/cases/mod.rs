//! What is tried.

mod deaths;
mod refusals;
mod takeover;

use siftfs_rbd_tests::stage::Stage;
use siftfs_rig::place::Result;

/// A case.
pub type Case = fn(&Stage<'_>) -> Result<()>;

/// All cases, by name, in their order.
pub const ALL: [(&str, Case); 9] = [
    ("refusals", refusals::refusals),
    ("no-cluster", refusals::no_cluster),
    ("osds", deaths::osds),
    ("everything", deaths::everything),
    ("server", deaths::server),
    ("log-apart", deaths::log_apart),
    ("stopped", takeover::stopped),
    ("gone", takeover::gone),
    ("short-entry", takeover::short_entry),
];
