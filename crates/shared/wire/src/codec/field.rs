//! How each type becomes bytes and comes back.

use siftfs_base::{BlockRun, Epoch, LaneId, Lsn, Result, SharedBlock, TxnSeq, corrupt};

/// Longest text, in bytes; a longer one is cut when it is written.
pub(super) const MAX_TEXT: usize = 4096;

/// Collects a message.
#[derive(Default)]
pub(super) struct Writer {
    pub head: Vec<u8>,
    pub blocks: Vec<SharedBlock>,
}

/// Takes a message apart.
pub(super) struct Reader<'a> {
    pub head: &'a [u8],
    pub blocks: std::vec::IntoIter<SharedBlock>,
}

/// What is wrong with a message.
pub(super) fn bad(why: impl Into<String>) -> siftfs_base::Error {
    corrupt("message of the block protocol", why)
}

impl Reader<'_> {
    /// The next `N` bytes.
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) =
            self.head.split_first_chunk().ok_or_else(|| bad("it ends in the middle of a field"))?;
        self.head = rest;
        Ok(*taken)
    }

    /// Nothing is left.
    pub(super) fn finish(&self) -> Result<()> {
        if self.head.is_empty() && self.blocks.len() == 0 {
            return Ok(());
        }
        Err(bad("something follows its last field"))
    }
}

/// A type with a form in bytes. Every type but a block takes at least one byte of the head.
pub(super) trait Field: Sized {
    /// Appends it.
    fn put(&self, out: &mut Writer);
    /// Reads it.
    fn get(from: &mut Reader<'_>) -> Result<Self>;
    /// How many of these can follow at most.
    fn most(from: &Reader<'_>) -> usize {
        from.head.len()
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn put(&self, out: &mut Writer) {
                out.head.extend_from_slice(&self.to_le_bytes());
            }
            fn get(from: &mut Reader<'_>) -> Result<Self> {
                from.take().map(<$number>::from_le_bytes)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i32, i64);

macro_rules! newtypes {
    ($($name:ident),*) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Writer) {
                self.0.put(out);
            }
            fn get(from: &mut Reader<'_>) -> Result<Self> {
                Field::get(from).map($name)
            }
        }
    )*};
}
newtypes!(Lsn, TxnSeq, LaneId, Epoch);

impl Field for bool {
    fn put(&self, out: &mut Writer) {
        u8::from(*self).put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(bad(format!("a flag is {other}"))),
        }
    }
}

impl Field for [u8; 16] {
    fn put(&self, out: &mut Writer) {
        out.head.extend_from_slice(self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        from.take()
    }
}

/// A run that is sent or has arrived ends within 64 bits.
fn check_run(run: &BlockRun) -> Result<()> {
    match run.start.checked_add(run.len) {
        Some(_) => Ok(()),
        None => Err(bad(format!("a run of {} blocks at block {}", run.len, run.start))),
    }
}

impl Field for BlockRun {
    fn put(&self, out: &mut Writer) {
        check_run(self).expect("a run is what its reader demands");
        self.start.put(out);
        self.len.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        let run = BlockRun { start: u64::get(from)?, len: u64::get(from)? };
        check_run(&run)?;
        Ok(run)
    }
}

impl Field for SharedBlock {
    fn put(&self, out: &mut Writer) {
        out.blocks.push(self.clone());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        from.blocks.next().ok_or_else(|| bad("a block is missing"))
    }
    fn most(from: &Reader<'_>) -> usize {
        from.blocks.len()
    }
}

impl Field for String {
    fn put(&self, out: &mut Writer) {
        let (text, _) = self.split_at(super::cut_at(self, MAX_TEXT));
        (text.len() as u32).put(out);
        out.head.extend_from_slice(text.as_bytes());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        let len = u32::get(from)? as usize;
        if len > MAX_TEXT {
            return Err(bad(format!("a text of {len} bytes")));
        }
        let (text, rest) = from
            .head
            .split_at_checked(len)
            .ok_or_else(|| bad("it ends in the middle of a text"))?;
        from.head = rest;
        let text = std::str::from_utf8(text).map_err(|_| bad("a text is not UTF-8"))?;
        Ok(text.to_string())
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, out: &mut Writer) {
        T::put(self, out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        T::get(from).map(Box::new)
    }
    fn most(from: &Reader<'_>) -> usize {
        T::most(from)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Writer) {
        self.is_some().put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        bool::get(from)?.then(|| T::get(from)).transpose()
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Writer) {
        let count = u32::try_from(self.len()).expect("a list is shorter than 2^32");
        count.put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self> {
        let count = u32::get(from)? as usize;
        let most = T::most(from);
        if count > most {
            return Err(bad(format!("a list of {count} where at most {most} follow")));
        }
        // Memory asked for ahead of the items never exceeds the bytes that are there.
        let ahead = (from.head.len() / size_of::<T>().max(1)).max(from.blocks.len());
        let mut list = Vec::with_capacity(count.min(ahead));
        for _ in 0..count {
            list.push(T::get(from)?);
        }
        Ok(list)
    }
}

/// A struct is its fields, in this order.
macro_rules! fields {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::field::Field for $type {
            fn put(&self, out: &mut $crate::codec::field::Writer) {
                let $type { $($field),* } = self;
                $($field.put(out);)*
            }
            fn get(from: &mut $crate::codec::field::Reader<'_>) -> siftfs_base::Result<Self> {
                Ok($type { $($field: $crate::codec::field::Field::get(from)?),* })
            }
        }
    };
}
pub(super) use fields;

/// An enum is its variant's number, one byte, and the variant's fields.
macro_rules! variants {
    ($type:ident {
        $($tag:literal => $variant:ident { $($field:ident),* $(,)? }),* $(,)?
    } $(tuple { $($tuple_tag:literal => $tuple:ident($item:ident)),* $(,)? })?) => {
        impl $crate::codec::field::Field for $type {
            fn put(&self, out: &mut $crate::codec::field::Writer) {
                match self {
                    $($type::$variant { $($field),* } => {
                        out.head.push($tag);
                        $($field.put(out);)*
                    })*
                    $($($type::$tuple($item) => {
                        out.head.push($tuple_tag);
                        $item.put(out);
                    })*)?
                }
            }
            fn get(from: &mut $crate::codec::field::Reader<'_>) -> siftfs_base::Result<Self> {
                use $crate::codec::field as f;
                match <u8 as f::Field>::get(from)? {
                    $($tag => Ok($type::$variant { $($field: f::Field::get(from)?),* }),)*
                    $($($tuple_tag => Ok($type::$tuple(f::Field::get(from)?)),)*)?
                    other => Err(f::bad(format!("{} of kind {other}", stringify!($type)))),
                }
            }
        }
    };
}
pub(super) use variants;
