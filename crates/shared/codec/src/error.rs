//! Errors on the wire: their kind and their text.

use crate::{Field, MAX_TEXT, Protocol, Reader, Writer, cut_at};
use siftfs_base::{Error, Result};

/// Operations that an [`Error::Io`] names. One that is not in this list arrives as the last.
const OPERATIONS: [&str; 4] = ["read", "write", "flush", "I/O"];

fn operation(op: &str) -> u8 {
    let found = OPERATIONS.iter().position(|known| *known == op);
    found.unwrap_or(OPERATIONS.len() - 1) as u8
}

/// What stands where the end of a text is left out.
const SHORTENED: &str = " [...]";

/// An error has to arrive, so one with a longer text than a message may have says that its end is
/// missing.
fn fitting(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    let (begin, _) = text.split_at(cut_at(text, MAX_TEXT - SHORTENED.len()));
    format!("{begin}{SHORTENED}")
}

impl<P: Protocol> Field<P> for Error {
    fn put(&self, out: &mut Writer<P>) {
        let mut text = |kind: u8, texts: &[&String]| {
            out.bytes(&[kind]);
            texts.iter().for_each(|text| <String as Field<P>>::put(&fitting(text), out));
        };
        match self {
            Error::Corrupt { what, detail } => text(2, &[what, detail]),
            Error::Incompatible(why) => text(3, &[why]),
            Error::Latched(why) => text(5, &[why]),
            Error::Refused(why) => text(6, &[why]),
            Error::Link(why) => text(7, &[why]),
            Error::Posix(errno) => {
                out.bytes(&[1]);
                out.bytes(&errno.to_le_bytes());
            }
            Error::Io { op, offset, len, errno } => {
                out.bytes(&[4, operation(op)]);
                out.bytes(&offset.to_le_bytes());
                out.bytes(&len.to_le_bytes());
                out.bytes(&errno.to_le_bytes());
            }
        }
    }

    fn get(from: &mut Reader<'_, P>) -> Result<Self> {
        let text = <String as Field<P>>::get;
        let [kind] = from.take()?;
        Ok(match kind {
            1 => Error::Posix(from.take().map(i32::from_le_bytes)?),
            2 => Error::Corrupt { what: text(from)?, detail: text(from)? },
            3 => Error::Incompatible(text(from)?),
            4 => {
                let [number] = from.take()?;
                let op = OPERATIONS
                    .get(usize::from(number))
                    .ok_or_else(|| from.bad(format!("an error of operation {number}")))?;
                let offset = from.take().map(u64::from_le_bytes)?;
                let len = from.take().map(u64::from_le_bytes)?;
                Error::Io { op, offset, len, errno: from.take().map(i32::from_le_bytes)? }
            }
            5 => Error::Latched(text(from)?),
            6 => Error::Refused(text(from)?),
            7 => Error::Link(text(from)?),
            other => return Err(from.bad(format!("an error of kind {other}"))),
        })
    }
}
