"""A session of its own for tests: directories, a bus, and what must be there."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path


def need(program: str) -> None:
    """Skips a test without a program; fails where all must run."""
    import shutil

    if shutil.which(program) is None:
        if os.environ.get("REQUIRE_ALL"):
            raise AssertionError(f"{program} is needed")
        raise unittest.SkipTest(f"{program} is needed")


class SessionTest(unittest.TestCase):
    """Runs each test in a process of its own, in a session with new directories."""

    bus = False
    """Whether there is a session bus, with the services that are installed."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(directory.cleanup)
        self.home = Path(directory.name)
        for name in ("home", "run", "share"):
            (self.home / name).mkdir(mode=0o700)

    def environment(self) -> dict[str, str]:
        """Returns the environment of the session."""
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "UNJANK_LIBRARY") if name in os.environ}
        return {
            **kept,
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.home / "home"),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "TMPDIR": str(self.home / "run"),
            "LC_ALL": "C.UTF-8",
            "GIO_USE_VFS": "local",
            "NO_AT_BRIDGE": "1",
        }

    def run_python(self, code: str, *arguments: str, python: str = sys.executable, timeout: float = 400) -> str:
        """Runs code in the session and returns what it printed. It must succeed."""
        command = [python, "-c", code, *arguments]
        if self.bus:
            need("dbus-run-session")
            command = ["dbus-run-session", "--", *command]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, check=False, timeout=timeout
        )
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout
