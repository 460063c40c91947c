"""Applications, plugins and MIME types, from the mapped index that all programs of the user share."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_size_t, c_void_p
from types import TracebackType

from . import _native
from ._native import check, lib
from ._source import Handle

_IN_MENU, _FOR_TYPE, _BY_ID, _IN_CATEGORY, _PLUGINS, _PLUGINS_IN, _PLUGIN_BY_ID, _PLUGINS_FOR_TYPE = range(1, 9)


class Found:
    """An application or a plugin. Its texts are read when they are asked for, as they were when it was found."""

    def __init__(self, native: Handle, lock: threading.RLock, number: int) -> None:
        self._native, self._lock, self._number = native, lock, number

    def get(self, name: str) -> str | None:
        """Returns a text: "Name", "Exec", "Icon", "Comment" ... of an application; None if it has none."""
        asked, place = _native.text_argument(name, "a name"), c_char_p()
        native = self._native.check()
        with self._lock:
            result = lib.unjank_index_text(native.value, self._number, asked, byref(place))
            if result == -errno.ENOENT:
                return None
            check(result)
            return (place.value or b"").decode("utf-8", "surrogateescape")

    def texts(self, name: str) -> list[str]:
        """Returns a list of texts: "Categories", "MimeType", "Keywords" ...; [] if it has none."""
        asked, lent, count = _native.text_argument(name, "a name"), POINTER(c_char_p)(), c_size_t()
        native = self._native.check()
        with self._lock:
            result = lib.unjank_index_list(native.value, self._number, asked, byref(lent), byref(count))
            if result == -errno.ENOENT:
                return []
            check(result)
            return _native.texts_of(lent, count.value)

    @property
    def id(self) -> str:
        """Its identifier: "org.kde.kate.desktop"."""
        return self.get(".id") or ""

    @property
    def path(self) -> str | None:
        """Its file."""
        return self.get(".path")

    @property
    def name(self) -> str:
        """Its name, in the language of the index."""
        return self.get("Name") or self.id

    def __repr__(self) -> str:
        return f"<unjank.{type(self).__name__} {self.id!r}>"


class Application(Found):
    """An application."""

    @property
    def command(self) -> str | None:
        """Its command, with field codes ("kate %U")."""
        return self.get("Exec")

    @property
    def categories(self) -> list[str]:
        """Its categories."""
        return self.texts("Categories")

    @property
    def mime_types(self) -> list[str]:
        """The MIME types that it says it opens."""
        return self.texts("MimeType")


class Plugin(Found):
    """A plugin of Qt or KDE."""


class Index:
    """The index of applications and plugins. No bus is used; where directories changed it is made anew first."""

    def __init__(self, locale: str | None = None) -> None:
        """Opens the index with texts in a language (as in LC_MESSAGES), or in that of the environment."""
        self._locale = _native.optional_text(locale, "a locale")
        # Each answer has a handle of its own, which lives as long as what was found; this one is for MIME types.
        self._native: Handle | None = self._handle()
        self._lock = threading.RLock()

    def _handle(self) -> Handle:
        place = c_void_p()
        check(lib.unjank_index_open(self._locale, byref(place)))
        return Handle(place.value or 0, lib.unjank_index_close)

    def _open(self) -> Handle:
        if self._native is None:
            raise ValueError("the Index is closed")
        return self._native.check()

    def close(self) -> None:
        """Closes the index; what was found stays."""
        self._native = None

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _find(self, what: int, value: str | None) -> Iterator[tuple[Handle, threading.RLock, int]]:
        self._open()
        asked, native, count = _native.optional_text(value, "a value"), self._handle(), c_size_t()
        result = lib.unjank_index_find(native.value, what, asked, byref(count))
        check(result, value)
        lock = threading.RLock()
        return ((native, lock, number) for number in range(count.value))

    def _apps(self, what: int, value: str | None) -> list[Application]:
        return [Application(*found) for found in self._find(what, value)]

    def _plugins(self, what: int, value: str | None) -> list[Plugin]:
        return [Plugin(*found) for found in self._find(what, value)]

    def apps_in_menu(self) -> list[Application]:
        """Returns the applications that a menu shows."""
        return self._apps(_IN_MENU, None)

    def apps_for_type(self, mime_type: str) -> list[Application]:
        """Returns the applications that open a MIME type, the default first."""
        return self._apps(_FOR_TYPE, mime_type)

    def apps_in_category(self, category: str) -> list[Application]:
        """Returns the applications of a category, "Graphics"."""
        return self._apps(_IN_CATEGORY, category)

    def app(self, identifier: str) -> Application | None:
        """Returns the application of an identifier, "org.kde.kate.desktop"."""
        return next(iter(self._apps(_BY_ID, identifier)), None)

    def plugins(self) -> list[Plugin]:
        """Returns all plugins of Qt and KDE."""
        return self._plugins(_PLUGINS, None)

    def plugins_in(self, directory: str) -> list[Plugin]:
        """Returns the plugins in a directory below the roots, "kf5/kio"."""
        return self._plugins(_PLUGINS_IN, directory)

    def plugins_for_type(self, mime_type: str) -> list[Plugin]:
        """Returns the plugins for a MIME type."""
        return self._plugins(_PLUGINS_FOR_TYPE, mime_type)

    def plugin(self, identifier: str) -> Plugin | None:
        """Returns the plugin of an identifier."""
        return next(iter(self._plugins(_PLUGIN_BY_ID, identifier)), None)

    def mime_type(self, file_name: str) -> str | None:
        """Returns the MIME type of a file with this name, or None; nobody looks into the file."""
        native, place = self._open(), c_char_p()
        asked = _native.path_argument(file_name)
        with self._lock:
            result = lib.unjank_index_mime_type(native.value, asked, byref(place))
            if result == -errno.ENOENT:
                return None
            check(result)
            return (place.value or b"").decode()
