//! The journal: the chain of transactions from tail to end, and what each may say.

use crate::ring::Ring;
use crate::{Check, Volume, digest};
use siftfs_base::{BLOCK_BYTES, Lsn, TxnSeq};
use siftfs_log::Transaction;
use siftfs_log::{
    Descriptor, HostState, JournalHeader, LaneMedium, decode_journal_record, decode_record,
    if_valid, max_journal_record,
};

const WHAT: &str = "journal";

/// Checks the journal; returns the staged cut of its newest transaction, and whether there is one.
pub(crate) fn check(c: &mut Check<'_>, v: &Volume) -> (Lsn, bool) {
    let (offset, len) = (v.header.journal_offset, v.header.journal_len);
    let ring = Ring { offset, len, tail: v.service.journal_tail, medium: LaneMedium::Block };
    let (mut end, mut crc, mut next) = (ring.tail, None, v.service.next_seq);
    let mut before = Transaction {
        ops_cut: v.service.ops_cut,
        staged_cut: v.service.staged_cut,
        lane_upto: v.service.lane_tails.clone(),
        ..Transaction::default()
    };
    while let Some(Committed { txn, header, crc: commit, data }) =
        next_record(c, v, &ring, end, crc, next)
    {
        let (found, expected) = (header.layout.form, v.header.journal_data());
        if found != expected {
            let text = format!("transaction {}: journaled as {found}, not {expected}", txn.seq.0);
            c.error("journal.form", text);
        }
        check_transaction(c, v, &txn, &data, &before);
        c.see(|seen| seen.transaction(&txn, &header));
        (end, crc, next) = (header.end(), Some(commit), TxnSeq(header.seq.0 + 1));
        before = txn;
    }
    if v.host.state == HostState::Clean && end != ring.tail {
        c.error("journal.not-empty", format!("{} bytes in a clean volume", end - ring.tail));
    }
    look_behind(c, v, &ring, end, next);
    c.see(|seen| seen.journal_end = end);
    (before.staged_cut, end != ring.tail)
}

/// A committed transaction.
struct Committed {
    txn: Transaction,
    header: JournalHeader,
    /// Checksum of its commit block.
    crc: u32,
    /// The staged bytes that it repeats.
    data: Vec<u8>,
}

/// A descriptor that holds at `pos`.
fn descriptor_at(c: &mut Check<'_>, v: &Volume, ring: &Ring, pos: u64) -> Option<Descriptor> {
    let key = &v.host.journal_key.journal();
    let block = ring.start(c, pos, WHAT)?;
    let header = JournalHeader::peek(&block, key, pos, max_journal_record(ring.len)).ok()?;
    let bytes = ring.read(c, pos, u64::from(header.layout.descriptor_len), WHAT)?;
    match if_valid(Descriptor::decode(header, key, &bytes)) {
        Ok(descriptor) => descriptor,
        Err(e) => {
            c.failed("journal.content", &format!("journal record at position {pos}"), &e);
            None
        }
    }
}

fn next_record(
    c: &mut Check<'_>,
    v: &Volume,
    ring: &Ring,
    end: u64,
    crc: Option<u32>,
    next: TxnSeq,
) -> Option<Committed> {
    let max = max_journal_record(ring.len);
    for pos in ring.candidates(end) {
        let Some(d) = descriptor_at(c, v, ring, pos) else { continue };
        let h = d.header;
        let chained = h.seq == next
            && h.params.prev_end == end
            && crc.is_none_or(|crc| crc == h.params.prev_crc);
        if !chained {
            continue;
        }
        let Some(bytes) = ring.read(c, pos, h.layout.len, WHAT) else { continue };
        if let Ok(record) = decode_journal_record(&bytes, &v.host.journal_key.journal(), pos, max) {
            let data = bytes.get(h.layout.data()).unwrap_or_default().to_vec();
            let (txn, crc) = (record.descriptor.txn, record.commit_crc);
            return Some(Committed { txn, header: h, crc, data });
        }
    }
    None
}

