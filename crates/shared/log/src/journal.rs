//! Journal records: background journal transactions as they lie in the journal ring.
//!
//! A record is `descriptor | images | data | commit block`, written in one piece. It is committed
//! if all of it validates. The data section is empty unless the journal repeats staged data
//! ([`JournalData::Copy`]); then it holds the bytes of the copy tags, one tag's behind the other's.

use crate::journal_codec::{
    RawCommit, RawDescriptor, decode_body, encode_body, sizes, unknown_sizes,
};
use crate::record::COMPACT_UNIT;
use crate::{Checked, DATA_CHUNK, DataSums, Invalid, JournalData, LogKey, MAX_LANES};
use crate::{FIXED_LEN, Transaction, head_crc, seal_head};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Epoch, Error, Result, TxnSeq, corrupt};
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Longest journal record in bytes, whatever the journal's length.
pub const MAX_JOURNAL_RECORD: u64 = 32 << 20;
/// Longest descriptor in bytes.
pub const MAX_DESCRIPTOR: u64 = 8 << 20;
/// Shortest journal in bytes.
pub const MIN_JOURNAL_LEN: u64 = 64 << 10;
/// Bytes of the descriptor's fixed part.
pub const DESCRIPTOR_HEADER_LEN: usize = FIXED_LEN;

pub(crate) const DESCRIPTOR_MAGIC: [u8; 8] = *b"SIFTjnl\x01";
pub(crate) const COMMIT_MAGIC: [u8; 8] = *b"SIFTcmt\x01";
pub(crate) const VERSION: u32 = 1;
pub(crate) const WHAT: &str = "journal descriptor";

/// Longest record that a journal of `ring_len` bytes takes: half of it, within
/// [`MAX_JOURNAL_RECORD`], whole blocks.
pub fn max_journal_record(ring_len: u64) -> u64 {
    (ring_len / 2 / BLOCK_BYTES * BLOCK_BYTES).min(MAX_JOURNAL_RECORD)
}

/// A journal record's place and links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalParams {
    /// Position of the record's first byte.
    pub pos: u64,
    /// Where the predecessor ended.
    pub prev_end: u64,
    /// Checksum of the predecessor's commit block, 0 for the first of an epoch.
    pub prev_crc: u32,
}

/// Sizes of a journal record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalLayout {
    /// Descriptor, whole blocks; the first image follows it.
    pub descriptor_len: u32,
    /// Descriptor and images; the data section follows them.
    pub data_offset: u64,
    /// Bytes of the data section, filled up with zeroes to whole blocks.
    pub data_len: u32,
    /// Whole length: descriptor, images, data, commit block.
    pub len: u64,
    /// What the record holds of staged data.
    pub form: JournalData,
}

impl JournalLayout {
    /// Sizes of the record of `txn`; `None` if it is longer than any record may be.
    pub fn new(txn: &Transaction, form: JournalData) -> Option<Self> {
        let layout = sizes(&Counts::of(txn, form)?)?;
        (layout.len <= MAX_JOURNAL_RECORD).then_some(layout)
    }

    /// Where the data section lies in the record.
    pub fn data(&self) -> Range<usize> {
        let from = self.data_offset as usize;
        from..from + self.data_len as usize
    }
}

/// Number of entries of each kind in a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub lanes: u32,
    pub digest: bool,
    pub staged: u32,
    pub zeros: u32,
    pub copies: u32,
    pub images: u32,
    pub drops: u32,
    pub direct: u32,
    /// Bytes of the data section.
    pub data: u64,
    pub form: JournalData,
}

impl Counts {
    fn of(txn: &Transaction, form: JournalData) -> Option<Self> {
        let n = |len: usize| u32::try_from(len).ok();
        let data = match form {
            JournalData::Ref => 0,
            JournalData::Copy => repeated_len(txn),
        };
        Some(Self {
            data,
            form,
            lanes: n(txn.lane_upto.len())?,
            digest: txn.digest.is_some(),
            staged: n(txn.staged.len())?,
            zeros: n(txn.zeros.len())?,
            copies: n(txn.copies.len())?,
            images: n(txn.images.len())?,
            drops: n(txn.drops.len())?,
            direct: n(txn.direct.len())?,
        })
    }
}

/// Bytes of staged data that the copy tags of `txn` name.
fn repeated_len(txn: &Transaction) -> u64 {
    txn.copies.iter().map(|c| u64::from(c.len)).sum()
}

/// Bytes that [`encode_transaction`] makes of `txn`, or `None` if it is too long.
pub fn encoded_len(txn: &Transaction, form: JournalData) -> Option<u64> {
    JournalLayout::new(txn, form).map(|l| l.len)
}

