"""The mount's ioctls: their numbers, and the calls."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import IO, Any, Union

#: A descriptor, or an object with one.
FileLike = Union[int, IO[Any]]

_TYPE = 0xE5
_WRITE = 1
_READ = 2
#: Bytes of an ioctl's argument at most.
LONGEST = (1 << 14) - 1

PUBLISH = 16
COMMIT_ALL = 17
COMPOUND = 32

STAGE = 0x8008E501
POLL = 0xC008E502
WAIT = 0x4010E503
BARRIER = 0x8008E504

START = 0xF501
COMMIT = 0xF502
ABORT = 0xF505


def descriptor(file: FileLike) -> int:
    """The descriptor of an open file. What Python has buffered of it is written before.

    Raises ``ValueError`` for a file that is closed.
    """
    if isinstance(file, int):
        return file
    if hasattr(file, "flush"):
        file.flush()
    return file.fileno()


def call(fd: int, command: int) -> None:
    """An ioctl without an argument. Raises ``OSError`` as the kernel or the mount refuses it."""
    fcntl.ioctl(fd, command)


def ask(fd: int, command: int, argument: bytes) -> bytes:
    """An ioctl whose argument is as long as its command says, and what comes back in its place."""
    buffer = bytearray(argument)
    fcntl.ioctl(fd, command, buffer, True)
    return bytes(buffer)


def send(fd: int, number: int, argument: bytes) -> None:
    """An ioctl with an argument of any length.

    Raises ``OSError`` as the kernel or the mount refuses it; ``E2BIG`` for an argument longer than
    an ioctl's can be, 16,383 bytes.
    """
    _must_fit(argument)
    # As if it gave something back: what does not is copied through 1,024 bytes by Python.
    ask(fd, _WRITE << 30 | len(argument) << 16 | _TYPE << 8 | number, argument)


def exchange(fd: int, number: int, buffer: bytes) -> bytes:
    """As ``send``, and what comes back in the argument's place."""
    _must_fit(buffer)
    command = (_READ | _WRITE) << 30 | len(buffer) << 16 | _TYPE << 8 | number
    return ask(fd, command, buffer)


def _must_fit(argument: bytes) -> None:
    if len(argument) > LONGEST:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
