"""libunjank as ctypes calls it: the structures and functions of unjank.h, and the exceptions of its failures."""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

SONAME = "libunjank.so.0"


class ListingOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("fields", c_uint32),
        ("flags", c_uint32),
        ("threads", c_uint32),
        ("most", c_uint32),
        ("worker", c_char_p),
        ("daemon", c_char_p),
    ]


class Event(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("type", c_uint32),
        ("first", c_uint32),
        ("count", c_uint32),
        ("step", c_uint32),
        ("error", c_int32),
        ("reserved", c_uint32),
        ("ids", POINTER(c_uint32)),
    ]


class Names(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("first", c_uint32),
        ("count", c_uint32),
        ("types", c_void_p),
        ("ends", c_void_p),
        ("text", c_void_p),
    ]


class Failure(Structure):
    _fields_ = [("row", c_uint32), ("error", c_int32)]


class Attributes(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("fields", c_uint32),
        ("first", c_uint32),
        ("count", c_uint32),
        ("failures", c_uint32),
        ("ids", POINTER(c_uint32)),
        ("bytes", c_void_p),
        ("mode", c_void_p),
        ("owner", c_void_p),
        ("modified", c_void_p),
        ("accessed", c_void_p),
        ("changed", c_void_p),
        ("born", c_void_p),
        ("inode", c_void_p),
        ("links", c_void_p),
        ("blocks", c_void_p),
        ("device", c_void_p),
        ("file_system", c_void_p),
        ("target", c_void_p),
        ("mime_type", c_void_p),
        ("failed", POINTER(Failure)),
    ]


class Time(Structure):
    _fields_ = [("seconds", c_int64), ("nanoseconds", c_uint32), ("known", c_uint32)]


class EntryFacts(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("fields", c_uint32),
        ("type", c_uint32),
        ("removed", c_uint32),
        ("error", c_int32),
        ("bytes", c_uint64),
        ("inode", c_uint64),
        ("blocks", c_uint64),
        ("mode", c_uint32),
        ("user", c_uint32),
        ("group", c_uint32),
        ("links", c_uint32),
        ("device_major", c_uint32),
        ("device_minor", c_uint32),
        ("file_system_major", c_uint32),
        ("file_system_minor", c_uint32),
        ("target", c_uint32),
        ("target_mode", c_uint32),
        ("mime_type", c_uint32),
        ("reserved", c_uint32),
        ("modified", Time),
        ("accessed", Time),
        ("changed", Time),
        ("born", Time),
    ]


class ModelOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("by", c_uint32),
        ("flags", c_uint32),
        ("locale", c_char_p),
        ("filter", c_char_p),
    ]


class RowChange(Structure):
    _fields_ = [("type", c_uint32), ("row", c_uint32), ("count", c_uint32), ("to", c_uint32)]


class Value(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("type", c_char_p),
        ("data", c_void_p),
        ("length", c_size_t),
        ("swapped", c_uint32),
        ("reserved", c_uint32),
    ]


class Change(Structure):
    _fields_ = [("path", c_char_p), ("text", c_char_p)]


class Addition(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("document", c_char_p),
        ("mime_type", c_char_p),
        ("application", c_char_p),
        ("command", c_char_p),
        ("group", c_char_p),
        ("is_private", c_uint32),
        ("reserved", c_uint32),
    ]


class RecentsQuery(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("application", c_char_p),
        ("mime_type", c_char_p),
        ("group", c_char_p),
        ("below", c_char_p),
        ("most", c_size_t),
    ]


class Recent(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("uri", c_char_p),
        ("path", c_char_p),
        ("mime_type", c_char_p),
        ("application", c_char_p),
        ("command", c_char_p),
        ("used", c_int64),
        ("added", c_int64),
        ("count", c_uint32),
        ("is_private", c_uint32),
    ]


