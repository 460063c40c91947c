"""Recent documents, as GTK and KDE programs list them."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import AsyncIterator
from ctypes import byref, c_size_t, c_void_p, sizeof
from dataclasses import dataclass

from . import _native
from ._native import check, lib
from ._source import Handle, Source

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True)
class RecentDocument:
    """A recent document."""

    uri: str
    path: str | None
    """Its path, or None if it is not in a file."""
    mime_type: str | None
    application: str | None
    """The program that opened it last."""
    command: str | None
    """The command of that program."""
    used_us: int
    """When it was used last, in microseconds since 1970."""
    added_us: int
    """When it came into the list."""
    count: int
    """How often that program opened it."""
    is_private: bool
    """Whether only the programs that opened it shall show it."""

    @property
    def used(self) -> datetime.datetime:
        """When it was used last."""
        return _EPOCH + datetime.timedelta(microseconds=self.used_us)

    @property
    def added(self) -> datetime.datetime:
        """When it came into the list."""
        return _EPOCH + datetime.timedelta(microseconds=self.added_us)


@dataclass(frozen=True)
class Addition:
    """What became of a document that was added. It is true if it is remembered."""

    is_remembered: bool
    reason: str = ""
    """Why it is not: what the user's policy says."""

    def __bool__(self) -> bool:
        return self.is_remembered


class Recents(Source):
    """The recent documents of this user. No bus is used."""

    def __init__(self) -> None:
        super().__init__()
        place = c_void_p()
        check(lib.unjank_recents_open(byref(place)))
        self._native = Handle(place.value or 0, lib.unjank_recents_close)

    def _descriptor(self, native: Handle) -> int:
        return check(lib.unjank_recents_fd(native.value))

    def add(
        self,
        document: str | os.PathLike[str],
        application: str,
        *,
        mime_type: str | None = None,
        command: str | None = None,
        group: str | None = None,
        private: bool = False,
    ) -> Addition:
        """Remembers a document that a program opened: an absolute path or a URI, and the program's desktop id.

        One append to a journal, whatever the length of the list. What the user's policy is against is written
        nowhere, and the result is false and has the reason. Raises OSError if it cannot be written.
        """
        name = os.fspath(document)
        asked = _native.Addition(sizeof(_native.Addition))
        asked.document = _native.path_argument(name)
        asked.application = _native.text_argument(application, "an application")
        asked.mime_type = _native.optional_text(mime_type, "a MIME type")
        asked.command = _native.optional_text(command, "a command")
        asked.group = _native.optional_text(group, "a group")
        asked.is_private = bool(private)
        native = self._open()
        with self._lock:
            if check(lib.unjank_recents_add(native.value, byref(asked)), name) == 1:
                return Addition(False, _native.error_text())
        return Addition(True)

    def documents(
        self,
        *,
        application: str | None = None,
        mime_type: str | None = None,
        group: str | None = None,
        below: str | os.PathLike[str] | None = None,
        most: int = 0,
    ) -> list[RecentDocument]:
        """Returns the list, with what GTK and KDE programs wrote, the latest first.

        application and mime_type are patterns ("org.kde.*", "image/*"), below is a folder, most is how many at most.
        """
        query = _native.RecentsQuery(sizeof(_native.RecentsQuery))
        query.application = _native.optional_text(application, "an application")
        query.mime_type = _native.optional_text(mime_type, "a MIME type")
        query.group = _native.optional_text(group, "a group")
        query.below = None if below is None else _native.path_argument(below)
        if most < 0:
            raise ValueError("a number of documents is not negative")
        query.most = most
        native, count = self._open(), c_size_t()
        with self._lock:
            check(lib.unjank_recents_list(native.value, byref(query), byref(count)))
            return [self._document(native, number) for number in range(count.value)]

    def _document(self, native: Handle, number: int) -> RecentDocument:
        recent = _native.Recent(sizeof(_native.Recent))
        check(lib.unjank_recents_get(native.value, number, byref(recent)))
        texts = (recent.uri, recent.mime_type, recent.application, recent.command)
        uri, mime_type, application, command = (text and text.decode("utf-8", "replace") for text in texts)
        return RecentDocument(
            uri=uri,
            path=recent.path and os.fsdecode(recent.path),
            mime_type=mime_type,
            application=application,
            command=command,
            used_us=recent.used,
            added_us=recent.added,
            count=recent.count,
            is_private=bool(recent.is_private),
        )

    def changed(self) -> bool:
        """Returns whether the list may be another one than at the last call. Does not wait."""
        native = self._open()
        with self._lock:
            check(lib.unjank_recents_fd(native.value))
            return check(lib.unjank_recents_changed(native.value)) == 1

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the list may be another one, at most timeout seconds; returns whether it may."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.changed():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._wait(left, self._progress)
        return True

    async def follow(self) -> AsyncIterator[list[RecentDocument]]:
        """Returns the list each time that it changes, in asyncio."""
        while True:
            while not self.changed():
                await self.readable()
            yield self.documents()
