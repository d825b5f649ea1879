//! What the Service's answers mean for the state: durable transactions and returned credits.
//!
//! An answer may come twice: a Service that takes over says again what is durable. An answer that
//! cannot be true (it acknowledges what was not sent, gives back more than was taken) is refused,
//! and changes nothing.

use crate::state::Metadata;
use crate::state::State;
use siftfs_base::{Result, TxnSeq};

impl Metadata {
    /// The transaction's commit is durable: what it took is durable now.
    ///
    /// # Errors
    /// Refused if it was not submitted, or its record cannot lie there.
    pub fn on_journaled(&mut self, seq: TxnSeq, bytes: u64, image_pos: u64) -> Result<()> {
        if self.log.ledger.is_news(seq, bytes, image_pos)? {
            self.now_journaled(seq, Some((bytes, image_pos)));
        }
        Ok(())
    }

    /// Marks a transaction as journaled. `place` has its bytes and the position of its images in
    /// the journal; without it, everything up to the transaction is in the area already.
    fn now_journaled(&mut self, seq: TxnSeq, place: Option<(u64, u64)>) {
        let (images, cut) = self.log.ledger.journaled(seq, place.map(|(bytes, _)| bytes));
        if let Some((_, image_pos)) = place {
            self.tree.meta.journaled(seq, &images, image_pos);
        }
        self.log.names.journaled(cut);
        self.log.running.journaled(&mut self.tree.inodes);
    }
}

impl State {
    /// Credits: everything up to `seq` is in the area. A transaction whose `Journaled` was lost
    /// with the Service that sent it is durable too.
    ///
    /// # Errors
    /// Refused if something up to there was not submitted, or more is given back than was taken.
    pub fn on_reclaimed(&mut self, seq: TxnSeq, lane_tails: &[u64]) -> Result<()> {
        let unanswered = self.metadata.log.ledger.unanswered(seq)?;
        self.metadata
            .log
            .staging
            .check_credits(lane_tails, self.metadata.log.ledger.lane_upto(seq))?;
        for seq in unanswered {
            self.metadata.now_journaled(seq, None);
        }
        for info in self.metadata.log.ledger.reclaimed(seq) {
            self.metadata.tree.inodes.reclaimed(&info.overlays, seq);
            for run in info.freed {
                self.reclaim_blocks(run);
            }
            for ino in info.freed_inodes {
                self.metadata.tree.fs.release_inode(ino);
            }
        }
        self.metadata.tree.meta.reclaimed(seq);
        self.metadata.log.staging.reclaimed(lane_tails);
        Ok(())
    }
}
