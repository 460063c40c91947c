"""What listings, settings and recent documents have in common: one handle of the library, closing it, and waiting."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import select
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

Self = TypeVar("Self", bound="Source")


class Handle:
    """A handle of the library. It is closed when nobody refers to it any more: not while a call or a view uses it."""

    __slots__ = ("_close", "_getpid", "pid", "value")

    def __init__(self, value: int, close: Callable[[int], int]) -> None:
        self.value = value
        self.pid = os.getpid()
        self._close = close
        # At the end of the interpreter the names of modules may be gone.
        self._getpid = os.getpid

    def check(self) -> Handle:
        """Returns itself; OSError in a forked child, where the handle is the parent's."""
        if self.pid != os.getpid():
            raise OSError(errno.ESTALE, "the object belongs to the process before fork")
        return self

    def __del__(self) -> None:
        # In a forked child the handle is the parent's.
        if self._getpid() == self.pid:
            self._close(self.value)


class Source:
    """An object of the library with one descriptor to wait for.

    It may be used from several threads: calls take turns. In a forked child it raises OSError (ESTALE), after
    close() ValueError.
    """

    _native: Handle | None = None

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # How often something was taken: who waits has another look then.
        self._progress = 0
        # The eventfds of those who wait.
        self._waiting: set[int] = set()

    def _open(self) -> Handle:
        """Returns the handle; a caller keeps it as long as it uses what it stands for."""
        native = self._native
        if native is None:
            raise ValueError(f"the {type(self).__name__} is closed")
        return native.check()

    def _turn(self) -> threading.RLock:
        """Returns the lock under which the object is used, once it is certain that it can be."""
        # In a forked child the lock may be held by a thread that is not there.
        self._open()
        return self._lock

    def _descriptor(self, native: Handle) -> int:
        raise NotImplementedError

    def fileno(self) -> int:
        """Returns the descriptor that is readable when there is something to take. It belongs to the object."""
        native = self._open()
        with self._lock:
            return self._descriptor(native)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._native is None

    def close(self) -> None:
        """Closes the object. Threads that wait for it get a ValueError; closing twice is allowed."""
        native, self._native = self._native, None
        if native is not None and native.pid == os.getpid():
            self._end(native)
            with self._lock:
                self._notify()

    def _end(self, native: Handle) -> None:
        """Ends what the library does for the object."""

    def _notify(self) -> None:
        """Has all who wait look again. The caller has the lock."""
        self._progress += 1
        for descriptor in self._waiting:
            os.eventfd_write(descriptor, 1)

    def __enter__(self: Self) -> Self:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _descriptors(self, progress: int) -> Iterator[list[int] | None]:
        """Gives the descriptors to wait for; None if something was taken since the caller looked."""
        own = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            with self._turn():
                if self._progress != progress:
                    yield None
                    return
                source = self._descriptor(self._open())
                self._waiting.add(own)
            yield [source, own]
        finally:
            with self._lock:
                self._waiting.discard(own)
            os.close(own)

    def _wait(self, timeout: float | None, progress: int) -> None:
        """Waits until there is something to take, or was since the caller looked. Signals are handled meanwhile."""
        # The handle stays open as long as its descriptor is used.
        native = self._open()
        poll = select.poll()
        # A poll takes at most so many milliseconds.
        limit = None if timeout is None else min(math.ceil(max(timeout, 0) * 1000), 2**31 - 1)
        with self._descriptors(progress) as descriptors:
            if descriptors is not None:
                for descriptor in descriptors:
                    poll.register(descriptor, select.POLLIN)
                poll.poll(limit)
        del native
        self._open()

    async def readable(self) -> None:
        """Waits in asyncio until there is something to take."""
        await self._wait_async(self._progress)

    async def _wait_async(self, progress: int) -> None:
        """As _wait(), in asyncio."""
        native = self._open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        with self._descriptors(progress) as descriptors:
            # Of its own, so that several tasks may wait.
            copies: list[int] = []
            try:
                for descriptor in descriptors or ():
                    copies.append(os.dup(descriptor))
                    loop.add_reader(copies[-1], wake)
                if copies:
                    await future
            finally:
                for descriptor in copies:
                    loop.remove_reader(descriptor)
                    os.close(descriptor)
        del native
        self._open()
