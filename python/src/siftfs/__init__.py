"""Publish, atomic sections and durability tickets on a SiftFS mount.

Every function here acts on files of a mounted SiftFS volume and needs no privilege but the file's
own. On another file system they raise ``OSError`` with ``errno.ENOTTY``.

``docs/design/operations.md`` in the repository says what each call promises after a crash.
"""

from __future__ import annotations

from ._publish import Level, publish

__all__ = ["Level", "publish"]
