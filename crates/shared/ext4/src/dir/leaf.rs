//! One block of directory entries: checked walking, and the changes made inside it.
//!
//! Nothing here trusts the bytes: every step of a walk checks its record.

use siftfs_base::{BLOCK_SIZE, Error, Result, corrupt, errno};

use super::csum::{TAIL_AT, TAIL_LEN, leaf_csum};

/// A directory block's bytes.
pub(super) type Block = [u8; BLOCK_SIZE];

/// Bytes of a record before its name.
const HEADER: usize = 8;
/// Shortest record: a header and four bytes of name.
const MIN_RECORD: usize = 12;
/// Longest name in bytes.
pub(super) const NAME_MAX: usize = 255;
/// "File type" of the phony entry that holds the checksum.
const TAIL_TYPE: u8 = 0xde;

/// How the blocks of a directory are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Seed of the checksum at the end of each block, where the volume has them.
    pub seed: Option<u32>,
    /// Records hold the file's type.
    pub filetype: bool,
}

impl Layout {
    /// Where the entries of a leaf end.
    pub fn end(&self) -> usize {
        if self.seed.is_some() { TAIL_AT } else { BLOCK_SIZE }
    }
}

/// A checked record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Where the record starts in the block.
    pub at: usize,
    /// The inode the record names; 0 when unused.
    pub ino: u32,
    /// Bytes up to the next record.
    pub len: usize,
    /// Bytes of name.
    pub name_len: usize,
    /// Type code.
    pub ftype: u8,
}

impl Record {
    /// Its name; the walk that made the record checked that it lies in the block.
    pub fn name<'b>(&self, block: &'b Block) -> &'b [u8] {
        let from = self.at + HEADER;
        block.get(from..from + self.name_len).expect("the walk checked the record")
    }
    /// Bytes that it needs; the rest of `len` is free.
    fn used(&self) -> usize {
        if self.ino == 0 { 0 } else { record_len(self.name_len) }
    }
}

/// Bytes of a record with a name of `name_len` bytes.
pub(super) fn record_len(name_len: usize) -> usize {
    (HEADER + name_len + 3) & !3
}

/// The bytes at `at`, which lie within the block: the walk has checked it, or the format says it.
fn bytes<const N: usize>(block: &Block, at: usize) -> [u8; N] {
    *block.get(at..).and_then(|rest| rest.first_chunk()).expect("a field within the block")
}
pub(super) fn get16(block: &Block, at: usize) -> u16 {
    u16::from_le_bytes(bytes(block, at))
}
pub(super) fn get32(block: &Block, at: usize) -> u32 {
    u32::from_le_bytes(bytes(block, at))
}
pub(super) fn put_bytes(block: &mut Block, at: usize, bytes: &[u8]) {
    let field = block.get_mut(at..at + bytes.len()).expect("a field within the block");
    field.copy_from_slice(bytes);
}
pub(super) fn put16(block: &mut Block, at: usize, value: usize) {
    let value = u16::try_from(value).expect("lengths inside a block fit 16 bits");
    put_bytes(block, at, &value.to_le_bytes());
}
pub(super) fn put32(block: &mut Block, at: usize, value: u32) {
    put_bytes(block, at, &value.to_le_bytes());
}

fn bad(at: usize, what: &str) -> Error {
    corrupt("directory block", format!("{what} in the record at byte {at}"))
}

/// The record at `at`, which must end at or before `end`.
pub(super) fn record(block: &Block, at: usize, end: usize, layout: Layout) -> Result<Record> {
    if at + MIN_RECORD > end {
        return Err(bad(at, "no room for a record"));
    }
    let ino = get32(block, at);
    let len = usize::from(get16(block, at + 4));
    let (name_len, ftype) = if layout.filetype {
        let [name_len, ftype] = bytes(block, at + 6);
        (usize::from(name_len), Some(ftype).filter(|t| *t <= 7).unwrap_or(0))
    } else {
        (usize::from(get16(block, at + 6)), 0)
    };
    if len < MIN_RECORD || len % 4 != 0 || len > end - at {
        return Err(bad(at, "bad record length"));
    }
    if record_len(name_len) > len || name_len > NAME_MAX || (ino != 0 && name_len == 0) {
        return Err(bad(at, "bad name length"));
    }
    Ok(Record { at, ino, len, name_len, ftype })
}

/// Every record of a block up to `end`, unused ones included; stops after an error.
pub(super) fn records(
    block: &Block,
    end: usize,
    layout: Layout,
) -> impl Iterator<Item = Result<Record>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let next = record(block, at, end, layout);
        at = next.as_ref().map_or(end, |r| r.at + r.len);
        Some(next)
    })
}

/// Is this a name that a directory may hold?
pub(super) fn name_ok(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && !name.iter().any(|b| *b == 0 || *b == b'/')
}

