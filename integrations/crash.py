#!/usr/bin/env python3
"""Kills a program in the middle of synchronous puts, again and again on one volume, and looks for
every put that was acknowledged: crash.py PROGRAM OPS ROUNDS VOLUME [--server LISTEN [--told]] [--seed N].

With a server of the volume, which listens there, that is killed first, in the middle of the puts:
the program waits, and goes on with the next server.

The program and its words `put` and `check` are tests/leveldb_work.cc and tests/rocksdb_work.cc. An
acknowledgement is a number of eight bytes in a pipe, which outlives the program."""

import argparse
import os
import random
import signal
import subprocess
import sys
import time


def check(program, volume, ops, acknowledged):
    """How many numbers are in the database; ends with an error if one is missing."""
    words = [program, "check", volume, ops, str(acknowledged)]
    return int(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)


class Server:
    """A process that serves the volume."""

    def __init__(self, volume, listen):
        self.words = [os.environ["SIFTFS"], "serve", volume, "--listen", listen]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        # It says where it listens when it does.
        if not self.process.stdout.readline():
            sys.exit("the server ended by itself")

    def end(self, how):
        self.process.send_signal(how)
        self.process.stdout.close()
        return self.process.wait()


def puts_go_on(server, putting, draw, told):
    """Kills the server, and waits for a put that another one has acknowledged. What was acknowledged
    since the first one, and whether the program goes on: with `told` it may have failed instead."""
    time.sleep(draw.uniform(0.0, 0.5))
    server.end(signal.SIGKILL)
    server.start()
    # More than a pipe has: what was acknowledged by the first one is read before.
    there = len(putting.stdout.read1(1 << 20))
    more = putting.stdout.read(8)
    if len(more) == 8:
        return there + len(more), True
    if not told or putting.wait() <= 0:
        sys.exit("the program did not go on with another server")
    return there, False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("ops")
    parser.add_argument("rounds", type=int)
    parser.add_argument("volume")
    parser.add_argument("--server", metavar="LISTEN", help="kill a server that listens there, too")
    parser.add_argument("--told", action="store_true", help="its death may be an error of a put")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    program, ops, volume = given.program, given.ops, given.volume
    print(f"crash.py: {program} {ops}, seed {given.seed}", flush=True)
    draw = random.Random(given.seed)
    server = Server(volume, given.server) if given.server else None
    volume = given.server or volume
    there, least = 0, 0
    for _ in range(given.rounds):
        words = [program, "put", volume, ops, str(there)]
        putting = subprocess.Popen(words, stdout=subprocess.PIPE)
        # The first one says that the database is open; then somewhere in the middle of its work.
        first = putting.stdout.read(8)
        if len(first) != 8:
            sys.exit("the program ended by itself")
        before, goes_on = puts_go_on(server, putting, draw, given.told) if server else (0, True)
        rest = b""
        if goes_on:
            time.sleep(draw.uniform(0.0, 0.5))
            putting.send_signal(signal.SIGKILL)
            rest = putting.stdout.read()
            if putting.wait() != -signal.SIGKILL:
                sys.exit("the program ended by itself")
        acknowledged = there + 1 + (before + len(rest)) // 8
        least += acknowledged - there
        # The last one may have been on its way to the pipe.
        there = check(program, volume, ops, acknowledged)
    if server and server.end(signal.SIGTERM) != 0:
        sys.exit("the server did not end in order")
    print(f"crash.py: {given.rounds} kills, {least} puts acknowledged, {there} there", flush=True)


main()
