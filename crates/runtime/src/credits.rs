//! What the Service's answers mean for the state: durable transactions and returned credits.

use crate::state::State;
use siftfs_base::TxnSeq;

impl State {
    /// The transaction's commit is durable: what it took is durable now.
    pub fn on_journaled(&mut self, seq: TxnSeq, bytes: u64, image_pos: u64) {
        let Some(info) = self.txns.get_mut(&seq) else { return };
        info.journaled = true;
        info.journal_bytes = bytes;
        let images = std::mem::take(&mut info.images);
        let cut = info.ops_cut;
        self.meta.journaled(seq, &images, image_pos);
        self.names.journaled(cut);
        self.perms_in_flight.clear();
        for ino in std::mem::take(&mut self.in_flight) {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.delta_in_flight = Default::default();
                node.pushing.clear();
            }
        }
    }

    /// Credits: everything up to `seq` is in the area.
    pub fn on_reclaimed(&mut self, seq: TxnSeq, lane_tails: &[u64]) {
        let later = self.txns.split_off(&TxnSeq(seq.0 + 1));
        for info in std::mem::replace(&mut self.txns, later).into_values() {
            assert!(info.journaled, "only journaled transactions are reclaimed");
            for ino in info.overlays {
                self.versions += 1;
                if let Some(node) = self.nodes.get_mut(&ino) {
                    node.overlay.reclaimed(seq);
                    node.map_version = self.versions;
                }
            }
            for run in info.freed {
                self.fs.release_blocks(run);
            }
            for ino in info.freed_inodes {
                self.fs.release_inode(ino);
            }
        }
        self.meta.reclaimed(seq);
        self.reclaimed = self.reclaimed.max(seq);
        for (lane, tail) in self.lanes.iter_mut().zip(lane_tails) {
            lane.reclaim(*tail);
        }
    }
}
