"""Directory listings: entries one after another, columns, and what happens in a directory."""

from __future__ import annotations

import ctypes
import enum
import errno
import os
import sys
import time
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from ctypes import byref, c_char, c_size_t, c_uint32, c_void_p, sizeof
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._columns import Columns, gathered
from ._entry import UNKNOWN_TIME, Entry, Field, columns_of, entry_type, failed_type
from ._native import check, lib
from ._source import Handle, Source

if TYPE_CHECKING:
    from ._model import Model, Order

PathType = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_FOLLOW, _DAEMON, _WORKER = 1, 2, 4
_NAMES, _ATTRIBUTES, _REMOVED, _RENAMED, _FAILED, _DONE, _SORTED = range(1, 8)
# Of UNJANK_FAILED: the changes cannot be followed, or there is nothing to follow any more.
_STEP_FOLLOW, _STEP_GONE = 5, 6


class EventType(enum.IntEnum):
    """What happened in a listing."""

    NAMES = _NAMES
    ATTRIBUTES = _ATTRIBUTES
    REMOVED = _REMOVED
    RENAMED = _RENAMED
    FAILED = _FAILED
    DONE = _DONE
    SORTED = _SORTED
    """Models put names that had arrived before into their rows."""


@dataclass(frozen=True)
class Event:
    """One thing that happened in a listing."""

    type: EventType
    ids: Sequence[int]
    """The entries that it happened to, by their numbers."""
    error: OSError | None = None
    """Of FAILED: how."""


@dataclass(frozen=True)
class NameChunk:
    """Names that arrived together, where they arrived: views that numpy takes without a copy.

    They stay as long as one of the views does, also when the listing is closed.
    """

    first: int
    """The id of the first entry."""
    kinds: memoryview
    """What each entry is, a byte each: a Kind. UNKNOWN where a file system says so only with the attributes."""
    ends: memoryview
    """Where each name ends in the text, behind its NUL, four bytes each."""
    text: memoryview
    """The names one after another, each with a NUL."""


def _place(column: bytearray) -> int:
    """Returns where the bytes of a column are."""
    return ctypes.addressof(c_char.from_buffer(column)) if column else 0