# The structures by their names in unjank.h; a test compares their layout with the header's.
STRUCTURES: dict[str, type[Structure]] = {
    "unjank_listing_options": ListingOptions,
    "unjank_event": Event,
    "unjank_names": Names,
    "unjank_failure": Failure,
    "unjank_attributes": Attributes,
    "unjank_time": Time,
    "unjank_entry": EntryFacts,
    "unjank_model_options": ModelOptions,
    "unjank_row_change": RowChange,
    "unjank_value": Value,
    "unjank_change": Change,
    "unjank_addition": Addition,
    "unjank_recents_query": RecentsQuery,
    "unjank_recent": Recent,
}

_HANDLE = c_void_p
_PLACE = POINTER(c_void_p)
_TEXT = POINTER(c_char_p)
_TEXTS = POINTER(POINTER(c_char_p))
_COUNT = POINTER(c_size_t)
_NUMBER = POINTER(c_uint32)

# What each function takes; all but the first two return an int.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "unjank_version": (c_char_p, []),
    "unjank_error_text": (c_char_p, []),
    "unjank_listing_open": (c_int, [c_char_p, POINTER(ListingOptions), _PLACE]),
    "unjank_listing_close": (c_int, [_HANDLE]),
    "unjank_listing_cancel": (c_int, [_HANDLE]),
    "unjank_listing_fd": (c_int, [_HANDLE]),
    "unjank_listing_next": (c_int, [_HANDLE, c_int, POINTER(Event)]),
    "unjank_listing_names": (c_int, [_HANDLE, c_uint32, POINTER(Names)]),
    "unjank_listing_attributes": (c_int, [_HANDLE, POINTER(Attributes)]),
    "unjank_listing_entry": (c_int, [_HANDLE, c_uint32, POINTER(EntryFacts)]),
    "unjank_listing_text": (c_int, [_HANDLE, c_uint32, POINTER(c_void_p), _COUNT]),
    "unjank_listing_owner_name": (c_int, [_HANDLE, c_int, c_uint32, POINTER(c_void_p), _COUNT]),
    "unjank_listing_want": (c_int, [_HANDLE, POINTER(c_uint32), c_size_t]),
    "unjank_unpack_times": (c_int, [c_void_p, c_size_t, c_void_p]),
    "unjank_model_open": (c_int, [_HANDLE, POINTER(ModelOptions), _PLACE]),
    "unjank_model_close": (c_int, [_HANDLE]),
    "unjank_model_set": (c_int, [_HANDLE, POINTER(ModelOptions)]),
    "unjank_model_rows": (c_int, [_HANDLE, _NUMBER]),
    "unjank_model_ids": (c_int, [_HANDLE, c_uint32, c_uint32, c_void_p, _NUMBER]),
    "unjank_model_row": (c_int, [_HANDLE, c_uint32, _NUMBER]),
    "unjank_model_changes": (c_int, [_HANDLE, POINTER(RowChange), c_size_t]),
    "unjank_settings_open": (c_int, [c_char_p, _PLACE]),
    "unjank_settings_close": (c_int, [_HANDLE]),
    "unjank_settings_get": (c_int, [_HANDLE, c_char_p, c_int, POINTER(Value)]),
    "unjank_settings_get_text": (c_int, [_HANDLE, c_char_p, c_int, _TEXT]),
    "unjank_settings_get_boolean": (c_int, [_HANDLE, c_char_p, POINTER(c_int)]),
    "unjank_settings_get_integer": (c_int, [_HANDLE, c_char_p, POINTER(c_int64)]),
    "unjank_settings_get_double": (c_int, [_HANDLE, c_char_p, POINTER(c_double)]),
    "unjank_settings_get_string": (c_int, [_HANDLE, c_char_p, _TEXT]),
    "unjank_settings_list": (c_int, [_HANDLE, c_char_p, _TEXTS, _COUNT]),
    "unjank_settings_is_writable": (c_int, [_HANDLE, c_char_p]),
    "unjank_settings_write": (c_int, [_HANDLE, POINTER(Change), c_size_t, c_int]),
    "unjank_settings_watch": (c_int, [_HANDLE, c_char_p]),
    "unjank_settings_fd": (c_int, [_HANDLE]),
    "unjank_settings_changed": (c_int, [_HANDLE, _TEXTS, _COUNT]),
    "unjank_recents_open": (c_int, [_PLACE]),
    "unjank_recents_close": (c_int, [_HANDLE]),
    "unjank_recents_add": (c_int, [_HANDLE, POINTER(Addition)]),
    "unjank_recents_list": (c_int, [_HANDLE, POINTER(RecentsQuery), _COUNT]),
    "unjank_recents_get": (c_int, [_HANDLE, c_size_t, POINTER(Recent)]),
    "unjank_recents_fd": (c_int, [_HANDLE]),
    "unjank_recents_changed": (c_int, [_HANDLE]),
    "unjank_index_open": (c_int, [c_char_p, _PLACE]),
    "unjank_index_close": (c_int, [_HANDLE]),
    "unjank_index_find": (c_int, [_HANDLE, c_int, c_char_p, _COUNT]),
    "unjank_index_text": (c_int, [_HANDLE, c_size_t, c_char_p, _TEXT]),
    "unjank_index_list": (c_int, [_HANDLE, c_size_t, c_char_p, _TEXTS, _COUNT]),
    "unjank_index_mime_type": (c_int, [_HANDLE, c_char_p, _TEXT]),
}


