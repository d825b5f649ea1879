//! How each type becomes bytes and comes back.

use crate::{Encoded, Protocol};
use siftfs_base::{BlockRun, Epoch, Error, LaneId, Lsn, Result, SharedBlock, TxnSeq, corrupt};
use std::marker::PhantomData;

/// Longest text and longest piece of a list of texts, in bytes. A longer one is refused.
pub const MAX_TEXT: usize = 64 << 10;

/// Collects a message of protocol `P`.
#[derive(Debug)]
pub struct Writer<P> {
    head: Vec<u8>,
    blocks: Vec<SharedBlock>,
    fault: Option<Error>,
    protocol: PhantomData<P>,
}

impl<P> Default for Writer<P> {
    fn default() -> Self {
        let (head, blocks) = Default::default();
        Self { head, blocks, fault: None, protocol: PhantomData }
    }
}

impl<P: Protocol> Writer<P> {
    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
    }

    /// There is no such message: `why` is told to the sender.
    pub fn refuse(&mut self, why: &str) {
        let error = || Error::Refused(format!("no message of the {} has {why}", P::NAME));
        self.fault.get_or_insert_with(error);
    }

    pub(crate) fn finish(self) -> Result<Encoded> {
        match self.fault {
            None => Ok(Encoded { head: self.head, blocks: self.blocks }),
            Some(fault) => Err(fault),
        }
    }
}

/// Takes a message of protocol `P` apart.
#[derive(Debug)]
pub struct Reader<'a, P> {
    head: &'a [u8],
    blocks: std::vec::IntoIter<SharedBlock>,
    protocol: PhantomData<P>,
}

impl<'a, P: Protocol> Reader<'a, P> {
    pub(crate) fn new(head: &'a [u8], blocks: Vec<SharedBlock>) -> Self {
        Self { head, blocks: blocks.into_iter(), protocol: PhantomData }
    }

    /// What is wrong with the message.
    pub fn bad(&self, why: impl Into<String>) -> Error {
        corrupt(format!("message of the {}", P::NAME), why)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self
            .head
            .split_first_chunk()
            .ok_or_else(|| self.bad("it ends in the middle of a field"))?;
        self.head = rest;
        Ok(*taken)
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take_slice(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .head
            .split_at_checked(len)
            .ok_or_else(|| self.bad("it ends in the middle of a field"))?;
        self.head = rest;
        Ok(taken)
    }

    /// Nothing is left.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.head.is_empty() && self.blocks.len() == 0 {
            return Ok(());
        }
        Err(self.bad("something follows its last field"))
    }
}

/// A type with a form in bytes in protocol `P`. Every type but a block takes at least one byte of
/// the head.
pub trait Field<P: Protocol>: Sized {
    /// Appends it.
    fn put(&self, out: &mut Writer<P>);

    /// Reads it.
    ///
    /// # Errors
    /// The bytes are no such thing.
    fn get(from: &mut Reader<'_, P>) -> Result<Self>;

    /// How many of these can follow at most.
    fn most(from: &Reader<'_, P>) -> usize {
        from.head.len()
    }

    /// Appends all of a list.
    fn put_all(list: &[Self], out: &mut Writer<P>) {
        list.iter().for_each(|item| item.put(out));
    }

    /// Reads a list of `count`, which is not more than [`Field::most`] says.
    ///
    /// # Errors
    /// As [`Field::get`].
    fn get_all(count: usize, from: &mut Reader<'_, P>) -> Result<Vec<Self>> {
        // Memory asked for ahead of the items never exceeds the bytes that are there.
        let ahead = (from.head.len() / size_of::<Self>().max(1)).max(from.blocks.len());
        let mut list = Vec::with_capacity(count.min(ahead));
        for _ in 0..count {
            list.push(Self::get(from)?);
        }
        Ok(list)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl<P: Protocol> Field<P> for $number {
            fn put(&self, out: &mut Writer<P>) {
                out.bytes(&self.to_le_bytes());
            }
            fn get(from: &mut Reader<'_, P>) -> Result<Self> {
                from.take().map(<$number>::from_le_bytes)
            }
        }
    )*};
}
numbers!(u16, u32, u64, i32, i64);

