"""The structures and functions are those of unjank.h."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from unjank import _native

HEADER = Path(__file__).resolve().parents[2] / "crates/capi/include/unjank.h"


class NativeTest(unittest.TestCase):
    def test_the_functions_are_those_of_the_header(self) -> None:
        text = HEADER.read_text()
        declared = {}
        for name, arguments in re.findall(r"UNJANK_API [^;(]*?(unjank_\w+)\(([^)]*)\)", text):
            declared[name] = 0 if arguments.strip() == "void" else arguments.count(",") + 1
        known = {name: len(arguments) for name, (_, arguments) in _native.FUNCTIONS.items()}
        self.assertEqual(known, declared)

    def test_the_structures_have_the_layout_of_the_header(self) -> None:
        if shutil.which("gcc") is None:
            self.skipTest("gcc is needed")
        lines = ['#include "unjank.h"']
        for name, structure in _native.STRUCTURES.items():
            import ctypes

            lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
            for field in structure._fields_:
                member, offset = field[0], getattr(structure, field[0]).offset
                width = getattr(structure, field[0]).size
                place = f"offsetof({name}, {member}) == {offset}"
                size = f"sizeof((({name} *)0)->{member}) == {width}"
                lines.append(f'_Static_assert({place} && {size}, "{name}.{member}");')
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory, "layout.c")
            source.write_text("\n".join(lines))
            command = ["gcc", "-std=c11", "-fsyntax-only", f"-I{HEADER.parent}", str(source)]
            subprocess.run(command, check=True)

    def test_a_library_that_is_not_there_is_an_import_error_with_a_hint(self) -> None:
        import os
        import sys

        environment = {**os.environ, "UNJANK_LIBRARY": "/not/there.so"}
        command = [sys.executable, "-c", "import unjank"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.assertIn("ImportError: cannot load /not/there.so", done.stderr)
        self.assertIn("hint: install the package libunjank0", done.stderr)