def _load() -> ctypes.CDLL:
    """Loads the library: that of $UNJANK_LIBRARY, else that beside this file (as wheels have it), else the system's."""
    chosen = os.environ.get("UNJANK_LIBRARY")
    beside = Path(__file__).with_name(SONAME)
    name = chosen or (str(beside) if beside.exists() else SONAME)
    try:
        library = ctypes.CDLL(name)
        for function, (result, arguments) in FUNCTIONS.items():
            prototype = getattr(library, function)
            prototype.restype, prototype.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"cannot load {name}: {error}. hint: install the package libunjank0, or the wheel, "
            "which has the library in it"
        ) from error
    return library


lib = _load()


def version() -> str:
    """Returns the version of the library that is loaded."""
    found: bytes = lib.unjank_version()
    return found.decode()


def error_text() -> str:
    """Returns what the last call that failed in this thread says for people."""
    text: bytes | None = lib.unjank_error_text()
    return (text or b"").decode("utf-8", "replace")


def failure(number: int, filename: str | bytes | None = None) -> Exception:
    """Returns the exception for a number of errno: ValueError where an argument is wrong, else OSError."""
    text = error_text() or os.strerror(number)
    if number == errno.EINVAL:
        return ValueError(text)
    if filename is None:
        return OSError(number, text)
    return OSError(number, text, filename)


def check(result: int, filename: str | bytes | None = None) -> int:
    """Returns the result of a call, or raises what it says."""
    if result < 0:
        raise failure(-result, filename)
    return result


def text_argument(value: str, what: str) -> bytes:
    """Returns a text as C takes it."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str and not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{what} has a null character in it")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} cannot be written as UTF-8: {error.reason}") from None


def optional_text(value: str | None, what: str) -> bytes | None:
    """Returns a text that may be left out as C takes it."""
    return None if value is None else text_argument(value, what)


def path_argument(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> bytes:
    """Returns a path as C takes it."""
    path = os.fsencode(value)
    if b"\0" in path:
        raise ValueError("embedded null byte")
    return path


def text_at(place: int | None, length: int) -> str:
    """Returns a text that the library lends, as os.fsdecode() makes it of bytes."""
    return os.fsdecode(ctypes.string_at(place, length)) if place else ""


def texts_of(texts: Any, count: int) -> list[str]:
    """Returns texts that the library lends as an array."""
    return [texts[number].decode("utf-8", "surrogateescape") for number in range(count)]


# What a column of C has in each row, as array.array and memoryview name it.
WIDTHS = {"B": 1, "H": 2, "I": 4, "Q": 8, "q": 8}
