"""Tickets on a real mount."""

import asyncio
import errno
import os
import time
import unittest
import warnings
from typing import List

import siftfs
from mounted import Mounted


class Tickets(Mounted):
    def test_it_becomes_durable(self) -> None:
        with open(self.path("f"), "w") as file:
            file.write("buffered")
            ticket = siftfs.stage(file)
            self.assertEqual(os.stat(self.path("f")).st_size, 8)
            while not ticket.poll():
                time.sleep(0.001)
            file.write("more")
            last = siftfs.stage(file)
            last.wait(timeout=60)
            last.wait()
            self.assertTrue(last.poll() and ticket.poll())
            siftfs.barrier(file).wait()

    def test_it_outlives_its_file(self) -> None:
        with open(self.path("f"), "w") as file:
            file.write("bytes")
            ticket = siftfs.stage(file)
        os.unlink(self.path("f"))
        ticket.wait()
        fd = os.open(self.dir, os.O_RDONLY)
        ticket = siftfs.stage(fd)
        os.close(fd)
        ticket.wait()

    def test_it_takes_no_section_away(self) -> None:
        with open(self.put("f", "old"), "r+") as file:
            with siftfs.atomic(file):
                file.write("new")
                siftfs.stage(file).wait()
        self.assertEqual(self.text("f"), "new")

    def test_a_time_that_is_over(self) -> None:
        with open(self.path("f"), "w") as file:
            late = 0
            for _ in range(100):
                file.write("bytes")
                try:
                    siftfs.stage(file).wait(0)
                except TimeoutError:
                    late += 1
            self.assertGreater(late, 0)
            siftfs.barrier(file).wait(timeout=60)

    def test_coroutines_wait_and_the_loop_goes_on(self) -> None:
        async def many() -> int:
            tickets: List[siftfs.Ticket] = []
            turns = 0

            async def turn() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            other = asyncio.ensure_future(turn())
            with open(self.path("f"), "wb", buffering=0) as file:
                for number in range(200):
                    file.write(bytes([number]))
                    tickets.append(siftfs.stage(file))
            await asyncio.gather(*tickets)
            await asyncio.wait_for(tickets[0], 60)
            other.cancel()
            self.assertTrue(all(ticket.poll() for ticket in tickets))
            return turns

        self.assertGreater(asyncio.run(many()), 0)
        # Each event loop is served, and so is a child.
        asyncio.run(many())
        with warnings.catch_warnings():
            # Newer Pythons warn of threads, which is what this is about.
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            try:
                asyncio.run(many())
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_elsewhere(self) -> None:
        with open("/dev/null") as other:
            for draw in (siftfs.stage, siftfs.barrier):
                with self.assertRaises(OSError) as refused:
                    draw(other)
                self.assertEqual(refused.exception.errno, errno.ENOTTY)
        with open(self.path("f"), "w") as file:
            pass
        with self.assertRaises(ValueError):
            siftfs.stage(file)


if __name__ == "__main__":
    unittest.main()
