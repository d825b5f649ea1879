"""Volumes without a mount: one that another process serves, or one that this process opens.

The C library does it (``libsiftfs.so.0``, of the same release); it is looked for when the first volume
is opened. ``SIFTFS_LIBRARY`` names another file.
"""

from __future__ import annotations

import ctypes
import os
import stat as _stat
import threading
from typing import Any, List, Optional, Tuple

_SONAME = "libsiftfs.so.0"
_REPLACE = 1
_ENTRY = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_ubyte
)

_lock = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None


def _library() -> ctypes.CDLL:
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _declared(
                ctypes.CDLL(os.environ.get("SIFTFS_LIBRARY", _SONAME), use_errno=True)
            )
        return _loaded


def _declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    number, whole, long = ctypes.c_uint64, ctypes.c_int, ctypes.c_ssize_t
    for name, result, words in [
        ("siftfs_volume_open", pointer, [text]),
        ("siftfs_volume_connect_with", pointer, [text, text, text]),
        ("siftfs_volume_message", text, []),
        ("siftfs_volume_close", whole, [pointer]),
        ("siftfs_volume_sync", whole, [pointer]),
        ("siftfs_open", pointer, [pointer, text, whole, ctypes.c_uint]),
        ("siftfs_close", None, [pointer]),
        ("siftfs_pread", long, [pointer, pointer, size, number]),
        ("siftfs_pwrite", long, [pointer, text, size, number]),
        ("siftfs_ftruncate", whole, [pointer, number]),
        ("siftfs_fsync", whole, [pointer]),
        ("siftfs_fdatasync", whole, [pointer]),
        ("siftfs_flock", whole, [pointer, whole]),
        ("siftfs_mkdir", whole, [pointer, text, ctypes.c_uint]),
        ("siftfs_rmdir", whole, [pointer, text]),
        ("siftfs_unlink", whole, [pointer, text]),
        ("siftfs_link", whole, [pointer, text, text]),
        ("siftfs_rename", whole, [pointer, text, text, ctypes.c_uint]),
        ("siftfs_sync_dir", whole, [pointer, text]),
        ("siftfs_list", whole, [pointer, text, _ENTRY, pointer]),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, words
    return lib


def _refused(path: Optional[str] = None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)


def _checked(result: int, path: Optional[str] = None) -> int:
    if result < 0:
        raise _refused(path)
    return result


class _Held:
    """Something of the C library's that is given back once, and not while it is used."""

    def __init__(self, pointer: int, what: str) -> None:
        self._pointer: Optional[int] = pointer
        self._what = what
        self._uses = threading.Condition()
        self._count = 0

    def __enter__(self) -> int:
        with self._uses:
            if self._pointer is None:
                raise ValueError(f"the {self._what} is closed")
            self._count += 1
            return self._pointer

    def __exit__(self, *_: Any) -> None:
        with self._uses:
            self._count -= 1
            self._uses.notify_all()

    def take(self) -> Optional[int]:
        with self._uses:
            pointer, self._pointer = self._pointer, None
            while pointer is not None and self._count > 0:
                self._uses.wait()
            return pointer


class File:
    """A regular file of a volume. Threads may use it together."""

    def __init__(self, volume: "Volume", pointer: int) -> None:
        self._volume = volume  # is not closed before its files
        self._file = _Held(pointer, "file")

    def read(self, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes; fewer only at the file's end."""
        room = ctypes.create_string_buffer(length)
        with self._file as file:
            count = _checked(_library().siftfs_pread(file, room, length, offset))
        return room.raw[:count]

    def write(self, data: bytes, offset: int) -> None:
        """Writes all of it, or raises."""
        data = bytes(data)
        with self._file as file:
            _checked(_library().siftfs_pwrite(file, data, len(data), offset))

    def truncate(self, size: int) -> None:
        """Sets the size, which is durable with the next sync."""
        with self._file as file:
            _checked(_library().siftfs_ftruncate(file, size))

    def fsync(self) -> None:
        """All of the file is durable on return, its name included."""
        with self._file as file:
            _checked(_library().siftfs_fsync(file))

    def fdatasync(self) -> None:
        """The file's data, and what it takes to read it, are durable on return."""
        with self._file as file:
            _checked(_library().siftfs_fdatasync(file))

    def flock(self, operation: int) -> None:
        """As ``fcntl.flock``; ``BlockingIOError`` with ``LOCK_NB`` if another has it locked."""
        with self._file as file:
            _checked(_library().siftfs_flock(file, operation))

    def close(self) -> None:
        """Promises nothing about what was written. Twice does nothing."""
        pointer = self._file.take()
        if pointer is not None:
            self._volume._forget(self)
            _library().siftfs_close(pointer)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Volume:
    """A volume without a mount. Paths are absolute and not followed through symbolic links."""

    def __init__(self, pointer: int) -> None:
        self._volume = _Held(pointer, "volume")
        self._files: List[File] = []
        self._lock = threading.Lock()

    def open(self, path: str) -> File:
        """A file that is there, for reading and writing."""
        return self._opened(path, os.O_RDWR, 0)

    def create(self, path: str, mode: int = 0o644) -> File:
        """A new file."""
        return self._opened(path, os.O_RDWR | os.O_CREAT, mode)

    def _opened(self, path: str, flags: int, mode: int) -> File:
        with self._volume as volume:
            pointer = _library().siftfs_open(volume, os.fsencode(path), flags, mode)
            if not pointer:
                raise _refused(path)
            file = File(self, pointer)
            with self._lock:
                self._files.append(file)
            return file

    def _forget(self, file: File) -> None:
        with self._lock:
            self._files.remove(file)

    def _named(self, function: str, path: str, *more: Any) -> None:
        with self._volume as volume:
            _checked(getattr(_library(), function)(volume, os.fsencode(path), *more), path)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._named("siftfs_mkdir", path, mode)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self._named("siftfs_rmdir", path)

    def unlink(self, path: str) -> None:
        """Removes a name."""
        self._named("siftfs_unlink", path)

    def link(self, existing: str, to: str) -> None:
        """Gives a file another name."""
        self._named("siftfs_link", existing, os.fsencode(to))

    def rename(self, old: str, new: str) -> None:
        """Renames; a name that is there already is ``FileExistsError``."""
        self._named("siftfs_rename", old, os.fsencode(new), 0)

    def replace(self, old: str, new: str) -> None:
        """Renames over what has the new name."""
        self._named("siftfs_rename", old, os.fsencode(new), _REPLACE)

    def sync_dir(self, path: str) -> None:
        """A directory's names are durable on return."""
        self._named("siftfs_sync_dir", path)

    def list(self, path: str) -> List[Tuple[str, int, bool]]:
        """Names, inode numbers, and whether each is a directory; in no order."""
        found: List[Tuple[str, int, bool]] = []

        def entry(_: int, name: bytes, inode: int, kind: int) -> None:
            found.append((os.fsdecode(name), inode, kind == _stat.S_IFDIR >> 12))

        self._named("siftfs_list", path, _ENTRY(entry), None)
        return found

    def sync(self) -> None:
        """All that was done before is durable on return."""
        with self._volume as volume:
            _checked(_library().siftfs_volume_sync(volume))

    def close(self) -> None:
        """Closes what is open in it and ends the session; a volume of this process is plain ext4
        then. Twice does nothing."""
        with self._lock:
            files = list(self._files)
        for file in files:
            file.close()
        pointer = self._volume.take()
        if pointer is not None:
            _checked(_library().siftfs_volume_close(pointer))

    def __enter__(self) -> "Volume":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _had(pointer: Optional[int], place: str) -> Volume:
    if not pointer:
        number = ctypes.get_errno()
        words = _library().siftfs_volume_message() or b""
        raise OSError(number, words.decode(errors="replace") or os.strerror(number), place)
    return Volume(pointer)


def connect(address: str, volume: Optional[str] = None, options: str = "") -> Volume:
    """A session of a volume that ``siftfs serve`` serves at ``unix:PATH`` or ``tcp:HOST:PORT``.

    ``ConnectionRefusedError`` says why there is none. If the server dies or is restarted later, calls
    wait until it is there again, and go on. ``options`` are named as those of a mount: ``hard``, the
    default; ``soft`` and ``timeo=SECONDS``, after which calls raise ``EIO``; and ``once`` for a session
    that ends with its server.
    """
    name = None if volume is None else volume.encode()
    connect_with = _library().siftfs_volume_connect_with
    return _had(connect_with(address.encode(), name, options.encode()), address)


def open_volume(path: str) -> Volume:
    """The volume in a file or on a block device, for this process alone; recovered if it was not
    closed."""
    return _had(_library().siftfs_volume_open(os.fsencode(path)), path)
