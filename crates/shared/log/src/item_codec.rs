//! Items to bytes and back.

use crate::item::*;
use crate::item_reply;
use crate::{MAX_NAME, MAX_TARGET, split, take};
use siftfs_base::{BLOCK_BYTES, Error, Lsn, Result, Timestamp, corrupt};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const WHAT: &str = "staged item";
/// From here on, a reader that does not know a kind may skip it.
const KIND_REPLY: u16 = 0x8000;
/// The first optional kind that this build does not know.
const UNKNOWN_OPTIONAL: u16 = KIND_REPLY + 1;
const KIND_INODE: u16 = 1;
const KIND_DATA: u16 = 2;
const KIND_ZERO: u16 = 3;
const KIND_TRUNCATE: u16 = 4;
const KIND_ALLOCATE: u16 = 5;
const KIND_XATTRS: u16 = 6;
const KIND_PHYSICAL_DATA: u16 = 7;
const KIND_CREATE: u16 = 16;
const KIND_LINK: u16 = 17;
const KIND_UNLINK: u16 = 18;
const KIND_REMOVE_DIR: u16 = 19;
const KIND_RENAME: u16 = 20;
const KIND_EXCHANGE: u16 = 21;
const INODE_HAS_SIZE: u32 = 1;
const ALLOCATE_KEEP_SIZE: u32 = 1;
/// Bounds of an xattr list: more than ext4 can store is not believed.
const MAX_XATTRS: usize = 4096;
const MAX_XATTR_VALUE: usize = 65536;

