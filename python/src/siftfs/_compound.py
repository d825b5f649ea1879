"""Many steps that change all they change together, or nothing."""

from __future__ import annotations

import enum
import errno
import os
import struct
from typing import Dict, List, Optional, Tuple, Union

from . import _ioctl
from ._ioctl import FileLike
from ._publish import Level, Path

_ANSWER_HEAD = 8
_NOW = 0x3FFFFFFF
#: ``Results`` has a function of this name.
_Bytes = bytes


class Checksum(enum.IntEnum):
    """Algorithms of checksums."""

    #: CRC-32C, 4 bytes.
    CRC32C = 0
    #: The same, masked as RocksDB and LevelDB store it.
    MASKED_CRC32C = 1
    #: XXH3 of 64 bits, 8 bytes.
    XXH3 = 2


class Codec(enum.IntEnum):
    """Formats of compressed data: one frame."""

    LZ4 = 0
    ZSTD = 1


class _Step:
    """The result that a step will have."""

    __slots__ = ("_of", "_number")

    def __init__(self, of: "Compound", number: int) -> None:
        self._of = of
        self._number = number

    def __repr__(self) -> str:
        return f"<siftfs.{type(self).__name__} {self._number}>"


class FileStep(_Step):
    """A step finds a file."""


class BytesStep(_Step):
    """A step has bytes as its result."""

    def part(self, start: int, length: int) -> "_Part":
        """``length`` of the bytes, from byte ``start`` on. A compound where they are not there is
        refused (``EINVAL``)."""
        return _Part(self, start, length)


class NumberStep(_Step):
    """A step has a number as its result."""


class _Part:
    __slots__ = ("step", "start", "length")

    def __init__(self, step: BytesStep, start: int, length: int) -> None:
        self.step, self.start, self.length = step, start, length


AnyFile = Union[FileLike, FileStep]
AnyBytes = Union[bytes, bytearray, memoryview, BytesStep, NumberStep, _Part]
AnyNumber = Union[int, NumberStep, BytesStep]


class RefusedError(OSError):
    """A step is refused, ``errno`` says why; nothing has changed. ``step`` is its number."""

    step: int


class Results:
    """The results that were wanted of a compound's steps."""

    def __init__(self, of: "Compound", values: Dict[int, _Bytes]) -> None:
        self._of, self._values = of, values

    def _value(self, step: _Step) -> _Bytes:
        if step._of is not self._of or step._number not in self._values:
            raise KeyError(step)
        return self._values[step._number]

    def bytes(self, step: BytesStep) -> _Bytes:
        """The bytes that a step had as its result. ``KeyError`` if they were not wanted."""
        return self._value(step)

    def number(self, step: Union[NumberStep, FileStep]) -> int:
        """The number that a step had as its result, or that of the file's inode."""
        return int.from_bytes(self._value(step), "little")


