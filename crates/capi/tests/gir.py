"""The list model by PyGObject: gir.py DIRECTORY (of 300 files of 0 to 299 bytes, a hidden one and a directory)."""

import os
import sys

import gi

gi.require_version("Unjank", "0")
from gi.repository import Gio, GLib, Unjank  # noqa: E402


def loaded(path, flags=Unjank.ListFlags.NONE):
    model = Unjank.ListModel.open(path, flags)
    context = GLib.MainContext.default()
    late = GLib.timeout_add_seconds(60, lambda: sys.exit(f"{path} was not read within 60 s"))
    while model.is_loading():
        context.iteration(True)
    GLib.source_remove(late)
    return model


def until(what, ready):
    context = GLib.MainContext.default()
    late = GLib.timeout_add_seconds(60, lambda: sys.exit(f"waited 60 s for {what}"))
    while not ready():
        context.iteration(True)
    GLib.source_remove(late)


directory = sys.argv[1]
model = loaded(directory, Unjank.ListFlags.FOLLOW | Unjank.ListFlags.CONTENT_TYPES)
assert isinstance(model, Gio.ListModel) and model.get_item_type() == Unjank.Item.__gtype__
assert model.check()
assert len(model) == 301, len(model)
first = model[0]
assert first.is_directory() and first.dup_name() == "a directory" and first.props.name == "a directory"
until("the attributes of a row", lambda: model[5].is_known())
item = model[5]
about = os.stat(os.path.join(directory, item.dup_file_name()))
assert item.get_size() == about.st_size and item.get_mode() == about.st_mode
assert item.get_modified() == about.st_mtime_ns // 1000
assert item.dup_content_type() == "text/plain", item.dup_content_type()
# Another order, and a filter.
assert model.order_by(Unjank.Order.SIZE, Unjank.OrderFlags.DESCENDING, "file")
until("the order by size", lambda: not model.is_loading() and len(model) == 300 and model[0].get_size() == 299)
assert model.order_by(Unjank.Order.NAME, Unjank.OrderFlags.HIDDEN, None)
until("the hidden name", lambda: not model.is_loading() and len(model) == 302)
# Changes arrive.
told = []
model.connect("items-changed", lambda *change: told.append(change[1:]))
with open(os.path.join(directory, "later.txt"), "w"):
    pass
until("the new name", lambda: len(model) == 303)
assert any(added for _, _, added in told), told
# What cannot be read is no empty directory.
missing = loaded(os.path.join(directory, "missing"))
assert len(missing) == 0
try:
    missing.check()
except GLib.Error as error:
    assert error.matches(Gio.io_error_quark(), Gio.IOErrorEnum.NOT_FOUND), error
else:
    sys.exit("a directory that is missing seems empty")
try:
    Unjank.ListModel.open("x" * 5000, Unjank.ListFlags.NONE)
except GLib.Error as error:
    assert "4095 bytes" in error.message, error
else:
    sys.exit("a path that is too long is taken")
print("good")