impl<P: Protocol> Field<P> for u8 {
    fn put(&self, out: &mut Writer<P>) {
        out.head.push(*self);
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        from.take().map(|[byte]| byte)
    }
    fn put_all(list: &[Self], out: &mut Writer<P>) {
        out.bytes(list);
    }
    fn get_all(count: usize, from: &mut Reader<'_, P>) -> Result<Vec<Self>> {
        from.take_slice(count).map(<[u8]>::to_vec)
    }
}

macro_rules! newtypes {
    ($($name:ident),*) => {$(
        impl<P: Protocol> Field<P> for $name {
            fn put(&self, out: &mut Writer<P>) {
                self.0.put(out);
            }
            fn get(from: &mut Reader<'_, P>) -> Result<Self> {
                Field::get(from).map($name)
            }
        }
    )*};
}
newtypes!(Lsn, TxnSeq, LaneId, Epoch);

impl<P: Protocol> Field<P> for bool {
    fn put(&self, out: &mut Writer<P>) {
        out.bytes(&[u8::from(*self)]);
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        match from.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(from.bad(format!("a flag is {other}"))),
        }
    }
}

impl<P: Protocol, const N: usize> Field<P> for [u8; N] {
    fn put(&self, out: &mut Writer<P>) {
        out.bytes(self);
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        from.take()
    }
}

impl<P: Protocol, const N: usize> Field<P> for [u64; N] {
    fn put(&self, out: &mut Writer<P>) {
        self.iter().for_each(|number| number.put(out));
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = Field::get(from)?;
        }
        Ok(numbers)
    }
}

/// A run that is sent or has arrived ends within 64 bits.
fn ends_within(run: &BlockRun) -> bool {
    run.start.checked_add(run.len).is_some()
}

impl<P: Protocol> Field<P> for BlockRun {
    fn put(&self, out: &mut Writer<P>) {
        assert!(ends_within(self), "a run is what its reader demands");
        out.bytes(&self.start.to_le_bytes());
        out.bytes(&self.len.to_le_bytes());
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        let start = from.take().map(u64::from_le_bytes)?;
        let run = BlockRun { start, len: from.take().map(u64::from_le_bytes)? };
        if ends_within(&run) {
            return Ok(run);
        }
        Err(from.bad(format!("a run of {} blocks at block {}", run.len, run.start)))
    }
}

impl<P: Protocol> Field<P> for SharedBlock {
    fn put(&self, out: &mut Writer<P>) {
        out.blocks.push(self.clone());
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        from.blocks.next().ok_or_else(|| from.bad("a block is missing"))
    }
    fn most(from: &Reader<'_, P>) -> usize {
        from.blocks.len()
    }
}

impl<P: Protocol> Field<P> for String {
    fn put(&self, out: &mut Writer<P>) {
        if self.len() > MAX_TEXT {
            return out.refuse(&format!("a text of {} bytes", self.len()));
        }
        out.bytes(&(self.len() as u32).to_le_bytes());
        out.bytes(self.as_bytes());
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        let len = from.take().map(u32::from_le_bytes)? as usize;
        if len > MAX_TEXT {
            return Err(from.bad(format!("a text of {len} bytes")));
        }
        let text = from.take_slice(len)?;
        let text = std::str::from_utf8(text).map_err(|_| from.bad("a text is not UTF-8"))?;
        Ok(text.to_string())
    }
}

impl<P: Protocol, T: Field<P>> Field<P> for Box<T> {
    fn put(&self, out: &mut Writer<P>) {
        T::put(self, out);
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        T::get(from).map(Box::new)
    }
    fn most(from: &Reader<'_, P>) -> usize {
        T::most(from)
    }
}