macro_rules! layout {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
        #[repr(C)]
        struct $name { $($field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

layout!(
    /// Start of every item; `len` counts the body, which is padded with zeroes to 8 bytes.
    RawHead, 8 { kind: U16, reserved: U16, len: U32 }
);
layout!(RawTime, 16 { sec: U64, nsec: U32, reserved: U32 });
layout!(RawInode, 104 {
    ino: U32, generation: U32, mode: U32, uid: U32, gid: U32, rdev: U32, flags: U32, valid: U32,
    size: U64, atime: RawTime, mtime: RawTime, ctime: RawTime, crtime: RawTime,
});
layout!(RawData, 24 { ino: U32, generation: U32, offset: U64, len: U32, data_offset: U32 });
layout!(
    /// Follows [`RawData`] in a physical range's item.
    RawHome, 8 { dst: U64 }
);
layout!(RawZero, 24 { ino: U32, generation: U32, offset: U64, len: U64 });
layout!(RawTruncate, 16 { ino: U32, generation: U32, size: U64 });
layout!(RawAllocate, 32 {
    ino: U32, generation: U32, offset: U64, len: U64, flags: U32, reserved: U32,
});
layout!(RawXattrs, 16 { ino: U32, generation: U32, count: U32, reserved: U32 });
layout!(RawXattr, 8 { name_len: U16, reserved: U16, value_len: U32 });
layout!(
    /// Start of every name operation.
    RawOp, 24 { lsn: U64, time: RawTime }
);
layout!(RawCreate, 32 {
    dir: U32, ino: U32, generation: U32, mode: U32, uid: U32, gid: U32, rdev: U32,
    name_len: U16, target_len: U16,
});
layout!(RawName, 16 { dir: U32, ino: U32, name_len: U16, reserved: U16, reserved2: U32 });
layout!(
    /// `other_ino` is a rename's displaced inode or an exchange's second one.
    RawTwoNames, 24 {
        dir: U32, new_dir: U32, ino: U32, other_ino: U32, name_len: U16, new_name_len: U16,
        reserved: U32,
    }
);

impl RawTime {
    fn new(t: &Timestamp) -> Self {
        Self { sec: (t.sec as u64).into(), nsec: t.nsec.into(), reserved: 0.into() }
    }
    fn get(&self) -> Result<Timestamp> {
        if self.reserved.get() != 0 {
            return Err(corrupt(WHAT, "reserved bytes of a time are not zero"));
        }
        Ok(Timestamp { sec: self.sec.get() as i64, nsec: self.nsec.get() })
    }
}

/// Length of an encoded [`Item::Data`], in bytes, without the data.
pub const DATA_ITEM_BYTES: u64 = 8 + size_of::<RawData>() as u64;

/// Length of one encoded item, header and padding included.
pub(crate) fn encoded_len(item: &Item) -> usize {
    8 + body_len(item).next_multiple_of(8)
}

fn body_len(item: &Item) -> usize {
    match item {
        Item::Inode(_) => size_of::<RawInode>(),
        Item::Data { home: None, .. } => size_of::<RawData>(),
        Item::Data { home: Some(_), .. } => size_of::<RawData>() + size_of::<RawHome>(),
        Item::Zero { .. } => size_of::<RawZero>(),
        Item::Truncate { .. } => size_of::<RawTruncate>(),
        Item::Allocate { .. } => size_of::<RawAllocate>(),
        Item::Xattrs { list, .. } => {
            let entry = |(n, v): &(Vec<u8>, Vec<u8>)| size_of::<RawXattr>() + n.len() + v.len();
            size_of::<RawXattrs>() + list.iter().map(entry).sum::<usize>()
        }
        Item::Reply(_) => item_reply::BODY,
        Item::NameOp(op) => {
            size_of::<RawOp>()
                + match &op.kind {
                    NameOpKind::Create { name, target, .. } => {
                        size_of::<RawCreate>() + name.len() + target.len()
                    }
                    NameOpKind::Link { name, .. }
                    | NameOpKind::Unlink { name, .. }
                    | NameOpKind::RemoveDir { name, .. } => size_of::<RawName>() + name.len(),
                    NameOpKind::Rename { name, new_name: other, .. }
                    | NameOpKind::Exchange { name, other_name: other, .. } => {
                        size_of::<RawTwoNames>() + name.len() + other.len()
                    }
                }
        }
    }
}

fn kind_of(item: &Item) -> u16 {
    match item {
        Item::Inode(_) => KIND_INODE,
        Item::Data { home: None, .. } => KIND_DATA,
        Item::Data { home: Some(_), .. } => KIND_PHYSICAL_DATA,
        Item::Zero { .. } => KIND_ZERO,
        Item::Truncate { .. } => KIND_TRUNCATE,
        Item::Allocate { .. } => KIND_ALLOCATE,
        Item::Xattrs { .. } => KIND_XATTRS,
        Item::Reply(_) => KIND_REPLY,
        Item::NameOp(op) => match &op.kind {
            NameOpKind::Create { .. } => KIND_CREATE,
            NameOpKind::Link { .. } => KIND_LINK,
            NameOpKind::Unlink { .. } => KIND_UNLINK,
            NameOpKind::RemoveDir { .. } => KIND_REMOVE_DIR,
            NameOpKind::Rename { .. } => KIND_RENAME,
            NameOpKind::Exchange { .. } => KIND_EXCHANGE,
        },
    }
}

/// Writes into a buffer that was sized by [`encoded_len`].
struct Writer<'a> {
    /// What is not written yet.
    room: &'a mut [u8],
}

impl Writer<'_> {
    fn bytes(&mut self, b: &[u8]) {
        crate::put(&mut self.room, b);
    }
    fn raw<T: IntoBytes + Immutable>(&mut self, t: &T) {
        self.bytes(t.as_bytes());
    }
}

/// A length that the item's own bounds keep within 16 bits.
fn len16(b: &[u8]) -> U16 {
    U16::new(u16::try_from(b.len()).expect("names and targets are bounded"))
}

/// Encodes `item` into `buf`, which is [`encoded_len`] long.
///
/// # Panics
/// If `buf` has another length, or [`check`] refuses the item: no reader would take it.
pub(crate) fn encode(item: &Item, buf: &mut [u8]) {
    check(item).expect("a layout was computed from the item");
    write(item, buf);
}

fn write(item: &Item, buf: &mut [u8]) {
    let body = body_len(item);
    let mut w = Writer { room: buf };
    w.raw(&RawHead {
        kind: kind_of(item).into(),
        reserved: 0.into(),
        len: u32::try_from(body).expect("items are bounded").into(),
    });
    encode_body(item, &mut w);
    let padding = body.next_multiple_of(8) - body;
    assert_eq!(w.room.len(), padding, "an item's length was computed wrongly");
    w.room.fill(0);
}

fn encode_body(item: &Item, w: &mut Writer<'_>) {
    match item {
        Item::Inode(i) => encode_inode(i, w),
        Item::Data { ino, generation, offset, len, data_offset, home } => {
            w.raw(&RawData {
                ino: (*ino).into(),
                generation: (*generation).into(),
                offset: (*offset).into(),
                len: (*len).into(),
                data_offset: (*data_offset).into(),
            });
            if let Some(dst) = home {
                w.raw(&RawHome { dst: (*dst).into() });
            }
        }
        Item::Zero { ino, generation, offset, len } => w.raw(&RawZero {
            ino: (*ino).into(),
            generation: (*generation).into(),
            offset: (*offset).into(),
            len: (*len).into(),
        }),
        Item::Truncate { ino, generation, size } => w.raw(&RawTruncate {
            ino: (*ino).into(),
            generation: (*generation).into(),
            size: (*size).into(),
        }),
        Item::Allocate { ino, generation, offset, len, keep_size } => w.raw(&RawAllocate {
            ino: (*ino).into(),
            generation: (*generation).into(),
            offset: (*offset).into(),
            len: (*len).into(),
            flags: (if *keep_size { ALLOCATE_KEEP_SIZE } else { 0 }).into(),
            reserved: 0.into(),
        }),
        Item::Xattrs { ino, generation, list } => encode_xattrs(*ino, *generation, list, w),
        Item::NameOp(op) => encode_op(op, w),
        Item::Reply(reply) => w.bytes(&item_reply::encode(reply)),
    }
}

fn encode_inode(i: &InodeItem, w: &mut Writer<'_>) {
    w.raw(&RawInode {
        ino: i.ino.into(),
        generation: i.generation.into(),
        mode: i.mode.into(),
        uid: i.uid.into(),
        gid: i.gid.into(),
        rdev: i.rdev.into(),
        flags: i.flags.into(),
        valid: (if i.size.is_some() { INODE_HAS_SIZE } else { 0 }).into(),
        size: i.size.unwrap_or(0).into(),
        atime: RawTime::new(&i.atime),
        mtime: RawTime::new(&i.mtime),
        ctime: RawTime::new(&i.ctime),
        crtime: RawTime::new(&i.crtime),
    });
}

fn encode_xattrs(ino: u32, generation: u32, list: &[(Vec<u8>, Vec<u8>)], w: &mut Writer<'_>) {
    w.raw(&RawXattrs {
        ino: ino.into(),
        generation: generation.into(),
        count: (list.len() as u32).into(),
        reserved: 0.into(),
    });
    for (name, value) in list {
        w.raw(&RawXattr {
            name_len: len16(name),
            reserved: 0.into(),
            value_len: (value.len() as u32).into(),
        });
        w.bytes(name);
        w.bytes(value);
    }
}

fn encode_op(op: &NameOp, w: &mut Writer<'_>) {
    w.raw(&RawOp { lsn: op.lsn.0.into(), time: RawTime::new(&op.time) });
    match &op.kind {
        NameOpKind::Create { dir, name, ino, generation, mode, uid, gid, rdev, target } => {
            w.raw(&RawCreate {
                dir: (*dir).into(),
                ino: (*ino).into(),
                generation: (*generation).into(),
                mode: (*mode).into(),
                uid: (*uid).into(),
                gid: (*gid).into(),
                rdev: (*rdev).into(),
                name_len: len16(name),
                target_len: len16(target),
            });
            w.bytes(name);
            w.bytes(target);
        }
        NameOpKind::Link { dir, name, ino }
        | NameOpKind::Unlink { dir, name, ino }
        | NameOpKind::RemoveDir { dir, name, ino } => {
            w.raw(&RawName {
                dir: (*dir).into(),
                ino: (*ino).into(),
                name_len: len16(name),
                reserved: 0.into(),
                reserved2: 0.into(),
            });
            w.bytes(name);
        }
        NameOpKind::Rename { dir, name, new_dir, new_name, ino, displaced: other } => {
            encode_two([*dir, *new_dir, *ino, *other], name, new_name, w);
        }
        NameOpKind::Exchange { dir, name, ino, other_dir, other_name, other_ino } => {
            encode_two([*dir, *other_dir, *ino, *other_ino], name, other_name, w);
        }
    }
}

/// `numbers`: first directory, second directory, first inode, second inode.
fn encode_two(numbers: [u32; 4], name: &[u8], new_name: &[u8], w: &mut Writer<'_>) {
    let [dir, new_dir, ino, other_ino] = numbers;
    w.raw(&RawTwoNames {
        dir: dir.into(),
        new_dir: new_dir.into(),
        ino: ino.into(),
        other_ino: other_ino.into(),
        name_len: len16(name),
        new_name_len: len16(new_name),
        reserved: 0.into(),
    });
    w.bytes(name);
    w.bytes(new_name);
}

/// Decodes all items of a record; the bytes' checksum is known good, so any trouble is an error.
/// `count` is what the record's header announces.
pub(crate) fn decode_all(mut bytes: &[u8], count: u32) -> Result<Vec<Item>> {
    let mut out = Vec::new();
    for _ in 0..count {
        let (head, rest) = take::<RawHead>(bytes, WHAT)?;
        let len = head.len.get() as usize;
        let (body, rest) = split(rest, len, WHAT)?;
        let (pad, rest) = split(rest, len.next_multiple_of(8) - len, WHAT)?;
        if pad.iter().any(|b| *b != 0) || head.reserved.get() != 0 {
            return Err(corrupt(WHAT, "reserved bytes are not zero"));
        }
        bytes = rest;
        out.extend(decode(head.kind.get(), body)?);
    }
    if !bytes.is_empty() {
        return Err(corrupt(WHAT, "bytes are left after the last item"));
    }
    Ok(out)
}

/// One item, or `None` if its kind is unknown and optional.
fn decode(kind: u16, body: &[u8]) -> Result<Option<Item>> {
    let (item, rest) = match kind {
        KIND_INODE => decode_inode(body)?,
        KIND_DATA => decode_data(body, false)?,
        KIND_PHYSICAL_DATA => decode_data(body, true)?,
        KIND_ZERO => decode_zero(body)?,
        KIND_TRUNCATE => {
            let (r, rest) = take::<RawTruncate>(body, WHAT)?;
            let (ino, generation, size) = (r.ino.get(), r.generation.get(), r.size.get());
            (Item::Truncate { ino, generation, size }, rest)
        }
        KIND_ALLOCATE => decode_allocate(body)?,
        KIND_XATTRS => decode_xattrs(body)?,
        KIND_CREATE..=KIND_EXCHANGE => decode_op(kind, body)?,
        KIND_REPLY => item_reply::decode(body)?,
        UNKNOWN_OPTIONAL.. => return Ok(None),
        _ => return Err(Error::Incompatible(format!("a staged item of unknown kind {kind}"))),
    };
    if !rest.is_empty() {
        return Err(corrupt(WHAT, "an item is longer than its kind"));
    }
    check(&item)?;
    Ok(Some(item))
}

/// What every item must be, whether it is about to be written or was read.
pub(crate) fn check(item: &Item) -> Result<()> {
    match item {
        Item::Inode(i) => {
            inode_number(i.ino)?;
            size(i.size.unwrap_or(0))?;
            [i.atime, i.mtime, i.ctime, i.crtime].iter().try_for_each(time)
        }
        Item::Data { ino, offset, len, data_offset, home, .. } => {
            inode_number(*ino)?;
            if data_offset.checked_add(*len).is_none() {
                return Err(corrupt(WHAT, "data outside the data section"));
            }
            let fits = |dst: u64| {
                dst % BLOCK_BYTES == offset % BLOCK_BYTES
                    && dst.checked_add((*len).into()).is_some()
            };
            if home.is_some_and(|dst| !fits(dst)) {
                return Err(corrupt(WHAT, "data whose home cannot be"));
            }
            range(*offset, u64::from(*len))
        }
        Item::Zero { ino, offset, len, .. } | Item::Allocate { ino, offset, len, .. } => {
            inode_number(*ino)?;
            range(*offset, *len)
        }
        Item::Truncate { ino, size: to, .. } => {
            inode_number(*ino)?;
            size(*to)
        }
        Item::Xattrs { ino, list, .. } => {
            inode_number(*ino)?;
            xattr_count(list.len())?;
            list.iter().try_for_each(|(name, value)| xattr(name, value))
        }
        Item::NameOp(op) => check_op(op),
        Item::Reply(reply) => item_reply::check(reply),
    }
}

fn check_op(op: &NameOp) -> Result<()> {
    if op.lsn.0 == 0 {
        return Err(corrupt(WHAT, "a name operation without a sequence number"));
    }
    time(&op.time)?;
    match &op.kind {
        NameOpKind::Create { dir, name, ino, target, .. } => {
            if target.len() > MAX_TARGET || target.contains(&0) {
                return Err(corrupt(WHAT, "not a target of a symbolic link"));
            }
            entry(*dir, name, *ino)
        }
        NameOpKind::Link { dir, name, ino }
        | NameOpKind::Unlink { dir, name, ino }
        | NameOpKind::RemoveDir { dir, name, ino } => entry(*dir, name, *ino),
        NameOpKind::Rename { dir, name, new_dir, new_name, ino, displaced: _ } => {
            entry(*dir, name, *ino)?;
            entry(*new_dir, new_name, *ino)
        }
        NameOpKind::Exchange { dir, name, ino, other_dir, other_name, other_ino } => {
            entry(*dir, name, *ino)?;
            entry(*other_dir, other_name, *other_ino)
        }
    }
}

/// A name of a directory entry, and where it leads.
fn entry(dir: u32, name: &[u8], ino: u32) -> Result<()> {
    inode_number(dir)?;
    inode_number(ino)?;
    let bad = name.is_empty()
        || name.len() > MAX_NAME
        || name == b"."
        || name == b".."
        || name.iter().any(|c| *c == 0 || *c == b'/');
    if bad {
        return Err(corrupt(WHAT, "not a name of a directory entry"));
    }
    Ok(())
}

fn xattr_count(count: usize) -> Result<()> {
    if count > MAX_XATTRS {
        return Err(corrupt(WHAT, "more xattrs than an inode can have"));
    }
    Ok(())
}

fn xattr(name: &[u8], value: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME + 1 || value.len() > MAX_XATTR_VALUE {
        return Err(corrupt(WHAT, "an xattr name or value of impossible length"));
    }
    if name.contains(&0) {
        return Err(corrupt(WHAT, "an xattr name with NUL"));
    }
    Ok(())
}

fn time(t: &Timestamp) -> Result<()> {
    if t.nsec >= 1_000_000_000 {
        return Err(corrupt(WHAT, "a time with more than a second of nanoseconds"));
    }
    Ok(())
}

/// An inode number; 0 means no inode.
fn inode_number(n: u32) -> Result<()> {
    if n == 0 {
        return Err(corrupt(WHAT, "inode number 0"));
    }
    Ok(())
}

/// A file size or offset: signed 64-bit is all a file can have.
fn size(n: u64) -> Result<()> {
    if i64::try_from(n).is_err() {
        return Err(corrupt(WHAT, "a file offset above the largest"));
    }
    Ok(())
}

/// A non-empty file range.
fn range(offset: u64, len: u64) -> Result<()> {
    size(offset)?;
    if len == 0 || offset.checked_add(len).is_none_or(|e| i64::try_from(e).is_err()) {
        return Err(corrupt(WHAT, "a file range that is empty or too large"));
    }
    Ok(())
}

fn decode_inode(body: &[u8]) -> Result<(Item, &[u8])> {
    let (r, rest) = take::<RawInode>(body, WHAT)?;
    let valid = r.valid.get();
    if valid & !INODE_HAS_SIZE != 0 {
        return Err(Error::Incompatible("unknown fields in a staged inode".into()));
    }
    let item = InodeItem {
        ino: r.ino.get(),
        generation: r.generation.get(),
        mode: r.mode.get(),
        uid: r.uid.get(),
        gid: r.gid.get(),
        rdev: r.rdev.get(),
        size: if valid & INODE_HAS_SIZE != 0 { Some(r.size.get()) } else { None },
        flags: r.flags.get(),
        atime: r.atime.get()?,
        mtime: r.mtime.get()?,
        ctime: r.ctime.get()?,
        crtime: r.crtime.get()?,
    };
    Ok((Item::Inode(item), rest))
}

fn decode_data(body: &[u8], physical: bool) -> Result<(Item, &[u8])> {
    let (r, mut rest) = take::<RawData>(body, WHAT)?;
    let (ino, generation, offset) = (r.ino.get(), r.generation.get(), r.offset.get());
    let (len, data_offset) = (r.len.get(), r.data_offset.get());
    let mut home = None;
    if physical {
        let (raw, behind) = take::<RawHome>(rest, WHAT)?;
        (home, rest) = (Some(raw.dst.get()), behind);
    }
    Ok((Item::Data { ino, generation, offset, len, data_offset, home }, rest))
}

fn decode_zero(body: &[u8]) -> Result<(Item, &[u8])> {
    let (r, rest) = take::<RawZero>(body, WHAT)?;
    let (ino, generation, len) = (r.ino.get(), r.generation.get(), r.len.get());
    Ok((Item::Zero { ino, generation, offset: r.offset.get(), len }, rest))
}

fn decode_allocate(body: &[u8]) -> Result<(Item, &[u8])> {
    let (r, rest) = take::<RawAllocate>(body, WHAT)?;
    let (ino, generation, len) = (r.ino.get(), r.generation.get(), r.len.get());
    let flags = r.flags.get();
    if flags & !ALLOCATE_KEEP_SIZE != 0 {
        return Err(Error::Incompatible("unknown flags in a staged allocation".into()));
    }
    let keep_size = flags & ALLOCATE_KEEP_SIZE != 0;
    let offset = r.offset.get();
    Ok((Item::Allocate { ino, generation, offset, len, keep_size }, rest))
}

fn decode_xattrs(body: &[u8]) -> Result<(Item, &[u8])> {
    let (r, mut rest) = take::<RawXattrs>(body, WHAT)?;
    let count = r.count.get() as usize;
    xattr_count(count)?;
    let mut list = Vec::new();
    for _ in 0..count {
        let (e, after) = take::<RawXattr>(rest, WHAT)?;
        let (name, after) = split(after, e.name_len.get() as usize, WHAT)?;
        let (value, after) = split(after, e.value_len.get() as usize, WHAT)?;
        list.push((name.to_vec(), value.to_vec()));
        rest = after;
    }
    Ok((Item::Xattrs { ino: r.ino.get(), generation: r.generation.get(), list }, rest))
}

/// The next `len` bytes.
fn name(bytes: &[u8], len: U16) -> Result<(Vec<u8>, &[u8])> {
    let (name, rest) = split(bytes, len.get() as usize, WHAT)?;
    Ok((name.to_vec(), rest))
}

fn decode_op(kind: u16, body: &[u8]) -> Result<(Item, &[u8])> {
    let (op, body) = take::<RawOp>(body, WHAT)?;
    let (op_kind, rest) = match kind {
        KIND_CREATE => decode_create(body)?,
        KIND_LINK | KIND_UNLINK | KIND_REMOVE_DIR => decode_one_name(kind, body)?,
        _ => decode_two(kind, body)?,
    };
    let op = NameOp { lsn: Lsn(op.lsn.get()), time: op.time.get()?, kind: op_kind };
    Ok((Item::NameOp(op), rest))
}

fn decode_create(body: &[u8]) -> Result<(NameOpKind, &[u8])> {
    let (r, rest) = take::<RawCreate>(body, WHAT)?;
    let (entry, rest) = name(rest, r.name_len)?;
    let (target, rest) = name(rest, r.target_len)?;
    let kind = NameOpKind::Create {
        dir: r.dir.get(),
        name: entry,
        ino: r.ino.get(),
        generation: r.generation.get(),
        mode: r.mode.get(),
        uid: r.uid.get(),
        gid: r.gid.get(),
        rdev: r.rdev.get(),
        target,
    };
    Ok((kind, rest))
}

fn decode_one_name(kind: u16, body: &[u8]) -> Result<(NameOpKind, &[u8])> {
    let (r, rest) = take::<RawName>(body, WHAT)?;
    let (dir, ino) = (r.dir.get(), r.ino.get());
    let (name, rest) = name(rest, r.name_len)?;
    let kind = match kind {
        KIND_LINK => NameOpKind::Link { dir, name, ino },
        KIND_UNLINK => NameOpKind::Unlink { dir, name, ino },
        _ => NameOpKind::RemoveDir { dir, name, ino },
    };
    Ok((kind, rest))
}

fn decode_two(kind: u16, body: &[u8]) -> Result<(NameOpKind, &[u8])> {
    let (r, rest) = take::<RawTwoNames>(body, WHAT)?;
    let (dir, second_dir, ino) = (r.dir.get(), r.new_dir.get(), r.ino.get());
    let (name_a, rest) = name(rest, r.name_len)?;
    let (name_b, rest) = name(rest, r.new_name_len)?;
    let kind = if kind == KIND_RENAME {
        NameOpKind::Rename {
            dir,
            name: name_a,
            new_dir: second_dir,
            new_name: name_b,
            ino,
            displaced: r.other_ino.get(),
        }
    } else {
        NameOpKind::Exchange {
            dir,
            name: name_a,
            ino,
            other_dir: second_dir,
            other_name: name_b,
            other_ino: r.other_ino.get(),
        }
    };
    Ok((kind, rest))
}

#[cfg(test)]
#[path = "item_tests.rs"]
pub(crate) mod tests;
