"""Many writes that become a file's together."""

from __future__ import annotations

import contextlib
import struct
from typing import Iterator, List

from . import _ioctl
from ._ioctl import FileLike
from ._publish import Level


@contextlib.contextmanager
def atomic(*files: FileLike, durable: bool = True) -> Iterator[None]:
    """What is written through ``files`` in the block becomes theirs at its end: all, or nothing.

    ::

        with open("/mnt/accounts", "r+b") as f:
            with siftfs.atomic(f):
                f.write(b"ten less")
                f.seek(4096)
                f.write(b"ten more")

    The files are open to read and write, on one mount, and the caller's own; each has one section
    at a time. An exception in the block leaves nothing behind, and so does a crash before its end.
    After it everything is durable; with ``durable=False`` the block does not wait for storage, and
    nothing that is made durable later survives a crash without it.

    What Python has buffered is written at the beginning, to the files as they were, and at the end,
    into the section. After an exception a file's position is where the block left it.

    ``OSError`` at the end means that nothing was changed: ``ECANCELED`` if another program changed
    the same bytes or a file's size, ``EFBIG`` if it is more than a record takes, ``EINVAL`` if the
    section ended before, as it does when this process closes any descriptor of a file. At the
    beginning: ``EBADF``, ``EACCES``, ``EBUSY`` if a file has a section, ``ENOTTY`` if it is not on
    a SiftFS mount. If even the section does not take what Python has buffered (``EFBIG``,
    ``ENOSPC``), it stays until the file is closed, so that these bytes go nowhere else.
    """
    if not files:
        raise ValueError("no file")
    started: List[FileLike] = []
    try:
        for file in files:
            _ioctl.call(_ioctl.descriptor(file), _ioctl.START)
            started.append(file)
        yield
        _commit([_ioctl.descriptor(file) for file in files], durable)
    except BaseException:
        for file in started:
            _abort(file)
        raise


def _commit(fds: List[int], durable: bool) -> None:
    if durable and len(fds) == 1:
        return _ioctl.call(fds[0], _ioctl.COMMIT)
    level = Level.DURABLE if durable else Level.ATOMIC
    argument = struct.pack(f"<II{len(fds)}I", len(fds), int(level), *fds)
    return _ioctl.send(fds[0], _ioctl.COMMIT_ALL, argument)


def _abort(file: FileLike) -> None:
    # Buffered bytes go into the section first, or a later flush would write them to the file.
    with contextlib.suppress(OSError, ValueError):
        _ioctl.call(_ioctl.descriptor(file), _ioctl.ABORT)
