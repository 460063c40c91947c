"""The entries of a directory as columns, which numpy, pandas and polars take."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._entry import UNKNOWN_TIME, Code

# Columns that are texts, and numbers of texts where they are kept.
_TEXTS = ("target", "mime_type")


def gathered(column: memoryview, code: Code, ids: Sequence[int]) -> memoryview:
    """Returns the rows of a column with these numbers."""
    return memoryview(array(code, map(column.__getitem__, ids))).toreadonly()


class Columns(Mapping[str, "memoryview | list[str] | list[str | None]"]):
    """The entries of a directory, a column for each attribute.

    Columns of numbers are memoryviews, which ``numpy.asarray`` takes without a copy; they stay, also when the
    listing is closed, and do not change. Times are nanoseconds since 1970; -2**63, which numpy has as NaT, stands
    for a time that is unknown or outside of 1678 ... 2262. Rows in ``errors`` have no attributes.
    """

    def __init__(
        self,
        directory: str,
        names: list[str],
        columns: dict[str, memoryview],
        errors: dict[int, int],
        text: Mapping[int, str | None],
    ) -> None:
        self.directory = directory
        """The directory, as the listing was given it."""
        self.names = names
        """The names, as os.fsdecode() makes them."""
        self.errors = errors
        """Rows whose attributes could not be read, with the number of errno; EAGAIN if they did not arrive yet."""
        self._numbers = _described(columns)
        self._texts: dict[str, list[str | None]] = {}
        for name in _TEXTS:
            if name in columns:
                shift = 32 if name == "target" else 0
                self._texts[name] = [text[number >> shift] for number in columns[name].tolist()]

    @property
    def rows(self) -> int:
        """How many entries there are."""
        return len(self.names)

    def __getitem__(self, name: str) -> memoryview | list[str] | list[str | None]:
        if name == "name":
            return self.names
        if name in self._numbers:
            return self._numbers[name]
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        yield "name"
        yield from self._numbers
        yield from self._texts

    def __len__(self) -> int:
        return 1 + len(self._numbers) + len(self._texts)

    def __repr__(self) -> str:
        return f"<unjank.Columns of {self.directory!r}: {self.rows} entries, {', '.join(self)}>"

    def _numbers_of(self, name: str) -> memoryview:
        try:
            return self._numbers[name]
        except KeyError:
            raise AttributeError(f"the listing was not asked for {name}") from None

    @property
    def kind(self) -> memoryview:
        """What each entry is: a Kind."""
        return self._numbers_of("kind")

    @property
    def size(self) -> memoryview:
        """Lengths in bytes."""
        return self._numbers_of("size")

    @property
    def mode(self) -> memoryview:
        """Type and permissions, as st_mode."""
        return self._numbers_of("mode")

    @property
    def user(self) -> memoryview:
        """Numbers of the users that own them."""
        return self._numbers_of("user")

    @property
    def group(self) -> memoryview:
        """Numbers of the groups."""
        return self._numbers_of("group")

    @property
    def modified_ns(self) -> memoryview:
        """When the contents changed."""
        return self._numbers_of("modified_ns")

    @property
    def accessed_ns(self) -> memoryview:
        """When they were read."""
        return self._numbers_of("accessed_ns")

    @property
    def changed_ns(self) -> memoryview:
        """When contents or attributes changed."""
        return self._numbers_of("changed_ns")

    @property
    def born_ns(self) -> memoryview:
        """When they were made, where file systems keep that."""
        return self._numbers_of("born_ns")

    @property
    def inode(self) -> memoryview:
        """Numbers of the inodes."""
        return self._numbers_of("inode")

    def path(self, row: int) -> str:
        """Returns the path of a row."""
        return os.path.join(self.directory, self.names[row])

    def arrays(self) -> dict[str, Any]:
        """Returns all columns as arrays of numpy, times as datetime64[ns], for pandas.DataFrame() and polars.DataFrame().

        Needs numpy. Columns of numbers are not copied.
        """
        import numpy

        found: dict[str, Any] = {}
        for name, column in self.items():
            if isinstance(column, memoryview):
                values = numpy.asarray(column)
                found[name] = values.view("datetime64[ns]") if name.endswith("_ns") else values
            else:
                found[name] = numpy.array(column, dtype=object)
        return found

    def records(self) -> list[dict[str, Any]]:
        """Returns the rows as dictionaries; what is unknown is None."""
        lists: list[list[Any]] = []
        for name, column in self.items():
            values: list[Any] = column.tolist() if isinstance(column, memoryview) else list(column)
            if name.endswith("_ns"):
                values = [None if value == UNKNOWN_TIME else value for value in values]
            if name not in ("name", "kind"):
                for row in self.errors:
                    values[row] = None
            lists.append(values)
        names = list(self)
        return [dict(zip(names, row)) for row in zip(*lists)]


def _described(columns: dict[str, memoryview]) -> dict[str, memoryview]:
    """Returns the columns of numbers by their public names: pairs are two columns, as every second number."""
    found: dict[str, memoryview] = {}
    pairs = {
        "owner": ("user", "group"),
        "device": ("device_major", "device_minor"),
        "file_system": ("file_system_major", "file_system_minor"),
    }
    for name, column in columns.items():
        if name in pairs:
            halves = column.cast("B").cast("I")
            high, low = pairs[name]
            found[high], found[low] = halves[1::2], halves[0::2]
        elif name == "target":
            found["target_mode"] = column.cast("B").cast("I")[0::2]
        elif name not in _TEXTS:
            found[name] = column
    return found