/// Checks what a transaction must be on its own, whatever sent it: entries refer to each other
/// correctly, images are ascending and complete, ranges do not overflow.
pub fn check_transaction(txn: &Transaction) -> Result<()> {
    let bad = |why: &str| Err(corrupt(format!("transaction {}", txn.seq.0), why));
    if txn.seq.0 == 0 {
        return bad("has number 0");
    }
    if txn.lane_upto.is_empty() || txn.lane_upto.len() > MAX_LANES {
        return bad("names no lane or more than the format has");
    }
    if txn.lane_upto.iter().any(|p| p % COMPACT_UNIT != 0) {
        return bad("names a lane position inside a record's unit");
    }
    let digest_ok = |d: &crate::Digest| {
        d.ranges > 0
            && d.from.is_multiple_of(COMPACT_UNIT)
            && txn.lane_upto.get(usize::from(d.lane.0)).is_some_and(|upto| d.from < *upto)
    };
    if !txn.digest.iter().all(digest_ok) {
        return bad("digests records that cannot be");
    }
    let staged_ok = |s: &crate::StagedRef| {
        let end = s.pos.checked_add(u64::from(s.len));
        s.lsn.0 > 0
            && s.len > 0
            && u64::from(s.len).is_multiple_of(COMPACT_UNIT)
            && s.pos.is_multiple_of(COMPACT_UNIT)
            && txn.lane_upto.get(usize::from(s.lane.0)).is_some_and(|upto| end <= Some(*upto))
    };
    if !txn.staged.iter().all(staged_ok) {
        return bad("refers to an impossible staged record");
    }
    let span = |dst: u64, len: u32| len > 0 && dst.checked_add(u64::from(len)).is_some();
    if !txn.zeros.iter().all(|z| span(z.dst, z.len)) {
        return bad("has an impossible zero tag");
    }
    let copy_ok = |c: &crate::CopyTag| {
        let within = txn
            .staged
            .get(c.source as usize)
            .is_some_and(|s| u64::from(c.data_offset) + u64::from(c.len) <= u64::from(s.len));
        within && span(c.dst, c.len)
    };
    if !txn.copies.iter().all(copy_ok) {
        return bad("has an impossible copy tag");
    }
    if !txn.images.is_sorted_by(|a, b| a < b) {
        return bad("has images that are not ascending");
    }
    if txn.images.last().is_some_and(|b| b.checked_mul(BLOCK_BYTES).is_none()) {
        return bad("has an image beyond any device");
    }
    let run_ok = |r: &siftfs_base::BlockRun| {
        let end = r.start.checked_add(r.len);
        r.len > 0 && end.is_some_and(|e| e.checked_mul(BLOCK_BYTES).is_some())
    };
    if !txn.drops.iter().all(run_ok) || !txn.direct.iter().all(run_ok) {
        return bad("has an impossible run of blocks");
    }
    Ok(())
}

/// What a record's place must be, whether the record is about to be written or was read.
fn check_place(p: &JournalParams) -> Result<()> {
    if p.prev_end > p.pos {
        return Err(corrupt(WHAT, "its predecessor ends behind it"));
    }
    Ok(())
}

/// Encodes `txn` into `buf`, which is exactly `layout.len` long. Its data section
/// ([`JournalLayout::data`]) holds the bytes of the copy tags already; what the rest held before
/// does not matter. Returns the commit block's checksum, the successor's `prev_crc`.
///
/// # Panics
/// If `layout` was not computed from `txn`, `image_data` does not match `images`, or a reader would
/// refuse the transaction ([`check_transaction`]) or its place.
pub fn encode_transaction(
    key: &LogKey,
    p: &JournalParams,
    layout: &JournalLayout,
    txn: &Transaction,
    buf: &mut [u8],
) -> u32 {
    check_place(p).expect("a record lies behind its predecessor");
    check_transaction(txn).expect("a transaction was checked before it is journaled");
    encode_transaction_unchecked(key, p, layout, txn, buf)
}

