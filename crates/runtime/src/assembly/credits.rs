//! What the Service's answers mean for the state: durable transactions and returned credits.
//!
//! An answer may come twice: a Service that takes over says again what is durable. An answer that
//! cannot be true (it acknowledges what was not sent, gives back more than was taken) is refused,
//! and changes nothing.

use crate::state::State;
use siftfs_base::{BLOCK_BYTES, Error, Result, TxnSeq};

fn refused(what: String) -> Error {
    Error::Refused(format!("the Service's answer was refused: {what}"))
}

impl State {
    /// The transaction's commit is durable: what it took is durable now.
    ///
    /// # Errors
    /// Refused if it was not submitted, or its record cannot lie there.
    pub fn on_journaled(&mut self, seq: TxnSeq, bytes: u64, image_pos: u64) -> Result<()> {
        let Some(info) = self.ledger.txns.get(&seq) else {
            return match seq <= self.ledger.reclaimed {
                true => Ok(()),
                false => Err(refused(format!("transaction {} was not submitted", seq.0))),
            };
        };
        if info.journaled {
            return Ok(());
        }
        let ring = self.ledger.journal_len;
        let images = info.images.len() as u64 * BLOCK_BYTES;
        let inside = image_pos.is_multiple_of(BLOCK_BYTES) && image_pos % ring + images <= ring;
        if !info.submitted || !inside || bytes > info.journal_bytes {
            let what = format!("transaction {} was not submitted so, or not at all", seq.0);
            return Err(refused(what));
        }
        self.now_journaled(seq, Some((bytes, image_pos)));
        Ok(())
    }

    /// Marks a transaction as journaled. `place` has its bytes and the position of its images in
    /// the journal; without it, everything up to the transaction is in the area already.
    fn now_journaled(&mut self, seq: TxnSeq, place: Option<(u64, u64)>) {
        let info = self.ledger.txns.get_mut(&seq).expect("looked up before");
        info.journaled = true;
        let images = std::mem::take(&mut info.images);
        let cut = info.ops_cut;
        if let Some((bytes, image_pos)) = place {
            info.journal_bytes = bytes;
            self.meta.journaled(seq, &images, image_pos);
        }
        self.names.journaled(cut);
        self.running.perms.journaled();
        for ino in std::mem::take(&mut self.running.in_flight) {
            if let Some(node) = self.inodes.get_mut(&ino) {
                node.delta.journaled();
                node.data.journaled();
                node.sent.clear();
            }
        }
    }

    /// Credits: everything up to `seq` is in the area. A transaction whose `Journaled` was lost
    /// with the Service that sent it is durable too.
    ///
    /// # Errors
    /// Refused if something up to there was not submitted, or more is given back than was taken.
    pub fn on_reclaimed(&mut self, seq: TxnSeq, lane_tails: &[u64]) -> Result<()> {
        self.check_credits(seq, lane_tails)?;
        let unanswered = self.ledger.txns.range(..=seq).filter(|(_, info)| !info.journaled);
        let unanswered: Vec<TxnSeq> = unanswered.map(|(seq, _)| *seq).collect();
        for seq in unanswered {
            self.now_journaled(seq, None);
        }
        let later = self.ledger.txns.split_off(&TxnSeq(seq.0.saturating_add(1)));
        for info in std::mem::replace(&mut self.ledger.txns, later).into_values() {
            self.inodes.reclaimed(&info.overlays, seq);
            for run in info.freed {
                self.fs.release_blocks(run);
            }
            for ino in info.freed_inodes {
                self.fs.release_inode(ino);
            }
        }
        self.meta.reclaimed(seq);
        self.ledger.reclaimed = self.ledger.reclaimed.max(seq);
        for (lane, tail) in self.staging.lanes.iter_mut().zip(lane_tails) {
            lane.reclaim(*tail);
        }
        Ok(())
    }

    fn check_credits(&self, seq: TxnSeq, lane_tails: &[u64]) -> Result<()> {
        let known = seq <= self.ledger.reclaimed || self.ledger.txns.contains_key(&seq);
        if !known || self.ledger.txns.range(..=seq).any(|(_, info)| !info.submitted) {
            return Err(refused(format!("credits for transaction {}, which it never got", seq.0)));
        }
        if lane_tails.len() != self.staging.lanes.len() {
            return Err(refused(format!("credits for {} lanes", lane_tails.len())));
        }
        let taken = self.ledger.txns.get(&seq).map(|info| &info.lane_upto[..]);
        for (i, (lane, tail)) in self.staging.lanes.iter().zip(lane_tails).enumerate() {
            let most = taken.and_then(|upto| upto.get(i)).map_or(lane.tail, |u| lane.tail.max(*u));
            if *tail > most {
                let what = format!("lane {i} up to position {tail}, of which it has {most}");
                return Err(refused(format!("too many credits: {what}")));
            }
        }
        Ok(())
    }
}
