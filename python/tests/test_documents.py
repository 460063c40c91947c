"""Recent documents, applications and MIME types, in sessions of their own."""

import unittest

from session import SessionTest


class RecentsTest(SessionTest):
    def test_documents_are_remembered_found_and_followed(self) -> None:
        self.run_python(
            """
import asyncio, datetime, os, threading, unjank
recents = unjank.Recents()
assert recents.documents() == []
before = datetime.datetime.now(datetime.timezone.utc)
assert recents.add("/home/ann/report.txt", "org.kde.kate", mime_type="text/plain", command="kate %u", group="Work")
assert recents.add("file:///home/ann/picture%20one.png", "org.gnome.eog")
assert recents.add("/home/ann/bad\\udcff name", "org.gnome.eog", private=True)
refused = recents.add(os.environ["TMPDIR"] + "/scratch.txt", "org.kde.kate")
assert not refused and "temporary" in refused.reason, refused
third, second, first = recents.documents()
assert (first.path, first.mime_type, first.application, first.command) == ("/home/ann/report.txt", "text/plain", "org.kde.kate", "kate %u")
assert (second.path, second.uri, second.mime_type) == ("/home/ann/picture one.png", "file:///home/ann/picture%20one.png", "image/png"), second
assert third.path == "/home/ann/bad\\udcff name" and third.is_private and third.count == 1
assert before - datetime.timedelta(seconds=1) <= first.used <= datetime.datetime.now(datetime.timezone.utc) and first.added.tzinfo
assert [d.application for d in recents.documents(application="org.kde.*")] == ["org.kde.kate"]
assert [d.mime_type for d in recents.documents(mime_type="image/*")] == ["image/png"]
assert len(recents.documents(below="/home/ann", most=2)) == 2 and recents.documents(below="/home/bob") == []
assert recents.documents(group="Work") == [first] and recents.documents(most=0) == [third, second, first]
recents.changed()
assert not recents.wait(0)
def add(): unjank.Recents().add("/home/ann/new", "a")
thread = threading.Thread(target=add); thread.start()
assert recents.wait(60); thread.join()
assert recents.documents()[0].path == "/home/ann/new"
while recents.changed(): pass
async def follow():
    asyncio.get_running_loop().call_later(0.01, lambda: threading.Thread(target=lambda: unjank.Recents().add("/home/ann/newer", "a")).start())
    async for documents in recents.follow():
        if documents[0].path == "/home/ann/newer": return True
assert asyncio.run(asyncio.wait_for(follow(), 60))
for wrong, error in (("relative", ValueError), ("/a\\0b", ValueError), (5, TypeError), ("", ValueError)):
    try: recents.add(wrong, "a"); raise SystemExit("not refused: %r" % (wrong,))
    except error: pass
for wrong in (5, b"a"):
    try: recents.add("/a", wrong); raise SystemExit("not refused")
    except TypeError: pass
try: recents.documents(most=-1); raise SystemExit("negative")
except ValueError: pass
recents.close()
try: recents.documents(); raise SystemExit("closed")
except ValueError: pass
"""
        )

    def test_a_list_that_cannot_be_written_is_an_error_with_its_name(self) -> None:
        self.run_python(
            """
import os, unjank
os.makedirs(os.environ["HOME"] + "/.local/state/unjank")
open(os.environ["HOME"] + "/.local/state/unjank/recents", "w").close()
try: unjank.Recents().add("/home/ann/a", "a"); raise SystemExit("written")
except OSError as error: assert error.errno and error.filename == "/home/ann/a", error
"""
        )


class IndexTest(SessionTest):
    def test_applications_and_types_are_found(self) -> None:
        self.run_python(
            """
import os, unjank
from pathlib import Path
share = Path(os.environ["HOME"], ".local/share"); apps = share / "applications"; apps.mkdir(parents=True)
(apps / "org.example.Viewer.desktop").write_text("[Desktop Entry]\\nType=Application\\nName=Viewer\\nName[de]=Betrachter\\nExec=true %U\\nMimeType=text/x-example;image/x-example;\\nCategories=Graphics;Viewer;\\nIcon=viewer\\n")
(apps / "mimeinfo.cache").write_text("[MIME Cache]\\ntext/x-example=org.example.Viewer.desktop;\\n")
os.environ["XDG_DATA_DIRS"] = "/usr/share"
index = unjank.Index()
app = index.app("org.example.Viewer.desktop")
assert app.id == "org.example.Viewer.desktop" and app.path == str(apps / app.id) and app.name == "Viewer"
assert app.command == "true %U" and app.categories == ["Graphics", "Viewer"] and app.mime_types == ["text/x-example", "image/x-example"], app.mime_types
assert app.get("Icon") == "viewer" and app.get("Nothing") is None and app.texts("Nothing") == []
assert unjank.Index("de_DE.UTF-8").app(app.id).name == "Betrachter"
assert index.apps_for_type("text/x-example")[0].id == app.id and index.apps_for_type("x-nobody/x-has-this") == []
assert app.id in {a.id for a in index.apps_in_menu()} & {a.id for a in index.apps_in_category("Viewer")}
assert index.app("not.there.desktop") is None and index.plugin("not.there") is None
assert index.mime_type("a.png") == "image/png" and index.mime_type("nothing") is None and index.mime_type("\\udcff.png") == "image/png"
plugins = index.plugins()
for plugin in plugins[:3]: assert plugin.path and plugin in plugins
os.unlink(app.path)
assert app.id not in {a.id for a in index.apps_for_type("text/x-example")} and app.name == "Viewer"
for call in (lambda: index.app(None), lambda: index.app(5), lambda: app.get(5)):
    try: call(); raise SystemExit("not refused")
    except (TypeError, ValueError): pass
try: app.get("Categories"); raise SystemExit("a list")
except OSError: pass
index.close()
try: index.plugins(); raise SystemExit("closed")
except ValueError: pass
assert app.name == "Viewer"
"""
        )


if __name__ == "__main__":
    unittest.main()
