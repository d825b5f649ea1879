//! Journal descriptor and commit block to bytes and back.

use crate::journal::*;
use crate::{CopyTag, Digest, StagedRef, Transaction, ZeroTag};
use crate::{DataSums, JournalData, LogKey, blocks_up, sums};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, LaneId, Lsn, Result, TxnSeq, corrupt};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! layout {
    ($(#[$doc:meta])* $name:ident, $size:expr, { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name { $(pub $field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

layout!(RawDescriptor, DESCRIPTOR_HEADER_LEN, {
    magic: [u8; 8], version: U32, flags: U32, epoch: U64, seq: U64, pos: U64, prev_end: U64,
    prev_crc: U32, lane_count: U32, ops_cut: U64, staged_cut: U64, total_len: U64,
    descriptor_len: U32, staged_count: U32, zero_count: U32, copy_count: U32, image_count: U32,
    drop_count: U32, direct_count: U32, data_len: U64, reserved: [u8; 8], crc: U32,
});
layout!(RawCommit, BLOCK_SIZE, {
    magic: [u8; 8], version: U32, descriptor_crc: U32, epoch: U64, seq: U64, pos: U64,
    total_len: U64, reserved: [u8; 4044], crc: U32,
});
layout!(RawStaged, 32, {
    lane: U16, reserved: U16, len: U32, pos: U64, lsn: U64, crc: U32, reserved2: U32,
});
layout!(RawDigest, 32, {
    lane: U16, reserved: U16, ranges: U32, from: U64, prev_crc: U32, crc: U32, reserved2: U64,
});
layout!(RawZeroTag, 16, { dst: U64, len: U32, reserved: U32 });
layout!(RawCopyTag, 24, { dst: U64, source: U32, data_offset: U32, len: U32, reserved: U32 });

/// Length of an encoded [`crate::CopyTag`], in bytes.
pub const COPY_TAG_BYTES: u64 = size_of::<RawCopyTag>() as u64;
layout!(RawImage, 16, { block: U64, crc: U32, reserved: U32 });
layout!(RawRun, 16, { start: U64, len: U64 });

/// [`RawDescriptor::flags`]: the record repeats the staged data.
const FLAG_COPY: u32 = 1;
/// ... a digest stands behind the lanes' positions.
const FLAG_DIGEST: u32 = 2;

/// Sizes of a record with this many entries; `None` if no record may have them.
pub(crate) fn sizes(c: &Counts) -> Option<JournalLayout> {
    if c.data > MAX_JOURNAL_RECORD {
        return None;
    }
    let entries = u64::from(c.lanes) * 8
        + u64::from(c.digest) * 32
        + u64::from(c.staged) * 32
        + u64::from(c.zeros) * 16
        + u64::from(c.copies) * 24
        + u64::from(c.images) * 16
        + (u64::from(c.drops) + u64::from(c.direct)) * 16
        + sums::count(c.data) * 4;
    let descriptor = blocks_up(DESCRIPTOR_HEADER_LEN as u64 + entries);
    if descriptor > MAX_DESCRIPTOR {
        return None;
    }
    let data_offset = descriptor + u64::from(c.images) * BLOCK_BYTES;
    let len = data_offset + blocks_up(c.data) + BLOCK_BYTES;
    let (descriptor_len, data_len) = (descriptor as u32, c.data as u32);
    Some(JournalLayout { descriptor_len, data_offset, data_len, len, form: c.form })
}

/// Sizes of a record that this build does not know, as far as its descriptor's checksum needs them.
pub(crate) fn unknown_sizes(descriptor_len: u32, len: u64) -> Option<JournalLayout> {
    let fits = descriptor_len as usize >= size_of::<RawDescriptor>()
        && u64::from(descriptor_len) <= MAX_DESCRIPTOR.min(len)
        && len.is_multiple_of(BLOCK_BYTES);
    fits.then_some(JournalLayout {
        descriptor_len,
        data_offset: u64::from(descriptor_len),
        data_len: 0,
        len,
        form: JournalData::Ref,
    })
}

fn flags(c: &Counts) -> u32 {
    let copy = if c.form == JournalData::Copy { FLAG_COPY } else { 0 };
    if c.digest { copy | FLAG_DIGEST } else { copy }
}

impl RawDescriptor {
    pub(crate) fn new(
        key: &LogKey,
        p: &JournalParams,
        layout: &JournalLayout,
        txn: &Transaction,
        c: &Counts,
    ) -> Self {
        Self {
            magic: DESCRIPTOR_MAGIC,
            version: VERSION.into(),
            flags: flags(c).into(),
            epoch: key.epoch.0.into(),
            seq: txn.seq.0.into(),
            pos: p.pos.into(),
            prev_end: p.prev_end.into(),
            prev_crc: p.prev_crc.into(),
            lane_count: c.lanes.into(),
            ops_cut: txn.ops_cut.0.into(),
            staged_cut: txn.staged_cut.0.into(),
            total_len: layout.len.into(),
            descriptor_len: layout.descriptor_len.into(),
            staged_count: c.staged.into(),
            zero_count: c.zeros.into(),
            copy_count: c.copies.into(),
            image_count: c.images.into(),
            drop_count: c.drops.into(),
            direct_count: c.direct.into(),
            data_len: c.data.into(),
            reserved: [0; 8],
            crc: 0.into(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            lanes: self.lane_count.get(),
            digest: self.flags.get() & FLAG_DIGEST != 0,
            staged: self.staged_count.get(),
            zeros: self.zero_count.get(),
            copies: self.copy_count.get(),
            images: self.image_count.get(),
            drops: self.drop_count.get(),
            direct: self.direct_count.get(),
            data: self.data_len.get(),
            form: match self.flags.get() & FLAG_COPY {
                0 => JournalData::Ref,
                _ => JournalData::Copy,
            },
        }
    }

    /// Does this build know what the record means? Of one that it does not know, only the checksum
    /// and the lengths of descriptor and record are what they are here.
    pub(crate) fn is_known(&self) -> bool {
        self.version.get() == VERSION && self.flags.get() & !(FLAG_COPY | FLAG_DIGEST) == 0
    }
}

impl RawCommit {
    pub(crate) fn new(
        key: &LogKey,
        p: &JournalParams,
        layout: &JournalLayout,
        seq: TxnSeq,
        descriptor_crc: u32,
    ) -> Self {
        Self {
            magic: COMMIT_MAGIC,
            version: VERSION.into(),
            descriptor_crc: descriptor_crc.into(),
            epoch: key.epoch.0.into(),
            seq: seq.0.into(),
            pos: p.pos.into(),
            total_len: layout.len.into(),
            reserved: [0; 4044],
            crc: 0.into(),
        }
    }
}

/// Writes entries one after the other.
struct Entries<'a> {
    /// What is not written yet.
    room: &'a mut [u8],
}

impl Entries<'_> {
    fn put<T: IntoBytes + Immutable>(&mut self, t: T) {
        crate::put(&mut self.room, t.as_bytes());
    }
    fn runs(&mut self, runs: &[BlockRun]) {
        for r in runs {
            self.put(RawRun { start: r.start.into(), len: r.len.into() });
        }
    }
}

/// Writes everything after the fixed part; `crcs` are the images' checksums, `data` those of the
/// data section.
pub(crate) fn encode_body(
    txn: &Transaction,
    crcs: impl Iterator<Item = u32>,
    data: impl Iterator<Item = u32>,
    buf: &mut [u8],
) {
    let mut out = Entries { room: buf };
    for upto in &txn.lane_upto {
        out.put(U64::new(*upto));
    }
    if let Some(d) = &txn.digest {
        out.put(RawDigest {
            lane: d.lane.0.into(),
            reserved: 0.into(),
            ranges: d.ranges.into(),
            from: d.from.into(),
            prev_crc: d.prev_crc.into(),
            crc: d.crc.into(),
            reserved2: 0.into(),
        });
    }
    for s in &txn.staged {
        out.put(RawStaged {
            lane: s.lane.0.into(),
            reserved: 0.into(),
            len: s.len.into(),
            pos: s.pos.into(),
            lsn: s.lsn.0.into(),
            crc: s.crc.into(),
            reserved2: 0.into(),
        });
    }
    for z in &txn.zeros {
        out.put(RawZeroTag { dst: z.dst.into(), len: z.len.into(), reserved: 0.into() });
    }
    for c in &txn.copies {
        out.put(RawCopyTag {
            dst: c.dst.into(),
            source: c.source.into(),
            data_offset: c.data_offset.into(),
            len: c.len.into(),
            reserved: 0.into(),
        });
    }
    for (block, crc) in txn.images.iter().zip(crcs) {
        out.put(RawImage { block: (*block).into(), crc: crc.into(), reserved: 0.into() });
    }
    out.runs(&txn.drops);
    out.runs(&txn.direct);
    data.for_each(|crc| out.put(U32::new(crc)));
}

/// Reads entries one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn list<T, U>(&mut self, count: u32, f: impl Fn(&T) -> U) -> Result<Vec<U>>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned + 'a,
    {
        let (list, rest) = <[T]>::ref_from_prefix_with_elems(self.bytes, count as usize)
            .map_err(|_| corrupt(WHAT, "a count points past its end"))?;
        self.bytes = rest;
        Ok(list.iter().map(f).collect())
    }
    fn runs(&mut self, count: u32) -> Result<Vec<BlockRun>> {
        self.list(count, |r: &RawRun| BlockRun { start: r.start.get(), len: r.len.get() })
    }
}

/// Reads everything after the fixed part: the transaction, the checksums of its images, and those
/// of its data.
pub(crate) fn decode_body(
    raw: &RawDescriptor,
    key: &LogKey,
    c: &Counts,
    body: &[u8],
) -> Result<(Transaction, Vec<u32>, DataSums)> {
    let mut r = Reader { bytes: body };
    let lane_upto = r.list(c.lanes, |u: &U64| u.get())?;
    let digest = r.list(c.digest.into(), |d: &RawDigest| Digest {
        lane: LaneId(d.lane.get()),
        from: d.from.get(),
        prev_crc: d.prev_crc.get(),
        crc: d.crc.get(),
        ranges: d.ranges.get(),
    })?;
    let staged = r.list(c.staged, |s: &RawStaged| StagedRef {
        lane: LaneId(s.lane.get()),
        pos: s.pos.get(),
        len: s.len.get(),
        lsn: Lsn(s.lsn.get()),
        crc: s.crc.get(),
    })?;
    let zeros = r.list(c.zeros, |z: &RawZeroTag| ZeroTag { dst: z.dst.get(), len: z.len.get() })?;
    let copies = r.list(c.copies, |t: &RawCopyTag| CopyTag {
        source: t.source.get(),
        data_offset: t.data_offset.get(),
        dst: t.dst.get(),
        len: t.len.get(),
    })?;
    let images = r.list(c.images, |i: &RawImage| (i.block.get(), i.crc.get()))?;
    let (drops, direct) = (r.runs(c.drops)?, r.runs(c.direct)?);
    let chunks = sums::count(c.data) as u32; // `sizes` bounds it
    let sums = r.list(chunks, |crc: &U32| crc.get())?.into_boxed_slice();
    let sums = DataSums::new(key, c.data as u32, sums)
        .ok_or_else(|| corrupt(WHAT, "not one checksum per chunk of data"))?;
    let txn = Transaction {
        seq: TxnSeq(raw.seq.get()),
        ops_cut: Lsn(raw.ops_cut.get()),
        staged_cut: Lsn(raw.staged_cut.get()),
        lane_upto,
        digest: digest.into_iter().next(),
        staged,
        zeros,
        copies,
        images: images.iter().map(|i| i.0).collect(),
        image_data: Vec::new(),
        direct,
        drops,
    };
    Ok((txn, images.into_iter().map(|i| i.1).collect(), sums))
}
