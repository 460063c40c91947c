"""Rows for a view: the entries of a listing in an order, filtered, and what changes in them."""

from __future__ import annotations

import enum
import errno
import os
from array import array
from collections.abc import Iterator, Sequence
from ctypes import byref, c_uint32, c_void_p, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from . import _native
from ._columns import Columns
from ._entry import Entry
from ._native import check, lib
from ._source import Handle

if TYPE_CHECKING:
    from ._listing import Listing


class By(enum.IntEnum):
    """What rows are ordered by; entries that are equal in it are ordered by name."""

    NAME = 0
    SIZE = 1
    MODIFIED = 2
    ACCESSED = 3
    CHANGED = 4
    BORN = 5
    TYPE = 6
    EXTENSION = 7
    ARRIVAL = 8


@dataclass(frozen=True)
class Order:
    """An order and a filter."""

    by: By = By.NAME
    descending: bool = False
    directories_first: bool = True
    show_hidden: bool = False
    filter: str | None = None
    """A text that names must contain, or a pattern (is_glob)."""
    is_glob: bool = False
    match_case: bool = False
    locale: str | None = None
    """The language of the order ("de_DE.UTF-8"), "C" for that of bytes; None is that of the environment."""


class RowChangeType(enum.IntEnum):
    """What a view has to do."""

    INSERTED = 1
    REMOVED = 2
    MOVED = 3
    UPDATED = 4
    RESET = 5


@dataclass(frozen=True)
class RowChange:
    """One change of the rows; a row number is that after the changes before it."""

    type: RowChangeType
    row: int
    count: int
    to: int


class ModelHandle(Handle):
    """A handle of a model. Where a thread uses the listing when nobody refers to the model any more, it is closed later."""

    __slots__ = ("_busy", "_unused")

    def __init__(self, value: int, unused: list[int]) -> None:
        super().__init__(value, lib.unjank_model_close)
        self._unused = unused
        # At the end of the interpreter the names of modules may be gone.
        self._busy = errno.EBUSY

    def __del__(self) -> None:
        # Not by waiting for the thread: this may run anywhere, also where another lock is held.
        if self._getpid() == self.pid and self._close(self.value) == -self._busy:
            self._unused.append(self.value)


class Model(Sequence[Entry]):
    """The rows of a view. Listing.next() keeps them true; a thread that shows them takes turns with it."""

    def __init__(self, listing: Listing, order: Order | None = None) -> None:
        native = listing._open()
        self.listing = listing
        """Whose entries they are."""
        place = c_void_p()
        options = _options(order or Order())
        with listing._turn():
            check(lib.unjank_model_open(native.value, byref(options), byref(place)), listing.directory)
        self._native: Handle | None = ModelHandle(place.value or 0, listing._unused_models)

    def _open(self) -> Handle:
        self.listing._open()
        if self._native is None:
            raise ValueError("the Model is closed")
        return self._native.check()

    def close(self) -> None:
        """Closes the model; closing its listing does that, too. Closing twice is allowed."""
        native = self._native
        # In a forked child the lock may be held by a thread that is not there, and the handle is the parent's.
        if native is None or native.pid != os.getpid():
            self._native = None
            return
        del native
        with self.listing._lock:
            self._native = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def order(self, order: Order) -> None:
        """Puts the rows in another order and applies another filter."""
        native, options = self._open(), _options(order)
        with self.listing._turn():
            check(lib.unjank_model_set(native.value, byref(options)), self.listing.directory)

    def __len__(self) -> int:
        native, rows = self._open(), c_uint32()
        with self.listing._turn():
            check(lib.unjank_model_rows(native.value, byref(rows)), self.listing.directory)
        return rows.value

    def ids(self, row: int = 0, count: int | None = None) -> memoryview:
        """Returns the ids of up to count entries from a row on, in order; without a count, of all."""
        native = self._open()
        with self.listing._turn():
            rows = len(self)
            row = min(max(row, 0), rows)
            count = rows - row if count is None else min(max(count, 0), rows - row)
            if count == 0:
                return memoryview(array("I")).toreadonly()
            ids, given = array("I", bytes(4 * count)), c_uint32()
            place = ids.buffer_info()[0]
            check(lib.unjank_model_ids(native.value, row, count, place, byref(given)), self.listing.directory)
        return memoryview(ids)[: given.value].toreadonly()

    @overload
    def __getitem__(self, row: int) -> Entry: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Entry]: ...
    def __getitem__(self, row: int | slice) -> Entry | Sequence[Entry]:
        with self.listing._turn():
            if isinstance(row, slice):
                rows = range(len(self))[row]
                if rows.step == 1:
                    return self.listing.entries(self.ids(rows.start, len(rows)))
                return [self[number] for number in rows]
            number = row + len(self) if row < 0 else row
            found = self.ids(number, 1) if number >= 0 else ()
            if not found:
                raise IndexError("there is no such row")
            return self.listing.entry(found[0])

    def __iter__(self) -> Iterator[Entry]:
        return iter(self[:])

    def row(self, entry: Entry | int) -> int | None:
        """Returns the row of an entry (or of its id); None if it is not shown."""
        native, row = self._open(), c_uint32()
        number = entry.id if isinstance(entry, Entry) else entry
        with self.listing._turn():
            result = lib.unjank_model_row(native.value, number, byref(row))
            if result == -errno.ENOENT:
                return None
            check(result, self.listing.directory)
        return row.value

    def changes(self) -> list[RowChange]:
        """Returns what changed in the rows since the last call, in order."""
        native = self._open()
        changes = (_native.RowChange * 256)()
        with self.listing._turn():
            count = check(lib.unjank_model_changes(native.value, changes, len(changes)), self.listing.directory)
        return [RowChange(RowChangeType(one.type), one.row, one.count, one.to) for one in changes[:count]]

    def columns(self) -> Columns:
        """Returns the columns of the rows, in their order. They do not change any more."""
        with self.listing._turn():
            self._open()
            return self.listing._gathered(self.ids().tolist())


def _options(order: Order) -> _native.ModelOptions:
    flags = (
        order.descending << 0
        | (not order.directories_first) << 1
        | order.show_hidden << 2
        | order.match_case << 3
        | order.is_glob << 4
    )
    options = _native.ModelOptions(sizeof(_native.ModelOptions), By(order.by), flags)
    options.locale = _native.optional_text(order.locale, "a locale")
    options.filter = _native.optional_text(order.filter, "a filter")
    return options
