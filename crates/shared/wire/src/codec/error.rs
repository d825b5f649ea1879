//! Errors on the wire: their kind and their text.

use super::field::{Field, Reader, Writer, bad};
use siftfs_base::{Error, Result};

/// Operations that an [`Error::Io`] names. One that is not in this list arrives as the last.
const OPERATIONS: [&str; 4] = ["read", "write", "flush", "I/O"];

fn operation(op: &str) -> u8 {
    let found = OPERATIONS.iter().position(|known| *known == op);
    found.unwrap_or(OPERATIONS.len() - 1) as u8
}

impl Field for Error {
    fn put(&self, out: &mut Writer) {
        let mut text = |kind: u8, text: &String| {
            kind.put(out);
            text.put(out);
        };
        match self {
            Error::Incompatible(why) => text(3, why),
            Error::Latched(why) => text(5, why),
            Error::Refused(why) => text(6, why),
            Error::Link(why) => text(7, why),
            Error::Posix(errno) => {
                1u8.put(out);
                errno.put(out);
            }
            Error::Corrupt { what, detail } => {
                2u8.put(out);
                what.put(out);
                detail.put(out);
            }
            Error::Io { op, offset, len, errno } => {
                4u8.put(out);
                operation(op).put(out);
                offset.put(out);
                len.put(out);
                errno.put(out);
            }
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self> {
        Ok(match u8::get(from)? {
            1 => Error::Posix(i32::get(from)?),
            2 => Error::Corrupt { what: String::get(from)?, detail: String::get(from)? },
            3 => Error::Incompatible(String::get(from)?),
            4 => {
                let number = u8::get(from)?;
                let op = OPERATIONS
                    .get(usize::from(number))
                    .ok_or_else(|| bad(format!("an error of operation {number}")))?;
                let (offset, len) = (u64::get(from)?, u64::get(from)?);
                Error::Io { op, offset, len, errno: i32::get(from)? }
            }
            5 => Error::Latched(String::get(from)?),
            6 => Error::Refused(String::get(from)?),
            7 => Error::Link(String::get(from)?),
            other => return Err(bad(format!("an error of kind {other}"))),
        })
    }
}
