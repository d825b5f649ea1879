"""Atomic sections on a real mount."""

import errno
import os
import unittest

import siftfs
from mounted import Mounted


class Atomic(Mounted):
    def test_the_block_is_the_section(self) -> None:
        for durable in (True, False):
            with open(self.put("f", "old old old"), "r+") as file:
                with siftfs.atomic(file, durable=durable):
                    file.write("new")
                    file.seek(8)
                    file.write("new")
                    file.flush()
                    file.seek(0)
                    self.assertEqual(file.read(), "new old new")
                self.assertEqual(self.text("f"), "new old new")

    def test_an_exception_leaves_nothing(self) -> None:
        for buffering in (-1, 0):
            path = self.put("f", "old old old")
            with open(path, "r+b", buffering=buffering) as file:
                with self.assertRaises(ZeroDivisionError):
                    with siftfs.atomic(file):
                        file.write(b"in Python's buffer, or not")
                        1 / 0
                self.assertEqual(self.text("f"), "old old old")
                file.seek(0)
                self.assertEqual(file.read(), b"old old old")
                with siftfs.atomic(file):
                    file.seek(0)
                    file.write(b"new")
            self.assertEqual(self.text("f"), "new old old", f"after the close, {buffering}")

    def test_what_was_written_before_is_no_part_of_it(self) -> None:
        with open(self.put("f", "old old old"), "r+") as file:
            file.write("was")
            with self.assertRaises(ZeroDivisionError):
                with siftfs.atomic(file):
                    file.write("lost")
                    1 / 0
        self.assertEqual(self.text("f"), "was old old")

    def test_several_files(self) -> None:
        fds = [os.open(self.put(name, "old"), os.O_RDWR) for name in "ab"]
        with siftfs.atomic(*fds):
            for fd in fds:
                os.pwrite(fd, b"new", 0)
        with self.assertRaises(OSError) as canceled:
            with siftfs.atomic(*fds):
                for fd in fds:
                    os.pwrite(fd, b"bad", 0)
                os.truncate(self.path("b"), 3)
        self.assertEqual(canceled.exception.errno, errno.ECANCELED)
        self.assertEqual((self.text("a"), self.text("b")), ("new", "new"))
        # The first section is not left behind by the second that cannot start.
        with self.assertRaises(OSError) as busy:
            with siftfs.atomic(fds[0], fds[0]):
                self.fail("a file has one section")
        self.assertEqual(busy.exception.errno, errno.EBUSY)
        with siftfs.atomic(fds[0]):
            pass
        for fd in fds:
            os.close(fd)

    def test_what_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            with siftfs.atomic():
                pass
        with open(self.put("f", "old")) as reader:
            with self.assertRaises(OSError) as refused:
                with siftfs.atomic(reader):
                    pass
        self.assertEqual(refused.exception.errno, errno.EBADF)
        with open("/dev/null", "r+b", buffering=0) as other:
            with self.assertRaises(OSError) as refused:
                with siftfs.atomic(other):
                    pass
        self.assertEqual(refused.exception.errno, errno.ENOTTY)
        file = open(self.path("f"), "r+")
        with self.assertRaises(ValueError):
            with siftfs.atomic(file):
                file.write("lost")
                file.close()
        self.assertEqual(self.text("f"), "old")

    def test_more_than_a_section_takes(self) -> None:
        path = self.put("f", "old")
        file = open(path, "r+b", buffering=1 << 16)
        with self.assertRaises(OSError) as full:
            with siftfs.atomic(file):
                for _ in range(1 << 10):
                    file.write(bytes(1 << 16))
        self.assertEqual(full.exception.errno, errno.EFBIG)
        try:
            file.close()
        except OSError:
            pass
        self.assertEqual(self.text("f"), "old")


if __name__ == "__main__":
    unittest.main()
