"""Publish on a real mount."""

import errno
import os
import tempfile
import unittest

import siftfs
from mounted import Mounted


class Publish(Mounted):
    def test_names_change_together(self) -> None:
        self.put("a", "old")
        pairs = [(self.put("a.tmp", "new a"), self.path("a")), (self.put("b.tmp", "b"), self.path("b"))]
        siftfs.publish(pairs)
        self.assertEqual((self.text("a"), self.text("b")), ("new a", "b"))
        self.assertEqual(sorted(os.listdir(self.dir)), ["a", "b"])

    def test_long_names(self) -> None:
        deep = "directory".rjust(200, "a")
        os.mkdir(self.path(deep))
        names = [os.path.join(deep, end.rjust(200, "0")) for end in "ab"]
        siftfs.publish([(self.put(f"{name}.tmp", name), self.path(name)) for name in names])
        self.assertEqual([self.text(name) for name in names], names)
        self.assertEqual(len(os.listdir(self.path(deep))), 2)
        with self.assertRaises(OSError) as long:
            siftfs.publish([(self.path("a" * 200), self.path(str(n))) for n in range(80)])
        self.assertEqual(long.exception.errno, errno.E2BIG)

    def test_an_open_file_brings_what_python_has_buffered(self) -> None:
        fd = os.open(self.dir, os.O_TMPFILE | os.O_RDWR, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write("buffered")
            siftfs.publish([(file, self.path("named"))], level=siftfs.Level.ATOMIC)
            self.assertEqual(self.text("named"), "buffered")

    def test_all_or_none(self) -> None:
        self.put("a", "old")
        good = (self.put("a.tmp", "new"), self.path("a"))
        with self.assertRaises(FileNotFoundError):
            siftfs.publish([good, (self.path("absent"), self.path("b"))])
        with self.assertRaises(FileExistsError):
            siftfs.publish([good], replace=False)
        with self.assertRaises(OSError) as twice:
            siftfs.publish([good, good])
        self.assertEqual(twice.exception.errno, errno.EINVAL)
        self.assertEqual((self.text("a"), self.text("a.tmp")), ("old", "new"))

    def test_a_directory_may_be_named_by_a_link(self) -> None:
        os.mkdir(self.path("real"))
        os.symlink("real", self.path("link"))
        self.put("real/a.tmp", "a")
        siftfs.publish([(self.path("link/a.tmp"), self.path("link/a"))])
        self.assertEqual(self.text("real/a"), "a")

    def test_what_is_not_on_the_mount_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            siftfs.publish([])
        with self.assertRaises(ValueError):
            siftfs.publish([(self.put("a", "a"), self.path("b")), ("/etc/passwd", self.path("c"))])
        with tempfile.TemporaryDirectory(dir="/tmp") as elsewhere:
            source = os.path.join(elsewhere, "a")
            open(source, "w").close()
            with self.assertRaises(OSError) as other:
                siftfs.publish([(source, os.path.join(elsewhere, "b"))])
            self.assertIn(other.exception.errno, (errno.ENOTTY, errno.EINVAL))


if __name__ == "__main__":
    unittest.main()
