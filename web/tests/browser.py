"""A folder of pages that is served, and headless Chromium (Debian: chromium, chromium-driver), driven through the
WebDriver protocol alone. For the tests of pages.
"""

import base64
import functools
import http.server
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SECONDS = 240  # of a script
ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}


class Pages(http.server.SimpleHTTPRequestHandler):
    """The files of a folder. `headers` go with every answer; `extra` has more files, by their paths."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript",
                      ".wasm": "application/wasm"}

    def __init__(self, *arguments, headers, extra, **named):
        self.headers_of_all = headers
        self.extra = extra
        super().__init__(*arguments, **named)

    def translate_path(self, path):
        return str(self.extra.get(path) or super().translate_path(path))

    def end_headers(self):
        for name, value in self.headers_of_all.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *arguments):
        pass


class Listener(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # of a tab that was closed
            super().handle_error(request, client_address)


class Server:
    """A handler of requests on a port of its own, until it is closed."""

    def __init__(self, handler, port=0):
        self.server = Listener(("127.0.0.1", port), handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def serve(folder, headers=ISOLATION, extra=None):
    return Server(functools.partial(Pages, directory=str(folder), headers=headers, extra=extra or {}))


class Browser:
    def __init__(self, *arguments):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.driver = subprocess.Popen([shutil.which("chromedriver") or "chromedriver", f"--port={port}"],
                                       stdout=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"
        try:
            self.start_session(arguments)
        except BaseException:
            self.end_driver()
            raise

    def start_session(self, arguments):
        deadline = time.monotonic() + 60
        while True:
            try:
                self.send("GET", "/status")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        options = {"binary": shutil.which("chromium"),
                   "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *arguments]}
        session = self.send("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.url += f"/session/{session['sessionId']}"
        self.send("POST", "/timeouts", {"script": 1000 * SECONDS})

    def send(self, method, path, body=None):
        data = None if method == "GET" or method == "DELETE" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS + 30) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from error

    def call(self, function, *arguments):
        """What the page's asynchronous function gives; its error fails the test."""
        script = (f"const done = arguments[arguments.length - 1]; window.{function}(...arguments[0])"
                  ".then((value) => done({value}), (error) => done({error: `${error.stack}`}));")
        answer = self.send("POST", "/execute/async", {"script": script, "args": [list(arguments)]})
        if "error" in answer:
            raise AssertionError("\n".join([answer["error"], *self.log()]))
        return answer["value"]

    def run(self, script, *arguments):
        return self.send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, *arguments, seconds=120):
        """Until the script gives something that counts as true, which is returned."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if value := self.run(script, *arguments):
                    return value
            except AssertionError:
                pass  # the page is being loaded
            assert time.monotonic() < deadline, "\n".join([script, self.text(), *self.log()])
            time.sleep(0.1)

    def open(self, url):
        self.send("POST", "/url", {"url": url})

    def move_to_new_tab(self):
        """Closes the tab that was open."""
        handle = self.send("POST", "/window/new", {"type": "tab"})["handle"]
        self.send("DELETE", "/window")
        self.send("POST", "/window", {"handle": handle})

    def text(self):
        return self.run("return document.body ? document.body.innerText : ''")

    def log(self):
        return [entry["message"] for entry in self.send("POST", "/se/log", {"type": "browser"})]

    def element(self, selector):
        return "/element/" + self.send("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        for _ in range(10):
            try:
                return self.send("POST", self.element(selector) + "/click")
            except AssertionError as error:
                if "stale element" not in str(error):
                    raise
        raise AssertionError(f"{selector} is drawn again and again")

    def type(self, selector, text):
        self.send("POST", self.element(selector) + "/value", {"text": str(text)})

    def command(self, name, **parameters):
        """Of the protocol of Chromium's developer tools."""
        return self.send("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def picture(self, file):
        pathlib.Path(file).write_bytes(base64.b64decode(self.send("GET", "/screenshot")))

    def close(self):
        try:
            self.send("DELETE", "")
        finally:
            self.end_driver()

    def end_driver(self):
        self.driver.terminate()
        self.driver.wait()
