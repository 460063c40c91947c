"""Listings beside os.scandir() and os.stat(), in hostile directories."""

import asyncio
import errno
import os
import pickle
import random
import select
import stat
import tempfile
import time
import unittest
from pathlib import Path

import unjank
from unjank import By, EventType, Field, Kind, Listing, Order

ALL = Field(2**15 - 1)


class ListingTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = directory.name

    def fill(self, count: int, size: int = 0) -> None:
        for number in range(count):
            Path(self.path, f"file {number}").write_bytes(b"x" * (size and number % size))

    def test_entries_are_those_of_os_scandir(self) -> None:
        self.fill(300, 50)
        os.mkdir(os.path.join(self.path, "folder"))
        os.mkfifo(os.path.join(self.path, "pipe"))
        os.symlink("folder", os.path.join(self.path, "link"))
        os.symlink("nowhere", os.path.join(self.path, "broken"))
        os.utime(os.path.join(self.path, "file 1"), ns=(-(10**9) * 3, -1))
        expected = {entry.name: entry for entry in os.scandir(self.path)}
        found = {entry.name: entry for entry in unjank.scandir(self.path, ALL)}
        self.assertEqual(found.keys(), expected.keys())
        for name, entry in found.items():
            status = expected[name].stat(follow_symlinks=False)
            self.assertEqual(entry.path, expected[name].path)
            self.assertEqual(os.fspath(entry), expected[name].path)
            self.assertEqual(entry.is_dir(), expected[name].is_dir(follow_symlinks=False))
            self.assertEqual(entry.is_file(), expected[name].is_file(follow_symlinks=False))
            self.assertEqual(entry.is_symlink(), expected[name].is_symlink())
            self.assertEqual(entry.kind, stat.S_IFMT(status.st_mode) >> 12)
            self.assertEqual(entry.size, status.st_size)
            self.assertEqual((entry.mode, entry.inode, entry.links), (status.st_mode, status.st_ino, status.st_nlink))
            self.assertEqual((entry.user, entry.group), (status.st_uid, status.st_gid))
            self.assertEqual((entry.modified_ns, entry.changed_ns), (status.st_mtime_ns, status.st_ctime_ns))
            if not entry.is_symlink():
                # Reading where a link leads is an access to it.
                self.assertEqual(entry.accessed_ns, status.st_atime_ns)
            self.assertEqual(entry.file_system, (os.major(status.st_dev), os.minor(status.st_dev)))
            self.assertEqual(entry.blocks, status.st_blocks)
            self.assertEqual(entry.permissions, stat.S_IMODE(status.st_mode))
        self.assertEqual((found["link"].target, found["broken"].target), ("folder", "nowhere"))
        self.assertTrue(stat.S_ISDIR(found["link"].target_mode))
        self.assertEqual((found["broken"].target_mode, found["file 1"].target), (0, None))
        self.assertEqual((found["folder"].kind, found["pipe"].kind), (Kind.DIRECTORY, Kind.FIFO))

    def test_names_that_are_no_text_are_those_of_os_fsdecode(self) -> None:
        draw = random.Random(7)
        lead = [b"\xff\xfe", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc3", b"\xc3\xa9", "\U0001f600".encode()]
        for number in range(500):
            rest = bytes(draw.choice(b"\n\x01\x7f\x80\xbf\xc2\xe0\xf4\xf5az\xa9") for _ in range(draw.randrange(9)))
            name = draw.choice(lead) + rest + b"%d" % number + draw.choice(lead)
            with open(os.path.join(os.fsencode(self.path), name), "wb"):
                pass
        expected = sorted(os.listdir(self.path))
        self.assertEqual(sorted(entry.name for entry in unjank.scandir(self.path)), expected)
        self.assertEqual(sorted(unjank.read_directory(self.path, Field.NONE).names), expected)
        for entry in unjank.scandir(self.path):
            self.assertEqual(os.lstat(entry.path).st_ino, entry.inode)
        as_bytes = sorted(entry.name_bytes for entry in unjank.scandir(os.fsencode(self.path)))
        self.assertEqual(as_bytes, sorted(os.listdir(os.fsencode(self.path))))

    def test_names_in_a_locale_without_utf_8_are_those_of_os_fsdecode(self) -> None:
        import subprocess
        import sys

        for name in (b"caf\xc3\xa9", b"caf\xe9", b"\xff"):
            with open(os.path.join(os.fsencode(self.path), name), "wb"):
                pass
        code = "import os,sys,unjank; print(sys.getfilesystemencoding(), sorted(unjank.read_directory(sys.argv[1]).names) == sorted(os.listdir(sys.argv[1])))"
        environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        command = [sys.executable, "-c", code, self.path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, "True")

    def test_columns_are_buffers_with_the_values_of_the_entries(self) -> None:
        self.fill(1000, 30)
        columns = unjank.read_directory(self.path, ALL)
        self.assertEqual((columns.rows, len(columns.names)), (1000, 1000))
        for row, entry in enumerate(unjank.scandir(self.path, ALL)):
            self.assertEqual(columns.names[row], entry.name)
            self.assertEqual((columns.size[row], columns.inode[row]), (entry.size, entry.inode))
            self.assertEqual((columns.user[row], columns.group[row]), (entry.user, entry.group))
            self.assertEqual((columns.modified_ns[row], columns.kind[row]), (entry.modified_ns, entry.kind))
            self.assertEqual(columns["mime_type"][row], entry.mime_type)
            self.assertEqual(columns["device_major"][row], entry.device[0])
        self.assertTrue(columns.size.readonly and columns.size.contiguous)
        with self.assertRaises(TypeError):
            columns.size[0] = 1
        self.assertEqual(columns.size.format, "Q")
        record = columns.records()[5]
        self.assertEqual((record["name"], record["size"]), (columns.names[5], columns.size[5]))
        self.assertEqual(list(record), list(columns))
        self.assertEqual(columns.path(3), os.path.join(self.path, columns.names[3]))

    def test_what_was_not_asked_for_is_not_there(self) -> None:
        self.fill(3)
        (entry, *_) = unjank.scandir(self.path, Field.SIZE)
        self.assertEqual(entry.size, 0)
        with self.assertRaisesRegex(AttributeError, "not asked for INODE"):
            entry.inode
        with self.assertRaises(AttributeError):
            unjank.read_directory(self.path, Field.SIZE).inode
        self.assertEqual({e.kind for e in unjank.scandir(self.path, Field.NONE)}, {Kind.FILE})

    def test_a_directory_that_cannot_be_read_is_an_error_with_its_name(self) -> None:
        missing = os.path.join(self.path, "missing")
        file = os.path.join(self.path, "file")
        Path(file).touch()
        for path, kind in ((missing, FileNotFoundError), (file, NotADirectoryError)):
            for read in (unjank.read_directory, lambda path: list(unjank.scandir(path))):
                with self.assertRaises(kind) as raised:
                    read(path)
                self.assertEqual(raised.exception.filename, path)
            with Listing(path, follow=True) as listing, self.assertRaises(kind):
                listing.read()
        for wrong, error in (("", FileNotFoundError), ("a\0b", ValueError), (b"a\0b", ValueError), (5, TypeError)):
            with self.assertRaises(error):
                Listing(wrong)  # type: ignore[arg-type]
        with self.assertRaises(OSError):
            Listing("x" * 5000)
        for wrong in ({"fields": Field(1 << 20)}, {"threads": -1}, {"most": 1 << 40}):
            with self.assertRaises((ValueError, OSError)):
                Listing(self.path, **wrong).read()  # type: ignore[arg-type]
        with self.assertRaises(OSError):
            self.fill(20)
            Listing(self.path, most=5).read()

    def test_an_entry_that_is_gone_says_so_where_its_attributes_are_asked_for(self) -> None:
        self.fill(3)
        listing = Listing(self.path, fields=Field.SIZE | Field.OWNER)
        listing.read()
        # What the library says of one that vanished between its name and its attributes.
        listing._errors[1] = errno.ENOENT
        entries = list(listing)
        self.assertEqual((entries[1].error, entries[0].error), (errno.ENOENT, 0))
        with self.assertRaises(FileNotFoundError) as raised:
            entries[1].size
        self.assertEqual(raised.exception.filename, entries[1].path)
        with self.assertRaises(FileNotFoundError):
            entries[1].user
        columns = listing.columns()
        self.assertEqual(columns.errors, {1: errno.ENOENT})
        self.assertIsNone(columns.records()[1]["size"])
        self.assertEqual(pickle.loads(pickle.dumps(entries[1])).error, errno.ENOENT)

    def test_entries_can_be_sent_to_other_processes(self) -> None:
        self.fill(2, 2)
        entries = list(unjank.scandir(self.path))
        again = pickle.loads(pickle.dumps(entries))
        self.assertEqual([(e.path, e.size, e.kind) for e in again], [(e.path, e.size, e.kind) for e in entries])
        self.assertEqual(repr(again[0]), f"<unjank.Entry {again[0].name!r}>")

    def test_times_beyond_a_column_are_whole_in_entries(self) -> None:
        self.fill(20)
        os.utime(os.path.join(self.path, "file 7"), (0, 13_000_000_000))
        expected = os.stat(os.path.join(self.path, "file 7")).st_mtime_ns
        if expected != 13_000_000_000 * 10**9:
            self.skipTest("this file system does not keep it")
        listing = Listing(self.path)
        found = {entry.name: entry.modified_ns for entry in listing}
        self.assertEqual(found["file 7"], expected)
        columns = listing.columns()
        self.assertEqual(columns.modified_ns[columns.names.index("file 7")], -(2**63))

    def test_a_directory_that_is_removed_while_it_is_listed_ends(self) -> None:
        # Some twenty in ci/slow.
        for _ in range(20 if os.environ.get("UNJANK_MILLION") else 5):
            inner = os.path.join(self.path, "inner")
            os.mkdir(inner)
            for number in range(300):
                Path(inner, str(number)).touch()
            listing = Listing(inner)
            listing.next()
            for name in os.listdir(inner):
                os.unlink(os.path.join(inner, name))
            os.rmdir(inner)
            try:
                for entry in listing:
                    self.assertIn(entry.error, (0, errno.ENOENT))
                    try:
                        self.assertEqual(entry.size, 0)
                    except FileNotFoundError:
                        self.assertEqual(entry.error, errno.ENOENT)
            except FileNotFoundError as error:
                self.assertEqual(error.filename, inner)
            listing.close()

    def test_changes_are_followed(self) -> None:
        self.fill(10)
        with Listing(self.path, follow=True) as listing:
            before = listing.read()
            model = listing.model(Order(by=By.NAME))
            self.assertEqual((len(listing), len(model)), (10, 10))
            Path(self.path, "new").write_bytes(b"12345")
            os.unlink(os.path.join(self.path, "file 3"))
            os.rename(os.path.join(self.path, "file 4"), os.path.join(self.path, "renamed"))

            def is_all() -> bool:
                names = {e.name: e.error or e.size for e in listing}
                return names.get("new") == 5 and "renamed" in names and not {"file 3", "file 4"} & names.keys()

            seen = set()
            while not is_all():
                event = listing.next(60)
                self.assertIsNotNone(event, "the changes arrive within a minute")
                seen.add(event.type)
            self.assertEqual(sorted(listing.columns().names), sorted(os.listdir(self.path)))
            self.assertEqual([e.name for e in model], sorted(os.listdir(self.path), key=str.lower))
            self.assertLessEqual({EventType.NAMES, EventType.ATTRIBUTES}, seen)
            self.assertEqual(before.rows, 10, "what was read does not change")
            with self.assertRaises(FileNotFoundError):
                listing.entry(before.names.index("file 3"))
            Path(self.path, "new").write_bytes(b"1")
            while {e.name: e.size for e in listing if not e.error}.get("new") != 1:
                self.assertIsNotNone(listing.next(60), "a new size arrives within a minute")
            self.assertTrue(model.changes())

    def test_views_of_columns_outlive_changes_and_the_listing(self) -> None:
        self.fill(100, 10)
        listing = Listing(self.path, follow=True)
        first = listing.read()
        chunks = listing.name_chunks()
        kept = bytes(first.inode)
        Path(self.path, "new").touch()
        while "new" not in listing.columns().names:
            self.assertIsNotNone(listing.next(60), "a new name arrives within a minute")
        listing.close()
        del listing
        self.assertEqual(bytes(first.inode), kept)
        names = [n for chunk in chunks for n in bytes(chunk.text).split(b"\0")[:-1]]
        self.assertEqual(names[:100], [os.fsencode(name) for name in first.names])
        self.assertEqual([c.first for c in chunks][:1], [0])
        for chunk in chunks:
            self.assertTrue(chunk.text.readonly and chunk.ends.readonly and chunk.kinds.readonly)
            self.assertEqual(chunk.ends[-1], len(chunk.text))

    def test_a_model_is_sorted_and_filtered(self) -> None:
        self.fill(40, 17)
        os.mkdir(os.path.join(self.path, "a folder"))
        Path(self.path, ".hidden").touch()
        with Listing(self.path) as listing:
            listing.read()
            model = listing.model(Order(by=By.SIZE, descending=True))
            sizes = [entry.size for entry in model if entry.is_file()]
            self.assertEqual(sizes, sorted(sizes, reverse=True))
            self.assertTrue(model[0].is_dir())
            self.assertEqual(len(model), 41)
            self.assertEqual([e.id for e in model[2:5]], model.ids(2, 3).tolist())
            self.assertEqual(model[-1].id, model.ids()[-1])
            self.assertEqual(model.row(model[7]), 7)
            self.assertEqual([e.id for e in model[::-10]], model.ids().tolist()[::-10])
            self.assertEqual(model.columns().names, [e.name for e in model])
            self.assertEqual(model.columns().size.tolist(), [e.size for e in model])
            model.order(Order(filter="file 1*", is_glob=True, locale="C"))
            expected = sorted(name for name in os.listdir(self.path) if name.startswith("file 1"))
            self.assertEqual([e.name for e in model], expected)
            self.assertIsNone(model.row(listing.columns().names.index("a folder")))
            with self.assertRaises(IndexError):
                model[1000]
            with self.assertRaises(IndexError):
                model[-1000]
            with self.assertRaises(ValueError):
                model.order(Order(filter="a\0b"))
            with self.assertRaises(ValueError):
                model.order(Order(by=77))  # type: ignore[arg-type]
            model.close()
            with self.assertRaises(ValueError):
                len(model)
            other = listing.model()
        with self.assertRaises(ValueError):
            other[0]

    def test_wanted_rows_are_read_again(self) -> None:
        self.fill(10)
        with Listing(self.path) as listing:
            listing.read()
            Path(self.path, listing.entry(3).name).write_bytes(b"1234567")
            listing.want([3, 3, 5, 4_000_000_000])
            while listing.entry(3).size != 7:
                self.assertIsNotNone(listing.next(60), "attributes arrive within a minute")
            self.assertIsNone(listing.next(60))
            self.assertEqual(sum(1 for _ in listing), 10)
            with self.assertRaises(ValueError):
                listing.want([-1])
            with self.assertRaises(IndexError):
                listing.entry(10)
            with self.assertRaises(IndexError):
                listing.entries([-1])

    def test_asyncio_and_poll_wait_for_the_descriptor(self) -> None:
        self.fill(2000)

        async def both() -> tuple[int, int]:
            async def count() -> int:
                return len([entry async for entry in Listing(self.path)])

            return await asyncio.gather(count(), count())

        self.assertEqual(asyncio.run(both()), [2000, 2000])
        with Listing(self.path) as listing:
            while not listing.is_done:
                self.assertTrue(select.select([listing], [], [], 60)[0], "it is readable within a minute")
                while listing.next(0) is not None:
                    pass
            self.assertEqual(len(listing), 2000)

    def test_a_task_that_waits_is_cancelled(self) -> None:
        async def wait() -> None:
            with Listing(self.path, follow=True) as listing:
                listing.read()
                while listing.next(0) is not None:
                    pass
                before = len(os.listdir("/proc/self/fd"))
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(listing.next_async(), 0.05)
                # What an earlier test left to a thread may have been closed meanwhile.
                self.assertLessEqual(len(os.listdir("/proc/self/fd")), before)

        asyncio.run(wait())

    def test_what_was_read_is_there_after_cancelling(self) -> None:
        self.fill(100)
        with Listing(self.path, follow=True) as listing:
            listing.read()
            listing.cancel()
            with self.assertRaises(OSError) as raised:
                listing.next(60)
            self.assertEqual(raised.exception.errno, errno.ECANCELED)
            self.assertEqual(listing.columns().rows, 100)

    def test_nothing_is_left_open(self) -> None:
        self.fill(200)
        list(unjank.scandir(self.path))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            list(unjank.scandir(self.path))
            unjank.read_directory(self.path)
            next(unjank.scandir(self.path))
            Listing(self.path, follow=True)
        # Threads that were told to end close theirs soon.
        end = time.monotonic() + 60
        while len(os.listdir("/proc/self/fd")) > before:
            self.assertLess(time.monotonic(), end, "all is closed within a minute")

    @unittest.skipUnless(os.environ.get("UNJANK_MILLION"), "a million files: ci/slow")
    def test_a_million_entries(self) -> None:
        for number in range(1_000_000):
            os.close(os.open(os.path.join(self.path, f"{number:x}"), os.O_CREAT | os.O_WRONLY))
        columns = unjank.read_directory(self.path)
        self.assertEqual(sorted(columns.names), sorted(f"{number:x}" for number in range(1_000_000)))
        self.assertEqual(sum(1 for entry in unjank.scandir(self.path) if entry.size == 0), 1_000_000)
        with Listing(self.path) as listing:
            listing.read()
            self.assertEqual(len(listing.model(Order(locale="C"))), 1_000_000)
