"""Compounds on a real mount."""

import errno
import os
import unittest

import siftfs
from mounted import Mounted


class Compound(Mounted):
    def test_steps_use_results(self) -> None:
        self.put("ledger", "0123456789")
        steps = siftfs.Compound(self.dir)
        with open(self.path("ledger"), "r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(b"buffered")
            found = steps.read(file, 2, 4)
            sums = steps.create("sums", 0o600)
            total = steps.checksum(siftfs.Checksum.XXH3, found)
            where = steps.append(sums, total)
            frame = steps.compress(siftfs.Codec.LZ4, found)
            again = steps.decompress(siftfs.Codec.LZ4, frame, 100)
            old = steps.patch(file, 0, steps.join(again.part(1, 1), again.part(2, 1)))
            before = steps.add(sums, 0, 1)
            steps.compare_and_set(file, 8, b"89", bytearray(b"xy"))
            steps.write(file, found, b"w")
            end = steps.append(file, b"!")
            steps.set_attributes(file, mode=0o640, mtime_ns=7_000_000_005, atime_ns=-1)
            steps.want(found, total, where, again, old, before, end, sums)
            results = steps.run()
        self.assertEqual((results.bytes(found), results.bytes(again)), (b"2345", b"2345"))
        self.assertEqual((results.bytes(old), results.number(where)), (b"01", 0))
        self.assertEqual(results.number(before), results.number(total))
        self.assertEqual(results.number(end), 18)
        self.assertEqual(results.number(sums), os.stat(self.path("sums")).st_ino)
        self.assertEqual(self.text("ledger"), "3423w567xybuffered!")
        status = os.stat(self.path("ledger"))
        self.assertEqual((status.st_mode & 0o777, status.st_mtime_ns), (0o640, 7_000_000_005))
        with self.assertRaises(KeyError):
            results.bytes(frame)

    def test_names(self) -> None:
        for name in ("a", "b", "c"):
            self.put(name, name)
        steps = siftfs.Compound(self.dir)
        found = steps.lookup("a")
        steps.link(found, "d")
        steps.rename("a", "b")
        steps.unlink("c")
        emptied = steps.open("d", os.O_RDWR | os.O_TRUNC)
        steps.set_size(emptied, 3)
        steps.close(emptied)
        steps.run(siftfs.Level.VISIBLE)
        self.assertEqual(sorted(os.listdir(self.dir)), ["b", "d"])
        self.assertEqual(self.text("b"), "\0\0\0")

    def test_all_or_none(self) -> None:
        self.put("a", "old")
        steps = siftfs.Compound(os.fsencode(self.dir))
        steps.write(steps.open("a"), 0, b"new")
        steps.create("b")
        steps.rename("absent", "c")
        with self.assertRaises(siftfs.RefusedError) as refused:
            steps.run()
        self.assertEqual((refused.exception.step, refused.exception.errno), (3, errno.ENOENT))
        self.assertEqual((self.text("a"), os.listdir(self.dir)), ("old", ["a"]))

    def test_what_is_too_much(self) -> None:
        with open(self.path("f"), "w+b") as file:
            file.write(bytes(40_000))
            for build, expected in (
                (lambda s: s.want(s.read(file, 0, 40_000)), errno.EMSGSIZE),
                (lambda s: s.append(file, bytes(16_384)), errno.E2BIG),
                (lambda s: None, errno.EINVAL),
            ):
                steps = siftfs.Compound(self.dir)
                build(steps)
                with self.assertRaises(OSError) as failed:
                    steps.run()
                self.assertEqual(failed.exception.errno, expected)
            steps = siftfs.Compound(self.dir)
            whole = steps.read(file, 0, 40_000)
            with self.assertRaises(ValueError):
                siftfs.Compound(self.dir).append(file, whole)
            steps.want(steps.checksum(siftfs.Checksum.CRC32C, whole))
            steps.run(siftfs.Level.VISIBLE)

    def test_not_on_a_mount(self) -> None:
        steps = siftfs.Compound("/")
        steps.lookup("etc")
        with self.assertRaises(OSError) as failed:
            steps.run()
        self.assertIn(failed.exception.errno, (errno.ENOTTY, errno.EINVAL))


if __name__ == "__main__":
    unittest.main()
