"""The mount's ioctls: their numbers, and one call for all of them."""

from __future__ import annotations

import fcntl
import os
from typing import IO, Any, Union

#: A descriptor, or an object with one.
FileLike = Union[int, IO[Any]]

_TYPE = 0xE5
_WRITE = 1
_LONGEST = (1 << 14) - 1

PUBLISH = 16


def descriptor(file: FileLike) -> int:
    """The descriptor of an open file. What Python has buffered of it is written before."""
    if isinstance(file, int):
        return file
    if hasattr(file, "flush") and not getattr(file, "closed", False):
        file.flush()
    return file.fileno()


def send(fd: int, number: int, argument: bytes) -> None:
    """An ioctl that brings an argument and takes none back.

    Raises ``OSError`` as the kernel or the mount refuses it; ``E2BIG`` for an argument longer than
    an ioctl's can be, 16,383 bytes.
    """
    import errno

    if len(argument) > _LONGEST:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    command = _WRITE << 30 | len(argument) << 16 | _TYPE << 8 | number
    # A mutable buffer: Python copies an immutable one through 1,024 bytes only.
    fcntl.ioctl(fd, command, bytearray(argument), False)
