"""A Hub on loopback with one repository, and with faults to order. Remembers the requests for files."""

import hashlib
import http.server
import json
import re
import threading
import time

COMMIT = "c" * 40
REPO = "makers/model-GGUF"
NAME = "model-Q4_K_M.gguf"


class Fault:
    """What goes wrong with the first `times` requests for the file.

    status, headers  answered instead
    cut              the connection ends after `cut` bytes of the body
    flip             the byte at this place of the file is another one
    rate             bytes a second
    to               an address to be redirected to
    """

    def __init__(self, times=1, **what):
        self.times, self.what = times, what


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        hub, path = self.server.hub, self.path.split("?")[0]
        if path == f"/api/models/{REPO}/revision/main":
            hub.asked.set()
            hub.answers.wait()
            return self.answer(200, json.dumps({"sha": COMMIT}).encode())
        if path == f"/api/models/{REPO}/tree/{COMMIT}":
            return self.answer(200, json.dumps(hub.tree).encode())
        if path not in (f"/{REPO}/resolve/{COMMIT}/{NAME}", "/elsewhere"):
            return self.answer(404, b'{"error":"there is no such file"}')
        with hub.lock:
            hub.requests.append((path, self.headers.get("Authorization"), self.headers.get("Range")))
            fault = hub.fault if hub.fault is not None and hub.fault.times > 0 else None
            if fault is not None:
                fault.times -= 1
        try:
            self.send_file(hub, fault.what if fault is not None else {})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, hub, fault):
        if "status" in fault:
            return self.answer(fault["status"], b'{"error":"so it was ordered"}', fault.get("headers"))
        if "to" in fault:
            return self.answer(302, b"", {"Location": fault["to"]})
        data, size = hub.data, len(hub.data)
        if "flip" in fault:
            data = data[: fault["flip"]] + bytes([data[fault["flip"]] ^ 1]) + data[fault["flip"] + 1 :]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        first, last = (int(asked[1]), min(int(asked[2] or size), size - 1)) if asked else (0, size - 1)
        body = memoryview(data)[first : last + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"' + hub.digest + '"')
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        self.send_body(hub, body, fault)

    def send_body(self, hub, body, fault):
        rate, cut = fault.get("rate"), fault.get("cut", len(body))
        step = max(1, rate // 50) if rate else 1 << 20
        for at in range(0, min(cut, len(body)), step):
            piece = body[at : min(at + step, cut)]
            self.wfile.write(piece)
            with hub.lock:
                hub.sent += len(piece)
            if rate:
                time.sleep(len(piece) / rate)
        if cut < len(body):
            self.close_connection = True
            self.connection.shutdown(2)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients that are killed are what the tests are about."""


class Hub:
    """Serves `data` as the model; a context."""

    def __init__(self, data):
        self.data, self.digest = data, hashlib.sha256(data).hexdigest()
        self.lock, self.requests, self.sent, self.fault = threading.Lock(), [], 0, None
        self.tree = [self.entry(NAME)]
        # Whether the model's commit was asked for, and whether the answer to that may be sent.
        self.asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.hub = self
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def entry(self, path, size=None):
        size = len(self.data) if size is None else size
        return {
            "type": "file",
            "oid": "0" * 40,
            "size": size,
            "path": path,
            "lfs": {"oid": self.digest, "size": size},
        }

    def forget(self, fault=None):
        with self.lock:
            self.requests, self.sent, self.fault = [], 0, fault

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
