"""ClickHouse's engine (chdb) behind its HTTP interface, as far as the Collector's exporter uses it; no archive here has a server.

Queries and inserts run in the engine as they come. What is read comes back in the format Native, which the engine writes for clients
of an old version only, so that the few tables of texts and numbers that the client asks for are written here.
"""

import json
import re
import struct
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from chdb import session


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def text(value):
    encoded = value.encode()
    return varint(len(encoded)) + encoded


def native(names, kinds, rows):
    """A block as a client of today reads it."""
    # Of the block nothing is said.
    out = b"\x01\x00\x02\xff\xff\xff\xff\x00" + varint(len(names)) + varint(len(rows))
    for at, (name, kind) in enumerate(zip(names, kinds)):
        out += text(name) + text(kind) + b"\x00"
        for row in rows:
            out += text(row[at]) if kind == "String" else struct.pack({"UInt32": "<I"}[kind], row[at])
    return out


class Engine:
    """The engine, which one thread uses at a time. While `is_away` is set nothing can be inserted."""

    def __init__(self):
        self.session = session.Session()
        self.lock = threading.Lock()
        self.is_away = False

    def query(self, query, kind="JSONCompact"):
        with self.lock:
            return self.session.query(query, kind).data()

    def rows(self, query):
        return json.loads(self.query(query))["data"]

    def answer(self, query):
        if not re.match(r"\s*(SELECT|DESC)", query, re.I):
            self.query(query)
            return b""
        found = json.loads(self.query(query))
        names = [column["name"] for column in found["meta"]]
        return native(names, [column["type"] for column in found["meta"]], found["data"])

    def insert(self, query, data):
        if self.is_away:
            raise RuntimeError("the test says that there is no room")
        target, _ = re.subn(r"\s+FORMAT\s+Native\s*$", "", query)
        with tempfile.NamedTemporaryFile(suffix=".native") as file:
            file.write(data)
            file.flush()
            self.query(f"{target} SELECT * FROM file('{file.name}', 'Native')")
        return b""


def serve(engine):
    """Starts a server on the loopback interface, and returns it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def body(self):
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            parts = []
            while length := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(length))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def do_POST(self):
            body = self.body()
            query = parse_qs(urlsplit(self.path).query).get("query")
            try:
                answer = engine.insert(query[0], body) if query else engine.answer(body.decode())
                self.send_response(200)
            except RuntimeError as error:
                answer = str(error).encode()
                self.send_response(500)
                self.send_header("X-ClickHouse-Exception-Code", "243")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