/// Checks a whole leaf: checksum, every record, every name.
pub(super) fn verify(block: &Block, layout: Layout) -> Result<()> {
    if let Some(seed) = layout.seed {
        let tail_ok = get32(block, TAIL_AT) == 0
            && usize::from(get16(block, TAIL_AT + 4)) == TAIL_LEN
            && block[TAIL_AT + 6] == 0
            && block[TAIL_AT + 7] == TAIL_TYPE;
        if !tail_ok {
            return Err(corrupt("directory block", "no checksum tail"));
        }
        if get32(block, TAIL_AT + 8) != leaf_csum(seed, block) {
            return Err(corrupt("directory block", "checksum mismatch"));
        }
    }
    verify_records(block, layout.end(), layout)
}

/// Checks the records up to `end`.
pub(super) fn verify_records(block: &Block, end: usize, layout: Layout) -> Result<()> {
    for r in records(block, end, layout) {
        let r = r?;
        if r.ino != 0 && !name_ok(r.name(block)) {
            return Err(bad(r.at, "impossible name"));
        }
    }
    Ok(())
}

/// Brings the checksum of a leaf up to date.
pub(super) fn seal(block: &mut Block, layout: Layout) {
    if let Some(seed) = layout.seed {
        block[TAIL_AT..].fill(0);
        put16(block, TAIL_AT + 4, TAIL_LEN);
        block[TAIL_AT + 7] = TAIL_TYPE;
        let csum = leaf_csum(seed, block);
        put32(block, TAIL_AT + 8, csum);
    }
}

/// The record of `name`, and the record before it in the block.
pub(super) fn find(
    block: &Block,
    end: usize,
    layout: Layout,
    name: &[u8],
) -> Result<Option<(Record, Option<Record>)>> {
    let mut before = None;
    for r in records(block, end, layout) {
        let r = r?;
        if r.ino != 0 && r.name(block) == name {
            return Ok(Some((r, before)));
        }
        before = Some(r);
    }
    Ok(None)
}

/// The first record with room for `name` behind its own; EEXIST when the block has the name.
pub(super) fn room(block: &Block, layout: Layout, name: &[u8]) -> Result<Option<Record>> {
    let need = record_len(name.len());
    let mut found = None;
    for r in records(block, layout.end(), layout) {
        let r = r?;
        if r.ino != 0 && r.name(block) == name {
            return Err(errno(libc::EEXIST));
        }
        if found.is_none() && r.len - r.used() >= need {
            found = Some(r);
        }
    }
    Ok(found)
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub name: &'a [u8],
    pub ino: u32,
    pub ftype: u8,
}

/// Writes a record of `len` bytes.
pub(super) fn write(block: &mut Block, at: usize, len: usize, e: NewEntry<'_>, layout: Layout) {
    assert!(record_len(e.name.len()) <= len && at + len <= block.len());
    put32(block, at, e.ino);
    put16(block, at + 4, len);
    put16(block, at + 6, e.name.len());
    if layout.filetype {
        put_bytes(block, at + 7, &[e.ftype]);
    }
    let name_at = at + HEADER;
    put_bytes(block, name_at, e.name);
    clear(block, name_at + e.name.len(), at + record_len(e.name.len()));
}

/// Zeroes the bytes of a record, which lies within the block.
fn clear(block: &mut Block, from: usize, to: usize) {
    block.get_mut(from..to).expect("a record within the block").fill(0);
}

/// Puts an entry into the free part of `host`, which [`room`] found.
pub(super) fn put(block: &mut Block, host: Record, e: NewEntry<'_>, layout: Layout) {
    let used = host.used();
    if used > 0 {
        put16(block, host.at + 4, used);
    }
    write(block, host.at + used, host.len - used, e, layout);
}

/// Takes a record out: it joins the one before it, or stays behind unused as the first.
pub(super) fn remove(block: &mut Block, gone: Record, before: Option<Record>) {
    match before {
        Some(b) => {
            debug_assert_eq!(b.at + b.len, gone.at);
            put16(block, b.at + 4, b.len + gone.len);
            clear(block, gone.at, gone.at + record_len(gone.name_len));
        }
        None => {
            put32(block, gone.at, 0);
            clear(block, gone.at + 6, gone.at + record_len(gone.name_len));
        }
    }
}

/// Makes the block a leaf that holds just these entries, packed, and seals it. They must fit.
pub(super) fn pack<'e>(
    block: &mut Block,
    entries: impl Iterator<Item = NewEntry<'e>>,
    layout: Layout,
) {
    block.fill(0);
    let end = layout.end();
    let (mut at, mut last) = (0, 0);
    for e in entries {
        let len = record_len(e.name.len());
        write(block, at, len, e, layout);
        last = at;
        at += len;
    }
    assert!(at <= end, "{at} bytes of entries in a leaf");
    put16(block, last + 4, end - last);
    seal(block, layout);
}
