"""An OpenTelemetry Collector that is stopped in the middle of a stream: every hang comes through it once, and sums of them beside.

collector.py DIR COLLECTOR [SECONDS]: DIR has the programs (target/release), COLLECTOR is a Collector with otlpreceiver and
otlphttpexporter, SECONDS is how long it is stopped. Everything is on the loopback interface.
"""

import collections
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
programs, collector = sys.argv[1], sys.argv[2]
outage = float(sys.argv[3]) if len(sys.argv) > 3 else 60
home = tempfile.mkdtemp(prefix="unjank-collector.")
started = []


def start(*command, **options):
    process = subprocess.Popen(command, **options)
    started.append(process)
    return process


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def taken():
    """How often each hang has come."""
    with open(home + "/taken") as lines:
        return collections.Counter(line.split()[0] for line in lines)


try:
    sink = start(sys.executable, HERE + "/receiver.py", home + "/taken", stdout=subprocess.PIPE, text=True)
    sink_port = int(sink.stdout.readline())
    port = free_port()
    # Without a queue the Collector answers once the records are where they go: what it has acknowledged is not lost with it.
    with open(home + "/collector.yaml", "w") as config:
        config.write(f"""
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  otlphttp: {{endpoint: "http://127.0.0.1:{sink_port}", sending_queue: {{enabled: false}}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}
  pipelines:
    logs: {{receivers: [otlp], exporters: [otlphttp]}}
    metrics: {{receivers: [otlp], exporters: [otlphttp]}}
""")

    def start_collector():
        return start(collector, "--config", home + "/collector.yaml")

    running = start_collector()
    seconds = int(outage + 40)
    recorder = start(
        programs + "/simulate-fleet", "--to", home + "/store", "--record-for", str(seconds),
        stdout=subprocess.PIPE, text=True,
    )
    while not os.path.isdir(home + "/store"):
        time.sleep(0.1)
    environment = dict(os.environ, XDG_STATE_HOME=home + "/state")
    export = [programs + "/unjank-export", "--machine", "desk-1", "--store", home + "/store"]
    export += ["otlp", "--to", f"http://127.0.0.1:{port}"]
    follower = start(*export, "--follow", "--metrics", env=environment, stdout=subprocess.DEVNULL)
    time.sleep(12)
    before = len(taken())
    running.terminate()
    running.wait()
    time.sleep(outage / 2)
    # Its sender is killed in the middle of the outage, too.
    follower.send_signal(signal.SIGKILL)
    follower.wait()
    follower = start(*export, "--follow", "--metrics", env=environment, stdout=subprocess.DEVNULL)
    time.sleep(outage / 2)
    during = len(taken())
    running = start_collector()
    total = int(recorder.stdout.read().split()[0])
    limit = time.monotonic() + 90
    while len(taken()) < total and time.monotonic() < limit:
        time.sleep(0.5)
    counts = taken()
    twice = sum(count > 1 for count in counts.values())
    print(f"{total} hangs: {before} before the stop, {during} at its end, {len(counts)} in all, {twice} twice")
    assert 0 < before <= during < total and len(counts) == total and twice == 0
    # Sums go beside, through the outage and to another sender, which counts the same.
    follower.kill()
    follower.wait()
    subprocess.run([*export, "--metrics"], env=environment, check=True, stdout=subprocess.DEVNULL)
    with open(home + "/taken.metrics") as lines:
        sums = [int(line) for line in lines]
    print("sums of hangs:", *sums)
    assert len(sums) >= 2 and sums == sorted(sums) and sums[-1] == total, sums
finally:
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
    shutil.rmtree(home)
