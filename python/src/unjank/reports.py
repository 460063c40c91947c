"""Reports: the JSON documents that ``unjank ... --json`` prints, as rows which pandas and polars take.

>>> found = run("ls", "--json", "/usr/share/applications")
>>> pandas.DataFrame(found.records("listings.entries"))
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["Report", "parse", "read", "run"]


class Report(Mapping[str, Any]):
    """One document of a command: a mapping of its members, and its tables as rows.

    A table is a list of objects. Its name is the way to it: "findings", "listings.entries".
    """

    def __init__(self, document: dict[str, Any]) -> None:
        schema = document.get("schema") if isinstance(document, dict) else None
        name, slash, version = str(schema).partition("/")
        if not isinstance(schema, str) or not slash or not version.isdecimal() or not name.startswith("unjank."):
            raise ValueError("this is no document of unjank: it has no member 'schema' such as 'unjank.jobs/1'")
        self.document = document
        """The document as it was read."""
        self.name = name
        """Which document it is: "unjank.doctor"."""
        self.version = int(version)
        """The version of its fields."""

    def __getitem__(self, name: str) -> Any:
        return self.document[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    def __repr__(self) -> str:
        return f"<unjank.reports.Report {self.name}/{self.version}: tables {', '.join(self.tables()) or 'none'}>"

    def tables(self) -> list[str]:
        """Returns the names of the tables, those within a row of another one behind it."""
        found: dict[str, None] = {}
        _find_tables(self.document, "", found)
        return list(found)

    def records(self, table: str | None = None) -> list[dict[str, Any]]:
        """Returns the rows of a table; without a name those of the only one, or of the first.

        Every row has every column, None where it has no value. An object within is columns with dots in their names,
        a table within is left out (it is a table of its own, whose rows have the plain members of the rows above
        with the name of their table before them), another list stays. A column whose values are of several types is
        texts.
        """
        tables = self.tables()
        if table is None:
            if not tables:
                return []
            table = tables[0]
        elif table not in tables:
            # Without rows a table cannot be told from another list.
            if _is_empty(self.document, table.split(".")):
                return []
            raise KeyError(table)
        rows = list(_rows(self.document, table.split("."), "", {}))
        return _uniform(rows)


def _objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _find_tables(value: dict[str, Any], above: str, found: dict[str, None]) -> None:
    for name, member in value.items():
        place = f"{above}{name}"
        if _objects(member):
            found[place] = None
            for row in member:
                _find_tables(row, f"{place}.", found)
        elif isinstance(member, dict):
            _find_tables(member, f"{place}.", found)


def _is_empty(value: Any, way: Sequence[str]) -> bool:
    """Whether a list without items is at the end of a way."""
    if isinstance(value, list):
        return not value if not way else all(_is_empty(one, way) for one in value)
    if not way or not isinstance(value, dict):
        return False
    return any(
        _is_empty(value[".".join(way[:length])], way[length:])
        for length in range(1, len(way) + 1)
        if ".".join(way[:length]) in value
    )


def _rows(value: dict[str, Any], way: Sequence[str], above: str, plain: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Returns the rows at the end of a way; names of members may have dots in them."""
    for length in range(1, len(way) + 1):
        name = ".".join(way[:length])
        member, left, place = value.get(name), way[length:], f"{above}{name}"
        if _objects(member):
            assert isinstance(member, list)
            for row in member:
                flat = _flat(row)
                if left:
                    known = {f"{place}.{key}": one for key, one in flat.items() if not isinstance(one, list)}
                    yield from _rows(row, left, f"{place}.", {**plain, **known})
                else:
                    yield {**plain, **flat}
        elif isinstance(member, dict) and left:
            yield from _rows(member, left, f"{place}.", plain)


def _flat(row: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, member in row.items():
        if isinstance(member, dict):
            found.update(_flat(member, f"{above}{name}."))
        elif not _objects(member):
            found[f"{above}{name}"] = member
    return found


def _uniform(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    for name in names:
        values = [row[name] for row in rows if row.get(name) is not None]
        kinds = {_kind(value) for value in values}
        if kinds == {"int", "float"}:
            for row in rows:
                if row.get(name) is not None:
                    row[name] = float(row[name])
        elif len(kinds - {"list of nothing"}) > 1:
            for row in rows:
                value = row.get(name)
                if value is not None and not isinstance(value, str):
                    row[name] = json.dumps(value, ensure_ascii=False)
    return [{name: row.get(name) for name in names} for row in rows]


def _kind(value: object) -> str:
    if isinstance(value, list):
        kinds = {_kind(one) for one in value}
        return f"list of {kinds.pop() if len(kinds) == 1 else 'several' if kinds else 'nothing'}"
    return type(value).__name__


def parse(text: str | bytes) -> Report:
    """Returns the report of a document's text. ValueError if it is none."""
    return Report(json.loads(text))


def read(source: str | os.PathLike[str] | IO[str] | IO[bytes]) -> Report:
    """Reads a report from a file, or from the path of one."""
    if isinstance(source, (str, os.PathLike)):
        return parse(Path(source).read_bytes())
    return parse(source.read())


def run(*arguments: str, program: str = "unjank", timeout: float | None = None) -> Report:
    """Runs a command (``run("doctor", "--only", "storage")``) and returns its report.

    ``--json`` is added if it is not there; a command that has its own arguments behind ``--`` gets it before. A
    command that prints no document raises subprocess.CalledProcessError with its message in stderr; its exit status
    is no failure else: ``doctor`` has 1 where something is too slow.
    """
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    if "--json" not in words[:end]:
        words.insert(end, "--json")
    done = subprocess.run(
        [program, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=timeout,
        check=False,
    )
    try:
        return parse(done.stdout)
    except ValueError:
        raise subprocess.CalledProcessError(
            done.returncode or 1, [program, *words], done.stdout, done.stderr
        ) from None
