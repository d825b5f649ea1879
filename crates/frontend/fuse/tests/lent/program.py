"""Evaluates what it is told, one line after the other, and says what came of it."""
import array, errno, fcntl, mmap, os, sys

FILES = {}
MAPS = {}


def opens(name, path, flags):
    FILES[name] = os.open(path, flags, 0o644)


def maps(name, length):
    MAPS[name] = mmap.mmap(FILES[name], length, mmap.MAP_SHARED, mmap.PROT_READ)


def ioctl(name, command, size):
    room = array.array("B", bytes(size))
    fcntl.ioctl(FILES[name], command, room)
    return room.tobytes().hex()


print(os.getpid())
for line in sys.stdin:
    try:
        print(repr(eval(line)))
    except OSError as e:
        print(errno.errorcode[e.errno])
