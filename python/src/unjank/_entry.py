"""One entry of a directory, as iterators give it."""

from __future__ import annotations

import enum
import functools
import os
import stat
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Literal

UNKNOWN_TIME = -(2**63)


class Field(enum.IntFlag):
    """Attributes that a listing can be asked for beside names and types."""

    NONE = 0
    SIZE = 1 << 0
    MODE = 1 << 1
    OWNER = 1 << 2
    MODIFIED = 1 << 3
    ACCESSED = 1 << 4
    CHANGED = 1 << 5
    BORN = 1 << 6
    INODE = 1 << 7
    LINKS = 1 << 8
    BLOCKS = 1 << 9
    DEVICE = 1 << 10
    FILE_SYSTEM = 1 << 11
    TARGET = 1 << 12
    MIME_TYPE = 1 << 13
    OWNER_NAMES = 1 << 14
    DEFAULT = (1 << 8) - 1


class Kind(enum.IntEnum):
    """What an entry is, by the numbers that d_type has."""

    UNKNOWN = 0
    FIFO = 1
    CHARACTER_DEVICE = 2
    DIRECTORY = 4
    BLOCK_DEVICE = 6
    FILE = 8
    LINK = 10
    SOCKET = 12


# How memoryview and array name the type of a column.
Code = Literal["B", "H", "I", "Q", "q"]

# The columns that a field brings: its name here, its name in unjank_attributes, its type.
COLUMNS: dict[Field, tuple[str, str, Code]] = {
    Field.SIZE: ("size", "bytes", "Q"),
    Field.MODE: ("mode", "mode", "H"),
    Field.OWNER: ("owner", "owner", "Q"),
    Field.MODIFIED: ("modified_ns", "modified", "q"),
    Field.ACCESSED: ("accessed_ns", "accessed", "q"),
    Field.CHANGED: ("changed_ns", "changed", "q"),
    Field.BORN: ("born_ns", "born", "q"),
    Field.INODE: ("inode", "inode", "Q"),
    Field.LINKS: ("links", "links", "I"),
    Field.BLOCKS: ("blocks", "blocks", "Q"),
    Field.DEVICE: ("device", "device", "Q"),
    Field.FILE_SYSTEM: ("file_system", "file_system", "Q"),
    Field.TARGET: ("target", "target", "Q"),
    Field.MIME_TYPE: ("mime_type", "mime_type", "I"),
}
# What stands before the columns in an entry: directory, name, kind, id.
_HEAD = 4


def columns_of(fields: int) -> list[tuple[str, str, Code]]:
    """Returns the columns of fields, in order."""
    return [column for field, column in COLUMNS.items() if fields & field]


def _absent(name: str) -> Any:
    def absent(self: Entry) -> Any:
        raise AttributeError(f"the listing was not asked for {name}: see its argument 'fields'")

    return property(absent, doc="Was not asked for.")


