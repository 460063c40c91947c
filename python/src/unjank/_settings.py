"""Settings, as dconf and GSettings keep them: read in this process, written through the settings service."""

from __future__ import annotations

import ctypes
import enum
import errno
import queue
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping
from ctypes import POINTER, byref, c_char_p, c_size_t, c_void_p, sizeof
from types import TracebackType
from typing import Any

from . import _native
from ._native import check, lib
from ._source import Handle, Source
from ._variants import Variant, decode, encode, infer


class Which(enum.IntEnum):
    """Which of the values that a key may have."""

    IN_FORCE = 0
    USER = 1
    DEFAULT = 2


class _Write:
    """A write that was begun."""

    def __init__(self, changes: Any, limit_ms: int, what: str | None) -> None:
        self.changes = changes
        self.limit_ms = limit_ms
        self.what = what
        self.ended = threading.Event()
        self.failure: BaseException | None = None


class Settings(Source, MutableMapping[str, Any]):
    """The settings of this user, as a mapping from keys ("/org/gnome/desktop/interface/font-name") to values.

    Values: bool, int, float, str; bytes for "ay", list for other arrays, dict for dictionaries, tuple for tuples,
    None for an empty "maybe", Variant for a variant within. A new value gets the type of the one that is there; if
    none is there, the type is inferred (bool, 32-bit integer, double, string), or given as a Variant.

    Schemas are not read: a key that nobody set is a KeyError, and its default is in the schema.
    """

    def __init__(self, profile: str | None = None) -> None:
        """Opens the settings of a profile of dconf, or of that of the environment. No bus is used to read."""
        Source.__init__(self)
        self.write_timeout = 25.0
        """How many seconds a write waits for the service."""
        self._profile = _native.optional_text(profile, "a profile")
        self._native = self._handle()
        # Writing waits, so it has a handle of its own: others read and watch meanwhile.
        self._writer: Handle | None = None
        self._writing = threading.Lock()
        # The writes that were begun, in the order in which they are made, whichever thread is first to make one.
        self._begun: queue.SimpleQueue[_Write] = queue.SimpleQueue()

    def _handle(self) -> Handle:
        place = c_void_p()
        check(lib.unjank_settings_open(self._profile, byref(place)))
        return Handle(place.value or 0, lib.unjank_settings_close)

    def _descriptor(self, native: Handle) -> int:
        return check(lib.unjank_settings_fd(native.value))

    def close(self) -> None:
        """Closes the settings."""
        super().close()
        self._writer = None

    # ------------------------------------------------------------------ reading

    def variant(self, key: str, which: Which = Which.IN_FORCE) -> Variant | None:
        """Returns a value with its type, or None if there is none."""
        path = _key(key)
        native, value = self._open(), _native.Value(sizeof(_native.Value))
        with self._lock:
            result = lib.unjank_settings_get(native.value, path, Which(which), byref(value))
            if result == -errno.ENOENT:
                return None
            check(result, key)
            types, data = value.type.decode(), ctypes.string_at(value.data, value.length)
        return Variant(types, decode(types, data, ">" if value.swapped else "<"))

    def text(self, key: str, which: Which = Which.IN_FORCE) -> str | None:
        """Returns a value in GVariant's text form, as ``dconf read`` prints it, or None if there is none."""
        path, place = _key(key), c_char_p()
        native = self._open()
        with self._lock:
            result = lib.unjank_settings_get_text(native.value, path, Which(which), byref(place))
            if result == -errno.ENOENT:
                return None
            check(result, key)
            return (place.value or b"").decode()

    def __getitem__(self, key: str) -> Any:
        found = self.variant(key)
        if found is None:
            raise KeyError(key)
        return found.value

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.variant(key) is not None

    def names(self, directory: str = "/") -> list[str]:
        """Returns the names in a directory ("/org/gnome/"), sorted: "b" for a key, "c/" for a directory."""
        path = _native.text_argument(directory, "a directory")
        native, names, count = self._open(), POINTER(c_char_p)(), c_size_t()
        with self._lock:
            check(lib.unjank_settings_list(native.value, path, byref(names), byref(count)), directory)
            return _native.texts_of(names, count.value)

    def keys_below(self, directory: str = "/") -> Iterator[str]:
        """Returns all keys below a directory, in order."""
        for name in self.names(directory):
            if name.endswith("/"):
                yield from self.keys_below(directory + name)
            else:
                yield directory + name

    def __iter__(self) -> Iterator[str]:
        return self.keys_below("/")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True

    def is_writable(self, key: str) -> bool:
        """Whether a value of the key can be set: it is not locked by the administrator."""
        path, native = _key(key), self._open()
        with self._lock:
            return check(lib.unjank_settings_is_writable(native.value, path), key) == 1

    # ------------------------------------------------------------------ writing

    def __setitem__(self, key: str, value: Any) -> None:
        self.write({key: value})

    def __delitem__(self, key: str) -> None:
        """Resets a key. KeyError if the user has no value of it."""
        if self.variant(key, Which.USER) is None:
            raise KeyError(key)
        self.write({key: None})

    def reset(self, path: str) -> None:
        """Resets a key, or all keys below a directory ("/org/gnome/")."""
        self.write({path: None})

    def update(self, *changes: Any, **none: Any) -> None:
        """As that of a dict, but all changes are made or none."""
        self.write(dict(*changes, **none))

    def changes(self) -> Changes:
        """Returns changes that are collected in a ``with`` block and made at its end, all or none."""
        return Changes(self)

    def write(self, changes: Mapping[str, Any], timeout: float | None = None) -> None:
        """Makes changes, all or none, and waits until the service says that they are on the disk.

        timeout is how many seconds; without it, write_timeout.
        A value of None resets a key, or all below a directory. Raises PermissionError if a key is locked, OSError:
        ENOTCONN if there is no bus or no service, EREMOTEIO if it refused (nothing was changed then), ETIMEDOUT and
        ECONNRESET if it is not known. After a KeyboardInterrupt the change may still be made, but not after one that was
        begun later.
        """
        self._open()
        asked: list[tuple[bytes, bytes | None]] = []
        for path, value in changes.items():
            place = _native.text_argument(path, "a path")
            if value is None:
                asked.append((place, None))
            else:
                asked.append((place, _native.text_argument(self._encoded(path, value), "a value")))
        seconds = self.write_timeout if timeout is None else timeout
        limit = min(max(int(seconds * 1000), 1), 2**31 - 1)
        array = (_native.Change * len(asked))(*(_native.Change(*one) for one in asked))
        what = next(iter(changes)) if len(changes) == 1 else None
        write = _Write(array, limit, what)
        self._begun.put(write)
        if threading.current_thread() is threading.main_thread():
            # Ctrl-C interrupts the wait for a thread, but not a call of the library.
            name = "unjank settings write"
            thread = threading.Thread(target=self._write_up_to, args=(write,), name=name, daemon=True)
            try:
                thread.start()
            except BaseException:
                if thread.ident is None:
                    # There is no thread to make it, and that of a later write shall not.
                    write.ended.set()
                raise
        else:
            self._write_up_to(write)
        write.ended.wait()
        if write.failure is not None:
            raise write.failure

    def _encoded(self, path: str, value: Any) -> str:
        if isinstance(value, Variant):
            return encode(value.type, value)
        known = None if path.endswith("/") else self.variant(path)
        if known is not None:
            return encode(known.type, value)
        found = infer(value)
        return encode(found.type, found.value)

    def _write_up_to(self, last: _Write) -> None:
        """Makes the writes that were begun up to this one: one that Ctrl-C left behind is made before one that came later."""
        with self._writing:
            while not last.ended.is_set():
                write = self._begun.get_nowait()
                if write.ended.is_set():
                    continue
                try:
                    self._write(write)
                except BaseException as error:
                    write.failure = error
                write.ended.set()

    def _write(self, write: _Write) -> None:
        self._open()
        writer = self._writer
        if writer is None:
            writer = self._writer = self._handle()
        result = lib.unjank_settings_write(writer.value, write.changes, len(write.changes), write.limit_ms)
        check(result, write.what)

    # ----------------------------------------------------------------- watching

    def watch(self, path: str) -> None:
        """Watches a key or, with all below it, a directory. Files are watched: changes of all programs are seen."""
        native, place = self._open(), _native.text_argument(path, "a path")
        with self._lock:
            check(lib.unjank_settings_watch(native.value, place), path)

    def changed(self) -> list[str]:
        """Returns the keys below what is watched whose values are others than at the last call. Does not wait."""
        native, keys, count = self._open(), POINTER(c_char_p)(), c_size_t()
        with self._lock:
            check(lib.unjank_settings_changed(native.value, byref(keys), byref(count)))
            return _native.texts_of(keys, count.value)

    def wait(self, timeout: float | None = None) -> list[str]:
        """Waits until values changed, at most timeout seconds, and returns their keys; [] if none did."""
        import time

        end = None if timeout is None else time.monotonic() + timeout
        while True:
            progress = self._progress
            if found := self.changed():
                return found
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return []
            self._wait(left, progress)

    async def wait_async(self) -> list[str]:
        """As wait(), in asyncio."""
        while not (found := self.changed()):
            await self.readable()
        return found

    async def follow(self) -> AsyncIterator[list[str]]:
        """Returns the keys that changed, again and again, in asyncio."""
        while True:
            yield await self.wait_async()

    def __repr__(self) -> str:
        return f"<unjank.Settings{' (closed)' if self.closed else ''}>"

    # Settings are an object and not a value.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Changes(dict[str, Any]):
    """Changes that are made together at the end of a ``with`` block; none if it is left by an exception."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def reset(self, path: str) -> None:
        """Resets a key, or all keys below a directory."""
        self[path] = None

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self:
            self._settings.write(self)


def _key(key: str) -> bytes:
    path = _native.text_argument(key, "a key")
    if not path.startswith(b"/") or path.endswith(b"/") or b"//" in path:
        raise ValueError(f"{key!r} is not a key: it begins with / and does not end so")
    return path
