#!/usr/bin/env python3
"""Kills a program in the middle of synchronous puts, again and again on one volume, and looks for
every put that was acknowledged: crash.py PROGRAM OPS ROUNDS VOLUME [SEED].

The program and its words `put` and `check` are tests/leveldb_work.cc and tests/rocksdb_work.cc. An
acknowledgement is a number of eight bytes in a pipe, which outlives the program."""

import random
import signal
import subprocess
import sys
import time


def check(program, volume, ops, acknowledged):
    """How many numbers are in the database; ends with an error if one is missing."""
    words = [program, "check", volume, ops, str(acknowledged)]
    return int(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)


def main():
    program, ops, rounds, volume = sys.argv[1:5]
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 32)
    print(f"crash.py: {program} {ops}, seed {seed}", flush=True)
    draw = random.Random(seed)
    there, least = 0, 0
    for round_ in range(int(rounds)):
        words = [program, "put", volume, ops, str(there)]
        putting = subprocess.Popen(words, stdout=subprocess.PIPE)
        # The first one says that the database is open; then somewhere in the middle of its work.
        first = putting.stdout.read(8)
        if len(first) != 8:
            sys.exit("the program ended by itself")
        time.sleep(draw.uniform(0.0, 0.5))
        putting.send_signal(signal.SIGKILL)
        rest = putting.stdout.read()
        if putting.wait() != -signal.SIGKILL:
            sys.exit("the program ended by itself")
        acknowledged = there + 1 + len(rest) // 8
        least += acknowledged - there
        # The last one may have been on its way to the pipe.
        there = check(program, volume, ops, acknowledged)
    print(f"crash.py: {rounds} kills, {least} puts acknowledged, {there} there", flush=True)


main()
