"""What `openmetrics --print` prints is what the parser of Prometheus' own library takes.

metrics.py PROGRAMS: PROGRAMS is target/release.
"""

import subprocess
import sys
import tempfile

from prometheus_client.openmetrics.parser import text_string_to_metric_families

programs = sys.argv[1]
with tempfile.TemporaryDirectory() as home:
    store = home + "/store"
    subprocess.run([programs + "/simulate-fleet", "--to", store, "--record-for", "2"], check=True, stdout=subprocess.DEVNULL)
    command = [programs + "/unjank-export", "--machine", "desk-1", "--store", store, "openmetrics", "--print"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
families = {family.name: family for family in text_string_to_metric_families(text)}
assert sum(sample.value for sample in families["unjank_hangs"].samples) == 40
print(", ".join(f"{name} ({family.type})" for name, family in families.items()))
