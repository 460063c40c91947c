"""Documents of commands as rows."""

import io
import json
import os
import tempfile
import unittest
from pathlib import Path

from unjank import reports

DOCUMENT = {
    "schema": "unjank.example/2",
    "verdict": "good",
    "empty": [],
    "findings": [
        {"name": "a", "time": {"median_ns": 5, "deep": {"er": 1}}, "advice": [{"text": "x"}, {"text": "y"}], "tags": ["p"]},
        {"name": "b", "time": None, "advice": [], "value": 1.5, "mixed": 1, "tags": []},
        {"name": "c", "value": 2, "mixed": "text", "advice": [{"text": "z", "command": "c"}]},
    ],
    "inner": {"rows": [{"n": 1}]},
}


class ReportTest(unittest.TestCase):
    def test_tables_are_rows_with_the_same_columns(self) -> None:
        report = reports.parse(json.dumps(DOCUMENT))
        self.assertEqual((report.name, report.version, report["verdict"]), ("unjank.example", 2, "good"))
        self.assertEqual(report.tables(), ["findings", "findings.advice", "inner.rows"])
        rows = report.records()
        self.assertEqual({tuple(row) for row in rows}, {tuple(rows[0])})
        self.assertEqual([row["name"] for row in rows], ["a", "b", "c"])
        self.assertEqual([row["time.deep.er"] for row in rows], [1, None, None])
        self.assertEqual([row["value"] for row in rows], [None, 1.5, 2.0])
        self.assertEqual([row["mixed"] for row in rows], [None, "1", "text"])
        self.assertEqual([row["tags"] for row in rows], [["p"], [], None])
        advice = report.records("findings.advice")
        self.assertEqual([(row["findings.name"], row["text"]) for row in advice], [("a", "x"), ("a", "y"), ("c", "z")])
        self.assertEqual([row["command"] for row in advice], [None, None, "c"])
        self.assertEqual(report.records("inner.rows"), [{"n": 1}])
        self.assertEqual((report.records("empty"), reports.Report({"schema": "unjank.a/1"}).records()), ([], []))
        for wrong in ("nothing", "verdict", "findings.nothing", "findings.name"):
            with self.assertRaises(KeyError):
                report.records(wrong)

    def test_files_and_streams_are_read_and_others_refused(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "report.json")
            path.write_text(json.dumps(DOCUMENT))
            self.assertEqual(reports.read(path).name, "unjank.example")
            self.assertEqual(reports.read(str(path))["schema"], "unjank.example/2")
        self.assertEqual(reports.read(io.BytesIO(json.dumps(DOCUMENT).encode())).version, 2)
        for wrong in ("", "[]", "{}", "5", '{"schema": 5}', '{"schema": "unjank.x"}', '{"schema": "other/1"}', "{"):
            with self.assertRaises(ValueError, msg=wrong):
                reports.parse(wrong)

    def test_a_command_is_run_and_its_failure_is_told(self) -> None:
        import subprocess

        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory, "unjank")
            program.write_text('#!/bin/sh\necho "{\\"schema\\": \\"unjank.echo/1\\", \\"words\\": \\"$*\\"}"\nexit 1\n')
            program.chmod(0o755)
            report = reports.run("trace", "--", "ls", program=str(program))
            self.assertEqual(report["words"], "trace --json -- ls")
            program.write_text("#!/bin/sh\necho bad >&2\nexit 2\n")
            with self.assertRaises(subprocess.CalledProcessError) as raised:
                reports.run("jobs", program=str(program))
            self.assertEqual((raised.exception.returncode, raised.exception.stderr), (2, b"bad\n"))

    @unittest.skipUnless(os.environ.get("UNJANK_PROGRAM"), "the program was not given")
    def test_documents_of_the_program_are_taken_by_pandas_and_polars(self) -> None:
        import pandas
        import polars

        program = os.environ["UNJANK_PROGRAM"]
        for words in (["jobs"], ["ls", "/usr/bin"], ["apps", "list"], ["plugins", "list"], ["doctor", "--only", "bus"]):
            report = reports.run(*words, program=program)
            for table in report.tables():
                rows = report.records(table)
                self.assertEqual(len(pandas.DataFrame(rows)), len(rows))
                self.assertEqual(polars.DataFrame(rows, infer_schema_length=None).height, len(rows), (words, table))

    @unittest.skipUnless(os.environ.get("UNJANK_FRAMES"), "numpy, pandas and polars: python/check")
    def test_columns_are_taken_by_numpy_pandas_and_polars(self) -> None:
        import numpy
        import pandas
        import polars

        import unjank

        columns = unjank.read_directory("/usr/bin", unjank.Field(2**15 - 1))
        array = numpy.asarray(columns.size)
        self.assertEqual(array.__array_interface__["data"][0], numpy.asarray(columns.size).__array_interface__["data"][0])
        arrays = columns.arrays()
        self.assertTrue(numpy.shares_memory(arrays["modified_ns"], numpy.asarray(columns.modified_ns)))
        frame = pandas.DataFrame(arrays)
        self.assertEqual(frame["size"].sum(), sum(columns.size))
        stamp = pandas.Timestamp(os.lstat(columns.path(0)).st_mtime_ns)
        self.assertEqual(frame["modified_ns"][0], stamp)
        table = polars.DataFrame(arrays)
        self.assertEqual(table["size"].sum(), sum(columns.size))
        self.assertEqual(table["name"].to_list(), columns.names)
        self.assertEqual(polars.DataFrame(columns.records()).height, columns.rows)
