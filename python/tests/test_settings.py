"""Settings in sessions of their own: without a bus, and with dconf-service."""

import unittest

from session import SessionTest, need


class WithoutBusTest(SessionTest):
    def test_settings_are_read_without_a_bus_and_not_written(self) -> None:
        self.run_python(
            """
import errno, unjank
settings = unjank.Settings(); settings.write_timeout = 100
assert list(settings) == [] and len(settings) == 0 and settings
assert settings.get("/org/example/a", 5) == 5 and "/org/example/a" not in settings
for wrong in ("relative", "/directory/", "", "/a//b", "/\\0", "/\\udcff"):
    try: settings[wrong]; raise SystemExit("not refused: %r" % wrong)
    except ValueError: pass
for wrong in (5, None, b"/a"):
    try: settings[wrong]; raise SystemExit("not refused: %r" % wrong)
    except TypeError: pass
    assert wrong not in settings
try: settings["/a"]; raise SystemExit("not missing")
except KeyError as error: assert error.args == ("/a",)
try: settings["/a"] = 1; raise SystemExit("written without a bus")
except OSError as error: assert error.errno == errno.ENOTCONN and error.filename == "/a", error
try: settings["/a"] = []; raise SystemExit("of no type")
except TypeError: pass
try: del settings["/a"]; raise SystemExit("deleted")
except KeyError: pass
settings.watch("/org/")
assert settings.wait(0.01) == [] and settings.changed() == []
assert settings.names("/") == []
settings.close(); settings.close()
for call in (lambda: settings["/a"], settings.fileno, settings.changed, lambda: settings.watch("/a"), lambda: settings.write({"/a": 1}), lambda: settings.__enter__()):
    try: call(); raise SystemExit("used after close")
    except ValueError as error: assert "closed" in str(error), error
"""
        )