impl<P: Protocol, T: Field<P>> Field<P> for Option<T> {
    fn put(&self, out: &mut Writer<P>) {
        <bool as Field<P>>::put(&self.is_some(), out);
        self.iter().for_each(|item| item.put(out));
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        <bool as Field<P>>::get(from)?.then(|| T::get(from)).transpose()
    }
}

/// Both, one behind the other.
impl<P: Protocol, A: Field<P>, B: Field<P>> Field<P> for (A, B) {
    fn put(&self, out: &mut Writer<P>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        Ok((A::get(from)?, B::get(from)?))
    }
}

impl<P: Protocol, T: Field<P>> Field<P> for Vec<T> {
    fn put(&self, out: &mut Writer<P>) {
        let count = u32::try_from(self.len()).expect("a list is shorter than 2^32");
        out.bytes(&count.to_le_bytes());
        T::put_all(self, out);
    }
    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        let count = from.take().map(u32::from_le_bytes)? as usize;
        let most = T::most(from);
        if count > most {
            return Err(from.bad(format!("a list of {count} where at most {most} follow")));
        }
        T::get_all(count, from)
    }
}

/// A struct's form in a protocol: its fields, in this order.
#[macro_export]
macro_rules! fields {
    ($protocol:ty: $type:ident { $($field:ident),* $(,)? }) => {
        impl $crate::Field<$protocol> for $type {
            fn put(&self, out: &mut $crate::Writer<$protocol>) {
                let $type { $($field),* } = self;
                $($crate::Field::<$protocol>::put($field, out);)*
            }
            fn get(from: &mut $crate::Reader<'_, $protocol>) -> siftfs_base::Result<Self> {
                Ok($type { $($field: $crate::Field::<$protocol>::get(from)?),* })
            }
        }
    };
}

/// A struct's form that wraps one thing in a protocol: that thing's.
#[macro_export]
macro_rules! newtypes {
    ($protocol:ty: $($type:ident),* $(,)?) => {$(
        impl $crate::Field<$protocol> for $type {
            fn put(&self, out: &mut $crate::Writer<$protocol>) {
                $crate::Field::<$protocol>::put(&self.0, out);
            }
            fn get(from: &mut $crate::Reader<'_, $protocol>) -> siftfs_base::Result<Self> {
                $crate::Field::<$protocol>::get(from).map($type)
            }
        }
    )*};
}

/// An enum's form in a protocol: its variant's number, one byte, and the variant's fields.
#[macro_export]
macro_rules! variants {
    ($protocol:ty: $type:ident {
        $($tag:literal => $variant:ident { $($field:ident),* $(,)? }),* $(,)?
    } $(tuple { $($tuple_tag:literal => $tuple:ident($item:ident)),* $(,)? })?) => {
        impl $crate::Field<$protocol> for $type {
            fn put(&self, out: &mut $crate::Writer<$protocol>) {
                match self {
                    $($type::$variant { $($field),* } => {
                        out.bytes(&[$tag]);
                        $($crate::Field::<$protocol>::put($field, out);)*
                    })*
                    $($($type::$tuple($item) => {
                        out.bytes(&[$tuple_tag]);
                        $crate::Field::<$protocol>::put($item, out);
                    })*)?
                }
            }
            fn get(from: &mut $crate::Reader<'_, $protocol>) -> siftfs_base::Result<Self> {
                match from.take()? {
                    $([$tag] => Ok($type::$variant {
                        $($field: $crate::Field::<$protocol>::get(from)?),*
                    }),)*
                    $($([$tuple_tag] => {
                        Ok($type::$tuple($crate::Field::<$protocol>::get(from)?))
                    })*)?
                    [other] => Err(from.bad(format!("{} of kind {other}", stringify!($type)))),
                }
            }
        }
    };
}
