"""Publish, atomic sections and durability tickets on a SiftFS mount.

Every function here acts on files of a mounted SiftFS volume and needs no privilege but the file's
own. On another file system they raise ``OSError`` with ``errno.ENOTTY``. All may be called by
several threads at once.

``docs/design/operations.md`` in the repository says what each call promises after a crash.
"""

from __future__ import annotations

from ._publish import Level, publish
from ._section import atomic
from ._ticket import Ticket, barrier, stage

__all__ = ["Level", "Ticket", "atomic", "barrier", "publish", "stage"]