/// Encodes a transaction that a test has made wrong.
#[doc(hidden)]
pub fn encode_transaction_unchecked(
    key: &LogKey,
    p: &JournalParams,
    layout: &JournalLayout,
    txn: &Transaction,
    buf: &mut [u8],
) -> u32 {
    assert_eq!(buf.len() as u64, layout.len, "the buffer is the record");
    assert_eq!(txn.image_data.len(), txn.images.len(), "one block per image");
    assert!(p.pos.is_multiple_of(BLOCK_BYTES), "records begin at blocks");
    let counts = Counts::of(txn, layout.form).expect("the layout fitted");
    assert_eq!(sizes(&counts).as_ref(), Some(layout), "layout of another transaction");
    let (descriptor, rest) = buf.split_at_mut(layout.descriptor_len as usize);
    let (images, rest) = rest.split_at_mut(txn.image_data.len() * BLOCK_SIZE);
    let (data, commit) = rest.split_at_mut(rest.len() - BLOCK_SIZE);
    let (data, padding) = data.split_at_mut(layout.data_len as usize);
    padding.fill(0);
    // The checksums below are of what arrived here, even if its source can still change.
    for (to, image) in images.as_chunks_mut().0.iter_mut().zip(&txn.image_data) {
        image.copy_to(to);
    }
    let crcs = images.chunks_exact(BLOCK_SIZE).map(|b| key.crc(b));
    let data_crcs = data.chunks(DATA_CHUNK).map(|c| key.crc(c));
    descriptor.fill(0);
    let raw = RawDescriptor::new(key, p, layout, txn, &counts);
    let (fixed, entries) =
        descriptor.split_first_chunk_mut().expect("a layout has room for the fixed part");
    encode_body(txn, crcs, data_crcs, entries);
    let crc = seal_head(key, &raw, fixed, entries);
    let raw = RawCommit::new(key, p, layout, txn.seq, crc);
    commit.copy_from_slice(raw.as_bytes());
    let (body, sum) = commit.split_last_chunk_mut().expect("a block is longer than a checksum");
    let commit_crc = key.crc(body);
    *sum = commit_crc.to_le_bytes();
    commit_crc
}

/// A descriptor's fixed part. After [`JournalHeader::peek`] its lengths can be relied on, its
/// content only after [`Descriptor::decode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalHeader {
    /// Place and links.
    pub params: JournalParams,
    /// Sizes.
    pub layout: JournalLayout,
    /// Sequence number.
    pub seq: TxnSeq,
    /// The descriptor's checksum.
    pub crc: u32,
    counts: Counts,
}

impl JournalHeader {
    /// The epoch that a descriptor at `pos` claims to be of, without any proof.
    pub fn claimed_epoch(bytes: &[u8], pos: u64) -> Option<Epoch> {
        let (raw, _) = RawDescriptor::ref_from_prefix(bytes).ok()?;
        let here = raw.magic == DESCRIPTOR_MAGIC && raw.pos.get() == pos;
        here.then(|| Epoch(raw.epoch.get()))
    }

    /// Reads the first bytes of what may be a journal record under `key` at `pos`. Nothing is
    /// verified by checksum yet; lengths are within bounds, and the record within `max_len`.
    pub fn peek(
        bytes: &[u8],
        key: &LogKey,
        pos: u64,
        max_len: u64,
    ) -> std::result::Result<Self, Invalid> {
        let (raw, _) =
            RawDescriptor::ref_from_prefix(bytes).map_err(|_| Invalid("shorter than a header"))?;
        if raw.magic != DESCRIPTOR_MAGIC
            || raw.epoch.get() != key.epoch.0
            || raw.pos.get() != pos
            || raw.seq.get() == 0
        {
            return Err(Invalid("not a descriptor of this epoch and position"));
        }
        let counts = raw.counts();
        let (descriptor, len) = (raw.descriptor_len.get(), raw.total_len.get());
        let layout = match raw.is_known() {
            true => sizes(&counts).filter(|l| (l.descriptor_len, l.len) == (descriptor, len)),
            false => unknown_sizes(descriptor, len),
        };
        let layout = layout
            .filter(|l| l.len <= max_len.min(MAX_JOURNAL_RECORD))
            .ok_or(Invalid("impossible lengths"))?;
        Ok(Self {
            params: JournalParams {
                pos,
                prev_end: raw.prev_end.get(),
                prev_crc: raw.prev_crc.get(),
            },
            layout,
            seq: TxnSeq(raw.seq.get()),
            crc: raw.crc.get(),
            counts,
        })
    }

    /// Position one past the record.
    pub fn end(&self) -> u64 {
        self.params.pos + self.layout.len
    }

    /// Position of the first image.
    pub fn image_pos(&self) -> u64 {
        self.params.pos + u64::from(self.layout.descriptor_len)
    }

    /// Position of the data section.
    pub fn data_pos(&self) -> u64 {
        self.params.pos + self.layout.data_offset
    }

    /// Offset of the commit block from the record's start.
    pub fn commit_offset(&self) -> u64 {
        self.layout.len - BLOCK_BYTES
    }
}

/// A verified descriptor; images, data and commit block are not verified yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// The fixed part.
    pub header: JournalHeader,
    /// The transaction, `image_data` empty.
    pub txn: Transaction,
    /// Checksums of the data section.
    pub data: DataSums,
    image_crcs: Vec<u32>,
    key: LogKey,
}

