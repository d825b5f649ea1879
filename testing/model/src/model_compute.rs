//! What the steps of a compound compute.

use siftfs_base::crc32c;
use siftfs_proto::compound::{Checksum, Codec, Width};
use std::io::{Read, Write};

/// LevelDB's distance between a checksum and what it stores for one.
const MASK_DELTA: u32 = 0xA282_EAD8;

pub(crate) fn checksum(kind: Checksum, data: &[u8]) -> (u64, Width) {
    match kind {
        Checksum::Crc32c => (crc32c(data).into(), Width::U32),
        Checksum::MaskedCrc32c => {
            let crc = crc32c(data);
            (crc.rotate_right(15).wrapping_add(MASK_DELTA).into(), Width::U32)
        }
        Checksum::Xxh3 => (twox_hash::XxHash3_64::oneshot(data), Width::U64),
    }
}

/// A frame; another one than the Runtime's may be as good ([`decompress`] tells).
pub(crate) fn compress(codec: Codec, data: &[u8]) -> Result<Vec<u8>, i32> {
    let frame = match codec {
        Codec::Zstd => zstd::encode_all(data, 0),
        Codec::Lz4Frame => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(data).and_then(|()| encoder.finish().map_err(std::io::Error::other))
        }
    };
    frame.map_err(|_| libc::ENOMEM)
}

/// What a frame holds, if that is no more than `most` bytes.
pub(crate) fn decompress(codec: Codec, frame: &[u8], most: u32) -> Result<Vec<u8>, i32> {
    let mut out = Vec::new();
    let limit = u64::from(most) + 1;
    let done = match codec {
        Codec::Zstd => zstd::Decoder::new(frame).and_then(|d| d.take(limit).read_to_end(&mut out)),
        Codec::Lz4Frame => {
            lz4_flex::frame::FrameDecoder::new(frame).take(limit).read_to_end(&mut out)
        }
    };
    match done {
        Err(_) => Err(libc::EILSEQ),
        Ok(_) if out.len() as u64 > u64::from(most) => Err(libc::EOVERFLOW),
        Ok(_) if frame.is_empty() => Err(libc::EILSEQ),
        Ok(_) => Ok(out),
    }
}
