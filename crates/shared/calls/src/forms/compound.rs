//! Compounds, and what they come to.

use crate::FileProtocol;
use siftfs_base::Result;
use siftfs_codec::{Field, Reader, Writer, fields, newtypes, variants};
use siftfs_proto::compound::{
    Access, BytesArg, Checksum, Codec, Compound, Compounded, FileArg, MOST_STEPS, NewAttributes,
    NumberArg, Step, StepNr, Value, Wanted, Width, WrittenFile,
};

newtypes!(FileProtocol: StepNr);

/// A step as a client sends it.
type Sent = Step<FileArg>;

variants!(FileProtocol: Sent {
    1 => Lookup { path },
    2 => Open { path, access, truncate },
    3 => Create { path, perm },
    4 => Read { file, offset, len },
    5 => Write { file, offset, data },
    6 => Append { file, data },
    7 => Checksum { kind, data },
    8 => Compress { codec, data },
    9 => Decompress { codec, data, most },
    10 => Patch { file, offset, data },
    11 => Add { file, offset, width, addend },
    12 => CompareAndSet { file, offset, expected, new },
    13 => Rename { from, to, replace },
    14 => Link { file, to },
    15 => Unlink { path },
    16 => SetSize { file, size },
    17 => SetAttributes { file, set },
    18 => Close { file },
    19 => Join { first, second },
});

variants!(FileProtocol: FileArg {} tuple {
    1 => Open(it),
    2 => Step(it),
});

variants!(FileProtocol: BytesArg {
    3 => Part { step, start, len },
} tuple {
    1 => Given(it),
    2 => Step(it),
});

variants!(FileProtocol: NumberArg {} tuple {
    1 => Given(it),
    2 => Step(it),
});

variants!(FileProtocol: Checksum { 1 => Crc32c {}, 2 => MaskedCrc32c {}, 3 => Xxh3 {} });

variants!(FileProtocol: Codec { 1 => Lz4Frame {}, 2 => Zstd {} });

variants!(FileProtocol: Width { 1 => U32 {}, 2 => U64 {} });

variants!(FileProtocol: Access { 1 => Read {}, 2 => Write {}, 3 => Both {} });

fields!(FileProtocol: NewAttributes { perm, uid, gid, atime, mtime });

variants!(FileProtocol: Wanted {
    1 => All {},
    2 => Some { steps, most },
});

impl Field<FileProtocol> for Compound {
    fn put(&self, out: &mut Writer<FileProtocol>) {
        self.base.put(out);
        self.steps.put(out);
        self.level.put(out);
        self.rights.put(out);
        self.wanted.put(out);
    }
    fn get(from: &mut Reader<'_, FileProtocol>) -> Result<Self> {
        let (base, count) = (Field::<FileProtocol>::get(from)?, u32::get(from)? as usize);
        // A step takes more memory than bytes of a message.
        if count > MOST_STEPS {
            return Err(from.bad(format!("a compound of {count} steps")));
        }
        let steps = Sent::get_all(count, from)?;
        let (level, rights) = (Field::get(from)?, Field::get(from)?);
        Ok(Self { base, steps, level, rights, wanted: Field::get(from)? })
    }
}

variants!(FileProtocol: Value {
    1 => None {},
    2 => File { ino, generation, handle },
    3 => Number { value, width },
} tuple {
    4 => Bytes(it),
});

fields!(FileProtocol: WrittenFile { ino, resized, grown });

variants!(FileProtocol: Compounded {
    1 => Done { values, names, files, written },
    2 => Refused { step, errno },
});
