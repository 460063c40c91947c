"""A receiver of OTLP/HTTP for tests: appends the identifier of each hang to a file, a line each.

receiver.py FILE [PORT] [--refuse STATUS] [--drop-answers]: prints its port. --drop-answers closes each second connection
without an answer after it has taken the records.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

arguments = sys.argv[1:]
taken = open(arguments[0], "a", buffering=1)
port = int(arguments[1]) if len(arguments) > 1 and arguments[1].isdigit() else 0
refuse = int(arguments[arguments.index("--refuse") + 1]) if "--refuse" in arguments else 0
drops = "--drop-answers" in arguments
count = 0


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global count
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        if refuse:
            self.send_response(refuse)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        assert self.path == "/v1/logs", self.path
        assert self.headers["content-type"] == "application/x-protobuf"
        request = ExportLogsServiceRequest.FromString(body)
        count += 1
        lines = []
        for resource in request.resource_logs:
            about = {item.key: item.value.string_value for item in resource.resource.attributes}
            assert about["service.name"] == "unjank-hangs", about
            for scope in resource.scope_logs:
                for record in scope.log_records:
                    values = {item.key: item.value for item in record.attributes}
                    name = record.event_name
                    assert name in ("app.jank", "device.anr"), name
                    lines.append(values["log.record.uid"].string_value + " " + name + "\n")
        taken.write("".join(lines))
        if drops and count % 2 == 0:
            self.close_connection = True
            return
        answer = ExportLogsServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