class Compound:
    """Steps that are carried out together on a mount.

    ::

        steps = siftfs.Compound("/mnt/tables")
        block = steps.read(data, 4096, 4096)
        steps.write(sums, 4, steps.checksum(siftfs.Checksum.CRC32C, block))
        steps.want(block)
        results = steps.run(siftfs.Level.DURABLE)
        print(results.bytes(block))

    Other programs, and a crash, see all that they change or nothing of it. A step may work on the
    results of those before it. Nothing happens before ``run``. Paths are relative to the directory;
    no symbolic link in them is followed. A file is an open one, whose buffered bytes Python writes
    before the step is added, or one that a step finds. What steps open is closed with the call.
    Steps and results take 16,383 bytes each at most.
    """

    def __init__(self, directory: Union[Path, int]) -> None:
        self._directory = directory
        self._steps: List[Tuple[int, bytes]] = []
        # Bytes that the result of each step may have, and those that are wanted.
        self._longest: List[int] = []
        self._wanted: Dict[int, bool] = {}

    def lookup(self, path: Path) -> FileStep:
        """Finds a file."""
        return FileStep(self, self._add(1, _path(path)))

    def open(self, path: Path, flags: int = os.O_RDWR) -> FileStep:
        """Opens a regular file: ``os.O_RDONLY``, ``os.O_WRONLY`` or ``os.O_RDWR``, perhaps with
        ``os.O_TRUNC``."""
        access = flags & ~os.O_TRUNC
        if access not in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            raise ValueError("other flags")
        truncate = 1 if flags & os.O_TRUNC else 0
        return FileStep(self, self._add(2, _path(path) + struct.pack("<II", access, truncate)))

    def create(self, path: Path, mode: int = 0o666) -> FileStep:
        """Creates a regular file, which must not exist, and opens it to read and write."""
        return FileStep(self, self._add(3, _path(path) + struct.pack("<I", mode)))

    def read(self, file: AnyFile, offset: AnyNumber, length: int) -> BytesStep:
        """Reads up to ``length`` bytes; fewer only at the end of the file."""
        fields = self._file(file) + self._number(offset) + struct.pack("<I", length)
        return BytesStep(self, self._add(4, fields, length))

    def write(self, file: AnyFile, offset: AnyNumber, data: AnyBytes) -> NumberStep:
        """Writes; the result is the number of bytes."""
        fields = self._file(file) + self._number(offset) + self._bytes(data)
        return NumberStep(self, self._add(5, fields))

    def append(self, file: AnyFile, data: AnyBytes) -> NumberStep:
        """Writes at the end of the file; the result is where that was."""
        return NumberStep(self, self._add(6, self._file(file) + self._bytes(data)))

    def checksum(self, kind: Checksum, data: AnyBytes) -> NumberStep:
        """A checksum."""
        return NumberStep(self, self._add(7, struct.pack("<I", kind) + self._bytes(data)))

    def compress(self, codec: Codec, data: AnyBytes) -> BytesStep:
        """Compresses."""
        fields = struct.pack("<I", codec) + self._bytes(data)
        return BytesStep(self, self._add(8, fields, _ioctl.LONGEST))

    def join(self, first: AnyBytes, second: AnyBytes) -> BytesStep:
        """Joins bytes: the second behind the first."""
        fields = self._bytes(first) + self._bytes(second)
        return BytesStep(self, self._add(19, fields, _ioctl.LONGEST))

    def decompress(self, codec: Codec, data: AnyBytes, most: int) -> BytesStep:
        """Decompresses to at most ``most`` bytes: ``EOVERFLOW`` if they are more, ``EILSEQ`` if it
        is not one frame."""
        fields = struct.pack("<I", codec) + self._bytes(data) + struct.pack("<I", most)
        return BytesStep(self, self._add(9, fields, most))

    def patch(self, file: AnyFile, offset: AnyNumber, data: AnyBytes) -> BytesStep:
        """Puts bytes in the place of as many that are there; the result is those."""
        fields = self._file(file) + self._number(offset) + self._bytes(data)
        return BytesStep(self, self._add(10, fields, _ioctl.LONGEST))

    def add(
        self, file: AnyFile, offset: AnyNumber, addend: AnyNumber, *, width: int = 8
    ) -> NumberStep:
        """Adds to a little-endian number of 4 or 8 bytes, and wraps; the result is what was
        there."""
        fields = self._file(file) + self._number(offset) + struct.pack("<I", width)
        return NumberStep(self, self._add(11, fields + self._number(addend)))

    def compare_and_set(
        self, file: AnyFile, offset: AnyNumber, expected: AnyBytes, new: AnyBytes
    ) -> None:
        """Puts ``new`` in the place of ``expected``, which are as many bytes. ``ECANCELED`` if
        those are not there."""
        fields = self._file(file) + self._number(offset)
        self._add(12, fields + self._bytes(expected) + self._bytes(new))

    def rename(self, source: Path, target: Path, *, replace: bool = True) -> None:
        """Gives a file another name; with ``replace`` another file may have it, and loses it."""
        self._add(13, _path(source) + _path(target) + struct.pack("<I", int(replace)))

    def link(self, file: AnyFile, target: Path) -> None:
        """Gives a file one more name."""
        self._add(14, self._file(file) + _path(target))

    def unlink(self, path: Path) -> None:
        """Takes a name away."""
        self._add(15, _path(path))

    def set_size(self, file: AnyFile, size: AnyNumber) -> None:
        """Sets the size of a file."""
        self._add(16, self._file(file) + self._number(size))

    def set_attributes(
        self,
        file: AnyFile,
        *,
        mode: Optional[int] = None,
        uid: Optional[int] = None,
        gid: Optional[int] = None,
        atime_ns: Optional[int] = None,
        mtime_ns: Optional[int] = None,
    ) -> None:
        """Changes attributes: those that are given. Times are in nanoseconds; -1 is the present."""
        there, fields = 0, b""
        for bit, number in ((1, mode), (2, uid), (4, gid)):
            if number is not None:
                there, fields = there | bit, fields + struct.pack("<I", number)
        for bit, time in ((8, atime_ns), (16, mtime_ns)):
            if time is not None:
                seconds, rest = (0, _NOW) if time == -1 else divmod(time, 10**9)
                there, fields = there | bit, fields + struct.pack("<qI", seconds, rest)
        self._add(17, self._file(file) + struct.pack("<I", there) + fields)

    def close(self, file: FileStep) -> None:
        """Closes what an earlier step opened."""
        self._add(18, struct.pack("<I", self._mine(file)))

    def want(self, *steps: Union[FileStep, BytesStep, NumberStep]) -> None:
        """Has ``run`` bring the results of these steps."""
        for step in steps:
            self._wanted[self._mine(step)] = True

    def run(self, level: Level = Level.DURABLE) -> Results:
        """Carries the steps out.

        Raises ``OSError``, and nothing has changed: ``RefusedError`` for a step that is refused;
        ``EINVAL`` without a step, ``EMSGSIZE`` and ``E2BIG`` for results and steps that are too
        long, ``ENOTTY`` where no SiftFS volume is mounted.
        """
        steps = b"".join(
            struct.pack("<HH", kind, self._wanted.get(number, 0)) + fields
            for number, (kind, fields) in enumerate(self._steps)
        )
        argument = struct.pack("<IIII", 16 + len(steps), len(self._steps), int(level), 0) + steps
        room = sum(4 + self._longest[number] for number in self._wanted)
        room = min(_ANSWER_HEAD + room, _ioctl.LONGEST)
        answer = self._send(argument.ljust(room, b"\0"))
        refused, why = struct.unpack_from("<Ii", answer)
        if refused:
            error = RefusedError(why, os.strerror(why))
            error.step = refused - 1
            raise error
        return Results(self, self._values(answer))

    def _send(self, buffer: bytes) -> bytes:
        if isinstance(self._directory, int):
            return _ioctl.exchange(self._directory, _ioctl.COMPOUND, buffer)
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _ioctl.exchange(fd, _ioctl.COMPOUND, buffer)
        finally:
            os.close(fd)

    def _values(self, answer: bytes) -> Dict[int, bytes]:
        values, at = {}, _ANSWER_HEAD
        for number in sorted(self._wanted):
            (length,) = struct.unpack_from("<I", answer, at)
            values[number] = answer[at + 4 : at + 4 + length]
            at += 4 + length
        return values

    def _add(self, kind: int, fields: bytes, longest: int = 8) -> int:
        self._steps.append((kind, fields))
        self._longest.append(min(longest, _ioctl.LONGEST))
        return len(self._steps) - 1

    def _mine(self, step: _Step) -> int:
        if step._of is not self:
            raise ValueError("a step of another compound")
        return step._number

    def _file(self, file: AnyFile) -> bytes:
        if isinstance(file, FileStep):
            return struct.pack("<II", 1, self._mine(file))
        fd = _ioctl.descriptor(file)
        if fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return struct.pack("<II", 0, fd)

    def _number(self, number: AnyNumber) -> bytes:
        if isinstance(number, _Step):
            return struct.pack("<II", 1, self._mine(number))
        return struct.pack("<IQ", 0, number)

    def _bytes(self, data: AnyBytes) -> bytes:
        if isinstance(data, _Step):
            return struct.pack("<II", 1, self._mine(data))
        if isinstance(data, _Part):
            return struct.pack("<IIII", 2, self._mine(data.step), data.start, data.length)
        data = bytes(data)
        return struct.pack("<II", 0, len(data)) + data


def _path(path: Path) -> bytes:
    name = os.fsencode(path)
    return struct.pack("<I", len(name)) + name
