"""Threads, forks, signals, and use after close: errors, and never a crash or a wait without an end."""

import errno
import os
import signal
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from ctypes import byref, c_uint32, sizeof
from pathlib import Path

import unjank
from unjank import Field, Listing, _native
from unjank._native import lib


class MisuseTest(unittest.TestCase):
    path: str

    @classmethod
    def setUpClass(cls) -> None:
        # No test changes what is in it.
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.path = directory.name
        for number in range(3000):
            Path(cls.path, str(number)).touch()

    def test_use_after_close_is_a_value_error(self) -> None:
        listing = Listing(self.path)
        listing.read()
        model = listing.model()
        iterator = iter(listing)
        listing.close()
        listing.close()
        self.assertTrue(listing.closed)
        calls: list[Callable[[], object]] = [
            listing.next, listing.read, listing.columns, listing.cancel, listing.fileno, listing.name_chunks, listing.model,
            lambda: listing.entry(0), lambda: listing.want([1]), lambda: list(listing), lambda: next(iterator),
            lambda: len(model), lambda: model[0], model.changes, model.columns, lambda: listing.owner_name(0),
            listing.__enter__,
        ]  # fmt: skip
        for call in calls:
            with self.assertRaisesRegex(ValueError, "closed"):
                call()

    def test_a_model_is_closed_before_or_after_its_listing(self) -> None:
        for is_first in (True, False):
            listing = Listing(self.path)
            with listing.model() as model:
                native = model._native
                assert native is not None
                handle = native.value
                del native
                (model if is_first else listing).close()
            model.close()
            listing.close()
            self.assertEqual(lib.unjank_model_close(handle), -errno.EBADF, "it is closed in the library, too")
            with self.assertRaisesRegex(ValueError, "closed"):
                len(model)

    def test_a_model_that_is_dropped_while_a_thread_uses_its_listing_is_closed_by_the_next_call(self) -> None:
        listing = Listing(self.path, follow=True)
        listing.read()
        model = listing.model()
        native, source = model._native, listing._native
        assert native is not None and source is not None
        handle, rows = native.value, c_uint32()
        event = _native.Event(sizeof(_native.Event))

        def wait() -> None:
            while lib.unjank_listing_next(source.value, -1, byref(event)) > 0:
                pass

        thread = threading.Thread(target=wait)
        thread.start()
        while lib.unjank_model_rows(handle, byref(rows)) != -errno.EBUSY:
            os.sched_yield()
        del model, native
        self.assertEqual(lib.unjank_model_rows(handle, byref(rows)), -errno.EBUSY)
        listing.cancel()
        thread.join(60)
        self.assertFalse(thread.is_alive())
        with self.assertRaises(OSError):
            listing.next(0)
        self.assertEqual(lib.unjank_model_close(handle), -errno.EBADF)

    def test_threads_take_turns(self) -> None:
        failures: list[BaseException] = []
        listing = Listing(self.path, follow=True)
        model = listing.model()

        def use(body: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                try:
                    for _ in range(10):
                        body()
                except BaseException as error:
                    failures.append(error)

            return run

        bodies: list[Callable[[], object]] = [
            lambda: self.assertEqual(sum(1 for _ in listing), 3000),
            lambda: self.assertEqual(listing.read().rows, 3000),
            lambda: [entry.error for entry in model[:50]],
            lambda: listing.next(0.001),
            lambda: listing.want(range(20)),
            lambda: (listing.columns(), listing.name_chunks(), model.changes()),
            lambda: sum(1 for _ in unjank.scandir(self.path)),
        ]
        threads = [threading.Thread(target=use(body)) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            self.assertFalse(thread.is_alive(), "all are ready within two minutes")
        self.assertEqual(failures, [])

    def test_closing_ends_the_waiting_of_other_threads(self) -> None:
        for source in (Listing(self.path, follow=True), unjank.Settings(), unjank.Recents()):
            wait = source.next if isinstance(source, Listing) else source.wait
            if isinstance(source, Listing):
                source.read()
            if isinstance(source, unjank.Settings):
                source.watch("/org/nobody/has/this/")
            failures: list[Exception] = []

            def run() -> None:
                try:
                    while True:
                        wait(None)
                except (ValueError, OSError) as error:
                    failures.append(error)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            source.close()
            thread.join(60)
            self.assertFalse(thread.is_alive(), f"{source} wakes who waits for it within a minute")
            self.assertEqual(len(failures), 1)
            is_cancelled = isinstance(failures[0], OSError) and failures[0].errno == errno.ECANCELED
            self.assertTrue(is_cancelled or isinstance(failures[0], ValueError))

    def test_a_listing_that_is_closed_while_it_is_used_never_crashes(self) -> None:
        for _ in range(30):
            listing = Listing(self.path)

            def use() -> None:
                try:
                    for entry in listing:
                        entry.size
                    listing.columns()
                except (ValueError, OSError):
                    pass

            threads = [threading.Thread(target=use) for _ in range(3)]
            for thread in threads:
                thread.start()
            listing.close()
            for thread in threads:
                thread.join()

    def in_child(self, body: Callable[[], object]) -> int:
        """Runs a function in a forked child, which has a minute; returns its exit status."""
        child = os.fork()
        if child == 0:
            status = 70
            try:
                signal.alarm(60)
                status = 0 if body() is not False else 1
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def test_a_forked_child_uses_the_library_anew_and_not_what_its_parent_has(self) -> None:
        listing = Listing(self.path, follow=True)
        columns = listing.read()
        model, settings, recents, index = listing.model(), unjank.Settings(), unjank.Recents(), unjank.Index()

        def child() -> bool:
            calls: list[Callable[[], object]] = [
                lambda: listing.next(0), lambda: list(listing), listing.columns, lambda: len(model), lambda: model[0],
                lambda: settings.get("/a"), settings.fileno, recents.documents, lambda: index.mime_type("a.png"),
                lambda: settings.write({"/a": 1}),
            ]  # fmt: skip
            for call in calls:
                try:
                    call()
                    return False
                except OSError as error:
                    if error.errno != errno.ESTALE:
                        raise
            listing.close()
            return len(list(unjank.scandir(self.path))) == 3000 and columns.rows == 3000

        # Another thread has every lock when the child is made.
        with listing._lock, settings._lock, recents._lock, index._lock:
            done: list[int] = []
            thread = threading.Thread(target=lambda: done.append(self.in_child(child)))
            thread.start()
            thread.join(120)
        self.assertEqual(done, [0])
        self.assertEqual(listing.read().rows, 3000, "the parent goes on")

    def test_children_that_are_forked_while_threads_list_do_not_hang(self) -> None:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                sum(1 for _ in unjank.scandir(self.path))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                self.assertEqual(self.in_child(lambda: len(list(unjank.scandir(self.path))) == 3000), 0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def test_ctrl_c_ends_a_wait(self) -> None:
        listing = Listing(self.path, follow=True)
        listing.read()
        recents, settings = unjank.Recents(), unjank.Settings()
        settings.watch("/org/nobody/has/this/")
        listing_wait: Callable[[], object] = lambda: [listing.next() for _ in range(1000)]
        for wait in (listing_wait, lambda: [recents.wait() for _ in range(1000)], settings.wait):
            timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
            begun = time.monotonic()
            # In the block: the signal may come before the wait has begun.
            with self.assertRaises(KeyboardInterrupt):
                timer.start()
                wait()
            self.assertLess(time.monotonic() - begun, 60)
            timer.join()
        self.assertEqual(listing.columns().rows, 3000, "it can be used after that")

    def test_other_signals_do_not_end_a_wait(self) -> None:
        seen: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
        try:
            with Listing(self.path, follow=True) as listing:
                listing.read()
                while listing.next(0) is not None:
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
                self.assertIsNone(listing.next(0.2))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertTrue(seen)

    def test_other_threads_run_while_one_waits(self) -> None:
        with Listing(self.path, follow=True) as listing:
            listing.read()

            def wait() -> None:
                with self.assertRaises(OSError):
                    while listing.next(60) is not None:
                        pass

            thread = threading.Thread(target=wait)
            thread.start()
            begun = time.monotonic()
            sum(range(10000))
            self.assertEqual(sum(1 for _ in listing), 3000)
            self.assertLess(time.monotonic() - begun, 50)
            listing.cancel()
            thread.join(60)
            self.assertFalse(thread.is_alive())

    def test_without_descriptors_it_is_an_os_error(self) -> None:
        import resource

        def child() -> bool:
            soft = os.dup(0) + 2
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
            for make in (lambda: Listing(self.path), unjank.Settings, unjank.Recents, lambda: unjank.Settings().watch("/a")):
                try:
                    kept = [make() for _ in range(10)]
                    for one in kept:
                        if isinstance(one, Listing):
                            one.read()
                    return False
                except OSError as error:
                    if error.errno != errno.EMFILE:
                        raise
                kept = []
            return True

        self.assertEqual(self.in_child(child), 0)

    def test_objects_are_dropped_in_any_order(self) -> None:
        listing = Listing(self.path, fields=Field.DEFAULT | Field.MIME_TYPE)
        entries = iter(listing)
        first = next(entries)
        model = listing.model()
        chunks = listing.name_chunks()
        del listing
        self.assertEqual(sum(1 for _ in entries), 2999)
        self.assertIn(first.mime_type, (None, "application/octet-stream", "application/x-zerosize"))
        self.assertEqual(len(model), 3000)
        text = chunks[0].text
        del entries, model, chunks
        self.assertTrue(bytes(text).endswith(b"\0"))


if __name__ == "__main__":
    unittest.main()