impl Descriptor {
    /// Verifies and decodes a descriptor; `bytes` starts with it.
    pub fn decode(header: JournalHeader, key: &LogKey, bytes: &[u8]) -> Checked<Self> {
        let Some(bytes) = bytes.get(..header.layout.descriptor_len as usize) else {
            return Err(Invalid("shorter than its descriptor").into());
        };
        let sealed = bytes
            .split_first_chunk()
            .is_some_and(|(fixed, entries)| head_crc(key, fixed, entries) == header.crc);
        if !sealed {
            return Err(Invalid("checksum mismatch").into());
        }
        let (raw, body) = crate::take::<RawDescriptor>(bytes, WHAT)?;
        // Not the journal's end: what follows is durable as well.
        if !raw.is_known() {
            return Err(Error::Incompatible(format!(
                "journal record of version {} with flags {:#x}; this build knows version {VERSION}",
                raw.version.get(),
                raw.flags.get()
            ))
            .into());
        }
        let (txn, image_crcs, data) = decode_body(raw, key, &header.counts, body)?;
        check_transaction(&txn)?;
        if Counts::of(&txn, header.layout.form).is_none_or(|c| c.data != header.counts.data) {
            return Err(corrupt(WHAT, "its data is not as long as its copy tags").into());
        }
        check_place(&header.params)?;
        Ok(Self { header, txn, data, image_crcs, key: *key })
    }

    /// Verifies image `index`, one block.
    pub fn verify_image(&self, index: usize, block: &[u8]) -> bool {
        self.image_crcs.get(index).is_some_and(|c| self.key.crc(block) == *c)
    }

    /// Verifies the commit block and returns its checksum, the successor's `prev_crc`.
    ///
    /// # Errors
    /// Incompatible if it is this transaction's, of a version that this build does not know.
    pub fn verify_commit(&self, block: &[u8]) -> Checked<u32> {
        let Ok(raw) = RawCommit::ref_from_bytes(block) else {
            return Err(Invalid("no commit block").into());
        };
        let (body, _) = block.split_last_chunk::<4>().unwrap_or((block, &[0; 4]));
        if self.key.crc(body) != raw.crc.get() || raw.magic != COMMIT_MAGIC {
            return Err(Invalid("no valid commit block").into());
        }
        let h = &self.header;
        let same = raw.epoch.get() == self.key.epoch.0
            && raw.seq.get() == h.seq.0
            && raw.pos.get() == h.params.pos
            && raw.total_len.get() == h.layout.len
            && raw.descriptor_crc.get() == h.crc;
        if !same {
            return Err(Invalid("commit block of another transaction").into());
        }
        match raw.version.get() {
            VERSION => Ok(raw.crc.get()),
            other => Err(Error::Incompatible(format!(
                "commit block of version {other}; this build knows version {VERSION}"
            ))
            .into()),
        }
    }
}

/// A whole journal record, verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalRecord<'a> {
    /// The descriptor with its transaction.
    pub descriptor: Descriptor,
    /// All images.
    pub images: &'a [u8],
    /// Checksum of the commit block.
    pub commit_crc: u32,
}

/// Decodes and verifies a whole record given its bytes.
pub fn decode_journal_record<'a>(
    bytes: &'a [u8],
    key: &LogKey,
    pos: u64,
    max_len: u64,
) -> Checked<JournalRecord<'a>> {
    let layout = JournalHeader::peek(bytes, key, pos, max_len)?.layout;
    let Some(bytes) = bytes.get(..layout.len as usize) else {
        return Err(Invalid("shorter than its record").into());
    };
    let (head, rest) = bytes.split_at(layout.data_offset as usize);
    let (data, commit) = rest.split_at(rest.len() - BLOCK_SIZE);
    let record = decode_journal_head(head, commit, key, pos, max_len)?;
    let data = data.get(..layout.data_len as usize).unwrap_or_default();
    if !record.descriptor.data.verify_data(data) {
        return Err(Invalid("data checksum mismatch").into());
    }
    Ok(record)
}

/// Decodes and verifies a record without its data section: `head` is its descriptor and its images,
/// `commit` its commit block. A caller that needs the data reads and verifies it by
/// [`Descriptor::data`].
pub fn decode_journal_head<'a>(
    head: &'a [u8],
    commit: &[u8],
    key: &LogKey,
    pos: u64,
    max_len: u64,
) -> Checked<JournalRecord<'a>> {
    let header = JournalHeader::peek(head, key, pos, max_len)?;
    let descriptor = Descriptor::decode(header, key, head)?;
    let images = header.layout.descriptor_len as usize..header.layout.data_offset as usize;
    let Some(images) = head.get(images) else {
        return Err(Invalid("shorter than its record").into());
    };
    let mut blocks = images.chunks_exact(BLOCK_SIZE).enumerate();
    if !blocks.all(|(i, b)| descriptor.verify_image(i, b)) {
        return Err(Invalid("image checksum mismatch").into());
    }
    let commit_crc = descriptor.verify_commit(commit)?;
    Ok(JournalRecord { descriptor, images, commit_crc })
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
