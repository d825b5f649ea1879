//! A Ceph cluster on this machine's loopback, volumes on it, and writers whose acknowledgements are
//! judged: what `siftfs-rbd` and `siftfs bench rbd` share. It needs root and Ceph's daemons.

pub mod cluster;
pub mod ledger;
pub mod osd_counts;
pub mod servers;
pub mod stage;
