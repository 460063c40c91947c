"""The profile and the trace of a made-up store, read by pprof itself and by Perfetto's own messages.

profiles.py PROGRAMS: PROGRAMS is target/release. Needs go, whose distribution has pprof, and the package perfetto of PyPI.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    programs = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        store = place / "store"
        run(str(programs / "simulate-fleet"), "--to", str(store), "--record-for", "2")
        files = {}
        for kind in ("pprof", "perfetto"):
            files[kind] = str(place / f"hangs.{kind}")
            said = run(str(programs / "unjank-export"), "--store", str(store), kind, "-o", files[kind])
            count = int(said.split()[0])
        assert count == 40, said
        check_pprof(files["pprof"], count)
        check_perfetto(files["perfetto"], count)
    print("profiles: all passed")


def check_pprof(file, count):
    if not shutil.which("go"):
        sys.exit("profiles: the test of pprof needs go")
    top = run("go", "tool", "pprof", "-sample_index=hangs", "-nodecount=100000", "-nodefraction=0", "-top", file)
    total = int(re.search(r"of (\d+) total", top).group(1))
    assert total == count, (total, count)
    raw = run("go", "tool", "pprof", "-raw", file)
    assert "hangs/count length/nanoseconds[dflt] off_processor/nanoseconds" in raw, raw[:400]
    assert "cause:" in raw and "program:" in raw
    print(f"pprof: {count} hangs")


def check_perfetto(file, count):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

    trace = perfetto.Trace()
    trace.ParseFromString(pathlib.Path(file).read_bytes())
    tracks, open_slices, begun = {}, {}, 0
    # Without a snapshot that names it, the trace would be in the time since the start of the machine.
    assert trace.packet[0].clock_snapshot.primary_trace_clock == 1, trace.packet[0]
    for packet in trace.packet[1:]:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.process.process_name
            continue
        event = packet.track_event
        assert packet.timestamp_clock_id == 1 and event.track_uuid in tracks
        if event.type == perfetto.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in open_slices, "hangs of one process overlap"
            assert event.name and [note.name for note in event.debug_annotations][:2] == ["hang", "cause"]
            open_slices[event.track_uuid] = packet.timestamp
            begun += 1
        else:
            assert packet.timestamp >= open_slices.pop(event.track_uuid)
    assert begun == count and not open_slices and all(tracks.values()), (begun, count)
    print(f"perfetto: {begun} hangs of {len(tracks)} processes")


main()