class Entry(tuple[Any, ...]):
    """An entry of a directory: its name, what it is, and the attributes that were asked for.

    Nothing is read from the disk by it. A link is described itself, and not what it leads to. Attributes that the
    listing was not asked for raise AttributeError; those of an entry that could not be read raise the OSError of
    reading it.
    """

    __slots__ = ()
    _fields = 0

    name: str = property(itemgetter(1), doc="Its name, as os.fsdecode() makes it.")  # type: ignore[assignment]
    id: int = property(itemgetter(3), doc="Its number in the listing; it never changes.")  # type: ignore[assignment]
    size: int = _absent("SIZE")
    mode: int = _absent("MODE")
    modified_ns: int = _absent("MODIFIED")
    accessed_ns: int = _absent("ACCESSED")
    changed_ns: int = _absent("CHANGED")
    born_ns: int | None = _absent("BORN")
    inode: int = _absent("INODE")
    links: int = _absent("LINKS")
    blocks: int = _absent("BLOCKS")
    user: int = _absent("OWNER")
    group: int = _absent("OWNER")
    device: tuple[int, int] = _absent("DEVICE")
    file_system: tuple[int, int] = _absent("FILE_SYSTEM")
    target: str | None = _absent("TARGET")
    target_mode: int = _absent("TARGET")
    mime_type: str | None = _absent("MIME_TYPE")

    @property
    def path(self) -> str:
        """The directory, as the listing was given it, with the name."""
        path: str = os.path.join(self[0], self[1])
        return path

    @property
    def kind(self) -> Kind:
        """What it is."""
        return Kind(self[2]) if self[2] in _KINDS else Kind.UNKNOWN

    @property
    def error(self) -> int:
        """Why its attributes could not be read, a number of errno; 0 if they could."""
        return 0

    @property
    def permissions(self) -> int:
        """The permissions of its mode."""
        return stat.S_IMODE(self.mode)

    @property
    def name_bytes(self) -> bytes:
        """Its name, as the file system has it."""
        return os.fsencode(self.name)

    def is_dir(self) -> bool:
        """Whether it is a directory; a link to one is not."""
        return bool(self[2] == 4)

    def is_file(self) -> bool:
        """Whether it is a regular file; a link to one is not."""
        return bool(self[2] == 8)

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return bool(self[2] == 10)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<unjank.Entry {self.name!r}>"

    def __reduce__(self) -> tuple[Callable[..., Entry], tuple[object, ...]]:
        return _restore, (self._fields, self.error != 0, tuple(self))


_KINDS = frozenset(Kind)


def _restore(fields: int, has_failed: bool, items: tuple[object, ...]) -> Entry:
    kind = failed_type(fields) if has_failed else entry_type(fields)
    return kind(items)


def _pair(at: int) -> Any:
    def pair(self: Entry) -> tuple[int, int]:
        return self[at] >> 32, self[at] & 0xFFFFFFFF

    return property(pair)


def _half(at: int, shift: int) -> Any:
    def half(self: Entry) -> int:
        found: int = self[at] >> shift & 0xFFFFFFFF
        return found

    return property(half)


def _member(at: int, member: int) -> Any:
    return property(lambda self: self[at][member])


def _known(at: int) -> Any:
    def known(self: Entry) -> int | None:
        found: int | None = self[at]
        # File systems that do not keep it say 0.
        return found if found not in (UNKNOWN_TIME, 0) else None

    return property(known)


@functools.lru_cache(maxsize=None)
def entry_type(fields: int) -> type[Entry]:
    """Returns the class of entries with these fields."""
    members: dict[str, Any] = {"__slots__": (), "_fields": fields, "__doc__": Entry.__doc__}
    for at, (name, _, _) in enumerate(columns_of(fields), _HEAD):
        if name == "owner":
            members["user"], members["group"] = _half(at, 32), _half(at, 0)
        elif name in ("device", "file_system"):
            members[name] = _pair(at)
        elif name == "target":
            members["target"], members["target_mode"] = _member(at, 0), _member(at, 1)
        elif name == "born_ns":
            members[name] = _known(at)
        else:
            members[name] = property(itemgetter(at))
    return type("Entry", (Entry,), members)


@functools.lru_cache(maxsize=None)
def failed_type(fields: int) -> type[Entry]:
    """Returns the class of entries whose attributes could not be read; errno is their last item."""

    def fail(self: Entry) -> Any:
        raise OSError(self[-1], os.strerror(self[-1]), self.path)

    members: dict[str, Any] = {"__slots__": (), "_fields": fields, "__doc__": Entry.__doc__}
    members["error"] = property(itemgetter(-1))
    names = [name for name, _, _ in columns_of(fields) if name != "owner"]
    names += ["user", "group"] if fields & Field.OWNER else []
    names += ["target_mode"] if fields & Field.TARGET else []
    members.update({name: property(fail) for name in names})
    return type("FailedEntry", (Entry,), members)