class Listing(Source):
    """The entries of a directory, as they arrive.

    Names come first, attributes after. ``for entry in listing`` gives each entry when its attributes are there;
    ``read()`` waits for all of them and gives columns. A directory that cannot be read raises OSError there.
    """

    def __init__(
        self,
        path: PathType,
        *,
        fields: Field = Field.DEFAULT,
        follow: bool = False,
        daemon: bool | PathType = False,
        worker: bool | PathType = False,
        threads: int = 0,
        most: int = 0,
    ) -> None:
        """Begins to list the directory at path. Nothing is waited for.

        follow: changes of the directory arrive after it was read, until close().
        daemon: the daemon of the session is asked first (True, or the path of its socket).
        worker: a worker process reads (True, or the path of the program ``unjank``); one that hangs is given up.
        threads, most: how many threads read attributes, and how many entries there may be; 0 is chosen for you.
        """
        super().__init__()
        asked = _native.path_argument(path)
        if not asked:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.directory: str = os.fsdecode(path)
        """The path that was given, as os.fsdecode() makes it."""
        self.fields = Field(fields)
        """The attributes that were asked for."""
        flags = _FOLLOW * bool(follow) | _DAEMON * bool(daemon) | _WORKER * bool(worker)
        options = _native.ListingOptions(
            sizeof(_native.ListingOptions), _number(int(fields)), flags, _number(threads), _number(most)
        )
        options.worker = None if isinstance(worker, bool) else _native.path_argument(worker)
        options.daemon = None if isinstance(daemon, bool) else _native.path_argument(daemon)
        place = c_void_p()
        check(lib.unjank_listing_open(asked, byref(options), byref(place)), self.directory)
        self._native = Handle(place.value or 0, lib.unjank_listing_close)
        self._is_followed = bool(follow)
        self._columns_wanted = columns_of(self.fields)
        self._names: list[str] = []
        # Chunks of names that were not looked at yet: where they are, and how long.
        self._texts: list[tuple[int, int]] = []
        self._kinds = bytearray()
        self._known = bytearray()
        self._columns = {name: bytearray() for name, _, _ in self._columns_wanted}
        self._is_shared = False
        self._errors: dict[int, int] = {}
        self._exact: dict[tuple[str, int], int] = {}
        self._renamed: dict[int, str] = {}
        self._removed: set[int] = set()
        self._wanted: set[int] = set()
        self._strings = _Strings(self)
        self._is_done = False
        self._failure: OSError | None = None
        self._event = _native.Event(sizeof(_native.Event))
        # Models that nobody refers to, to be closed by whoever takes something next.
        self._unused_models: list[int] = []

    def _descriptor(self, native: Handle) -> int:
        return check(lib.unjank_listing_fd(native.value))

    def _end(self, native: Handle) -> None:
        lib.unjank_listing_cancel(native.value)

    def _close_unused_models(self) -> None:
        """Closes models that could not be closed while another thread used the listing. The caller has the lock."""
        while self._unused_models:
            lib.unjank_model_close(self._unused_models.pop())

    def close(self) -> None:
        native = self._native
        super().close()
        if native is not None and native.pid == os.getpid():
            with self._lock:
                self._close_unused_models()

    def cancel(self) -> None:
        """Ends the reading: whoever waits, in whatever thread, gets an OSError (ECANCELED). What arrived stays."""
        native = self._open()
        check(lib.unjank_listing_cancel(native.value), self.directory)

    @property
    def is_done(self) -> bool:
        """Whether everything was read once."""
        return self._is_done

    def __len__(self) -> int:
        """Returns how many entries arrived and are not removed."""
        return len(self._kinds) - len(self._removed)

    # ------------------------------------------------------------- what happens

    def next(self, timeout: float | None = None) -> Event | None:
        """Waits for what happens next, at most timeout seconds. Returns None if nothing did, or nothing more will.

        Raises OSError: ECANCELED after cancel(), ECONNRESET if the worker or the daemon ended.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            native = self._open()
            with self._lock:
                event = self._take(native)
                if event is not None:
                    return event
                if self._is_over():
                    return None
                progress = self._progress
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._wait(left, progress)

    def events(self) -> Iterator[Event]:
        """Returns what happens, one after another; of a listing that is followed, without an end."""
        while (event := self.next()) is not None:
            yield event

    async def next_async(self) -> Event | None:
        """As next(), in asyncio."""
        while True:
            progress = self._progress
            event = self.next(0)
            if event is not None or self._is_over():
                return event
            await self._wait_async(progress)

    def _is_over(self) -> bool:
        return self._is_done and not self._is_followed and not self._wanted

    def _take(self, native: Handle) -> Event | None:
        """Takes what happened, if something did, into the columns."""
        event = self._event
        self._close_unused_models()
        if check(lib.unjank_listing_next(native.value, 0, byref(event)), self.directory) == 0:
            return None
        self._notify()
        kind, first, count = event.type, event.first, event.count
        ids: Sequence[int] = event.ids[:count] if event.ids else range(first, first + count)
        if kind == _NAMES:
            self._take_names(native, first, count)
        elif kind == _ATTRIBUTES:
            self._take_attributes(native, ids)
        elif kind == _REMOVED:
            self._removed.update(ids)
            self._wanted.difference_update(ids)
        elif kind == _RENAMED:
            for number in ids:
                facts = self._facts(native, number)
                self._renamed[number] = _native.text_at(facts.name, facts.name_length)
        elif kind == _DONE:
            self._is_done, ids = True, range(count)
        elif kind == _SORTED:
            ids = ()
        elif kind == _FAILED:
            error = OSError(-event.error, os.strerror(-event.error), self.directory)
            if event.step not in (_STEP_FOLLOW, _STEP_GONE):
                self._failure = error
            return Event(EventType.FAILED, (), error)
        return Event(EventType(kind), ids)

    def _own(self) -> None:
        """Makes the columns ours alone, if somebody has views of them."""
        if self._is_shared:
            self._kinds = bytearray(self._kinds)
            self._columns = {name: bytearray(column) for name, column in self._columns.items()}
            self._is_shared = False

    def _take_names(self, native: Handle, first: int, count: int) -> None:
        self._own()
        names = _native.Names(sizeof(_native.Names))
        at, end = first, first + count
        while at < end:
            check(lib.unjank_listing_names(native.value, at, byref(names)), self.directory)
            begin, number = names.first, names.count
            self._kinds += ctypes.string_at(names.types, number)
            last = names.ends + 4 * (number - 1)
            self._texts.append((names.text, c_uint32.from_address(last).value))
            at = begin + number
        self._known += bytes(count)
        for name, _, code in self._columns_wanted:
            self._columns[name] += bytes(count * _native.WIDTHS[code])

    def _take_attributes(self, native: Handle, ids: Sequence[int]) -> None:
        self._own()
        self._wanted.difference_update(ids)
        found = _native.Attributes(sizeof(_native.Attributes))
        result = lib.unjank_listing_attributes(native.value, byref(found))
        if result != -errno.ENODATA:
            check(result, self.directory)
            self._copy_columns(native, found, ids)
        for failed in found.failed[: found.failures] if found.failures else ():
            self._errors[ids[failed.row]] = failed.error
        if isinstance(ids, range):
            first, end = ids.start, ids.stop
            self._known[first:end] = b"\1" * (end - first)
            at = self._kinds.find(0, first, end)
            while at >= 0:
                self._kinds[at] = self._facts(native, at).type & 0xFF
                at = self._kinds.find(0, at + 1, end)
            return
        for number in ids:
            self._known[number] = 1
            self._kinds[number] = self._facts(native, number).type & 0xFF

    def _copy_columns(self, native: Handle, found: _native.Attributes, ids: Sequence[int]) -> None:
        """Copies the columns that arrived to the rows of their entries."""
        count = found.count
        failed_before = [number for number in self._errors if number in ids] if self._errors else []
        for number in failed_before:
            del self._errors[number]
        for name, member, code in self._columns_wanted:
            source = getattr(found, member)
            if not source:
                continue
            width, column = _native.WIDTHS[code], self._columns[name]
            start = _place(column)
            if isinstance(ids, range):
                target = start + ids.start * width
                if code != "q":
                    ctypes.memmove(target, source, count * width)
                elif check(lib.unjank_unpack_times(source, count, target)):
                    self._exact_times(native, name, member, ids)
                continue
            for row, number in enumerate(ids):
                target, there = start + number * width, source + row * width
                if code != "q":
                    ctypes.memmove(target, there, width)
                elif check(lib.unjank_unpack_times(there, 1, target)):
                    self._exact_times(native, name, member, (number,))
                else:
                    self._exact.pop((name, number), None)

    def _exact_times(self, native: Handle, name: str, member: str, ids: Sequence[int]) -> None:
        """Asks for times that a column cannot hold: long before 1970, or long after."""
        times = memoryview(self._columns[name]).cast("q")
        for number in ids:
            if times[number] == UNKNOWN_TIME:
                found = getattr(self._facts(native, number), member)
                if found.known:
                    self._exact[name, number] = found.seconds * 10**9 + found.nanoseconds

    def _facts(self, native: Handle, number: int) -> _native.EntryFacts:
        facts = _native.EntryFacts(sizeof(_native.EntryFacts))
        check(lib.unjank_listing_entry(native.value, number, byref(facts)), self.directory)
        return facts

    def _text(self, number: int) -> str | None:
        """Returns the text with a number: the target of a link, a MIME type."""
        if number == 0:
            return None
        native = self._open()
        place, length = c_void_p(), c_size_t()
        with self._lock:
            result = lib.unjank_listing_text(native.value, number, byref(place), byref(length))
            if result == -errno.ENOENT:
                return None
            check(result, self.directory)
            return _native.text_at(place.value, length.value)

    def owner_name(self, user: int) -> str | None:
        """Returns the name of a user, where OWNER_NAMES was asked for and the system has a name."""
        return self._owner_name(0, user)

    def group_name(self, group: int) -> str | None:
        """Returns the name of a group, as owner_name()."""
        return self._owner_name(1, group)

    def _owner_name(self, is_group: int, number: int) -> str | None:
        native = self._open()
        place, length = c_void_p(), c_size_t()
        with self._lock:
            result = lib.unjank_listing_owner_name(
                native.value, is_group, _number(number), byref(place), byref(length)
            )
            if result == -errno.ENOENT:
                return None
            check(result, self.directory)
            return _native.text_at(place.value, length.value)

    def want(self, ids: Iterable[int]) -> None:
        """Has the attributes of these entries read before all others; those that are known are read again."""
        wanted = list(ids)
        native = self._open()
        array = (c_uint32 * len(wanted))(*map(_number, wanted))
        with self._lock:
            result = lib.unjank_listing_want(native.value, array, len(wanted))
            if result != -errno.EAGAIN:
                check(result, self.directory)
                there = range(len(self._kinds))
                self._wanted.update(n for n in wanted if n in there and n not in self._removed)

    # ------------------------------------------------------------- what arrived

    def _decoded(self) -> list[str]:
        """Returns the names of all entries, as os.fsdecode() makes them."""
        names = self._names
        if self._texts:
            encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
            texts, self._texts = self._texts, []
            for place, length in texts:
                text = ctypes.string_at(place, length)
                if encoding == "utf-8":
                    # No byte of another character is NUL, and none that is wrong takes one with it.
                    names += text.decode(encoding, errors).split("\0")
                else:
                    names += map(os.fsdecode, text.split(b"\0"))
                # Behind the last NUL.
                names.pop()
        if self._renamed:
            for number, name in self._renamed.items():
                names[number] = name
            self._renamed = {}
        return names

    def _ready(self) -> int:
        """Returns up to which entry everything arrived that was asked for."""
        if self._is_done:
            return len(self._kinds)
        known = self._known if self._columns_wanted else self._kinds
        end = known.find(0)
        return len(known) if end < 0 else end

    def __iter__(self) -> Iterator[Entry]:
        """Returns each entry once, in the order in which they arrive, when its attributes are there."""
        return chain.from_iterable(self._batches())

    def _batches(self) -> Iterator[Iterable[Entry]]:
        begin = 0
        while True:
            with self._turn():
                end = self._ready()
                batch = self._entries(range(begin, end)) if end > begin else None
            if batch is not None:
                yield batch
                begin = end
                continue
            if self._is_done:
                break
            self._wait_for_more(end)
        if self._failure is not None:
            raise self._failure

    async def __aiter__(self) -> AsyncIterator[Entry]:
        """As __iter__(), in asyncio."""
        begin = 0
        while True:
            with self._turn():
                end = self._ready()
                batch = self._entries(range(begin, end))
            for entry in batch:
                yield entry
            if self._is_done and begin == end:
                break
            begin = end
            progress = self._progress
            if not self._is_done and self.next(0) is None and self._ready() == end:
                await self._wait_async(progress)
        if self._failure is not None:
            raise self._failure

    def _wait_for_more(self, seen: int | None) -> None:
        """Takes what happens next, or waits until another thread did; not if more than was seen is there by now."""
        with self._turn():
            progress = self._progress
            is_over = self._take(self._open()) is not None or self._is_done
            if is_over or (seen is not None and self._ready() > seen):
                return
        self._wait(None, progress)

    def _entries(self, ids: Sequence[int]) -> Iterable[Entry]:
        """Returns entries by their numbers. Made at once for all of them, in C."""
        names = self._decoded()
        if isinstance(ids, range) and ids.step == 1:
            at = slice(ids.start, ids.stop)

            def column(values: Any) -> Any:
                return values[at].tolist() if isinstance(values, memoryview) else values[at]
        else:

            def column(values: Any) -> Any:
                return map(values.__getitem__, ids)

        items = [repeat(self.directory), column(names), column(self._kinds), iter(ids)]
        for name, _, code in self._columns_wanted:
            values = column(memoryview(self._columns[name]).cast(code))
            if name == "mime_type":
                values = map(self._strings.__getitem__, values)
            elif name == "target":
                values = [(self._strings[v >> 32], v & 0xFFFF) for v in values]
            items.append(values)
        entries = map(tuple.__new__, repeat(entry_type(self.fields)), zip(*items))
        if self._errors or self._exact or self._removed or not self._is_known(ids):
            return self._corrected(entries)
        return entries

    def _is_known(self, ids: Sequence[int]) -> bool:
        if not self._columns_wanted:
            return True
        if isinstance(ids, range):
            return self._known.find(0, ids.start, ids.stop) < 0
        return all(map(self._known.__getitem__, ids))

    def _corrected(self, entries: Iterable[Entry]) -> list[Entry]:
        """Returns entries without those that are gone, with their failures, and with times that no column holds."""
        found: list[Entry] = []
        names = [name for name, _, _ in self._columns_wanted]
        for entry in entries:
            number: int = entry[3]
            if number in self._removed:
                continue
            error = self._errors.get(number, 0)
            if not error and self._columns_wanted and not self._known[number]:
                error = errno.EAGAIN
            if error and names:
                entry = failed_type(self.fields)((*entry, error))
            elif self._exact:
                items = list(entry)
                for at, name in enumerate(names, 4):
                    items[at] = self._exact.get((name, number), items[at])
                entry = entry_type(self.fields)(items)
            found.append(entry)
        return found

    def entry(self, number: int) -> Entry:
        """Returns an entry by its number, as it is known now.

        Attributes that did not arrive yet raise OSError (EAGAIN).
        """
        with self._turn():
            if not 0 <= number < len(self._kinds):
                raise IndexError(f"there is no entry {number}")
            found = list(self._entries((number,)))
        if not found:
            raise FileNotFoundError(errno.ENOENT, "the entry was removed", self.directory)
        return found[0]

    def entries(self, ids: Iterable[int]) -> list[Entry]:
        """Returns entries by their numbers; those that are removed are left out."""
        wanted = list(ids)
        with self._turn():
            if wanted and not (min(wanted) >= 0 and max(wanted) < len(self._kinds)):
                raise IndexError("there is no such entry")
            return list(self._entries(wanted))

    def columns(self) -> Columns:
        """Returns the columns of what arrived up to now. They do not change any more."""
        with self._turn():
            names = self._decoded()
            if self._removed:
                ids = [n for n in range(len(names)) if n not in self._removed]
                return self._gathered(ids)
            self._is_shared = True
            columns = {"kind": memoryview(self._kinds).toreadonly()}
            for name, _, code in self._columns_wanted:
                columns[name] = memoryview(self._columns[name]).toreadonly().cast(code)
            return Columns(
                self.directory, list(names), columns, self._failures(range(len(names))), self._strings
            )

    def _gathered(self, ids: Sequence[int]) -> Columns:
        """Returns the columns of some entries, in this order."""
        names = self._decoded()
        columns = {"kind": gathered(memoryview(self._kinds), "B", ids)}
        for name, _, code in self._columns_wanted:
            columns[name] = gathered(memoryview(self._columns[name]).cast(code), code, ids)
        return Columns(
            self.directory, [names[n] for n in ids], columns, self._failures(ids), self._strings
        )

    def _failures(self, ids: Sequence[int]) -> dict[int, int]:
        """Returns the rows without attributes, and why."""
        errors = dict(self._errors)
        if not self._is_known(ids):
            errors.update({n: errno.EAGAIN for n in ids if not self._known[n]})
        if not errors or isinstance(ids, range):
            return errors
        return {row: errors[n] for row, n in enumerate(ids) if n in errors}

    def read(self) -> Columns:
        """Waits until everything was read and returns its columns. Raises OSError if the directory cannot be read."""
        while not self._is_done:
            self._wait_for_more(None)
        if self._failure is not None:
            raise self._failure
        return self.columns()

    def name_chunks(self) -> list[NameChunk]:
        """Returns the names that arrived up to now, where they arrived: nothing is copied."""
        native = self._open()
        found: list[NameChunk] = []
        names = _native.Names(sizeof(_native.Names))
        with self._lock:
            at = 0
            while at < len(self._kinds):
                check(lib.unjank_listing_names(native.value, at, byref(names)), self.directory)
                count = names.count
                length = c_uint32.from_address(names.ends + 4 * (count - 1)).value
                found.append(
                    NameChunk(
                        names.first,
                        _lent(native, names.types, count, "B"),
                        _lent(native, names.ends, 4 * count, "I"),
                        _lent(native, names.text, length, "B"),
                    )
                )
                at = names.first + count
        return found

    def model(self, order: Order | None = None) -> Model:
        """Makes rows for a view: entries in an order, filtered. See Model."""
        from ._model import Model

        return Model(self, order)


class _Strings(dict[int, str | None]):
    """Texts of a listing by their numbers, each made once."""

    def __init__(self, listing: Listing) -> None:
        super().__init__()
        # Not a cycle: who drops a listing gets its memory back at once.
        self._listing = weakref.ref(listing)

    def __missing__(self, number: int) -> str | None:
        listing = self._listing()
        found = listing._text(number) if listing else None
        self[number] = found
        return found


def _lent(native: Handle, place: int, length: int, code: Literal["B", "I"]) -> memoryview:
    """Returns a view of memory that the library lends as long as the handle is open; the view keeps it open."""
    array = (ctypes.c_ubyte * length).from_address(place)
    array.keeps = native  # type: ignore[attr-defined]
    return memoryview(array).cast("B").toreadonly().cast(code)


def _number(value: int) -> int:
    """Returns a number that C has 32 bits for."""
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} is not a number of 32 bits")
    return value


def scandir(path: PathType = ".", fields: Field = Field.DEFAULT) -> Iterator[Entry]:
    """Returns the entries of a directory with their attributes, as they arrive: os.scandir() and stat() in one.

    Raises OSError when the first entry is taken if the directory cannot be read.
    """
    return iter(Listing(path, fields=fields))


def read_directory(path: PathType = ".", fields: Field = Field.DEFAULT) -> Columns:
    """Reads a whole directory and returns its entries as columns."""
    with Listing(path, fields=fields) as listing:
        return listing.read()
