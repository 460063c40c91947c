"""Directory listings, settings, recent documents and applications of a Linux desktop, without waiting for the disk.

The page docs/python.md of the project has an example of each part:

- scandir(), read_directory(), Listing, Model: directories, as iterators, as columns, as rows for a view
- Settings: a mapping with the settings that dconf and GSettings keep
- Recents: recent documents
- Index: applications, plugins and MIME types
- reports: the documents that ``unjank ... --json`` prints, as rows
"""

from . import reports
from ._columns import Columns
from ._entry import Entry, Field, Kind
from ._index import Application, Found, Index, Plugin
from ._listing import Event, EventType, Listing, NameChunk, read_directory, scandir
from ._model import By, Model, Order, RowChange, RowChangeType
from ._native import version
from ._recents import Addition, RecentDocument, Recents
from ._settings import Changes, Settings, Which
from ._variants import Variant

__version__ = "0.2.0"

__all__ = [
    "Addition",
    "Application",
    "By",
    "Changes",
    "Columns",
    "Entry",
    "Event",
    "EventType",
    "Field",
    "Found",
    "Index",
    "Kind",
    "Listing",
    "Model",
    "NameChunk",
    "Order",
    "Plugin",
    "RecentDocument",
    "Recents",
    "RowChange",
    "RowChangeType",
    "Settings",
    "Variant",
    "Which",
    "read_directory",
    "reports",
    "scandir",
    "version",
]
