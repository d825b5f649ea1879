"""Durability that a program learns of later."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import struct
import threading
from typing import Any, Generator, Optional, Union

from . import _ioctl, _mount
from ._ioctl import FileLike

_NO_TIMEOUT = (1 << 64) - 1
#: Threads that wait for tickets of coroutines. One that waits writes for all that were drawn before.
_THREADS = 16


class Ticket:
    """A position in the order of what is staged: durable once everything up to there is.

    What is durable stays so. A ticket may be dropped; what it stands for becomes durable all the
    same. It may outlive the file that was staged, and keeps the mount in use until it is known to
    be durable.

    ``await ticket`` returns when it is durable; the event loop goes on meanwhile. Any number of
    tasks and threads may wait for one ticket.
    """

    __slots__ = ("_on", "_number", "__weakref__")

    def __init__(self, on: Union[FileLike, _mount.Directory], number: int) -> None:
        self._on: Union[FileLike, _mount.Directory, None] = on
        self._number = number

    def __repr__(self) -> str:
        return f"<siftfs.Ticket {self._number:#x}>"

    def poll(self) -> bool:
        """Is it durable? If not, it is within milliseconds: a program may ask again and again.

        A poll may flush, and take as long as that. Raises ``OSError`` if it never will be durable.
        """
        on = self._on
        if on is None:
            return True
        argument = struct.pack("<Q", self._number)
        (durable,) = struct.unpack("<Q", _ioctl.ask(_fd(on), _ioctl.POLL, argument))
        if durable:
            self._on = None
        return bool(durable)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Returns when it is durable. Raises ``TimeoutError`` after ``timeout`` seconds, and
        ``OSError`` if it never will be.
        """
        on = self._on
        if on is None:
            return
        time = _NO_TIMEOUT
        if timeout is not None:
            time = min(max(0, round(timeout * 1e9)), _NO_TIMEOUT)
        _ioctl.ask(_fd(on), _ioctl.WAIT, struct.pack("<QQ", self._number, time))
        self._on = None

    def __await__(self) -> Generator[Any, None, None]:
        return self._durable().__await__()

    async def _durable(self) -> None:
        if self._on is not None:
            await asyncio.get_running_loop().run_in_executor(_waiters(), self.wait)


def stage(file: FileLike) -> Ticket:
    """Stages what ``os.fsync`` of the file or directory would make durable, without a wait.

    What Python has buffered of it is written first. What is staged later never survives a crash
    without it. Raises ``OSError``: ``ENOTTY`` where no SiftFS volume is mounted, ``EAGAIN`` when
    65,536 tickets are not durable, and as ``os.fsync`` does.
    """
    return _drawn(file, _ioctl.STAGE)


def barrier(file: FileLike) -> Ticket:
    """A ticket of everything staged so far on the mount of ``file``, any open file or directory."""
    return _drawn(file, _ioctl.BARRIER)


def _drawn(file: FileLike, command: int) -> Ticket:
    fd = _ioctl.descriptor(file)
    (number,) = struct.unpack("<Q", _ioctl.ask(fd, command, bytes(8)))
    return Ticket(_mount.directory_of(fd) or file, number)


def _fd(on: Union[FileLike, _mount.Directory]) -> int:
    return on if isinstance(on, int) else on.fileno()


_lock = threading.Lock()
_executor: Optional[concurrent.futures.ThreadPoolExecutor] = None


def _waiters() -> concurrent.futures.ThreadPoolExecutor:
    """Threads of our own: those of the event loop may all be busy with what waits for a ticket."""
    global _executor
    with _lock:
        if _executor is None:
            _executor = concurrent.futures.ThreadPoolExecutor(_THREADS, "siftfs-wait")
        return _executor


def _in_a_child() -> None:
    """After fork(2) the threads are not there."""
    global _lock, _executor
    _lock, _executor = threading.Lock(), None


os.register_at_fork(after_in_child=_in_a_child)
