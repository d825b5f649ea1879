//! Requests and replies.

use crate::FileProtocol;
use siftfs_base::{BLOCK_SIZE, Result, SharedBlock};
use siftfs_codec::{Field, Reader, Writer, fields, variants};
use siftfs_proto::{Blocks, Reply, Request, WriteData};
use siftfs_status::{CheckpointReport, RuntimeStatus, Trimmed, Urgency};

variants!(FileProtocol: Request {
    1 => Lookup { parent, name },
    2 => Forget { ino, count },
    3 => GetAttr { file },
    4 => SetAttr { file, set, times },
    5 => ReadLink { ino },
    6 => MakeNode { parent, name, kind, perm, rdev },
    7 => MakeDir { parent, name, perm },
    8 => Symlink { parent, name, target },
    9 => Link { ino, parent, name },
    10 => Unlink { parent, name },
    11 => RemoveDir { parent, name },
    12 => Rename { parent, name, new_parent, new_name, mode },
    13 => Create { parent, name, perm },
    14 => TmpFile { parent, perm, exclusive },
    15 => Open { ino, access, truncate, kill_priv, times, beside_lease },
    16 => Hold { ino },
    17 => Release { handle },
    18 => Read { file, offset, len },
    19 => Write { file, offset, data, append, kill_priv, times },
    20 => Append { file, end, data, kill_priv, times },
    21 => WriteBack { file, offset, data, times },
    22 => Fsync { file, datasync },
    23 => Stage { file, datasync },
    24 => Barrier {},
    25 => Poll { ticket },
    26 => Wait { ticket, timeout },
    27 => EndSession {},
    28 => Allocate { file, mode, offset, len, times },
    29 => Seek { file, offset, whence },
    30 => OpenDir { ino },
    31 => ReadDir { handle, cookie, max_bytes, plus },
    32 => GetXattr { file, name },
    33 => ListXattr { file },
    34 => SetXattr { file, name, value, mode, kill_setgid },
    35 => RemoveXattr { file, name, times },
    36 => GetFlags { file },
    37 => SetFlags { file, flags },
    38 => Publish { base, entries, level, rights },
    39 => SectionStart { file },
    40 => SectionWrite { section, offset, data },
    41 => SectionRead { section, offset, len },
    42 => SectionCommit { sections, durable, times },
    43 => SectionAbort { section },
    45 => GetLock { file, owner, range, kind },
    46 => SetLock { file, ask },
    47 => CloseLocks { ino, handle, owner },
    48 => CancelLock { number },
    49 => Lease { file, writers, direct },
    50 => LeaseWrite { lease, offset, data, time, durable },
    51 => LeaseLocate { lease, first, count, bring },
    52 => LeaseKeep { lease },
    53 => LeaseReturn { lease },
    54 => StatFs {},
    55 => SyncAll {},
    56 => Checkpoint {},
    57 => Trim { start, len, least },
    58 => Status {},
    59 => HoldMany { inodes },
    60 => LeaseDirect { lease, file, room },
    61 => ReadDirect { file },
    62 => LeaseExtend { lease, file, first, end },
} tuple {
    44 => Compound(it),
});

variants!(FileProtocol: Reply {
    1 => Done {},
    4 => Created { attr, handle },
    5 => Opened { handle },
    8 => Written { len },
    9 => WrittenLast { len },
    10 => Located { cold },
    16 => Published { names, files },
    20 => Leased { lease, term, size, granted },
} tuple {
    2 => Entry(it),
    3 => Attr(it),
    6 => Data(it),
    7 => Blocks(it),
    11 => Offset(it),
    12 => Dir(it),
    13 => Names(it),
    14 => Statfs(it),
    15 => Flags(it),
    17 => Ticket(it),
    18 => Durable(it),
    19 => Section(it),
    21 => Lock(it),
    22 => Compounded(it),
    23 => Checkpoint(it),
    24 => Trimmed(it),
    25 => Status(it),
    26 => Gone(it),
    27 => Direct(it),
    28 => Extended(it),
});

variants!(FileProtocol: WriteData {} tuple {
    1 => Bytes(it),
    2 => Blocks(it),
});

/// Whole blocks, and which of their bytes are meant.
impl Field<FileProtocol> for Blocks {
    fn put(&self, out: &mut Writer<FileProtocol>) {
        let (blocks, skip) = self.whole();
        (skip as u32).put(out);
        (self.len() as u64).put(out);
        blocks.iter().for_each(|block| block.put(out));
    }
    fn get(from: &mut Reader<'_, FileProtocol>) -> Result<Self> {
        let (skip, len) = (u32::get(from)? as usize, u64::get(from)?);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let most = SharedBlock::most(from);
        let needed = skip.saturating_add(len).div_ceil(BLOCK_SIZE);
        if skip >= BLOCK_SIZE || len == 0 || needed > most {
            return Err(from.bad(format!("{len} bytes from byte {skip} on of {most} blocks")));
        }
        Ok(Self::new(SharedBlock::get_all(needed, from)?, skip, len))
    }
}

/// The document, as `siftfs status --json` prints it.
impl Field<FileProtocol> for RuntimeStatus {
    fn put(&self, out: &mut Writer<FileProtocol>) {
        match serde_json::to_vec(self) {
            Ok(text) => text.put(out),
            Err(error) => out.refuse(&format!("such a status: {error}")),
        }
    }
    fn get(from: &mut Reader<'_, FileProtocol>) -> Result<Self> {
        let text = Vec::<u8>::get(from)?;
        serde_json::from_slice(&text).map_err(|e| from.bad(format!("a status: {e}")))
    }
}

variants!(FileProtocol: Urgency { 1 => Background {}, 2 => Emergency {} });

fields!(FileProtocol: Trimmed { bytes, failed, incomplete });

fields!(FileProtocol: CheckpointReport {
    trigger,
    batch,
    coalesced_batches,
    light_batches,
    staged,
    raw_tags,
    surviving_tags,
    raw_blocks,
    surviving_blocks,
    raw_images,
    surviving_images,
    raw_inodes,
    surviving_inodes,
    reads,
    read_bytes,
    writes,
    write_bytes,
    flushes,
    windows,
    journal_credits,
    staging_credits,
    index_nanos,
    read_nanos,
    write_nanos,
    flush_nanos,
    nanos,
});
