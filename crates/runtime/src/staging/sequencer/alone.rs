//! Records of the record area: published beside those of the disk, and durable by their own writes
//! (rule R44).

use super::{FOR_OTHERS, Flushed, Published, Sequencer, State, WriteMode, Writer, latched};
use crate::state::log::lane::RecordRef;
use siftfs_base::{Lsn, Result};

impl Sequencer {
    /// Publishes a caller's record of the record area; called in LSN order. Its write is durable,
    /// and no flush serves it; see [`Sequencer::wait_alone`].
    pub fn publish_compact(&self, record: &RecordRef) -> Published {
        let (lsn, mode, writer) = (record.lsn, WriteMode::Fua, Writer::Caller);
        let mut st = self.lock();
        st.records.publish(lsn, record.lane, mode, writer);
        st.records.note_compact();
        Published { lsn, mode, writer }
    }

    /// Is all that a record needs durable, or sure to be there with it if it goes to the record
    /// area? `ordered` must be below the watermark, and so must each of `own`, the newest records
    /// of its inodes, or be in the record area itself (rule R44).
    pub fn stands_alone(&self, ordered: Lsn, own: impl IntoIterator<Item = Lsn>) -> bool {
        let st = self.lock();
        let durable = st.durable();
        ordered <= durable
            && own.into_iter().all(|lsn| lsn <= durable || st.records.is_compact(lsn))
    }

    /// The proof that a record of the record area is durable, with all that it needs, whatever is
    /// in flight elsewhere: `None` if it is not durable yet, or no such record.
    pub fn alone(&self, lsn: Lsn) -> Option<Flushed> {
        let st = self.lock();
        let (upto, alone) = (st.durable(), st.records.is_durable_alone(lsn));
        (alone || lsn <= upto).then_some(Flushed { upto, alone: alone.then_some(lsn) })
    }

    /// Returns when a record of the record area, whose write has ended, is durable: when those
    /// before it in the area are. Their threads do nothing but write them.
    pub fn wait_alone(&self, lsn: Lsn) -> Result<Flushed> {
        let mut st = self.lock();
        loop {
            if st.durable() >= lsn {
                return Ok(Flushed { upto: st.durable(), alone: None });
            }
            if let Some(error) = &st.failed {
                return Err(latched(error));
            }
            if st.records.is_durable_alone(lsn) {
                return Ok(Flushed { upto: st.durable(), alone: Some(lsn) });
            }
            st.alone += 1;
            st = self.wait_changed(st);
            st.alone -= 1;
        }
    }
}

impl State {
    /// May the end of a record area's write, which has not moved the watermark, be what a thread
    /// waits for? Only for one above what was `written` before: for the others it has changed
    /// nothing.
    pub(super) fn waits_above(&self, written: Lsn) -> bool {
        let above = |lsn: &Lsn| *lsn > written || *lsn == FOR_OTHERS;
        self.failed.is_some() || self.alone > 0 || self.waiting.iter().any(above)
    }
}
