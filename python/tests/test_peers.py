"""Beside PyGObject: settings through Gio.Settings, values through GLib.Variant, recent documents through GTK."""

import os
import subprocess
import sys
import unittest

from session import SessionTest, need


def python_with_gi() -> str:
    """Returns a Python that has PyGObject: often that of the system alone."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            code = "import gi; gi.require_version('Gtk', '3.0')"
            if subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0:
                return python
        except OSError:
            continue
    if os.environ.get("REQUIRE_ALL"):
        raise AssertionError("python3-gi and gir1.2-gtk-3.0 are needed")
    raise unittest.SkipTest("python3-gi and gir1.2-gtk-3.0 are needed")


class PeersTest(SessionTest):
    bus = True

    def setUp(self) -> None:
        self.python = python_with_gi()
        super().setUp()

    def test_gio_settings_and_ours_agree(self) -> None:
        need("dconf")
        said = self.run_python(
            """
import os
os.environ["GSETTINGS_BACKEND"] = "dconf"
from gi.repository import Gio, GLib
import unjank
source = Gio.SettingsSchemaSource.get_default()
schema = source.lookup("org.gnome.desktop.interface", False)
gio = Gio.Settings.new("org.gnome.desktop.interface")
assert type(gio.props.backend).__name__ in ("DConfSettingsBackend", "__gi__.DConfSettingsBackend"), gio.props.backend
path = schema.get_path()
ours = unjank.Settings(); ours.write_timeout = 100
ours.watch(path)
keys = schema.list_keys()
for key in keys:
    gio.set_value(key, schema.get_key(key).get_default_value())
Gio.Settings.sync()
for key in keys:
    value = gio.get_value(key)
    found = ours.variant(path + key)
    assert found.type == value.get_type_string() and found.value == value.unpack(), (key, found)
    assert ours.text(path + key) == value.print_(True), key
assert sorted(ours.names(path)) == sorted(keys)
seen = set()
while len(seen) < len(keys): seen |= set(ours.wait(60))
changed = []
gio.connect("changed", lambda settings, key: changed.append(key))
ours[path + "font-name"] = "Inter 11"
ours[path + "text-scaling-factor"] = 1.25
ours.write({path + "clock-show-date": False, path + "cursor-size": 48})
context = GLib.MainContext.default()
while len(set(changed)) < 4: context.iteration(True)
assert gio.get_string("font-name") == "Inter 11" and gio.get_double("text-scaling-factor") == 1.25
assert not gio.get_boolean("clock-show-date") and gio.get_int("cursor-size") == 48
ours.reset(path)
while gio.get_user_value("font-name") is not None: context.iteration(True)
assert gio.get_string("font-name") == schema.get_key("font-name").get_default_value().get_string()
print(len(keys))
""",
            python=self.python,
        )
        self.assertGreater(int(said), 20)

    def test_values_are_those_of_glib(self) -> None:
        self.run_python(
            """
import math, random
from gi.repository import GLib
from unjank import Variant
from unjank._variants import decode, encode, one_type
draw = random.Random(14)
def a_type(depth=0):
    if depth > 3 or draw.random() < 0.5: return draw.choice("bynqiuxtdsogv" if depth < 4 else "bis")
    form = draw.randrange(4)
    if form == 0: return "a" + a_type(depth + 1)
    if form == 1: return "m" + a_type(depth + 1)
    if form == 2: return "(" + "".join(a_type(depth + 1) for _ in range(draw.randrange(4))) + ")"
    return "a{" + draw.choice("bynqiuxtdso") + a_type(depth + 1) + "}"
