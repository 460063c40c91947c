"""Hangs and metrics through a Collector into ClickHouse, by the configuration of docs/fleet.md: each hang is there once, also after
ClickHouse took none for a while, and the questions of clickhouse-otlp-questions.sql are answered.

clickhouse.py PROGRAMS COLLECTOR: PROGRAMS is target/release, COLLECTOR has otlpreceiver and clickhouseexporter. ClickHouse is its
engine embedded behind a server of this test (clickhouse_server.py). Two things of the configuration are others than there: the
addresses, and nothing is compressed on the way to ClickHouse.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from clickhouse_server import Engine, serve
from sql import SQL, questions, statements

programs, collector = sys.argv[1], sys.argv[2]
home = tempfile.mkdtemp(prefix="unjank-clickhouse.")
engine = Engine()
server = serve(engine)


def configuration(port):
    """What docs/fleet.md has, with addresses of this test."""
    with open(os.path.join(SQL, "..", "..", "docs", "fleet.md")) as page:
        text = re.search(r"```yaml\n(.*?)```", page.read(), re.S)[1]
    address = f"http://127.0.0.1:{server.server_port}?compress=none"
    text, count = re.subn(r"endpoint: tcp://\S+", f'endpoint: "{address}"', text)
    assert count == 1 and text.count("127.0.0.1:4318") == 1, text
    text = text.replace("127.0.0.1:4318", f"127.0.0.1:{port}")
    return text + "  telemetry: {metrics: {level: none}, logs: {level: warn}}\n"


def record(store):
    command = [programs + "/simulate-fleet", "--to", store, "--record-for", "2"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(said.split()[0])


def export(machine, *facts):
    command = [programs + "/unjank-export", "--machine", machine, "--store", f"{home}/{machine}"]
    command += ["otlp", "--metrics", "--to", f"http://127.0.0.1:{port}"]
    for fact in facts:
        command += ["--fact", fact]
    environment = dict(os.environ, XDG_STATE_HOME=home + "/state")
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def taken():
    uid = "LogAttributes['log.record.uid']"
    return tuple(map(int, engine.rows(f"SELECT count(), uniqExact({uid}) FROM default.hangs")[0]))


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
with open(home + "/collector.yaml", "w") as file:
    file.write(configuration(port))
log = open(home + "/log", "w+")
running = subprocess.Popen([collector, "--config", home + "/collector.yaml"], stderr=log)
try:
    limit = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            assert running.poll() is None and time.monotonic() < limit, "the Collector has not started"
            time.sleep(0.1)
    machines = {"desk-1": "Some SSD", "desk-2": "SLOWDISK 500"}
    total = 0
    for version in ["43.2-1", "44.0-1"]:
        for machine, model in machines.items():
            total += record(f"{home}/{machine}")
            facts = [f"nautilus={version}", f"disk:nvme0n1p2={model}"]
            if (version, machine) == ("44.0-1", "desk-2"):
                engine.is_away = True
                failed = export(machine, *facts)
                assert failed.returncode == 2 and "it answers 503" in failed.stderr, failed
                engine.is_away = False
            done = export(machine, *facts)
            assert done.returncode == 0, done
    print(f"{total} hangs sent, {taken()[0]} in ClickHouse, {taken()[1]} different ones")
    assert taken() == (total, total)
    names = {row[0] for row in engine.rows("SELECT DISTINCT EventName FROM default.hangs")}
    assert names <= {"app.jank", "device.anr"} and names, names
    sums = engine.rows("SELECT DISTINCT MetricName FROM default.otel_metrics_sum")
    sums = {row[0] for row in sums}
    assert {"unjank_hangs_total", "unjank_watched_seconds_total"} <= sums, sums
    if os.path.exists("/proc/pressure/io"):
        assert "node_pressure_io_stalled_seconds_total" in sums, sums
    answers = {}
    for number, question in questions("clickhouse-otlp-questions.sql").items():
        answers[number] = engine.rows(statements(question)[0])
        print(question.split("\n")[0][3:], answers[number][:3])
        assert answers[number], number
    assert {row[0] for row in answers[2]} == {"43.2-1", "44.0-1"}, answers[2]
    counted = engine.rows("SELECT count() FROM default.hangs WHERE LogAttributes['process.executable.name'] = 'nautilus'")
    assert sum(int(row[1]) for row in answers[2]) == int(counted[0][0]) > 0, answers[2]
    # Two seconds for each program of each recording, and what a busy machine takes longer.
    assert all(row[3] > 0 and 2 / 3600 * 2 <= row[2] < 1 for row in answers[2]), answers[2]
    assert sorted(row[0] for row in answers[3]) == sorted(machines.values()), answers[3]

    # Points of a machine: when the sum began, when it was taken, its value. Each line adds to the hours, or adds nothing.
    points = [
        (100, 1000, 3600),  # 1 hour
        (100, 2000, 7200),  # 1 hour
        (2000, 3000, 1800),  # records were erased, and what came since is 1/2 hour
        (2000, 3000, 1800),  # it came twice
        (2000, 4000, 5400),  # 1 hour
        (100, 5000, 9000),  # a new run counts again what is stored
        (100, 6000, 12600),  # 1 hour
        (900, 7000, 10800),  # the store has dropped more than came
        (900, 8000, 14400),  # 1 hour
        (950, 9000, 16200),  # the store has dropped less than came: 1/2 hour at least
    ]
    for start, at, value in points:
        engine.query(f"""INSERT INTO default.otel_metrics_sum
            (ResourceAttributes, MetricName, Attributes, StartTimeUnix, TimeUnix, Value) VALUES
            (map('service.instance.id', 'desk-3', 'unjank.fact.nautilus', '45.0-1'), 'unjank_watched_seconds_total',
            map('program', 'nautilus'), fromUnixTimestamp64Nano(toInt64({start}) * 1000000000),
            fromUnixTimestamp64Nano(toInt64({at}) * 1000000000), {value})""")
    rows = engine.rows(statements(questions("clickhouse-otlp-questions.sql")[2])[0])
    hours = {row[0]: row[2] for row in rows}["45.0-1"]
    assert abs(hours - 6) < 1e-6, hours
except BaseException:
    log.seek(0)
    print(log.read()[-4000:], file=sys.stderr)
    raise
finally:
    running.terminate()
    running.wait()
    server.shutdown()
    shutil.rmtree(home)
