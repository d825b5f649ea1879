"""A descriptor of our own on a mount, for tickets that outlive the file they were drawn with.

A copy of the file's descriptor would not do: its close(2) drops the process's POSIX locks on the
file, and ends its section. A directory has neither.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Callable, Optional

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class Directory:
    """An open directory, closed when nobody refers to it any more."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    # At the interpreter's end the module may have lost its names before.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._fd)


_lock = threading.RLock()
_open: "weakref.WeakValueDictionary[int, Directory]" = weakref.WeakValueDictionary()


def directory_of(fd: int) -> Optional[Directory]:
    """A directory on the same mount, which all that ask share; none if none can be opened."""
    device = os.fstat(fd).st_dev
    with _lock:
        known = _open.get(device)
        if known is None:
            known = _opened(fd, device)
            if known is not None:
                _open[device] = known
        return known


def _opened(fd: int, device: int) -> Optional[Directory]:
    """The nearest directory above the file that may be opened. Where it was moved meanwhile, or is
    not below our root, the device tells."""
    try:
        at = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return None
    while at.startswith("/"):
        try:
            directory = Directory(os.open(at, _FLAGS))
        except OSError:
            directory = None
        if directory is not None:
            if os.fstat(directory.fileno()).st_dev != device:
                return None
            return directory
        if at == "/":
            return None
        at = os.path.dirname(at)
    return None


def _in_a_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_in_a_child)
