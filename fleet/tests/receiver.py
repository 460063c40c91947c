"""A receiver of OTLP/HTTP for tests: appends the identifier of each hang to a file, a line each, and the sum of hangs in each request of
metrics to FILE.metrics.

receiver.py FILE [PORT] [--refuse STATUS] [--drop-answers]: prints its port. --drop-answers closes each second connection
without an answer after it has taken the records.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

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
        assert self.path in ("/v1/logs", "/v1/metrics"), self.path
        assert self.headers["content-type"] == "application/x-protobuf"
        if self.path == "/v1/metrics":
            self.take_metrics(ExportMetricsServiceRequest.FromString(body))
            self.answer(ExportMetricsServiceResponse())
            return
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
        self.answer(ExportLogsServiceResponse())

    def take_metrics(self, request):
        """Appends the sum of hangs to the file beside that of identifiers."""
        with open(arguments[0] + ".metrics", "a") as out:
            for of_machine in request.resource_metrics:
                about = {item.key: item.value.string_value for item in of_machine.resource.attributes}
                assert about["service.name"] == "unjank-hangs", about
                metrics = {metric.name: metric for scope in of_machine.scope_metrics for metric in scope.metrics}
                assert metrics["unjank_store_whole"].gauge.data_points[0].as_int == 1
                points = []
                if hangs := metrics.get("unjank_hangs_total"):
                    assert hangs.unit == "{hang}" and hangs.sum.is_monotonic, hangs
                    assert hangs.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE, hangs
                    points = hangs.sum.data_points
                    assert all(0 < point.start_time_unix_nano < point.time_unix_nano for point in points)
                out.write(f"{sum(point.as_int for point in points)}\n")

    def answer(self, message):
        answer = message.SerializeToString()
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
