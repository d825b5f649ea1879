//! Proofs of durability, without which nothing is acknowledged. Each can be made in one place
//! alone, from what the storage or the Service said.

use crate::staging::sequencer::Flushed;
use crate::state::Log;
use crate::state::Metadata;
use siftfs_base::{InodeNr, Lsn, TxnSeq};

/// Why a caller may be told that what it did is durable. There is no other way to make one than to
/// have the proof, and no acknowledgement without one: [`fsync`](crate::Runtime::fsync) and
/// [`sync_all`](crate::Runtime::sync_all) give it, the endpoint takes it for the answer.
#[derive(Debug)]
#[must_use = "an acknowledgement takes it"]
pub enum Durable {
    /// A staged transaction makes it durable.
    Staged(Flushed),
    /// Background journal transactions that hold all that was asked for make it durable.
    Journaled(Settled),
}

/// Proof that every background journal transaction up to one is durable: the Service has said so.
/// Only [`Log::committed`] makes one:
///
/// ```compile_fail,E0451
/// use siftfs_base::TxnSeq;
/// let _ = siftfs_runtime::Committed { upto: TxnSeq(9) };
/// ```
#[derive(Debug)]
pub struct Committed {
    upto: TxnSeq,
}

impl Committed {
    /// The newest transaction that it is about.
    pub fn upto(&self) -> TxnSeq {
        self.upto
    }
}

/// What a caller that asked for a full commit waits for, as it was at the call.
pub struct Asked {
    /// Inodes that were not durable, and [`crate::state::tree::node::Node::changed`] of each.
    inodes: Vec<(InodeNr, u64)>,
    /// Name operations up to here.
    names: Lsn,
}

impl Asked {
    /// The inodes.
    pub fn inodes(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.inodes.iter().map(|(ino, _)| *ino)
    }
}

/// Proof that all that a caller asked for is in durable transactions. A [`Committed`] says what the
/// Service has; this says that nothing of what was asked for is anywhere else.
/// [`Metadata::settled`] alone makes one:
///
/// ```compile_fail,E0451
/// fn forged(committed: siftfs_runtime::Committed) -> siftfs_runtime::Settled {
///     siftfs_runtime::Settled { committed }
/// }
/// ```
#[derive(Debug)]
pub struct Settled {
    committed: Committed,
}

impl Settled {
    /// The newest transaction that it is about.
    pub fn upto(&self) -> TxnSeq {
        self.committed.upto()
    }
}

impl Metadata {
    /// What is not durable now of `only`, or of everything, and is owed to a caller that asks for
    /// it.
    pub fn asked(&self, only: Option<InodeNr>) -> Asked {
        let one = only.into_iter();
        let all = only.is_none().then(|| self.log.running.data.inodes()).into_iter().flatten();
        let owed = |ino| Some((ino, self.tree.inodes.get(&ino).filter(|n| !n.is_dead())?.changed));
        Asked {
            inodes: one.chain(all).filter_map(owed).collect(),
            names: self.log.staging.last_drawn(),
        }
    }

    /// The proof that the caller may be told.
    ///
    /// # Panics
    /// If something is left that was asked for: an acknowledgement would be a lie, and a process
    /// that stops is not (clause F3 of the crash model).
    pub fn settled(&self, asked: &Asked, committed: Committed) -> Settled {
        for (ino, changed) in &asked.inodes {
            // One that is not in memory any more had nothing left; one that was changed meanwhile
            // may.
            let Some(node) = self.tree.inodes.get(ino) else { continue };
            let settled = node.is_dead() || node.changed != *changed || node.is_durable();
            assert!(settled, "inode {ino} is acknowledged after its data is durable");
        }
        let pending = self.log.names.oldest().is_some_and(|lsn| lsn <= asked.names);
        assert!(!pending, "name operations are acknowledged after they are durable");
        Settled { committed }
    }
}

impl Log {
    /// The proof that the transaction is durable, once its `Journaled` or credits for it have come.
    /// Transactions are made durable in order.
    pub fn committed(&self, seq: TxnSeq) -> Option<Committed> {
        self.ledger.is_durable(seq).then_some(Committed { upto: seq })
    }
}
