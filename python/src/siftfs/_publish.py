"""New names for several files at once."""

from __future__ import annotations

import enum
import os
import struct
from typing import Iterable, Tuple, Union

from . import _ioctl
from ._ioctl import FileLike

_REPLACE = 1
_DESCRIPTOR = 2

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Level(enum.IntEnum):
    """How far a publish is when the call returns."""

    #: Other programs see all of it; a crash shows all or nothing.
    VISIBLE = 0
    #: The same, and nothing that is made durable later survives a crash without it.
    ATOMIC = 1
    #: All of it is durable, data included.
    DURABLE = 2


def publish(
    names: Iterable[Tuple[Union[Path, FileLike], Path]],
    *,
    level: Level = Level.DURABLE,
    replace: bool = True,
) -> None:
    """Gives files new names: all of them, or none, also after a crash.

    ``names`` are pairs of a source and its new name. A source is a path, which then names the file
    no more, or a file that is open for writing, with or without a name (``O_TMPFILE``). All lie on
    one mount; directories cannot be published. With ``replace`` a name may be another file's,
    which loses it; without, that is ``FileExistsError``. What Python has buffered of an open source
    is written first.

    Raises ``OSError`` and changes nothing: ``EINVAL`` for a name that is used twice, ``E2BIG`` for
    more than one record takes, ``ENOTTY`` where no SiftFS volume is mounted.
    """
    pairs = [(source, os.fsencode(to)) for source, to in names]
    if not pairs:
        raise ValueError("nothing to publish")
    root = _mount_of(os.path.dirname(pairs[0][1]) or b".")
    argument = [struct.pack("<II", len(pairs), int(level))]
    flags = _REPLACE if replace else 0
    for source, to in pairs:
        kind, data = _source(root, source)
        target = _below(root, to)
        argument.append(struct.pack("<HHH", flags | kind, len(data), len(target)) + data + target)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _ioctl.send(fd, _ioctl.PUBLISH, b"".join(argument))
    finally:
        os.close(fd)


def _source(root: bytes, source: Union[Path, FileLike]) -> Tuple[int, bytes]:
    if isinstance(source, (str, bytes, os.PathLike)):
        return 0, _below(root, os.fsencode(source))
    return _DESCRIPTOR, struct.pack("<I", _ioctl.descriptor(source))


def _mount_of(directory: bytes) -> bytes:
    """The directory on which the file system of ``directory`` is mounted."""
    at = os.path.realpath(directory)
    while not os.path.ismount(at):
        at = os.path.dirname(at)
    return at


def _below(root: bytes, path: bytes) -> bytes:
    """``path`` from ``root`` on: its directory may be named by symbolic links, itself it may not."""
    head, name = os.path.split(path)
    whole = os.path.join(os.path.realpath(head or b"."), name)
    prefix = root if root.endswith(b"/") else root + b"/"
    if not name or not whole.startswith(prefix):
        raise ValueError(f"{os.fsdecode(path)} is not a name on the mount {os.fsdecode(root)}")
    return whole[len(prefix) :]