RANGES = {"y": (0, 255), "n": (-2**15, 2**15-1), "q": (0, 2**16-1), "i": (-2**31, 2**31-1), "u": (0, 2**32-1), "x": (-2**63, 2**63-1), "t": (0, 2**64-1)}
def a_value(t, depth=0):
    c = t[0]
    if c == "b": return draw.random() < 0.5
    if c in RANGES: low, high = RANGES[c]; return draw.choice([low, high, draw.randint(low, high), draw.randint(0, 9)])
    if c == "d": return draw.choice([0.0, -0.0, 1e300, -1.5, 2.3e-308, math.inf, draw.random()])
    if c == "s": return "".join(draw.choice("a'\\"\\\\\\n\\t\\x01\\x7f\\u00e9\\u4e2d\\U0001f600\\u202e\\ue000 ") for _ in range(draw.randrange(6)))
    if c == "o": return draw.choice(["/", "/a/b_1"])
    if c == "g": return draw.choice(["", "a{sv}", "ii"])
    if c == "v":
        inner = a_type(depth + 2); return Variant(inner, a_value(inner, depth + 2))
    if c == "m": return None if draw.random() < 0.3 else a_value(t[1:], depth + 1)
    if t == "ay": return bytes(draw.randrange(256) for _ in range(draw.randrange(5)))
    if t.startswith("a{"): return {a_value(t[2]): a_value(t[3:-1], depth + 1) for _ in range(draw.randrange(4))}
    if c == "a": return [a_value(t[1:], depth + 1) for _ in range(draw.choice([0, 1, 2, 5, 90 if depth == 0 else 3]))]
    members, at = [], 1
    while at < len(t) - 1:
        end = one_type(t, at); members.append(t[at:end]); at = end
    return tuple(a_value(m, depth + 1) for m in members)
for number in range(3000):
    t = a_type()
    value = a_value(t)
    text = encode(t, Variant(t, value))
    glib = GLib.Variant.parse(None, text, None, None)
    assert glib.get_type_string() == t, (t, text)
    found = decode(t, bytes(glib.get_data_as_bytes().get_data() or b""))
    assert found == value, (t, text, found, value)
    swapped = glib.byteswap()
    assert decode(t, bytes(swapped.get_data_as_bytes().get_data() or b""), ">") == value, (t, text)
    # What we write, GLib prints; what GLib prints, is the same value.
    assert GLib.Variant.parse(None, glib.print_(True), None, None).equal(glib)
    # Bytes that were damaged are read as GLib reads them, or are empty; never an exception.
    data = bytearray(glib.get_data_as_bytes().get_data() or b"")
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        decode(t, bytes(data[: draw.randrange(len(data) + 1)])); decode(t, bytes(data))
""",
            python=self.python,
        )

    def test_gtk_and_we_list_the_same_documents(self) -> None:
        need("xvfb-run")
        code = """
import gi, os, sys, time
gi.require_version("Gtk", "3.0")
from gi.repository import GLib, Gtk
import unjank
manager, context = Gtk.RecentManager.get_default(), GLib.MainContext.default()
ours = unjank.Recents()
ours.changed()
GLib.set_application_name("Drawing")
for name in ("one", "two words", "caf\\u00e9"):
    assert manager.add_item(GLib.filename_to_uri("/home/ann/" + name, None))
def is_there():
    return {d.path for d in ours.documents()} >= {"/home/ann/one", "/home/ann/two words", "/home/ann/caf\\u00e9"}
# GTK writes its file a quarter of a second later, in its main loop.
end = time.monotonic() + 60
while not is_there():
    assert time.monotonic() < end, "GTK writes its list within a minute"
    GLib.timeout_add(10, lambda: False); context.iteration(True)
assert ours.changed()
for document in ours.documents():
    known = manager.lookup_item(document.uri)
    assert document.path == GLib.filename_from_uri(known.get_uri())[0]
    assert document.mime_type == known.get_mime_type() and document.application == "Drawing"
    assert document.used_us // 10**6 == known.get_modified() and document.count == 1
    assert not document.is_private
assert len(ours.documents(application="Draw*", below="/home/ann")) == 3
if len(sys.argv) > 1:
    # And back: the program writes the lists that GTK reads, whoever added the document.
    assert ours.add("/home/ann/report.txt", "org.kde.kate", mime_type="text/plain")
    uri = "file:///home/ann/report.txt"
    while not manager.has_item(uri):
        assert time.monotonic() < end, "the list is written within a minute"
        GLib.timeout_add(10, lambda: False); context.iteration(True)
    assert manager.lookup_item(uri).get_mime_type() == "text/plain"
"""
        program = os.environ.get("UNJANK_PROGRAM")
        xvfb = ["xvfb-run", "-a", self.python, "-c", code, *(["program"] if program else [])]
        environment = self.environment()
        if program:
            environment["PATH"] = os.path.dirname(program) + ":" + environment["PATH"]
        done = subprocess.run(xvfb, env=environment, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
