#!/usr/bin/env python3
"""LevelDB on a volume that a server has, over shared memory with both ends pinned apart, or on one in
its own process: puts and gets in random order, as in figures 3c and 3d of CompoundFS's paper, and
beyond it puts with a sync. bench.py DIR [--in-process] [--rounds N] [--bytes N] [--json], where DIR
is what `make` built.

Three ways, in turns within each round, each on a new volume:

  compound  LevelDB with checksum.patch: one compound computes a record's checksum and writes it
  joined    LevelDB as it is: the Env joins header and payload into one write
  single    one call for each call of LevelDB's, as the paper's DevFS-like system"""

import argparse
import contextlib
import functools
import json
import os
import statistics
import signal
import subprocess
import tempfile
import time

WAYS = {
    "compound": ("leveldb_work_patched", "compound"),
    "joined": ("leveldb_work", "compound"),
    "single": ("leveldb_work", "single"),
}
SIZES = [256, 1024, 4096]
PROGRAM, SERVER = 0, 1  # the processors of a served volume's two ends
# Of the project, for a served volume. The paper did not measure puts with a sync.
TARGETS = {"write": 1.25, "read": 0.95, "sync": None}


@contextlib.contextmanager
def reached(volume, served):
    """Where a program reaches the volume, and on which processors it runs."""
    if not served:
        yield volume, os.sched_getaffinity(0)
        return
    socket = f"{volume}.sock"
    words = [os.environ["SIFTFS"], "serve", volume, "--listen", f"unix:{socket}", "--cpus", str(SERVER)]
    with open(f"{volume}.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        while server.poll() is None and not os.path.exists(socket):
            time.sleep(0.01)
        yield f"unix:{socket}", {PROGRAM}
    finally:
        server.send_signal(signal.SIGTERM)
        if server.wait() != 0:
            with open(f"{volume}.log", encoding="utf-8") as log:
                raise SystemExit(f"the server did not end in order:\n{log.read()}")


def measure(directory, way, size, count, served):
    """What each act did per second, and microseconds of processor time for one, of all threads."""
    program, ops = WAYS[way]
    with tempfile.TemporaryDirectory() as work:
        volume = os.path.join(work, "volume")
        words = [os.environ["SIFTFS"], "mkfs", volume, "--size", "512M"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        with reached(volume, served) as (at, processors):
            words = [os.path.join(directory, program), "bench", at, ops, str(size), str(count)]
            pin = functools.partial(os.sched_setaffinity, 0, processors)
            ran = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=pin)
            out = ran.stdout
        found = list(map(float, out.split()))
        return dict(zip(TARGETS, zip(found[::2], found[1::2]), strict=True))


def spread(values):
    """Median and quartiles."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "quartiles": [low, high]}


def rows(directory, rounds, volume_bytes, served):
    """One row for each size and act: what each way did per second, and ratios round by round."""
    for size in SIZES:
        count = volume_bytes // (size + 16)
        seen = {way: [] for way in WAYS}
        for number in range(rounds):
            # Another one first each time.
            for way in sorted(WAYS, key=lambda way: (list(WAYS).index(way) + number) % len(WAYS)):
                seen[way].append(measure(directory, way, size, count, served))
        for act in TARGETS:
            per_second = {way: [run[act][0] for run in runs] for way, runs in seen.items()}
            processor = {way: [run[act][1] for run in runs] for way, runs in seen.items()}
            row = {"act": act, "value_bytes": size, "count": count, "target": TARGETS[act]}
            row["per_second"] = {way: spread(values) for way, values in per_second.items()}
            row["processor_us"] = {way: spread(values) for way, values in processor.items()}
            for way in ("compound", "joined"):
                pairs = zip(per_second[way], per_second["single"])
                row[f"{way}_to_single"] = spread([ours / theirs for ours, theirs in pairs])
            yield row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--in-process", action="store_true", help="no server: the volume is the program's own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=24 << 20, help="of keys and values, each run")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    found = []
    served = not words.in_process
    if not words.json:
        columns = [f"{way:>9}" for way in WAYS]
        print(f"{'':15}{'per second':>27} {'processor time, us':>27} {'to single, median (quartiles)':>38}")
        print(f"{'':15}{''.join(columns)} {''.join(columns)} {'compound':>19}{'joined':>19}  target")
    for row in rows(words.directory, words.rounds, words.bytes, served):
        found.append(row)
        if words.json:
            continue
        line = f"{row['act']:6}{row['value_bytes']:6} B "
        line += "".join(f"{row['per_second'][way]['median']:9.0f}" for way in WAYS) + " "
        line += "".join(f"{row['processor_us'][way]['median']:9.2f}" for way in WAYS) + " "
        for way in ("compound", "joined"):
            ratio = row[f"{way}_to_single"]
            low, high = ratio["quartiles"]
            text = f"{ratio['median']:.2f} ({low:.2f}-{high:.2f})"
            line += f"{text:>19}"
        print(f"{line}{row['target'] or '':>8}", flush=True)
    if words.json:
        print(json.dumps({"rounds": words.rounds, "served": served, "rows": found}, indent=2))
    elif served:
        print(f"Shared memory; program and server pinned to processors {PROGRAM} and {SERVER}.")
    else:
        print("In one process a compound saves no way to another one, and is expected to be no faster than\n"
              "single calls; the targets are those of a served volume.")


main()