/// What a transaction says against the volume and the one before it.
fn check_transaction(
    c: &mut Check<'_>,
    v: &Volume,
    txn: &Transaction,
    data: &[u8],
    before: &Transaction,
) {
    let name = format!("transaction {}", txn.seq.0);
    if txn.ops_cut < before.ops_cut || txn.staged_cut < before.staged_cut {
        c.error("journal.cut", format!("{name}: its cut is older than its predecessor's"));
    }
    if txn.ops_cut > txn.staged_cut {
        c.error("journal.cut", format!("{name}: its cuts contradict each other"));
    }
    let lanes_ok = txn.lane_upto.len() == v.header.lanes.len()
        && txn.lane_upto.iter().zip(&before.lane_upto).all(|(n, o)| n >= o)
        && txn
            .lane_upto
            .iter()
            .enumerate()
            .all(|(i, upto)| *upto <= v.service.lane_tails[i] + v.header.lanes[i].len);
    if !lanes_ok {
        c.error("journal.lane", format!("{name}: its lane positions cannot be"));
        return;
    }
    let len = v.header.area_len;
    let blocks = len / BLOCK_BYTES;
    let inside = txn.zeros.iter().all(|z| z.dst + u64::from(z.len) <= len)
        && txn.copies.iter().all(|t| t.dst + u64::from(t.len) <= len)
        && txn.images.iter().all(|b| *b < blocks)
        && txn.drops.iter().chain(&txn.direct).all(|r| r.end() <= blocks);
    if !inside {
        c.error("journal.range", format!("{name}: it names bytes outside the file system"));
    }
    check_staged(c, v, txn, data, &name);
    digest::check(c, v, txn, before);
}

/// Every staged record that a transaction names is there, whole, and the one meant (rule R4); what
/// the transaction repeats of it is the same.
fn check_staged(c: &mut Check<'_>, v: &Volume, txn: &Transaction, data: &[u8], name: &str) {
    for (source, s) in (0..).zip(&txn.staged) {
        let i = usize::from(s.lane.0);
        let upto = txn.lane_upto.get(i).copied().unwrap_or(0);
        let contained = s.lsn <= txn.staged_cut
            && s.pos.checked_add(u64::from(s.len)).is_some_and(|end| end <= upto);
        let lane = v.header.lanes.get(i).filter(|_| contained);
        let Some(lane) = lane else {
            let text =
                format!("{name}: staged record {} of lane {i} is not one of its own", s.lsn.0);
            c.error("journal.staged", text);
            continue;
        };
        let ring = Ring::of(lane, v.service.lane_tails[i]);
        let what = format!("{name}: staged record {} at {} of lane {i}", s.lsn.0, s.pos);
        let bytes = ring.read(c, s.pos, u64::from(s.len), &what);
        let key = &v.host.lane_key.lane(s.lane);
        let found = bytes.as_ref().map(|b| decode_record(b, key, s.lane, s.pos, u64::from(s.len)));
        let staged = match &found {
            Some(Ok((head, staged)))
                if head.header.crc == s.crc && head.header.params.lsn == s.lsn =>
            {
                *staged
            }
            _ => {
                c.error("journal.staged", format!("{what} is damaged or another one"));
                continue;
            }
        };
        if !data.is_empty() && !repeats(txn, source, staged, data) {
            c.error("journal.copy", format!("{what}: what the journal repeats of it differs"));
        }
    }
}

/// Does `data` repeat the staged record's bytes? `data` has the bytes of all copy tags, one after
/// the other; those tags that name `source` are compared.
fn repeats(txn: &Transaction, source: u32, staged: &[u8], data: &[u8]) -> bool {
    let mut rest = data;
    txn.copies.iter().all(|tag| {
        let Some((bytes, more)) = rest.split_at_checked(tag.len as usize) else { return false };
        rest = more;
        let from = tag.data_offset as usize;
        let named = || staged.get(from..)?.get(..bytes.len());
        tag.source != source || named() == Some(bytes)
    })
}

/// A transaction behind the end proves that the one at the end was durable (rule R14).
fn look_behind(c: &mut Check<'_>, v: &Volume, ring: &Ring, end: u64, next: TxnSeq) {
    let horizon = ring.horizon(end, max_journal_record(ring.len));
    for pos in ring.behind(end).take_while(|p| *p <= horizon) {
        let Some(d) = descriptor_at(c, v, ring, pos) else { continue };
        if d.header.seq > next {
            let text = format!(
                "transaction {} at position {end} is damaged, transaction {} follows",
                next.0, d.header.seq.0
            );
            c.error("journal.rot", text);
            return;
        }
    }
}
