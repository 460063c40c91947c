"""The examples of docs/python.md do what the page says."""

import re
from pathlib import Path

from session import SessionTest

PAGE = Path(__file__).resolve().parents[2] / "docs/python.md"


class DocsTest(SessionTest):
    def test_the_examples_print_what_the_page_says(self) -> None:
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        pairs = [
            (block[1], following[1])
            for block, following in zip(blocks, blocks[1:])
            if block[0] == "python" and following[0] == "text"
        ]
        self.assertEqual(len(pairs), sum(1 for kind, _ in blocks if kind == "python"), "each has its output")
        for code, output in pairs:
            self.setUp()
            pictures = self.home / "pictures"
            pictures.mkdir()
            for name, size in (("large.png", 5000), ("small.png", 3), ("note.txt", 4)):
                (pictures / name).write_bytes(bytes(size))
                (pictures / name).chmod(0o644)
            prelude = f"import os; os.chdir({str(self.home)!r}); os.environ.pop('TMPDIR'); os.environ.pop('XDG_RUNTIME_DIR')\n"
            self.assertEqual(self.run_python(prelude + code), output, code)
