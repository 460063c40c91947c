#!/usr/bin/env python3
"""Measures a directory with attributes by unjank beside os.scandir() and stat(), in turns, in one process.

usage: [dbus-run-session --] listing.py DIRECTORY [ROUNDS] [UNJANKD]
With the program unjankd there are rows of a directory that another client of the daemon shows: nobody reads it again.
Prints medians with the least and the most of each, and their ratios. What each finds is compared first.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import unjank
from unjank import Field


def scandir_stat(path: str) -> tuple[int, int]:
    count = total = 0
    for entry in os.scandir(path):
        count += 1
        total += entry.stat(follow_symlinks=False).st_size
    return count, total


def scandir_kept(path: str) -> tuple[int, int]:
    kept = []
    for entry in os.scandir(path):
        status = entry.stat(follow_symlinks=False)
        kept.append((entry.name, status.st_size, status.st_mtime_ns, status.st_mode, status.st_ino))
    return len(kept), sum(row[1] for row in kept)


def entries(path: str) -> tuple[int, int]:
    count = total = 0
    for entry in unjank.scandir(path):
        count += 1
        total += entry.size
    return count, total


def columns(path: str) -> tuple[int, int]:
    found = unjank.read_directory(path)
    return found.rows, sum(found.size)


def library(path: str) -> tuple[int, int]:
    """The listing without a value of Python for an entry: what the system calls and the library take."""
    count = 0
    with unjank.Listing(path) as listing:
        for event in listing.events():
            if event.type == unjank.EventType.DONE:
                count = len(event.ids)
        return count, sum(memoryview(listing._columns["size"]).cast("Q"))


def scandir_names(path: str) -> tuple[int, int]:
    return len([entry.name for entry in os.scandir(path)]), 0


def names(path: str) -> tuple[int, int]:
    return len(unjank.read_directory(path, Field.NONE).names), 0


def shared_columns(path: str) -> tuple[int, int]:
    with unjank.Listing(path, daemon=socket()) as listing:
        found = listing.read()
        return found.rows, sum(found.size)


def shared_entries(path: str) -> tuple[int, int]:
    count = total = 0
    for entry in unjank.Listing(path, daemon=socket()):
        count += 1
        total += entry.size
    return count, total


def socket() -> str:
    return os.path.join(os.environ["XDG_RUNTIME_DIR"], "unjank/listing.sock")


@contextlib.contextmanager
def daemon(program: str, path: str) -> Iterator[None]:
    """Runs the daemon, with a client that shows the directory."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_RUNTIME_DIR"] = os.environ["HOME"] = directory
        process = subprocess.Popen([program, "--names", "session"], stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket()):
                if process.poll() is not None:
                    raise SystemExit(f"{program} ended. hint: run this in dbus-run-session")
                time.sleep(0.02)
            with unjank.Listing(path, daemon=socket(), follow=True) as client:
                client.read()
                yield
        finally:
            process.terminate()
            process.wait()


SHARED: list[tuple[str, Callable[[str], tuple[int, int]]]] = [
    ("unjank.Listing, entries, shared", shared_entries),
    ("unjank.Listing, columns, shared", shared_columns),
]
ROWS: list[tuple[str, Callable[[str], tuple[int, int]]]] = [
    ("os.scandir + stat", scandir_stat),
    ("os.scandir + stat, five values kept", scandir_kept),
    ("unjank.scandir, entries", entries),
    ("unjank.read_directory, columns", columns),
    ("unjank.Listing, no values made", library),
    ("os.scandir, names alone", scandir_names),
    ("unjank.read_directory, names alone", names),
]


def main() -> None:
    if not 2 <= len(sys.argv) <= 4:
        raise SystemExit(__doc__)
    path, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 9
    if len(sys.argv) == 4:
        ROWS.extend(SHARED)
        with daemon(sys.argv[3], path):
            measure(path, rounds)
    else:
        measure(path, rounds)


def measure(path: str, rounds: int) -> None:
    found = {name: measured(path) for name, measured in ROWS}
    if len({count for count, _ in found.values()}) != 1 or len({total for _, total in found.values() if total}) > 1:
        raise SystemExit(f"they find different things: {found}")
    times: dict[str, list[float]] = {name: [] for name, _ in ROWS}
    for _ in range(rounds):
        for name, measured in ROWS:
            gc.collect()
            begun = time.perf_counter()
            measured(path)
            times[name].append((time.perf_counter() - begun) * 1e3)
    count = found[ROWS[0][0]][0]
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"{count} entries, {rounds} rounds in turns, Python {python}: median [least ... most]")
    for name, values in times.items():
        print(f"{name:38}{statistics.median(values):8.1f} ms [{min(values):.1f} ... {max(values):.1f}]")

    def ratio(ours: str, theirs: str) -> str:
        return f"1/{statistics.median(times[theirs]) / statistics.median(times[ours]):.2f}"

    for ours in (name for name, _ in ROWS if "unjank" in name and "names" not in name):
        beside = ratio(ours, "os.scandir + stat")
        print(f"{ours} / os.scandir + stat: {beside}; values kept: {ratio(ours, 'os.scandir + stat, five values kept')}")
    print(f"names alone: {ratio('unjank.read_directory, names alone', 'os.scandir, names alone')}")


if __name__ == "__main__":
    main()
