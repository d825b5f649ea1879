"""One program of the load: writes, syncs, renames and reads files, and says each call before and after.

Arguments: directory, seed, weights, then NAME=SIZE of the files that there are. A line "b CALL" says that a call
begins, "d ANSWER" that it returned, "e ERRNO" that it failed, with which the program ends. It ends well when its
standard input does.
"""
import os, random, select, sys, zlib

DIR, SEED, KIND, FILES = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
rng = random.Random(SEED)
LARGEST = 192 << 10


def pattern(offset, length, tag):
    """Bytes that tell who wrote them, and follow from their place in the file."""
    text = b"%08x" % tag
    return (text * (length // 8 + 2))[offset % 8:offset % 8 + length]


class File:
    def __init__(self, name, size):
        self.name, self.size = name, size
        self.fd = self.call("open %s" % name, os.open, self.path(), os.O_RDWR | os.O_CREAT, 0o600)
        self.end = os.open(self.path(), os.O_WRONLY | os.O_APPEND) if KIND != "pages" else -1

    def path(self):
        return os.path.join(DIR, self.name)

    def call(self, text, function, *arguments):
        say("b " + text)
        try:
            answer = function(*arguments)
        except OSError as e:
            say("e %d" % e.errno)
            os._exit(3)
        say("d")
        return answer

    def write(self):
        length = rng.choice([1, 100, 700, 4096, 4096, 9000])
        offset = rng.randrange(0, max(self.size, 1))
        if KIND == "pages":
            offset, length = rng.randrange(0, LARGEST // 4096) * 4096, 4096
        length = min(length, LARGEST - offset)
        tag = rng.getrandbits(32)
        data = pattern(offset, length, tag)
        self.call("write %s %d %d %d" % (self.name, offset, length, tag), self.whole, os.pwrite, self.fd, data, offset)
        self.size = max(self.size, offset + length)

    def append(self):
        length = min(rng.choice([1, 60, 512, 3000]), LARGEST - self.size)
        if length <= 0 or self.end < 0:
            return self.truncate()
        tag = rng.getrandbits(32)
        data = pattern(self.size, length, tag)
        self.call("write %s %d %d %d" % (self.name, self.size, length, tag), self.whole, os.write, self.end, data)
        self.size += length

    def whole(self, function, fd, data, *at):
        """All of it. The kernel sends what crosses a page in parts, and ends where one is refused behind another: the
        next call is told why. To end for no reason is wrong."""
        n = function(fd, data, *at)
        if n != len(data):
            more = function(fd, data[n:], *[offset + n for offset in at])
            say("x %d of %d bytes written, and %d of the rest" % (n, len(data), more))
            os._exit(4)

    def truncate(self):
        size = rng.choice([0, self.size // 2, self.size, min(self.size + 5000, LARGEST)])
        self.call("truncate %s %d" % (self.name, size), os.ftruncate, self.fd, size)
        self.size = size

    def fsync(self):
        self.call("fsync %s" % self.name, os.fsync, self.fd)

    def fdatasync(self):
        self.call("fdatasync %s" % self.name, os.fdatasync, self.fd)

    def chmod(self):
        mode = rng.choice([0o600, 0o640, 0o644])
        self.call("chmod %s %d" % (self.name, mode), os.fchmod, self.fd, mode)

    def rename(self):
        stem, count = self.name.split(".")
        name = "%s.%d" % (stem, int(count) + 1)
        old, new = self.path(), os.path.join(DIR, name)
        self.call("rename %s" % self.name, os.rename, old, new)
        self.name = name

    def read(self):
        offset = rng.randrange(0, max(self.size, 1))
        length = rng.choice([1, 512, 4096, 20000])
        say("b read %s %d %d" % (self.name, offset, length))
        try:
            data = os.pread(self.fd, length, offset)
        except OSError as e:
            say("e %d" % e.errno)
            os._exit(3)
        say("d %d %d" % (len(data), zlib.crc32(data)))

    def fork(self):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)


def say(text):
    try:
        os.write(1, text.encode() + b"\n")
    except OSError:
        os._exit(5)


CALLS = {
    # As a database's log, as its pages, and of everything something.
    "log": {"append": 60, "fdatasync": 30, "read": 4, "truncate": 1},
    "pages": {"write": 60, "fsync": 20, "read": 10},
    "mixed": {
        "write": 30, "append": 20, "fsync": 20, "fdatasync": 15, "read": 10, "truncate": 3, "chmod": 3, "rename": 3,
        "fork": 1,
    },
}[KIND]
files = [File(name, int(size)) for name, size in (file.split("=") for file in FILES)]
while True:
    if select.select([0], [], [], 0)[0]:
        os._exit(0)
    which = rng.choices(list(CALLS), list(CALLS.values()))[0]
    getattr(rng.choice(files), which)()
