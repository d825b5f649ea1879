"""A volume that another process serves."""

import fcntl
import os
import threading
import unittest

import siftfs

ADDRESS = os.environ.get("SIFTFS_TEST_ADDRESS")


@unittest.skipIf(ADDRESS is None, "run with a server, by the tests of the command")
class Served(unittest.TestCase):
    def test_files(self) -> None:
        with siftfs.connect(ADDRESS) as volume, siftfs.connect(ADDRESS, "volume") as other:
            volume.mkdir("/d")
            with volume.create("/d/new", 0o600) as file:
                file.write(b"hello", 3)
                file.fdatasync()
                self.assertEqual(file.read(100, 0), b"\0\0\0hello")
                file.truncate(4)
                file.fsync()
            with other.open("/d/new") as file, volume.open("/d/new") as locked:
                self.assertEqual(file.read(100, 2), b"\0h")
                locked.flock(fcntl.LOCK_EX)
                with self.assertRaises(BlockingIOError):
                    file.flock(fcntl.LOCK_SH | fcntl.LOCK_NB)
                locked.close()
                file.flock(fcntl.LOCK_SH)
            volume.link("/d/new", "/d/second")
            with self.assertRaises(FileExistsError):
                volume.rename("/d/new", "/d/second")
            volume.create("/d/third").close()
            volume.replace("/d/third", "/d/second")
            volume.sync_dir("/d")
            names = sorted(name for name, _, is_directory in other.list("/d") if not is_directory)
            self.assertEqual(names, ["new", "second"])
            self.assertEqual([(n, d) for n, _, d in other.list("/") if n == "d"], [("d", True)])
            for name in names:
                other.unlink(f"/d/{name}")
            volume.rmdir("/d")
            volume.sync()

    def test_errors(self) -> None:
        with self.assertRaisesRegex(ConnectionRefusedError, "no volume is called"):
            siftfs.connect(ADDRESS, "another")
        with self.assertRaisesRegex(ConnectionRefusedError, "nobody listens"):
            siftfs.connect("unix:/nowhere")
        with self.assertRaisesRegex(ConnectionRefusedError, "say soft"):
            siftfs.connect(ADDRESS, options="timeo=5")
        siftfs.connect(ADDRESS, options="soft,timeo=5").close()
        siftfs.connect(ADDRESS, options="once").close()
        volume = siftfs.connect(ADDRESS)
        with self.assertRaises(FileNotFoundError) as told:
            volume.open("/absent")
        self.assertEqual(told.exception.filename, "/absent")
        file = volume.create("/open")
        volume.close()
        volume.close()
        for use in (lambda: file.read(1, 0), lambda: volume.sync(), lambda: volume.open("/open")):
            self.assertRaises(ValueError, use)

    def test_threads(self) -> None:
        with siftfs.connect(ADDRESS) as volume, volume.create("/threads") as file:

            def writes(number: int) -> None:
                for _ in range(20):
                    file.write(bytes([number]) * 100, number * 100)
                    file.fdatasync()

            threads = [threading.Thread(target=writes, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(file.read(1000, 0), b"".join(bytes([n]) * 100 for n in range(8)))


if __name__ == "__main__":
    unittest.main()