class WithDconfTest(SessionTest):
    bus = True

    def setUp(self) -> None:
        need("dconf")
        super().setUp()

    def test_what_is_written_is_read_by_us_and_by_dconf(self) -> None:
        self.run_python(
            """
import subprocess, unjank
from unjank import Variant, Which
def dconf(*words): return subprocess.run(["dconf", *words], check=True, capture_output=True, text=True).stdout.strip()
settings = unjank.Settings(); settings.write_timeout = 100
values = {
    "/t/bool": True, "/t/int": -5, "/t/large": 2**40, "/t/double": 0.25, "/t/text": "it's a \\"caf\\u00e9\\" \\\\ \\n\\t\\x07\\U0001f600",
    "/t/list": ["a", "b"], "/t/bytes": b"ab\\0", "/t/dict": {"x": 1, "y": 2}, "/t/tuple": (1, "a", [2.5]),
    "/t/mixed": {"n": Variant("u", 5), "s": Variant("s", "x")},
}
settings.update(values)
for key, value in values.items():
    assert settings[key] == value, (key, settings[key])
    assert dconf("read", key) == settings.text(key), key
    # As dconf prints it, it comes back the same.
    dconf("write", "/copy" + key, dconf("read", key))
    assert settings.variant("/copy" + key) == settings.variant(key), key
typed = {
    "/v/y": Variant("y", 255), "/v/n": Variant("n", -9), "/v/q": Variant("q", 65535), "/v/u": Variant("u", 2**32 - 1),
    "/v/t": Variant("t", 2**64 - 1), "/v/x": Variant("x", -2**63), "/v/o": Variant("o", "/a/b"), "/v/g": Variant("g", "a{sv}"),
    "/v/as": Variant("as", []), "/v/asv": Variant("a{sv}", {}), "/v/mi": Variant("mi", None), "/v/ms": Variant("ms", "x"),
    "/v/v": Variant("v", Variant("(sai)", ("a", [1, 2]))), "/v/ad": Variant("ad", [1.5, -0.0]), "/v/aay": Variant("aay", [b"x", b""]),
    "/v/one": Variant("(s)", ("x",)), "/v/none": Variant("()", ()), "/v/ab": Variant("ab", [True, False]),
}
settings.write(typed)
for key, value in typed.items():
    assert settings.variant(key) == value, (key, settings.variant(key))
    assert dconf("read", key) == settings.text(key), key
# The type that is there stays.
settings["/v/u"] = 7
assert settings.variant("/v/u") == Variant("u", 7)
settings["/v/as"] = ["x"]
settings["/v/as"] = []
for key, wrong in (("/v/u", "text"), ("/v/as", "text"), ("/t/bool", 1)):
    try: settings[key] = wrong; raise SystemExit("another type")
    except TypeError: pass
try: settings["/v/u"] = -1; raise SystemExit("too small")
except ValueError: pass
assert settings.names("/t/")[:3] == ["bool", "bytes", "dict"]
assert settings.names("/") == ["copy/", "t/", "v/"]
assert sorted(settings) == [*sorted(settings.keys_below("/copy/")), *sorted(values), *sorted(typed)]
assert dict(settings)["/t/int"] == -5 and len(settings) == 2 * len(values) + len(typed)
assert settings.variant("/t/int", Which.USER).value == -5 and settings.variant("/t/int", Which.DEFAULT) is None
assert settings.is_writable("/t/int")
del settings["/t/int"]
assert "/t/int" not in settings and dconf("read", "/t/int") == ""
settings.reset("/copy/")
assert settings.names("/") == ["t/", "v/"]
# All or none.
try:
    settings.write({"/t/good": 1, "/t/dir/": 5}); raise SystemExit("a value of a directory")
except ValueError: pass
assert "/t/good" not in settings
with settings.changes() as changes:
    changes["/t/one"] = 1; changes["/t/two"] = 2; changes.reset("/v/")
    assert "/t/one" not in settings
assert settings["/t/one"] == 1 and settings["/t/two"] == 2 and settings.names("/") == ["t/"]
try:
    with settings.changes() as changes:
        changes["/t/one"] = 9
        raise RuntimeError
except RuntimeError: pass
assert settings["/t/one"] == 1
# What is written is in the next read, each time.
for number in range(100):
    settings["/t/number"] = number
    assert settings["/t/number"] == number
    dconf("write", "/t/number", str(number + 1000)) if number % 20 == 0 else None
"""
        )

    def test_changes_of_other_programs_are_seen(self) -> None:
        self.run_python(
            """
import asyncio, subprocess, threading, unjank
def dconf(*words): subprocess.run(["dconf", *words], check=True)
settings = unjank.Settings(); settings.write_timeout = 100
settings.watch("/t/")
settings.watch("/u/key")
started = threading.Thread(target=lambda: dconf("write", "/t/a", "1")); started.start()
assert settings.wait(60) == ["/t/a"], "within a minute"
started.join()
assert settings["/t/a"] == 1
dconf("write", "/u/other", "1"); dconf("write", "/u/key", "2")
assert settings.wait(60) == ["/u/key"]
assert settings.wait(0) == []
async def follow():
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, lambda: threading.Thread(target=dconf, args=("write", "/t/b", "true")).start())
    async for keys in settings.follow():
        return keys
assert asyncio.run(asyncio.wait_for(follow(), 60)) == ["/t/b"]
dconf("reset", "-f", "/t/")
seen = set()
while seen != {"/t/a", "/t/b"}: seen |= set(settings.wait(60))
assert "/t/a" not in settings
"""
        )

    def test_a_locked_key_is_a_permission_error(self) -> None:
        code = """
import os, subprocess, sys, unjank
from pathlib import Path
home = Path(os.environ["HOME"])
base = home / "site.d"; (base / "locks").mkdir(parents=True)
(base / "values").write_text("[t]\\nlocked=1\\nfree=2\\n"); (base / "locks/all").write_text("/t/locked\\n")
subprocess.run(["dconf", "compile", str(home / "site"), str(base)], check=True)
(home / "profile").write_text(f"user-db:user\\nfile-db:{home}/site\\n")
settings = unjank.Settings(str(home / "profile")); settings.write_timeout = 100
assert (settings["/t/locked"], settings["/t/free"]) == (1, 2)
assert not settings.is_writable("/t/locked") and settings.is_writable("/t/free")
try: settings["/t/locked"] = 5; raise SystemExit("written")
except PermissionError as error: assert error.filename == "/t/locked"
try: settings.write({"/t/free": 3, "/t/locked": 5}); raise SystemExit("written")
except PermissionError: pass
assert settings["/t/free"] == 2
try: del settings["/t/free"]; raise SystemExit("the user has no value")
except KeyError: pass
"""
        self.run_python(code)

    def test_a_service_that_stands_still_can_be_interrupted_and_is_timed_out(self) -> None:
        self.run_python(
            """
import errno, os, signal, subprocess, threading, time, unjank
settings = unjank.Settings(); settings.write_timeout = 100
settings["/t/a"] = 1
reply = subprocess.run(["dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/", "org.freedesktop.DBus.GetConnectionUnixProcessID", "string:ca.desrt.dconf"], check=True, capture_output=True, text=True).stdout
service = int(reply.split()[-1])
os.kill(service, signal.SIGSTOP)
try:
    begun = time.monotonic()
    try: settings.write({"/t/a": 2}, timeout=0.2); raise SystemExit("written")
    except TimeoutError as error: assert error.errno == errno.ETIMEDOUT
    assert time.monotonic() - begun < 20
    # Ctrl-C while it waits, in the main thread: not before the write has begun.
    def interrupt():
        while not any(thread.name == "unjank settings write" for thread in threading.enumerate()): time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
    begun = time.monotonic()
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        settings["/t/a"] = 3; raise SystemExit("written")
    except KeyboardInterrupt: pass
    assert time.monotonic() - begun < 20
    # Reading goes on meanwhile, and another thread can wait.
    assert settings["/t/a"] == 1
finally:
    os.kill(service, signal.SIGCONT)
settings["/t/a"] = 4
assert settings["/t/a"] == 4
os.kill(service, signal.SIGKILL)
# The bus starts it again.
for number in range(10):
    try: settings["/t/a"] = number; break
    except OSError as error: assert error.errno in (errno.ECONNRESET, errno.ENOTCONN, errno.EREMOTEIO, errno.ETIMEDOUT), error
else: raise SystemExit("never written again")
assert settings["/t/a"] == number
"""
        )

    def test_a_write_that_was_interrupted_is_not_made_after_a_later_one(self) -> None:
        self.run_python(
            """
import os, signal, threading, time, unjank
NAME = "unjank settings write"
settings = unjank.Settings(); settings.write_timeout = 100
settings["/t/a"] = 1
# A thread whose join() was interrupted counts as stopped in some versions.
def runs(thread): return os.path.exists(f"/proc/self/task/{thread.native_id}")
def writers(): return [thread for thread in threading.enumerate() if thread.name == NAME and runs(thread)]
def interrupt():
    while not writers(): time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
def let_go(thread):
    late.set()
    while runs(thread): time.sleep(0.001)
# The thread of the write begins late, as it does where all processors have other things to do.
late = threading.Event()
def begin_late(*_):
    if threading.current_thread().name == NAME: late.wait(60)
interrupter = threading.Thread(target=interrupt, daemon=True); interrupter.start()
threading.setprofile(begin_late)
try: settings["/t/a"] = 2; raise SystemExit("not interrupted")
except KeyboardInterrupt: pass
finally: threading.setprofile(None)
interrupter.join()
[second] = writers()
settings["/t/a"] = 3
let_go(second)
assert settings["/t/a"] == 3, settings["/t/a"]
# The same with a later write of another thread.
late.clear()
threading.Thread(target=interrupt, daemon=True).start()
threading.setprofile(begin_late)
try: settings["/t/a"] = 4; raise SystemExit("not interrupted")
except KeyboardInterrupt: pass
finally: threading.setprofile(None)
[fourth] = writers()
other = threading.Thread(target=settings.write, args=({"/t/a": 5},)); other.start(); other.join()
let_go(fourth)
assert settings["/t/a"] == 5, settings["/t/a"]
"""
        )


if __name__ == "__main__":
    unittest.main()
