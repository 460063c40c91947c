"""The views and the twelve questions over a simulated fleet, with DuckDB.

lake.py PROGRAMS [--machines N] [--days N] [--hangs N] [--dir DIR] [--limits]: PROGRAMS is target/release. The defaults are a
small fleet. --limits fails where a question takes over 2 s on 2 threads, or a hang over 60 bytes: for the full fleet, which is
--machines 1000 --days 30 --hangs 303, ten million hangs.
"""

import argparse
import glob
import os
import shutil
import subprocess
import tempfile
import time

import duckdb

from sql import questions, read

parser = argparse.ArgumentParser()
parser.add_argument("programs")
parser.add_argument("--machines", type=int, default=60)
parser.add_argument("--days", type=int, default=15)
parser.add_argument("--hangs", type=int, default=60)
parser.add_argument("--dir")
parser.add_argument("--limits", action="store_true")
options = parser.parse_args()
PROGRAMS = os.path.abspath(options.programs)


def size(folder):
    files = glob.glob(folder + "/**", recursive=True)
    return sum(os.path.getsize(file) for file in files if os.path.isfile(file))


def simulate(inbox):
    """Runs two simulators, a half of the machines each."""
    half = options.machines // 2
    runs = [
        subprocess.Popen(
            [PROGRAMS + "/simulate-fleet", "--to", inbox, "--first", str(first), "--last", str(last)]
            + ["--days", str(options.days), "--hangs", str(options.hangs)],
            stdout=subprocess.PIPE, text=True,
        )
        for first, last in [(0, half), (half, options.machines)]
    ]
    return sum(int(run.communicate()[0].split()[0]) for run in runs)


def merge(connection):
    for folder in sorted(glob.glob("inbox/hangs/day=*")):
        connection.execute(f"SET VARIABLE day = '{folder[-10:]}'")
        connection.execute(read("merge.sql"))
    connection.execute(read("merge-stacks.sql"))
    connection.execute(read("merge-facts.sql"))


def ask(directory):
    """Returns the rows of each question and the longest of three times that it took."""
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    connection.execute(f"SET file_search_path = '{directory}'")
    connection.execute(read("views.sql"))
    connection.execute(read("facts.sql"))
    answers = {}
    for number, text in questions().items():
        times = []
        for _ in range(3):
            begin = time.monotonic()
            rows = connection.execute(text).fetchall()
            times.append(time.monotonic() - begin)
        answers[number] = (rows, max(times), text.split("\n")[0][3:])
    hangs = connection.execute("SELECT count(*), count(DISTINCT id) FROM hangs").fetchone()
    # Questions that add up groups of groups count each hang once: the simplest query counts the same.
    of_file = "SELECT count(*) FROM hangs WHERE object_kind = 'file' AND object LIKE ?"
    file, count = answers[7][0][0][:2]
    assert connection.execute(of_file, [file.replace("~", "/home/%")]).fetchone()[0] == count, file
    module, count = answers[4][0][0][:2]
    of_module = "SELECT count(*) FROM hangs WHERE module = ?"
    assert connection.execute(of_module, [module]).fetchone()[0] == count, module
    assert sum(row[1] for row in answers[6][0]) == sum(row[1] for row in answers[12][0]) == hangs[0]
    assert sum(row[1] for row in answers[10][0]) == sum(row[1] for row in answers[1][0]) == hangs[0]
    return answers, hangs


base = tempfile.mkdtemp(prefix="unjank-lake.", dir=options.dir)
try:
    os.chdir(base)
    total = simulate("inbox")
    os.makedirs("lake/stacks")
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    begin = time.monotonic()
    merge(connection)
    print(f"{total} hangs of {options.machines} machines, merged in {time.monotonic() - begin:.1f} s")
    if total < 1_000_000:
        merge(connection)
    answers, hangs = ask(base + "/lake")
    assert hangs == (total, total), hangs
    sizes = {name: size("lake/" + name) / total for name in ["hangs", "stacks", "watched", "facts"]}
    each = sum(sizes.values())
    print(f"{each:.1f} bytes a hang:", ", ".join(f"{name} {value:.2f}" for name, value in sizes.items()))
    print(f"before they are merged: {size('inbox') / total:.1f}")
    for number, (rows, longest, title) in answers.items():
        print(f"{longest:5.2f} s  {title}  {rows[0]}")
        assert rows, title
    # What the simulation planted is what is found.
    assert answers[2][0][0][:3] == ("nautilus", "43.2-1", "44.0-1"), answers[2][0]
    assert 3 < answers[2][0][0][6] < 5, answers[2][0]
    assert answers[3][0][0][0] == "SLOWDISK 500", answers[3][0]
    assert "libplanted.so.1" in [row[0] for row in answers[4][0]]
    assert answers[7][0][0][0] == "~/.local/share/recently-used.xbel", answers[7][0]
    if total < 1_000_000:
        # The files of the machines answer the same before they are merged.
        unmerged, same = ask(base + "/inbox")
        assert same == hangs
        for number in [1, 2, 6, 10]:
            assert sorted(unmerged[number][0]) == sorted(answers[number][0]), number
    if options.limits:
        assert each <= 60, each
        slow = [title for _, longest, title in answers.values() if longest > 2]
        assert not slow, slow
finally:
    shutil.rmtree(base)
