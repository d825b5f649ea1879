"""Publish, compounds, atomic sections and durability tickets on a SiftFS mount.

All but ``connect`` and ``open_volume`` act on files of a mounted SiftFS volume and need no privilege
but the file's own. On another file system they raise ``OSError`` with ``errno.ENOTTY``. All may be called by
several threads at once; one ``Compound`` is built by one thread.

``docs/design/operations.md`` in the repository says what each call promises after a crash.
"""

from __future__ import annotations

from ._compound import (
    BytesStep,
    Checksum,
    Codec,
    Compound,
    FileStep,
    NumberStep,
    RefusedError,
    Results,
)
from ._publish import Level, publish
from ._section import atomic
from ._served import File, Volume, connect, open_volume
from ._ticket import Ticket, barrier, stage

__all__ = [
    "BytesStep",
    "Checksum",
    "Codec",
    "Compound",
    "File",
    "FileStep",
    "Level",
    "NumberStep",
    "RefusedError",
    "Results",
    "Ticket",
    "Volume",
    "atomic",
    "barrier",
    "connect",
    "open_volume",
    "publish",
    "stage",
]
