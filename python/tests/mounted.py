"""A directory on a real mount: ``SIFTFS_TEST_MOUNT`` is one of its directories."""

import os
import tempfile
import unittest


class Mounted(unittest.TestCase):
    def setUp(self) -> None:
        self.dir = tempfile.mkdtemp(dir=os.environ["SIFTFS_TEST_MOUNT"])

    def path(self, name: str) -> str:
        return os.path.join(self.dir, name)

    def put(self, name: str, text: str) -> str:
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def text(self, name: str) -> str:
        with open(self.path(name)) as file:
            return file.read()
