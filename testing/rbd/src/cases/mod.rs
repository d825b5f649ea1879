//! What is tried.

mod deaths;
mod grown;
mod logs;
mod pools;
mod refusals;
mod served;
mod takeover;

use siftfs_rbd_tests::stage::Stage;
use siftfs_rig::place::Result;

/// A case.
pub type Case = fn(&Stage<'_>) -> Result<()>;

/// All cases, by name, in their order.
pub const ALL: [(&str, Case); 20] = [
    ("refusals", refusals::refusals),
    ("no-cluster", refusals::no_cluster),
    ("osds", deaths::osds),
    ("everything", deaths::everything),
    ("full", deaths::full),
    ("server", deaths::server),
    ("log-apart", deaths::log_apart),
    ("grown", grown::grown),
    ("grown-apart", grown::grown_apart),
    ("pool", pools::pool),
    ("served-pool", pools::served_pool),
    ("private-logs", logs::private_logs),
    ("stopped", takeover::stopped),
    ("gone", takeover::gone),
    ("short-entry", takeover::short_entry),
    ("words", served::words),
    ("handed-over", served::handed_over),
    ("servers", served::servers),
    ("machines", served::machines),
    ("cut-off", served::cut_off),
];
